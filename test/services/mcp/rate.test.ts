import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as TestClock from "effect/TestClock"
import * as Rate from "../../../src/services/mcp/rate.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

const limitOf = (requestsPerSecond: number, burst: number) => ({ requestsPerSecond, burst, concurrentCalls: 1 })

describe("rate.admit", () => {
  it.effect("lets more through in any stretch of time than the burst and what the time allows", () =>
    forAll(
      FastCheck.record({
        perSecond: FastCheck.integer({ min: 1, max: 50 }),
        burst: FastCheck.integer({ min: 1, max: 20 }),
        waits: FastCheck.array(FastCheck.integer({ min: 0, max: 400 }), { minLength: 1, maxLength: 80 })
      }),
      ({ burst, perSecond, waits }) =>
        Effect.gen(function* () {
          const rate = Rate.make()
          const admitted: Array<number> = []
          let now = 0
          for (const wait of waits) {
            yield* TestClock.adjust(wait)
            now += wait
            if ((yield* rate.admit("a", limitOf(perSecond, burst))) === 0) admitted.push(now)
          }
          for (const [i, from] of admitted.entries()) {
            for (const [j, to] of admitted.entries()) {
              if (j < i) continue
              assert.isAtMost(j - i + 1, burst + ((to - from) / 1000) * perSecond + 1e-6)
            }
          }
        }),
      60
    )
  )

  it.effect("names a time after which it still refuses, or refuses one client for another's requests", () =>
    Effect.gen(function* () {
      const rate = Rate.make()
      const limit = limitOf(0.5, 2)
      assert.strictEqual(yield* rate.admit("a", limit), 0)
      assert.strictEqual(yield* rate.admit("a", limit), 0)
      const wait = yield* rate.admit("a", limit)
      assert.strictEqual(wait, 2)
      assert.strictEqual(yield* rate.admit("b", limit), 0)
      yield* TestClock.adjust(`${wait} seconds`)
      assert.strictEqual(yield* rate.admit("a", limit), 0)
    })
  )

  it.effect("limits where the limit is lifted", () =>
    Effect.gen(function* () {
      const rate = Rate.make()
      for (let i = 0; i < 100; i++) assert.strictEqual(yield* rate.admit("a", limitOf(0, 1)), 0)
    })
  )
})
