import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import { nothing, rest, split } from "../../../src/services/jobs/lines.ts"

/** All lines of a text that arrives in pieces, cut after these numbers of bytes. */
const linesOf = (text: string, cuts: ReadonlyArray<number>, limit = 1 << 20) => {
  const bytes = new TextEncoder().encode(text)
  const lines: Array<string> = []
  let dropped = 0
  let unfinished = nothing
  let from = 0
  for (const cut of [...cuts, bytes.length]) {
    const next = split(unfinished, bytes.subarray(from, from + cut), limit)
    unfinished = next.unfinished
    lines.push(...next.lines)
    dropped += next.dropped
    from += cut
  }
  const last = rest(unfinished)
  return { lines: [...lines, ...last.lines], dropped: dropped + last.dropped }
}

const Piece = Schema.Literal("a", "\n", "\r\n", "ü", "漢", "🦀", " ")

describe("split", () => {
  it.prop(
    "gives the same lines however the bytes are cut, in the middle of a character too",
    [Schema.Array(Piece), Schema.Array(Schema.Int.pipe(Schema.between(0, 5)))],
    ([parts, cuts]) => {
      const text = parts.join("")
      const expected = text.split("\n").map((line) => line.replace(/\r$/, ""))
      if (text === "" || text.endsWith("\n")) expected.pop()
      assert.deepStrictEqual(linesOf(text, cuts), { lines: expected, dropped: 0 })
    }
  )

  it("passes over a line that is too long, and reads on after it", () => {
    for (const cuts of [[], [2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1, 1]]) {
      assert.deepStrictEqual(linesOf("ab\n0123456789\ncd\n0123456789", cuts, 4), { lines: ["ab", "cd"], dropped: 2 })
    }
  })

  it("counts a line of exactly the limit as one", () => {
    assert.deepStrictEqual(linesOf("0123\n01234\n", [], 4), { lines: ["0123"], dropped: 1 })
  })
})
