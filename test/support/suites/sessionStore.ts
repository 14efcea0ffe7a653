import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as FastCheck from "effect/FastCheck"
import type * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import { PrincipalId } from "../../../src/services/Auth.ts"
import type { SessionLimits } from "../../../src/services/SessionStore.ts"
import { SessionStore } from "../../../src/services/SessionStore.ts"

const alice = PrincipalId.make("alice")
const bob = PrincipalId.make("bob")
const limits: SessionLimits = { capacity: 3, idleMillis: 1000 }
const opening = (owner: PrincipalId) => ({ owner, protocolVersion: "2025-11-25", client: "test/1" })

const Owner = FastCheck.constantFrom(alice, bob)
const Target = FastCheck.nat(7)
const Command = FastCheck.oneof(
  { weight: 3, arbitrary: FastCheck.record({ kind: FastCheck.constant("open" as const), owner: Owner }) },
  {
    weight: 4,
    arbitrary: FastCheck.record({ kind: FastCheck.constant("touch" as const), owner: Owner, target: Target })
  },
  {
    weight: 3,
    arbitrary: FastCheck.record({ kind: FastCheck.constant("use" as const), owner: Owner, target: Target })
  },
  { weight: 2, arbitrary: FastCheck.record({ kind: FastCheck.constant("release" as const), target: Target }) },
  {
    weight: 1,
    arbitrary: FastCheck.record({ kind: FastCheck.constant("close" as const), owner: Owner, target: Target })
  },
  { weight: 1, arbitrary: FastCheck.record({ kind: FastCheck.constant("closeOwner" as const), owner: Owner }) },
  { weight: 1, arbitrary: FastCheck.record({ kind: FastCheck.constant("size" as const) }) },
  {
    weight: 3,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("wait" as const),
      millis: FastCheck.constantFrom(100, 400, 900, 1100)
    })
  }
)

/** A TestClock costs ten milliseconds a step, too much for thousands of them. Nothing here sleeps. */
const manual = (time: { readonly now: number }): Clock.Clock => ({
  [Clock.ClockTypeId]: Clock.ClockTypeId,
  unsafeCurrentTimeMillis: () => time.now,
  unsafeCurrentTimeNanos: () => BigInt(time.now) * 1_000_000n,
  currentTimeMillis: Effect.sync(() => time.now),
  currentTimeNanos: Effect.sync(() => BigInt(time.now) * 1_000_000n),
  sleep: () => Effect.never
})
/** Whatever other fibers can do now, they have done. */
const settled = Effect.repeatN(Effect.yieldNow(), 20)

/** What the port promises, in the plainest form. Every command has its own millisecond, so that no order is a tie. */
interface Known {
  readonly id: string
  readonly owner: PrincipalId
  lastUsed: number
  inUse: number
  live: boolean
}

