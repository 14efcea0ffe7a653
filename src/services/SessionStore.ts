import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type { PrincipalId } from "./Auth.ts"

/** Visible ASCII from a cryptographic source (MCP 2025-11-25, transports, session management). */
export const SessionId = Schema.UUID.pipe(Schema.brand("SessionId"))
export type SessionId = typeof SessionId.Type

export interface Session {
  readonly id: SessionId
  readonly owner: PrincipalId
  /** Negotiated in `initialize`; rules the session to its end. */
  readonly protocolVersion: string
  /** `clientInfo.name/version` as the client gave them, for people to read. */
  readonly client: string
}

/** Unknown, expired, closed, or another principal's: the four are told apart by nobody. */
export class SessionNotFound extends Schema.TaggedError<SessionNotFound>()("SessionNotFound", {
  sessionId: Schema.String
}) {}

/** Every place is taken by a session with a call in flight. */
export class SessionLimitReached extends Schema.TaggedError<SessionLimitReached>()("SessionLimitReached", {
  limit: Schema.Number
}) {}

/** Limits of the store, in counts and milliseconds. */
export interface SessionLimits {
  readonly capacity: number
  readonly idleMillis: number
}
export const defaultLimits: SessionLimits = { capacity: 64, idleMillis: 24 * 60 * 60 * 1000 }

/** What the rules below need to know of a session. */
export interface Usage {
  /** Milliseconds since the epoch of the last request. */
  readonly lastUsed: number
  /** Calls in flight. */
  readonly inUse: number
}

/** A session in use never expires, however long its call takes. */
export const expired = (usage: Usage, now: number, limits: SessionLimits): boolean =>
  usage.inUse === 0 && now - usage.lastUsed > limits.idleMillis

/** Key of the least recently used session that no call is using, or `undefined`. */
export const victim = <K>(sessions: Iterable<readonly [K, Usage]>): K | undefined => {
  let found: readonly [K, Usage] | undefined
  for (const entry of sessions) {
    if (entry[1].inUse === 0 && (found === undefined || entry[1].lastUsed < found[1].lastUsed)) found = entry
  }
  return found?.[0]
}

/**
 * Legacy MCP sessions (2025 revisions), in the memory of one process.
 * Does not know of requests, streams or HTTP.
 */
export class SessionStore extends Context.Tag("pi-a2a-ext/services/SessionStore")<
  SessionStore,
  {
    /** Makes room by dropping expired sessions, then the least recently used idle one. */
    readonly open: (
      session: Pick<Session, "owner" | "protocolVersion" | "client">
    ) => Effect.Effect<Session, SessionLimitReached>
    /** Restarts the idle clock. Another principal's session is reported as absent. */
    readonly touch: (id: string, owner: PrincipalId) => Effect.Effect<Session, SessionNotFound>
    /** As touch, and holds the session against expiry and eviction until the scope closes. */
    readonly use: (id: string, owner: PrincipalId) => Effect.Effect<Session, SessionNotFound, Scope.Scope>
    readonly close: (id: string, owner: PrincipalId) => Effect.Effect<void, SessionNotFound>
    /** Ends every session of a principal. */
    readonly closeOwner: (owner: PrincipalId) => Effect.Effect<void>
    /** Sessions that ended, for whatever reason, from now on. */
    readonly closed: Stream.Stream<SessionId>
    /** Live sessions. */
    readonly size: Effect.Effect<number>
  }
>() {}
