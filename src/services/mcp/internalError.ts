import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import { InternalError } from "./failures.ts"

/** Logs a fault of ours under a reference, and leaves the caller with nothing but that reference. */
export const internalError = Effect.fnUntraced(function* (cause: Cause.Cause<unknown>, where: string) {
  const reference = crypto.randomUUID().slice(0, 8)
  yield* Effect.logError("internal error").pipe(Effect.annotateLogs({ reference, where, fault: Cause.pretty(cause) }))
  return new InternalError({ reference })
})
