import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { ApprovalRefused, Approvals } from "../services/Approvals.ts"
import { Config } from "../services/Config.ts"
import type { OmpHost } from "../services/OmpHost.ts"

const approve = "Approve"
const deny = "Deny"

/** Asks the person at the host, or the program behind its rpc mode, in the host's own dialog. */
const make = (host: OmpHost) =>
  Effect.gen(function* () {
    const config = yield* Config
    // A terminal shows one dialog at a time: a second one would take the place of the first.
    const screen = yield* Effect.makeSemaphore(1)

    return Approvals.of({
      decide: Effect.fnUntraced(function* (request) {
        const { approval } = yield* config.current
        const limit = Duration.seconds(approval.timeoutSeconds)
        const title = `Remote call from ${request.client}\n${request.prompt}`
        const ask = Effect.tryPromise((signal) =>
          host.choose(title, [approve, deny], { signal, timeoutMs: Duration.toMillis(limit) })
        ).pipe(
          // A dialog that breaks is an answer that never came.
          Effect.catchAll(({ error }) =>
            Effect.as(Effect.logWarning("approval dialog failed", String(error)), undefined)
          )
        )
        const answer = yield* screen.withPermits(1)(ask).pipe(Effect.timeoutOption(limit))
        if (Option.isSome(answer) && answer.value === approve) return
        return yield* new ApprovalRefused({
          tool: request.tool,
          reason: Option.isSome(answer) && answer.value === deny ? "denied" : "timeout",
          waitedSeconds: approval.timeoutSeconds
        })
      })
    })
  })

export const layer = (host: OmpHost) => Layer.effect(Approvals, make(host))
