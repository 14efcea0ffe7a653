import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { BridgeConfig } from "../Config.ts"

interface Bucket {
  tokens: number
  /** Milliseconds since the epoch. */
  filledAt: number
}

type Limit = BridgeConfig["rateLimit"]

/** Tokens at `now`: refilled at the limit's pace, never more than its burst. */
export const refill = (bucket: Bucket | undefined, limit: Limit, now: number): number =>
  bucket === undefined
    ? limit.burst
    : Math.min(limit.burst, bucket.tokens + (Math.max(0, now - bucket.filledAt) / 1000) * limit.requestsPerSecond)

/** Principals whose buckets are kept: a principal exists only with a valid token, so these are few. */
const maxBuckets = 1024

/** A token bucket for each principal. */
export const make = () => {
  const buckets = new Map<string, Bucket>()
  return {
    /** 0 where the request may go on, else the whole seconds until one may. */
    admit: (principal: string, limit: Limit): Effect.Effect<number> =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        if (limit.requestsPerSecond === 0) return 0
        const tokens = refill(buckets.get(principal), limit, now)
        if (buckets.size >= maxBuckets && !buckets.has(principal)) buckets.clear()
        buckets.set(principal, { tokens: tokens >= 1 ? tokens - 1 : tokens, filledAt: now })
        return tokens >= 1 ? 0 : Math.ceil((1 - tokens) / limit.requestsPerSecond)
      })
  }
}
