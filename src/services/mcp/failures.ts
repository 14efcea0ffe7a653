import * as Schema from "effect/Schema"
import type { CapabilityMissing } from "../Exchange.ts"
import type { ResourceNotFound } from "../Resources.ts"
import type { SessionLimitReached, SessionNotFound } from "../SessionStore.ts"

/** The body is not JSON. */
export class NotJson extends Schema.TaggedError<NotJson>()("NotJson", { detail: Schema.String }) {}

/** An integer that a parser would round: what was meant cannot be kept, and nothing else is put in its place. */
export class IntegerTooLarge extends Schema.TaggedError<IntegerTooLarge>()("IntegerTooLarge", {
  integer: Schema.String
}) {}

/** Arrays and objects in each other, more levels than a message may have. */
export class NestedTooDeep extends Schema.TaggedError<NestedTooDeep>()("NestedTooDeep", { limit: Schema.Number }) {}

/** JSON, but not a message that this protocol has. */
export class NotAMessage extends Schema.TaggedError<NotAMessage>()("NotAMessage", { reason: Schema.String }) {}

/** A batch in a session whose revision has none. */
export class BatchNotSupported extends Schema.TaggedError<BatchNotSupported>()("BatchNotSupported", {
  protocolVersion: Schema.String
}) {}

/** Anything but `initialize` without `Mcp-Session-Id`. */
export class SessionRequired extends Schema.TaggedError<SessionRequired>()("SessionRequired", {}) {}

/** `MCP-Protocol-Version` names a revision that is not spoken here (2025 revisions). */
export class ProtocolVersionUnsupported extends Schema.TaggedError<ProtocolVersionUnsupported>()(
  "ProtocolVersionUnsupported",
  { requested: Schema.String, supported: Schema.Array(Schema.String) }
) {}

/** `_meta` names a revision that is not spoken here (2026-07-28, versioning). */
export class UnsupportedProtocolVersion extends Schema.TaggedError<UnsupportedProtocolVersion>()(
  "UnsupportedProtocolVersion",
  { requested: Schema.String, supported: Schema.Array(Schema.String) }
) {}

/** A header that must repeat the body does not (2026-07-28, Streamable HTTP, server validation). */
export class HeaderMismatch extends Schema.TaggedError<HeaderMismatch>()("HeaderMismatch", {
  header: Schema.String,
  detail: Schema.String
}) {}

/** `_meta` lacks what every request of 2026-07-28 must carry. */
export class MetaInvalid extends Schema.TaggedError<MetaInvalid>()("MetaInvalid", { detail: Schema.String }) {}

export class MethodNotFound extends Schema.TaggedError<MethodNotFound>()("MethodNotFound", { method: Schema.String }) {}

/** The same, in 2026-07-28, where it is a 404. */
export class MethodNotImplemented extends Schema.TaggedError<MethodNotImplemented>()("MethodNotImplemented", {
  method: Schema.String
}) {}

/** The method is known, its parameters are not of its form. */
export class ParamsInvalid extends Schema.TaggedError<ParamsInvalid>()("ParamsInvalid", {
  method: Schema.String,
  detail: Schema.String
}) {}

/** No such task, or another principal's. */
export class TaskNotFound extends Schema.TaggedError<TaskNotFound>()("TaskNotFound", {}) {}

/** `requestState` is not one that was given out for this request and this principal, or its time is over. */
export class StateRejected extends Schema.TaggedError<StateRejected>()("StateRejected", { reason: Schema.String }) {}

/** As ResourceNotFound, in 2026-07-28, which forbids the code that the 2025 revisions have for it. */
export class ResourceUnknown extends Schema.TaggedError<ResourceUnknown>()("ResourceUnknown", {
  uri: Schema.String
}) {}

/** More requests than this principal may send. */
export class RateLimited extends Schema.TaggedError<RateLimited>()("RateLimited", {
  /** Whole seconds after which the next one is let through. */
  retryAfter: Schema.Number
}) {}

/** The host does not allow it. `detail` says why, and what to do. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", { detail: Schema.String }) {}

/** This principal has as many calls running as it may have. */
export class TooManyCalls extends Schema.TaggedError<TooManyCalls>()("TooManyCalls", { limit: Schema.Number }) {}

/** The call broke off without a result. */
export class CallFailed extends Schema.TaggedError<CallFailed>()("CallFailed", { detail: Schema.String }) {}

/** A fault of ours. Says nothing to the caller; the log has the cause under `reference`. */
export class InternalError extends Schema.TaggedError<InternalError>()("InternalError", { reference: Schema.String }) {}

export type McpFailure =
  | NotJson
  | IntegerTooLarge
  | NestedTooDeep
  | NotAMessage
  | BatchNotSupported
  | SessionRequired
  | SessionNotFound
  | SessionLimitReached
  | ProtocolVersionUnsupported
  | UnsupportedProtocolVersion
  | HeaderMismatch
  | MetaInvalid
  | MethodNotFound
  | MethodNotImplemented
  | ParamsInvalid
  | TaskNotFound
  | StateRejected
  | ResourceNotFound
  | ResourceUnknown
  | CapabilityMissing
  | RateLimited
  | TooManyCalls
  | Refused
  | CallFailed
  | InternalError
