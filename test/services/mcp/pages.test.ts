import { assert, describe, it } from "@effect/vitest"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import { page } from "../../../src/services/mcp/pages.ts"

const list = "tools/list"
const items = (length: number) => Array.from({ length }, (_, n) => n)

/** All pages, by the cursors that come with them. */
const walk = (name: string, all: ReadonlyArray<number>) => {
  const pages: Array<ReadonlyArray<number>> = []
  const cursors: Array<string> = []
  for (let cursor: string | undefined; ;) {
    const got = Either.getOrThrow(page(name, all, cursor))
    pages.push(got.items)
    if (got.nextCursor === undefined) return { pages, cursors }
    cursors.push(got.nextCursor)
    cursor = got.nextCursor
    assert.isBelow(pages.length, 1000)
  }
}
const refused = (name: string, cursor: unknown, all = items(1000)) =>
  Either.match(page(name, all, cursor), { onLeft: ({ _tag }) => _tag, onRight: () => undefined })

describe("mcp/pages", () => {
  it.prop(
    "a walk through the pages leaves an item out, has one twice, or changes their order",
    [FastCheck.oneof(FastCheck.constantFrom(0, 1, 199, 200, 201, 399, 400, 401), FastCheck.nat(2000))],
    ([length]) => {
      const { pages } = walk(list, items(length))
      assert.deepStrictEqual(pages.flat(), items(length))
      assert.isTrue(pages.every((one) => one.length <= 200))
      // No empty page at the end.
      assert.strictEqual(pages.length, Math.max(1, Math.ceil(length / 200)))
    }
  )

  it("the cursor of one list is taken for another's", () => {
    for (const cursor of walk(list, items(1000)).cursors) {
      assert.isUndefined(refused(list, cursor))
      for (const other of ["prompts/list", "resources/list", "resources/templates/list", "tools/lis", ""]) {
        assert.strictEqual(refused(other, cursor), "ParamsInvalid")
      }
    }
  })

  it.prop(
    "a cursor that was never given out is taken",
    [
      FastCheck.oneof(
        FastCheck.string(),
        FastCheck.base64String(),
        FastCheck.anything(),
        FastCheck.oneof(
          // A whole number of pages may have been given out, for a longer list.
          FastCheck.integer().filter((at) => at <= 0 || at % 200 !== 0),
          FastCheck.constantFrom(0, -200, 1, 199, 201, 1e9, 200.5, "0200", "+200", "200 ", "2e2", "", "0")
        ).map((at) => btoa(`${list}:${at}`)),
        // Other writings of one that was given out.
        FastCheck.constantFrom(0, 1, 2, 3).chain((index) => {
          const cursor = walk(list, items(1000)).cursors[index] ?? ""
          return FastCheck.constantFrom(
            ` ${cursor}`,
            `${cursor}\n`,
            `${cursor.slice(0, 3)}\t${cursor.slice(3)}`,
            cursor.replaceAll("=", ""),
            `${cursor}=`,
            cursor.toLowerCase()
          )
        })
      )
    ],
    ([cursor]) => {
      FastCheck.pre(cursor !== undefined)
      const given: ReadonlyArray<unknown> = walk(list, items(1000)).cursors
      FastCheck.pre(!given.includes(cursor))
      assert.strictEqual(refused(list, cursor), "ParamsInvalid")
    },
    { fastCheck: { numRuns: 500 } }
  )

  it("a list that became shorter breaks a walk that is under way", () => {
    const [cursor] = walk(list, items(1000)).cursors
    assert.deepStrictEqual(page(list, items(150), cursor), Either.right({ items: [] }))
  })
})
