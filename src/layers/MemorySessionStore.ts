import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Stream from "effect/Stream"
import type { PrincipalId } from "../services/Auth.ts"
import type { Session, SessionLimits, Usage } from "../services/SessionStore.ts"
import {
  defaultLimits,
  expired,
  SessionId,
  SessionLimitReached,
  SessionNotFound,
  SessionStore,
  victim
} from "../services/SessionStore.ts"

interface Entry extends Session, Usage {
  lastUsed: number
  inUse: number
}

const make = (limits: SessionLimits) =>
  Effect.gen(function* () {
    const entries = new Map<string, Entry>()
    const closed = yield* PubSub.unbounded<SessionId>()

    const drop = (entry: Entry) => {
      entries.delete(entry.id)
      closed.unsafeOffer(entry.id)
    }
    const sweep = (now: number) => {
      for (const entry of entries.values()) if (expired(entry, now, limits)) drop(entry)
    }
    const find = (id: string, owner: PrincipalId, now: number): Entry | undefined => {
      const entry = entries.get(id)
      if (entry === undefined || entry.owner !== owner) return undefined
      if (!expired(entry, now, limits)) return entry
      drop(entry)
      return undefined
    }
    const touch = Effect.fnUntraced(function* (id: string, owner: PrincipalId) {
      const now = yield* Clock.currentTimeMillis
      const entry = find(id, owner, now)
      if (entry === undefined) return yield* new SessionNotFound({ sessionId: id.slice(0, 64) })
      entry.lastUsed = now
      return entry
    })

    return SessionStore.of({
      open: Effect.fnUntraced(function* (session) {
        const now = yield* Clock.currentTimeMillis
        sweep(now)
        if (entries.size >= limits.capacity) {
          const key = victim(entries)
          const entry = key === undefined ? undefined : entries.get(key)
          if (entry === undefined) return yield* new SessionLimitReached({ limit: limits.capacity })
          drop(entry)
        }
        const entry: Entry = { ...session, id: SessionId.make(crypto.randomUUID()), lastUsed: now, inUse: 0 }
        entries.set(entry.id, entry)
        return entry
      }),
      touch,
      use: (id, owner) =>
        Effect.acquireRelease(
          Effect.map(touch(id, owner), (entry) => {
            entry.inUse++
            return entry
          }),
          (entry) =>
            Effect.map(Clock.currentTimeMillis, (now) => {
              entry.inUse--
              // The idle clock runs from the end of the last call, not from its start.
              entry.lastUsed = now
            })
        ),
      close: Effect.fnUntraced(function* (id, owner) {
        const entry = yield* touch(id, owner)
        drop(entry)
      }),
      closeOwner: (owner) =>
        Effect.sync(() => {
          for (const entry of entries.values()) if (entry.owner === owner) drop(entry)
        }),
      closed: Stream.fromPubSub(closed),
      size: Effect.map(Clock.currentTimeMillis, (now) => {
        sweep(now)
        return entries.size
      })
    })
  })

export const layerWith = (limits: SessionLimits) => Layer.effect(SessionStore, make(limits))

export const layer = layerWith(defaultLimits)
