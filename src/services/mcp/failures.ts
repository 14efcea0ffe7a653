import * as Schema from "effect/Schema"
import type { SessionLimitReached, SessionNotFound } from "../SessionStore.ts"

/** The body is not JSON. */
export class NotJson extends Schema.TaggedError<NotJson>()("NotJson", { detail: Schema.String }) {}

/** JSON, but not a message that this protocol has. */
export class NotAMessage extends Schema.TaggedError<NotAMessage>()("NotAMessage", { reason: Schema.String }) {}

/** A batch in a session whose revision has none. */
export class BatchNotSupported extends Schema.TaggedError<BatchNotSupported>()("BatchNotSupported", {
  protocolVersion: Schema.String
}) {}

/** Anything but `initialize` without `Mcp-Session-Id`. */
export class SessionRequired extends Schema.TaggedError<SessionRequired>()("SessionRequired", {}) {}

/** `MCP-Protocol-Version` names a revision that is not spoken here. */
export class ProtocolVersionUnsupported extends Schema.TaggedError<ProtocolVersionUnsupported>()(
  "ProtocolVersionUnsupported",
  { requested: Schema.String, supported: Schema.Array(Schema.String) }
) {}

export class MethodNotFound extends Schema.TaggedError<MethodNotFound>()("MethodNotFound", { method: Schema.String }) {}

/** The method is known, its parameters are not of its form. */
export class ParamsInvalid extends Schema.TaggedError<ParamsInvalid>()("ParamsInvalid", {
  method: Schema.String,
  detail: Schema.String
}) {}

/** A fault of ours. Says nothing to the caller; the log has the cause under `reference`. */
export class InternalError extends Schema.TaggedError<InternalError>()("InternalError", { reference: Schema.String }) {}

export type McpFailure =
  | NotJson
  | NotAMessage
  | BatchNotSupported
  | SessionRequired
  | SessionNotFound
  | SessionLimitReached
  | ProtocolVersionUnsupported
  | MethodNotFound
  | ParamsInvalid
  | InternalError
