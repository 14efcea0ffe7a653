import { assert, describe, it } from "@effect/vitest"
import { hinted, promptName } from "../../src/services/promptRules.ts"

describe("promptRules.hinted", () => {
  it("offers the choices of the word that is being typed, with what stands before it", () => {
    const hint = "<staging|production> [now|later] <version>"
    assert.deepStrictEqual(hinted(hint, ""), ["staging", "production"])
    assert.deepStrictEqual(hinted(hint, "st"), ["staging"])
    assert.deepStrictEqual(hinted(hint, "staging "), ["staging now", "staging later"])
    assert.deepStrictEqual(hinted(hint, "staging l"), ["staging later"])
  })

  it("makes choices up where the hint has none", () => {
    const hint = "<staging|production> [now|later] <version>"
    assert.deepStrictEqual(hinted(hint, "staging now 1"), [])
    assert.deepStrictEqual(hinted(hint, "staging now 1 more"), [])
    assert.deepStrictEqual(hinted("", ""), [])
    assert.deepStrictEqual(hinted("a file", "x"), [])
  })
})

describe("promptRules.promptName", () => {
  it("leaves a space, a lone surrogate or too many characters in a name", () => {
    assert.strictEqual(promptName("skill:polish"), "skill:polish")
    assert.strictEqual(promptName("two words"), "two-words")
    assert.isTrue(promptName("a\ud800").isWellFormed())
    assert.lengthOf(promptName("x".repeat(300)), 128)
  })
})
