import { describe, it } from "@effect/vitest"
import { CrossedProgram, play } from "../../support/mcpPrograms.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

describe("four clients of two principals and both eras, with the same ids, progress tokens and question keys", () => {
  it.effect(
    "see each other's messages, end each other's calls, or answer, take up or poll what is another's",
    () => forAll(CrossedProgram, (actions) => play(actions, "patience"), 250),
    120_000
  )
})
