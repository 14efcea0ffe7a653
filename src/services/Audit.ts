import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

/** One remote call, as it stands in the log from its start. */
export interface AuditCall {
  /** Pairs the two records of a call. */
  readonly id: string
  /** Session id, or `-` where the era has none. */
  readonly sid: string
  readonly client: string
  readonly tool: string
  /** Raw arguments; what is written is their summary (redaction.ts). */
  readonly args: unknown
  /** Whether the call may change something: then its records are on disk before it is answered. */
  readonly durable: boolean
}

/** `refused`: no tool ran, `reason` is the error's tag. `cancelled`: the caller or a shutdown ended it. */
export type AuditOutcome =
  | { readonly _tag: "Ran"; readonly isError: boolean }
  | { readonly _tag: "Refused"; readonly reason: string }
  | { readonly _tag: "Cancelled" }
  | { readonly _tag: "Failed" }

/** A start without a done is a call that began and never ended: the process died under it. */
export interface AuditStart {
  readonly ts: string
  readonly id: string
  readonly sid: string
  readonly phase: "start"
  readonly client: string
  readonly tool: string
  readonly args: unknown
}
export interface AuditDone extends Omit<AuditStart, "phase"> {
  readonly phase: "done"
  readonly isError: boolean
  readonly durationMs: number
  readonly outcome: "ran" | "refused" | "cancelled" | "failed"
  /** Only where `outcome` is `refused`. */
  readonly reason?: string
}
export type AuditRecord = AuditStart | AuditDone

/** The two records of a call share everything that does not depend on how it went. */
export const startRecord = (call: AuditCall, args: unknown, ts: string): AuditStart => ({
  ts,
  id: call.id,
  sid: call.sid,
  phase: "start",
  client: call.client,
  tool: call.tool,
  args
})

export const doneRecord = (start: AuditStart, outcome: AuditOutcome, ts: string, durationMs: number): AuditDone => ({
  ...start,
  ts,
  phase: "done",
  isError: outcome._tag === "Ran" ? outcome.isError : true,
  durationMs,
  outcome:
    outcome._tag === "Ran"
      ? "ran"
      : outcome._tag === "Refused"
        ? "refused"
        : outcome._tag === "Cancelled"
          ? "cancelled"
          : "failed",
  ...(outcome._tag === "Refused" ? { reason: outcome.reason } : {})
})

/**
 * A bracket round every remote call. Never fails: a disk that does not take a record costs the record, is reported
 * once, and the call goes on.
 */
export class Audit extends Context.Tag("pi-a2a-ext/services/Audit")<
  Audit,
  {
    /** Writes the start; the effect it returns writes the done. */
    readonly start: (call: AuditCall) => Effect.Effect<(outcome: AuditOutcome) => Effect.Effect<void>>
    /** Everything written so far is on disk when it ends. */
    readonly flush: Effect.Effect<void>
  }
>() {}
