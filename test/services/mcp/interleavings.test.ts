import { describe, it } from "@effect/vitest"
import { AnyProgram, play } from "../../support/mcpPrograms.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

describe("any interleaving of calls, orders, cancels, drops, resumptions, ends of sessions and tokens, and time", () => {
  it.effect(
    "leaves a tool that nobody owns, ends one that somebody waits for, crosses messages, or says something after the end",
    () => forAll(AnyProgram, (actions) => play(actions, "patience"), 250),
    120_000
  )

  it.effect("outlives a shutdown", () => forAll(AnyProgram, (actions) => play(actions, "shutdown"), 60), 60_000)
})
