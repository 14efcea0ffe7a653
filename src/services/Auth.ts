import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import type { ConfigInvalid, ConfigUnavailable, TokenPinned } from "./Config.ts"

export const PrincipalId = Schema.NonEmptyString.pipe(Schema.brand("PrincipalId"))
export type PrincipalId = typeof PrincipalId.Type

/** Who calls. The id belongs to one credential: a rotated token is another principal. */
export interface Principal {
  readonly id: PrincipalId
  readonly name: string
}

/** No usable bearer. `reason` says which of the three, never anything about the expected token. */
export class Unauthorized extends Schema.TaggedError<Unauthorized>()("Unauthorized", {
  reason: Schema.Literal("missing", "malformed", "mismatch")
}) {}

/**
 * The credentials of an `Authorization` header: RFC 6750 §2.1, the scheme in any case (RFC 9110 §11.1).
 * `undefined` where the header is not one bearer token.
 */
export const parseBearer = (header: string): string | undefined =>
  /^bearer +([A-Za-z0-9._~+/-]+=*) *$/i.exec(header)?.[1]

export class Auth extends Context.Tag("pi-a2a-ext/services/Auth")<
  Auth,
  {
    /** Takes the header's raw value. Compares in constant time; parses and changes nothing else. */
    readonly authenticate: (authorization: string | undefined) => Effect.Effect<Principal, Unauthorized>
    /** A fresh token, in force at once; the old one and everything opened with it is dead. */
    readonly rotate: Effect.Effect<Redacted.Redacted, ConfigInvalid | ConfigUnavailable | TokenPinned>
    /** Principals that are no longer valid, as they cease to be. */
    readonly revocations: Stream.Stream<PrincipalId>
    /** Attempts refused since start. */
    readonly rejected: Effect.Effect<number>
  }
>() {}
