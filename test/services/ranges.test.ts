import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import { slice, splitRange } from "../../src/services/ranges.ts"

const Text = FastCheck.oneof(
  FastCheck.string({ unit: "grapheme", maxLength: 40 }),
  FastCheck.array(FastCheck.constantFrom("a", "ü", "漢", "😀", "👩‍👩‍👧"), { maxLength: 20 }).map((parts) => parts.join(""))
)

describe("ranges", () => {
  it.prop(
    "loses, repeats or parts a character when a text is read piece by piece",
    [Text, FastCheck.integer({ min: 1, max: 9 })],
    ([text, length]) => {
      const pieces: Array<string> = []
      for (let offset = 0; offset < text.length;) {
        const piece = slice(text, { offset, length })
        assert.isNotEmpty(piece)
        assert.isTrue(piece.isWellFormed(), JSON.stringify(piece))
        pieces.push(piece)
        offset += piece.length
      }
      assert.strictEqual(pieces.join(""), text)
    }
  )

  it("reads past the end, or takes an offset there for a fault", () => {
    assert.strictEqual(slice("abc", { offset: 2, length: 99 }), "c")
    assert.strictEqual(slice("abc", { offset: 3, length: 1 }), "")
    assert.strictEqual(slice("abc", { offset: 99, length: 1 }), "")
    assert.strictEqual(slice("abc", { offset: 0, length: 0 }), "")
  })

  it("reads a range out of a URI", () => {
    assert.deepStrictEqual(splitRange("result://x"), { base: "result://x", range: undefined })
    assert.deepStrictEqual(splitRange("result://x?offset=5&length=7"), {
      base: "result://x",
      range: { offset: 5, length: 7 }
    })
    assert.deepStrictEqual(splitRange("result://x?length=7")?.range, { offset: 0, length: 7 })
  })

  it("takes a query that is no range", () => {
    for (const query of [
      "",
      "offset",
      "offset=",
      "offset=-1",
      "offset=1.5",
      "offset=1&offset=2",
      "page=1",
      "length=1=2"
    ]) {
      assert.isUndefined(splitRange(`result://x?${query}`), query)
    }
  })
})
