import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import { parseBearer } from "../../src/services/Auth.ts"

/** RFC 6750 §2.1. */
const b64token = FastCheck.stringMatching(/^[A-Za-z0-9._~+/-]{1,80}={0,3}$/)
const Scheme = FastCheck.tuple(
  ...[..."bearer"].map((letter) => FastCheck.constantFrom(letter, letter.toUpperCase()))
).map((letters) => letters.join(""))
const Spaces = FastCheck.integer({ min: 1, max: 3 }).map((count) => " ".repeat(count))

describe("Auth.parseBearer", () => {
  it.prop("refuses or changes one bearer token", [Scheme, Spaces, b64token], ([scheme, spaces, token]) => {
    assert.strictEqual(parseBearer(`${scheme}${spaces}${token}`), token)
  })

  it.prop("throws, or finds a token that is none", [FastCheck.string()], ([header]) => {
    const found = parseBearer(header)
    if (found !== undefined) assert.match(header, /^bearer +[A-Za-z0-9._~+/-]+=* *$/i)
  })

  it.prop("takes another scheme", [FastCheck.stringMatching(/^[A-Za-z0-9]{0,10}$/), b64token], ([scheme, token]) => {
    FastCheck.pre(scheme.toLowerCase() !== "bearer")
    assert.isUndefined(parseBearer(`${scheme} ${token}`))
    assert.isUndefined(parseBearer(token.startsWith("earer") ? "" : `b${token}`))
  })

  it.prop(
    "takes two tokens, or one with a stray character",
    [b64token, b64token, FastCheck.constantFrom(..." ,;:\"'\n\t\0é")],
    ([first, second, stray]) => {
      assert.isUndefined(parseBearer(`Bearer ${first}${stray}${second}`))
      assert.isUndefined(parseBearer(`Bearer ${first}, Bearer ${second}`))
    }
  )

  it.each([
    "",
    "Bearer",
    "Bearer ",
    "Bearer =",
    "Bearer\tabc",
    "Bearerabc",
    " Bearer abc",
    "Bearer abc\n",
    "Bearer abc=d",
    "Basic abc"
  ])("takes %j", (header) => {
    assert.isUndefined(parseBearer(header))
  })

  it("takes time that grows with the square of the header", () => {
    assert.isUndefined(parseBearer(`Bearer ${"a".repeat(50_000)}!`))
    assert.isUndefined(parseBearer(`Bearer ${" ".repeat(50_000)}!`))
    assert.isUndefined(parseBearer(`Bearer ${"=".repeat(50_000)}!`))
  })
})
