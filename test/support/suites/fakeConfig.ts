import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import type { BridgeConfig, ConfigEvent } from "../../../src/services/Config.ts"
import { changedFields, Config } from "../../../src/services/Config.ts"

export const defaults: BridgeConfig = {
  port: 0,
  token: Redacted.make("0123456789abcdef0123456789abcdef"),
  host: "127.0.0.1",
  deny: [],
  denyMCPTools: false,
  expose: "all",
  approval: { timeoutSeconds: 30 },
  audit: { maxBytes: 512 * 1024, generations: 5 },
  rateLimit: { requestsPerSecond: 200, burst: 1000, concurrentCalls: 256 },
  allowedOrigins: [],
  allowedHosts: [],
  maxBodyBytes: 1024 * 1024,
  maxResultBytes: 2 * 1024 * 1024
}

/** Settings in memory; `edit` is what an edit of the file does. */
export const make = (overrides: Partial<BridgeConfig> = {}) =>
  Effect.gen(function* () {
    let current: BridgeConfig = { ...defaults, ...overrides }
    const events = yield* PubSub.unbounded<ConfigEvent>()
    const edit = (change: Partial<BridgeConfig>) =>
      Effect.suspend(() => {
        const next = { ...current, ...change }
        const changed = changedFields(current, next)
        current = next
        return Effect.asVoid(PubSub.publish(events, { _tag: "Applied", config: next, changed }))
      })
    return {
      /** Changes the settings without telling anybody. */
      assign: (change: Partial<BridgeConfig>) =>
        Effect.sync(() => {
          current = { ...current, ...change }
        }),
      edit,
      layer: Layer.succeed(
        Config,
        Config.of({
          file: "/nowhere/a2a-bridge.json",
          current: Effect.sync(() => current),
          changes: Stream.fromPubSub(events),
          setToken: (token) =>
            Effect.zipRight(
              edit({ token }),
              Effect.sync(() => current)
            )
        })
      )
    }
  })
