import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

/** MCP `ClientCapabilities`, as the client sent them. Unknown members are kept: extensions live there. */
export type ClientCapabilities = Readonly<Record<string, unknown>>

/** A request of the server to the client: `elicitation/create`, `sampling/createMessage` or `roots/list`. */
export interface InputRequest {
  readonly method: "elicitation/create" | "sampling/createMessage" | "roots/list"
  readonly params: Readonly<Record<string, unknown>>
}
/** By a key that is unique within the call. */
export type InputRequests = Readonly<Record<string, InputRequest>>
/** The client's results, by the same keys. */
export type InputResponses = Readonly<Record<string, unknown>>

/** The call needs something that the client did not declare; `required` is shaped like ClientCapabilities. */
export class CapabilityMissing extends Schema.TaggedError<CapabilityMissing>()("CapabilityMissing", {
  required: Schema.Record({ key: Schema.String, value: Schema.Unknown })
}) {}

/** The client answered with an error, or cannot be reached any more. */
export class AskFailed extends Schema.TaggedError<AskFailed>()("AskFailed", { reason: Schema.String }) {}

/** RFC 5424 severities, least first (MCP, logging). */
export const logLevels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] as const
export type LogLevel = (typeof logLevels)[number]
export const isLogLevel = (value: unknown): value is LogLevel => (logLevels as ReadonlyArray<unknown>).includes(value)
export const atLeast = (level: LogLevel, minimum: LogLevel): boolean =>
  logLevels.indexOf(level) >= logLevels.indexOf(minimum)

export interface ProgressUpdate {
  /** Grows from update to update; one that does not is dropped. */
  readonly progress: number
  readonly total?: number
  readonly message?: string
}

export interface LogEntry {
  readonly level: LogLevel
  readonly logger?: string
  readonly data: unknown
}

/**
 * One call's line to the client that made it. What cannot be delivered (nobody asked for progress, the connection has
 * no stream) is dropped, except a question: that fails.
 */
export interface Exchange {
  /** Whether the client would take a task for an answer (see `escalate`). */
  readonly offersTask: boolean
  readonly progress: (update: ProgressUpdate) => void
  readonly log: (entry: LogEntry) => void
  /** Ends when every request has its answer. Whatever the era: a request on the stream, or a round trip. */
  readonly ask: (requests: InputRequests) => Effect.Effect<InputResponses, CapabilityMissing | AskFailed>
  /**
   * From here on the call is long: a client that can is given a task to poll instead of an open connection. Where it
   * cannot, `required` says whether to go on all the same.
   */
  readonly escalate: (required: boolean) => Effect.Effect<void, CapabilityMissing>
  /** Ends the client's stream but not the call; the client comes back for the rest. */
  readonly detach: Effect.Effect<void>
}

/** For callers without a line back. */
export const silent: Exchange = {
  offersTask: false,
  progress: () => undefined,
  log: () => undefined,
  ask: () => new AskFailed({ reason: "this caller cannot be asked" }),
  escalate: () => Effect.void,
  detach: Effect.void
}
