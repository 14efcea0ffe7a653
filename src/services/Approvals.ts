import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

export interface ApprovalRequest {
  readonly callId: string
  readonly tool: string
  /** Name of the client that asks. */
  readonly client: string
  /** The whole action, for a person to judge. */
  readonly prompt: string
}

/** Why a call may not run. `nobody`: no person can be asked here; `timeout`: nobody answered in time. */
export class ApprovalRefused extends Schema.TaggedError<ApprovalRefused>()("ApprovalRefused", {
  tool: Schema.String,
  reason: Schema.Literal("denied", "timeout", "nobody"),
  /** Seconds that a person had, where one was asked. */
  waitedSeconds: Schema.optional(Schema.Number)
}) {}

/**
 * Decides on a call that the host's policy wants a person to see. Ends in time whatever happens, and an interruption
 * takes the question back. No answer is a refusal.
 */
export class Approvals extends Context.Tag("pi-a2a-ext/services/Approvals")<
  Approvals,
  { readonly decide: (request: ApprovalRequest) => Effect.Effect<void, ApprovalRefused> }
>() {}
