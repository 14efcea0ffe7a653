import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type { McpFailure } from "./failures.ts"
import { internalError } from "./internalError.ts"

/** How a request ended. `Silent` where it was cancelled, and so gets no answer. */
export type Settled<A> =
  | { readonly _tag: "Value"; readonly value: A }
  | { readonly _tag: "Error"; readonly error: McpFailure }
  | { readonly _tag: "Silent" }

/** A fault of ours becomes an opaque failure, with its cause in the log. */
export const settleCause = (cause: Cause.Cause<McpFailure>, where: string): Effect.Effect<Settled<never>> => {
  const failure = Cause.failureOption(cause)
  if (failure._tag === "Some") return Effect.succeed({ _tag: "Error", error: failure.value })
  if (Cause.isInterruptedOnly(cause)) return Effect.succeed({ _tag: "Silent" })
  return Effect.map(internalError(cause, where), (error) => ({ _tag: "Error", error }))
}

export const settleExit = <A>(exit: Exit.Exit<A, McpFailure>, where: string): Effect.Effect<Settled<A>> =>
  exit._tag === "Success" ? Effect.succeed({ _tag: "Value", value: exit.value }) : settleCause(exit.cause, where)

export const settle = <A, E extends McpFailure, R>(
  effect: Effect.Effect<A, E, R>,
  where: string
): Effect.Effect<Settled<A>, never, R> =>
  effect.pipe(
    Effect.map((value): Settled<A> => ({ _tag: "Value", value })),
    Effect.catchAllCause((cause): Effect.Effect<Settled<A>> => settleCause(cause, where))
  )
