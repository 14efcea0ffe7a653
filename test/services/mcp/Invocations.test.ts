import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Exchange } from "../../../src/services/Exchange.ts"
import { PrincipalId } from "../../../src/services/Auth.ts"
import * as Invocations from "../../../src/services/mcp/Invocations.ts"
import * as FakeConfig from "../../support/suites/fakeConfig.ts"
import * as HandClock from "../../support/handClock.ts"

const alice = PrincipalId.make("alice")
const bob = PrincipalId.make("bob")
const { settle } = HandClock.make()

const setup = Effect.gen(function* () {
  const config = yield* FakeConfig.make({ rateLimit: { requestsPerSecond: 0, burst: 1, concurrentCalls: 2 } })
  const context = yield* Layer.build(Layer.provide(Invocations.layer, config.layer))
  const invocations = Context.get(context, Invocations.Invocations)
  const start = (owner: PrincipalId, run: (exchange: Exchange) => Effect.Effect<{}> = () => Effect.never) =>
    Effect.zipLeft(
      invocations.start(
        {
          owner,
          binding: "b",
          capabilities: { elicitation: {} },
          progressToken: 1,
          tasks: true,
          logLevel: () => "debug"
        },
        run
      ),
      settle
    )
  return { config, invocations, start }
})

describe("Invocations", () => {
  it.scoped("run more at a time than one principal may have, count another's, or ones that have ended", () =>
    Effect.gen(function* () {
      const { config, invocations, start } = yield* setup
      const limit = Effect.map(Effect.flip(start(alice)), ({ limit: most }) => most)
      const first = yield* start(alice)
      yield* start(alice)
      assert.strictEqual(yield* limit, 2)
      yield* start(bob)
      assert.strictEqual(yield* invocations.running, 3)
      yield* invocations.cancel(first)
      yield* settle
      assert.strictEqual(yield* invocations.running, 2)
      yield* start(alice)
      assert.strictEqual(yield* limit, 2)
      // An edit of the settings counts from then on.
      yield* config.edit({ rateLimit: { requestsPerSecond: 0, burst: 1, concurrentCalls: 3 } })
      yield* start(alice)
      assert.strictEqual(yield* limit, 3)
    })
  )

  it.scoped("count a call as over while its tool still ends", () =>
    Effect.gen(function* () {
      const { invocations, start } = yield* setup
      const gate = yield* Deferred.make<void>()
      const stubborn = yield* start(alice, () => Effect.onInterrupt(Effect.never, () => Deferred.await(gate)))
      yield* start(alice)
      yield* invocations.cancel(stubborn)
      yield* settle
      assert.strictEqual((yield* Effect.flip(start(alice)))._tag, "TooManyCalls")
      yield* Deferred.succeed(gate, undefined)
      yield* settle
      yield* start(alice)
    })
  )

  it.scoped("find a call that is neither task nor parked, or another principal's", () =>
    Effect.gen(function* () {
      const { invocations, start } = yield* setup
      const [plain, parked] = [yield* start(alice), yield* start(alice)]
      assert.isUndefined(yield* invocations.find(plain.id, alice))
      yield* invocations.park(parked)
      assert.strictEqual(yield* invocations.find(parked.id, alice), parked)
      assert.isUndefined(yield* invocations.find(parked.id, bob))
      yield* invocations.toTask(plain)
      assert.strictEqual(yield* invocations.find(plain.id, alice), plain)
      assert.isUndefined(yield* invocations.find(plain.id, bob))
      // A parked one is gone with its end, a task is not.
      yield* invocations.cancelWhere(() => true)
      yield* settle
      assert.isUndefined(yield* invocations.find(parked.id, alice))
      assert.strictEqual(yield* invocations.find(plain.id, alice), plain)
    })
  )

  it.scoped("let a call be taken up that does not wait for its client, or twice", () =>
    Effect.gen(function* () {
      const { invocations, start } = yield* setup
      const call = yield* start(alice)
      const wishes = { capabilities: {}, progressToken: 2, logLevel: () => undefined }
      assert.isFalse(yield* invocations.unpark(call, wishes))
      assert.strictEqual(call.wishes.progressToken, 1)
      yield* invocations.park(call)
      assert.isTrue(yield* invocations.unpark(call, wishes))
      assert.strictEqual(call.wishes.progressToken, 2)
      assert.isFalse(yield* invocations.unpark(call, { ...wishes, progressToken: 3 }))
      assert.strictEqual(call.wishes.progressToken, 2)
    })
  )

  it.scoped("end a call that was to stay, or leave one that was to end", () =>
    Effect.gen(function* () {
      const { invocations, start } = yield* setup
      const [one, two] = [yield* start(alice), yield* start(bob)]
      yield* invocations.cancelWhere(({ owner }) => owner === bob)
      yield* settle
      assert.isNull(one.fiber.unsafePoll())
      assert.isNotNull(two.fiber.unsafePoll())
    })
  )

  it.scoped("tell of a cancelled task more than once, or of a call that is no task", () =>
    Effect.gen(function* () {
      const { invocations, start } = yield* setup
      const told: Array<string> = []
      yield* invocations.taskChanges.pipe(
        Stream.runForEach(({ id }) => Effect.sync(() => told.push(id))),
        Effect.forkScoped
      )
      yield* settle
      const [plain, task] = [yield* start(alice), yield* start(alice)]
      yield* invocations.toTask(task)
      for (const one of [plain, task, task]) yield* invocations.cancel(one)
      yield* settle
      assert.deepStrictEqual(told, [task.id])
    })
  )

  it.effect("wait for each other at the shutdown, or say something on their way out", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const scope = yield* Scope.make()
      const { start } = yield* Scope.extend(setup, scope)
      const signalled: Array<number> = []
      const run = (n: number) => (exchange: Exchange) =>
        Effect.onInterrupt(Effect.never, () =>
          Effect.suspend(() => {
            signalled.push(n)
            exchange.progress({ progress: 1 })
            return Deferred.await(gate)
          })
        )
      const calls = [yield* start(alice, run(1)), yield* start(alice, run(2)), yield* start(bob, run(3))]
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* settle
      assert.sameMembers(signalled, [1, 2, 3])
      for (const { signals } of calls) {
        assert.strictEqual(signals.poll()?._tag, "Done")
        assert.isUndefined(signals.poll())
      }
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(closing)
    })
  )

  it.effect("outlive the layer that they run in", () =>
    Effect.gen(function* () {
      let ended = 0
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { start } = yield* setup
          const run = () => Effect.onInterrupt(Effect.never, () => Effect.sync(() => ended++))
          yield* start(alice, run)
          yield* start(bob, run)
        })
      )
      assert.strictEqual(ended, 2)
    })
  )
})
