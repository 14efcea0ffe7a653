import type { ProgressUpdate } from "../Exchange.ts"

/** The least number above `x` that a JSON parser tells from it. */
const nextAfter = (x: number): number => {
  const step = Math.max(Math.abs(x) * Number.EPSILON, Number.MIN_VALUE)
  return x + step > x ? x + step : x + step * 2
}

/** Longest silence of a call that asked for progress: clients count it as dead after 60 seconds, some after 20. */
const silenceMillis = 12_000

/**
 * The progress of one call, as it goes out: always growing (MCP, progress), and with a sign of life where the tool says
 * nothing. Signs of life take no room: whatever the tool says next still goes out.
 */
export class Progress {
  private own = -Infinity
  private sent = -Infinity
  private quietSince: number

  constructor(now: number) {
    this.quietSince = now
  }

  /** What to send for a word of the tool; nothing where its number does not grow. */
  said(update: ProgressUpdate, now: number): ProgressUpdate | undefined {
    if (!(update.progress > this.own)) return undefined
    this.own = update.progress
    this.sent = update.progress > this.sent ? update.progress : nextAfter(this.sent)
    this.quietSince = now
    return { ...update, progress: this.sent }
  }

  /** A sign of life, where one is due. */
  beat(now: number): ProgressUpdate | undefined {
    if (now - this.quietSince < silenceMillis) return undefined
    this.sent = this.sent === -Infinity ? 0 : nextAfter(this.sent)
    this.quietSince = now
    return { progress: this.sent }
  }
}
