import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Stream from "effect/Stream"
import type { BridgeConfig, ConfigEvent } from "../../../src/services/Config.ts"
import { changedFields, Config, decode } from "../../../src/services/Config.ts"

export const defaults: BridgeConfig = Either.getOrThrow(decode("a test", { token: "0123456789abcdef0123456789abcdef" }))

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
