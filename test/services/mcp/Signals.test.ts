import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import { Signals } from "../../../src/services/mcp/Signals.ts"
import * as HandClock from "../../support/handClock.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

const { settle } = HandClock.make()

describe("a line of signals", () => {
  it.effect("loses a signal to a reader that went away, has one twice, or changes their order", () =>
    forAll(
      FastCheck.array(FastCheck.constantFrom("offer", "take", "wait", "away"), { maxLength: 40, size: "max" }),
      (steps) =>
        Effect.gen(function* () {
          const signals = new Signals<number>()
          let offered = 0
          const got: Array<number> = []
          const take = Effect.map(signals.take, (n) => got.push(n))
          let reading: Fiber.RuntimeFiber<unknown> | undefined
          const idle = () => reading === undefined || reading.unsafePoll() !== null
          for (const step of steps) {
            if (step === "offer") signals.offer(++offered)
            if (step === "take" && idle()) reading = yield* Effect.forkScoped(take)
            if (step === "wait" && idle()) reading = yield* Effect.forkScoped(signals.ready)
            if (step === "away" && reading !== undefined) yield* Fiber.interrupt(reading)
            // Every other step, so that some come while others are under way.
            if (offered % 2 === 0) yield* settle
          }
          if (reading !== undefined) yield* Fiber.interrupt(reading)
          for (let n = signals.poll(); n !== undefined; n = signals.poll()) got.push(n)
          assert.deepStrictEqual(
            got,
            Array.from({ length: offered }, (_, n) => n + 1)
          )
        }).pipe(Effect.scoped)
    )
  )

  it.scoped("is not ready although there is something, or ready although there is nothing, or takes for a look", () =>
    Effect.gen(function* () {
      const signals = new Signals<string>()
      const waiting = yield* Effect.forkScoped(signals.ready)
      yield* settle
      assert.isNull(waiting.unsafePoll())
      assert.isUndefined(signals.peek())
      signals.offer("a")
      yield* settle
      assert.isNotNull(waiting.unsafePoll())
      yield* signals.ready
      assert.strictEqual(signals.peek(), "a")
      assert.strictEqual(signals.peek(), "a")
      assert.strictEqual(signals.poll(), "a")
      assert.isUndefined(signals.poll())
    })
  )
})
