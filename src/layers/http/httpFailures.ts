import * as Schema from "effect/Schema"

/** DNS rebinding: on a loopback bind the Host header must name the loopback. */
export class HostRejected extends Schema.TaggedError<HostRejected>()("HostRejected", {}) {}

/** A web page of an origin that is not allowed. */
export class OriginRejected extends Schema.TaggedError<OriginRejected>()("OriginRejected", {}) {}

export class NotFound extends Schema.TaggedError<NotFound>()("NotFound", { path: Schema.String }) {}

export class MethodNotAllowed extends Schema.TaggedError<MethodNotAllowed>()("MethodNotAllowed", {
  method: Schema.String,
  allow: Schema.Array(Schema.String)
}) {}

export class BodyTooLarge extends Schema.TaggedError<BodyTooLarge>()("BodyTooLarge", { limit: Schema.Number }) {}

export class BodyTooSlow extends Schema.TaggedError<BodyTooSlow>()("BodyTooSlow", { seconds: Schema.Number }) {}

/** The connection ended inside the body. */
export class BodyBroken extends Schema.TaggedError<BodyBroken>()("BodyBroken", {}) {}

/** Something behind the route does not work now. */
export class Unavailable extends Schema.TaggedError<Unavailable>()("Unavailable", { what: Schema.String }) {}

export type HttpFailure =
  | HostRejected
  | OriginRejected
  | NotFound
  | MethodNotAllowed
  | BodyTooLarge
  | BodyTooSlow
  | BodyBroken
  | Unavailable
