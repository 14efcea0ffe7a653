import { assert, describe, it } from "@effect/vitest"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import { parseJson } from "../../../src/services/mcp/parseJson.ts"
import { Json } from "../../support/suites/arbitraries.ts"

const failure = (text: string) => Either.getOrThrow(Either.flip(parseJson(text)))

describe("parseJson", () => {
  it.prop("takes valid JSON for anything but what it says", [Json], ([value]) => {
    const text = JSON.stringify(value)
    assert.deepStrictEqual(parseJson(text), Either.right(JSON.parse(text)))
  })

  it.prop(
    "[claude-code#78762] rounds an integer in silence, wherever it stands",
    [FastCheck.bigInt({ min: 2n ** 53n + 1n, max: 2n ** 80n }), FastCheck.boolean()],
    ([big, negative]) => {
      const digits = `${negative ? "-" : ""}${big}`
      const exact = BigInt(Number(digits)) === BigInt(digits) || String(Number(digits)) === digits
      const decoded = parseJson(`{"a":[{"n": ${digits}}],"s":"x"}`)
      if (exact) assert.isTrue(Either.isRight(decoded))
      else assert.deepInclude(failure(`{"a":[${digits}]}`), { _tag: "IntegerTooLarge", integer: digits })
    }
  )

  it("takes digits in a string, a fraction or an exponent for an integer that is rounded", () => {
    for (const text of [
      '"9007199254740993"',
      '{"9007199254740993":1}',
      '"a \\" 9007199254740993"',
      '"\\\\"',
      "0.12345678901234567890",
      "1e400",
      "9007199254740992"
    ]) {
      assert.isTrue(Either.isRight(parseJson(text)), text)
    }
    assert.deepInclude(failure('["\\\\", 9007199254740993]'), { _tag: "IntegerTooLarge" })
    assert.deepInclude(failure("9".repeat(400)), { _tag: "IntegerTooLarge" })
  })

  it("says nothing of why text is no JSON", () => {
    const error = failure("{nope")
    assert(error._tag === "NotJson")
    assert.isNotEmpty(error.detail)
  })
})
