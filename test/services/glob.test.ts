import { assert, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import * as Glob from "../../src/services/glob.ts"

it("a star matches any run, also an empty one, and a literal star in the name", () => {
  assert.isTrue(Glob.matches("mcp__*", "mcp__"))
  assert.isTrue(Glob.matches("*_file", "read_file"))
  assert.isTrue(Glob.matches("a*b*c", "axxbyyc"))
  assert.isTrue(Glob.matches("*b", "*ab"))
  assert.isFalse(Glob.matches("a*b", "ab_"))
  assert.isFalse(Glob.matches("?", ""))
})

it.prop("a pattern without wildcards matches itself alone", [Schema.String, Schema.String], ([pattern, name]) => {
  const literal = pattern.replace(/[*?]/g, "x")
  assert.strictEqual(Glob.matches(literal, name), literal === name)
})
