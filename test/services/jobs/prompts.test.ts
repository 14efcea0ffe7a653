import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import { Tier } from "../../../src/services/jobs/Job.ts"
import { preamble, promptOf, questionOf } from "../../../src/services/jobs/prompts.ts"

describe("questionOf", () => {
  it("finds the last line's question, plain or decorated", () => {
    for (const line of [
      "INPUT REQUIRED: Which one?",
      "**INPUT REQUIRED:** Which one?",
      "**INPUT REQUIRED: Which one?**",
      "> `INPUT REQUIRED: Which one?`",
      "  INPUT REQUIRED:   Which one?  "
    ]) {
      assert.strictEqual(questionOf(`I looked.\n\n${line}\n\n`), "Which one?", line)
    }
  })

  it("takes nothing else for a question", () => {
    for (const text of [
      "",
      "Which one?",
      "INPUT REQUIRED:",
      "INPUT REQUIRED: Which one?\nNever mind, I chose.",
      "I was told to write INPUT REQUIRED: and a question",
      "input required: no"
    ]) {
      assert.isUndefined(questionOf(text), text)
    }
  })
})

describe("promptOf", () => {
  it.prop("ends with the request as it is, after the rules", [Tier, Schema.String], ([tier, request]) => {
    const prompt = promptOf(tier, "/w", request)
    assert.isTrue(prompt.startsWith(preamble(tier, "/w")))
    assert.isTrue(prompt.endsWith(`\n\n---\n\n${request}`))
  })

  it("names the folder and the way to ask, and forbids changes where the tier does", () => {
    for (const tier of Tier.literals) {
      const text = preamble(tier, "/some/worktree")
      assert.include(text, "/some/worktree")
      assert.include(text, "INPUT REQUIRED: <")
      assert.include(text, "Do not commit, push, switch")
      assert.strictEqual(text.includes("change nothing"), tier !== "execute", tier)
      // A preamble that is itself read as a question would end every turn.
      assert.isUndefined(questionOf(`${text}\n\n---`))
    }
  })
})
