import { assert, describe, it } from "@effect/vitest"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import { page, pageSize } from "../../../src/services/mcp/pages.ts"

const items = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, i) => i)

const walk = (all: ReadonlyArray<number>): ReadonlyArray<number> => {
  const seen: Array<number> = []
  let cursor: string | undefined
  do {
    const found = Either.getOrThrow(page("tools/list", all, cursor))
    assert.isAtMost(found.items.length, pageSize)
    seen.push(...found.items)
    cursor = found.nextCursor
  } while (cursor !== undefined)
  return seen
}

describe("pages.page", () => {
  it.prop("loses or repeats an item from page to page", [FastCheck.nat(5 * pageSize)], ([count]) => {
    assert.deepStrictEqual(walk(items(count)), items(count))
  })

  it("gives an empty last page, or one too few", () => {
    for (const count of [0, 1, pageSize, pageSize + 1, 2 * pageSize]) {
      const first = Either.getOrThrow(page("tools/list", items(count), undefined))
      assert.strictEqual(first.nextCursor !== undefined, count > pageSize, String(count))
    }
  })

  it.prop(
    "takes a cursor that it never gave out",
    [FastCheck.oneof(FastCheck.string(), FastCheck.jsonValue())],
    ([cursor]) => {
      const given = Either.getOrThrow(page("tools/list", items(3 * pageSize), undefined)).nextCursor
      FastCheck.pre(cursor !== undefined && cursor !== given)
      assert.isTrue(Either.isLeft(page("tools/list", items(3 * pageSize), cursor)))
    }
  )

  it("takes another list's cursor", () => {
    const { nextCursor } = Either.getOrThrow(page("prompts/list", items(3 * pageSize), undefined))
    assert.isDefined(nextCursor)
    assert.isTrue(Either.isLeft(page("tools/list", items(3 * pageSize), nextCursor)))
  })
})
