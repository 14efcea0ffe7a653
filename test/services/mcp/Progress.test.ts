import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import { Progress } from "../../../src/services/mcp/Progress.ts"

const Step = FastCheck.oneof(
  FastCheck.record({
    said: FastCheck.oneof(
      FastCheck.double({ min: 0, max: 1, noNaN: true }),
      FastCheck.nat(100_000),
      FastCheck.constantFrom(0, 1, 2, 3)
    ),
    after: FastCheck.nat(20_000)
  }),
  FastCheck.record({ said: FastCheck.constant(undefined), after: FastCheck.constant(5000) })
)

describe("Progress", () => {
  it.prop("goes back, stands still, or swallows a number of the tool that grew", [FastCheck.array(Step)], ([steps]) => {
    const progress = new Progress(0)
    let now = 0
    let own = -Infinity
    let last = -Infinity
    for (const { after, said } of steps) {
      now += after
      const out = said === undefined ? progress.beat(now) : progress.said({ progress: said, message: "m" }, now)
      if (said !== undefined) {
        assert.strictEqual(out !== undefined, said > own)
        own = Math.max(own, said)
      }
      if (out === undefined) continue
      assert.isAbove(out.progress, last)
      assert.closeTo(out.progress, said ?? out.progress, 1e-6)
      last = out.progress
    }
  })

  it("[opencode#24965] leaves a call without a sign of life for 20 seconds", () => {
    const progress = new Progress(0)
    const beats: Array<number> = []
    for (let now = 0; now <= 120_000; now += 5000) if (progress.beat(now) !== undefined) beats.push(now)
    for (const [i, at] of beats.entries()) assert.isAtMost(at - (beats[i - 1] ?? 0), 17_000)
    assert.isAtLeast(beats.length, 7)
  })

  it("beats although the tool has just said something", () => {
    const progress = new Progress(0)
    progress.said({ progress: 5 }, 10_000)
    assert.isUndefined(progress.beat(15_000))
    assert.isUndefined(progress.beat(20_000))
    assert.isDefined(progress.beat(25_000))
  })
})