export const suite = (name: string, layerWith: (limits: SessionLimits) => Layer.Layer<SessionStore>) => {
  const run = <A, E, R>(effect: Effect.Effect<A, E, R>, used: SessionLimits = limits) =>
    Effect.provide(effect, layerWith(used))

  describe(`${name} as a SessionStore`, () => {
    it.effect.prop(
      "differs from the reference model: idle time, least recently used, in use, owners, limit",
      [FastCheck.array(Command, { minLength: 5, maxLength: 60 })],
      ([commands]) => {
        const time = { now: 0 }
        return Effect.gen(function* () {
          const store = yield* SessionStore
          const known: Array<Known> = []
          const held: Array<{ readonly session: Known; readonly scope: Scope.CloseableScope }> = []
          const closed: Array<string> = []
          yield* store.closed.pipe(
            Stream.runForEach((id) => Effect.sync(() => closed.push(id))),
            Effect.forkScoped
          )
          yield* settled

          const expire = (now: number) => {
            for (const one of known) if (one.inUse === 0 && now - one.lastUsed > limits.idleMillis) one.live = false
          }
          // The last few: among them are the live ones.
          const pick = (target: number) => known[known.length - 1 - (target % Math.max(1, Math.min(known.length, 5)))]
          const found = (target: number, owner: PrincipalId) => {
            const one = pick(target)
            return one?.live === true && one.owner === owner ? one : undefined
          }
          const idOf = (target: number) => pick(target)?.id ?? "00000000-0000-4000-8000-000000000000"

          for (const command of commands) {
            const now = ++time.now
            expire(now)
            switch (command.kind) {
              case "wait":
                time.now += command.millis
                break
              case "size":
                assert.strictEqual(yield* store.size, known.filter((one) => one.live).length)
                break
              case "open": {
                const live = known.filter((one) => one.live)
                const idle = live.filter((one) => one.inUse === 0).sort((a, b) => a.lastUsed - b.lastUsed)
                const opened = yield* Effect.either(store.open(opening(command.owner)))
                if (live.length >= limits.capacity) {
                  if (idle[0] === undefined) {
                    assert.deepStrictEqual(
                      Either.isLeft(opened) ? [opened.left._tag, opened.left.limit] : opened.right,
                      ["SessionLimitReached", limits.capacity]
                    )
                    break
                  }
                  idle[0].live = false
                }
                const session = Either.getOrThrow(opened)
                assert.deepInclude(session, opening(command.owner))
                assert.isFalse(known.some((one) => one.id === session.id))
                known.push({ id: session.id, owner: command.owner, lastUsed: now, inUse: 0, live: true })
                break
              }
              case "touch": {
                const expected = found(command.target, command.owner)
                const touched = yield* Effect.either(store.touch(idOf(command.target), command.owner))
                assert.strictEqual(Either.isRight(touched), expected !== undefined)
                if (expected !== undefined) expected.lastUsed = now
                break
              }
              case "use": {
                const expected = found(command.target, command.owner)
                const scope = yield* Scope.make()
                const used = yield* Effect.either(Scope.extend(store.use(idOf(command.target), command.owner), scope))
                assert.strictEqual(Either.isRight(used), expected !== undefined)
                if (expected === undefined) break
                expected.lastUsed = now
                expected.inUse++
                held.push({ session: expected, scope })
                break
              }
              case "release": {
                const [one] = held.splice(held.length === 0 ? 0 : command.target % held.length, 1)
                if (one === undefined) break
                yield* Scope.close(one.scope, Exit.void)
                one.session.inUse--
                one.session.lastUsed = now
                break
              }
              case "close": {
                const expected = found(command.target, command.owner)
                const ended = yield* Effect.either(store.close(idOf(command.target), command.owner))
                assert.strictEqual(Either.isRight(ended), expected !== undefined)
                if (expected !== undefined) expected.live = false
                break
              }
              case "closeOwner":
                yield* store.closeOwner(command.owner)
                for (const one of known) if (one.owner === command.owner) one.live = false
                break
            }
          }
          expire(time.now)
          assert.strictEqual(yield* store.size, known.filter((one) => one.live).length)
          yield* settled
          assert.deepStrictEqual(
            [...closed].sort(),
            known
              .filter((one) => !one.live)
              .map((one) => one.id)
              .sort()
          )
        }).pipe(Effect.scoped, Effect.withClock(manual(time)), run)
      },
      { timeout: 30_000, fastCheck: { numRuns: 200 } }
    )

    it.effect("drops a session with a call in flight for a new one, or lets in one too many", () =>
      Effect.gen(function* () {
        const store = yield* SessionStore
        const [busy, old, young] = [
          yield* store.open(opening(alice)),
          yield* store.open(opening(alice)),
          yield* store.open(opening(bob))
        ]
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* store.use(busy.id, alice)
            yield* TestClock.adjust(1)
            yield* store.touch(old.id, alice)
            yield* TestClock.adjust(1)
            yield* store.touch(young.id, bob)
            const fresh = yield* store.open(opening(alice))
            yield* Effect.flip(store.touch(old.id, alice))
            yield* store.use(young.id, bob)
            yield* store.use(fresh.id, alice)
            assert.deepInclude(yield* Effect.flip(store.open(opening(bob))), { _tag: "SessionLimitReached", limit: 3 })
            yield* store.touch(busy.id, alice)
          })
        )
        yield* store.open(opening(bob))
        assert.strictEqual(yield* store.size, 3)
      }).pipe(run)
    )

    it.effect("does not restart the idle clock at a touch", () =>
      Effect.gen(function* () {
        const store = yield* SessionStore
        const { id } = yield* store.open(opening(alice))
        yield* TestClock.adjust(600)
        yield* store.touch(id, alice)
        yield* TestClock.adjust(600)
        yield* store.touch(id, alice)
        yield* TestClock.adjust(1001)
        assert.strictEqual((yield* Effect.flip(store.touch(id, alice)))._tag, "SessionNotFound")
      }).pipe(run)
    )

    it.effect("runs the idle clock from a call's start, so that a long call ends its session", () =>
      Effect.gen(function* () {
        const store = yield* SessionStore
        const { id } = yield* store.open(opening(alice))
        yield* Effect.scoped(Effect.zipRight(store.use(id, alice), TestClock.adjust(5000)))
        yield* TestClock.adjust(900)
        yield* store.touch(id, alice)
      }).pipe(run)
    )

    it.effect("holds on to a session whose call was interrupted", () =>
      Effect.gen(function* () {
        const store = yield* SessionStore
        const { id } = yield* store.open(opening(alice))
        yield* Effect.exit(Effect.scoped(Effect.zipRight(store.use(id, alice), Effect.interrupt)))
        yield* TestClock.adjust(1001)
        assert.strictEqual(yield* store.size, 0)
      }).pipe(run)
    )

    it.effect("tells another principal's session from an unknown one, or lets it be touched", () =>
      Effect.gen(function* () {
        const store = yield* SessionStore
        const { id } = yield* store.open(opening(alice))
        const foreign = yield* Effect.flip(store.touch(id, bob))
        const unknown = yield* Effect.flip(store.touch(crypto.randomUUID(), bob))
        assert.deepStrictEqual({ ...foreign, sessionId: "" }, { ...unknown, sessionId: "" })
        yield* Effect.flip(store.close(id, bob))
        yield* TestClock.adjust(600)
        yield* Effect.flip(Effect.scoped(store.use(id, bob)))
        yield* TestClock.adjust(600)
        assert.strictEqual((yield* Effect.flip(store.touch(id, alice)))._tag, "SessionNotFound")
      }).pipe(run)
    )

    it.effect("echoes a session id of any length, or dies for it", () =>
      Effect.gen(function* () {
        const store = yield* SessionStore
        for (const id of ["", "__proto__", "x".repeat(100_000)]) {
          assert.isAtMost((yield* Effect.flip(store.touch(id, alice))).sessionId.length, 64)
        }
      }).pipe(run)
    )
  })
}
