import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as TestClock from "effect/TestClock"
import * as Rate from "../../../src/services/mcp/rate.ts"
import * as HandClock from "../../support/handClock.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

const Limit = FastCheck.record({
  requestsPerSecond: FastCheck.oneof(
    FastCheck.constantFrom(0.01, 0.1, 0.3, 1 / 3, 1, 3, 200),
    FastCheck.double({ min: 0.001, max: 1000, noNaN: true })
  ),
  burst: FastCheck.oneof(FastCheck.constantFrom(1, 2), FastCheck.integer({ min: 1, max: 50 })),
  concurrentCalls: FastCheck.constant(1)
})
/** Milliseconds before each request. */
const Gaps = FastCheck.array(
  FastCheck.oneof(FastCheck.constantFrom(0, 0, 0, 1, 10, 100, 1000), FastCheck.nat(20_000)),
  { minLength: 1, maxLength: 60, size: "max" }
)

describe("mcp/rate", () => {
  it.effect("admits more than burst and rate allow in some window, or refuses where nothing was used up", () =>
    forAll(FastCheck.tuple(Limit, Gaps), ([limit, gaps]) => {
      const { adjust, clock } = HandClock.make()
      return Effect.gen(function* () {
        const rate = Rate.make()
        const admitted: Array<number> = []
        let now = 0
        for (const [at, gap] of gaps.entries()) {
          now += gap
          yield* adjust(gap)
          const wait = yield* rate.admit("a", limit)
          if (wait === 0) admitted.push(now)
          if (at < limit.burst) assert.strictEqual(wait, 0)
        }
        for (const [first, from] of admitted.entries()) {
          for (const [last, until] of admitted.entries()) {
            if (last < first) continue
            const most = limit.burst + (limit.requestsPerSecond * (until - from)) / 1000
            assert.isAtMost(last - first + 1, most + 1e-6)
          }
        }
      }).pipe(Effect.withClock(clock))
    })
  )

  it.effect("says a time after which it refuses again, or one that is longer than need be", () =>
    forAll(
      FastCheck.tuple(Limit, Gaps),
      ([limit, gaps]) => {
        const { adjust, clock } = HandClock.make()
        return Effect.gen(function* () {
          const rate = Rate.make()
          for (const gap of gaps) {
            yield* adjust(gap)
            const wait = yield* rate.admit("a", limit)
            if (wait === 0) continue
            assert.isTrue(Number.isInteger(wait) && wait > 0)
            assert.isAtMost(wait, Math.ceil(1 / limit.requestsPerSecond))
            yield* adjust(wait * 1000)
            assert.strictEqual(yield* rate.admit("a", limit), 0, `after ${wait} s`)
          }
        }).pipe(Effect.withClock(clock))
      },
      200
    )
  )

  it.effect("lets one principal use up another's, or a limit of 0 refuse", () =>
    Effect.gen(function* () {
      const rate = Rate.make()
      const limit = { requestsPerSecond: 1, burst: 2, concurrentCalls: 1 }
      for (const expected of [0, 0, 1]) assert.strictEqual(yield* rate.admit("a", limit), expected)
      for (const expected of [0, 0, 1]) assert.strictEqual(yield* rate.admit("b", limit), expected)
      const lifted = { ...limit, requestsPerSecond: 0 }
      for (let n = 0; n < 10; n++) assert.strictEqual(yield* rate.admit("a", lifted), 0)
      // A refused request costs nothing.
      yield* TestClock.adjust("1 seconds")
      for (const expected of [0, 1]) assert.strictEqual(yield* rate.admit("a", limit), expected)
    })
  )

  it.prop(
    "holds more than its burst, loses tokens to time, or gains some where the clock goes back",
    [
      Limit,
      FastCheck.double({ min: 0, max: 50, noNaN: true }),
      FastCheck.nat(1e6),
      FastCheck.integer({ min: -1e6, max: 1e6 })
    ],
    ([limit, tokens, filledAt, millis]) => {
      const after = Rate.refill({ tokens, filledAt }, limit, filledAt + millis)
      assert.isAtMost(after, limit.burst)
      assert.isAtLeast(after, Math.min(tokens, limit.burst))
      if (millis <= 0) assert.strictEqual(after, Math.min(tokens, limit.burst))
      assert.strictEqual(Rate.refill(undefined, limit, filledAt), limit.burst)
    }
  )
})
