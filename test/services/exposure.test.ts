import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import * as Schema from "effect/Schema"
import { exposed, wireName } from "../../src/services/exposure.ts"

const Name = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.string({ minLength: 60, maxLength: 90 }),
  FastCheck.string({ unit: "binary" }),
  FastCheck.constantFrom("read", "bash", "mcp__x_y", "mcp__", "a.b", "a/b", "", "*", "x?")
)
const Tool = FastCheck.record({ name: Name, active: FastCheck.boolean(), own: FastCheck.boolean() }).map((tool) => ({
  ...tool,
  wireName: wireName(tool.name)
}))
const Settings = FastCheck.record({
  deny: FastCheck.array(Name, { maxLength: 3 }),
  denyMCPTools: FastCheck.boolean(),
  expose: FastCheck.constantFrom("all" as const, "active" as const)
})

describe("exposure.exposed", () => {
  it.prop("exposes what the host has from this bridge", [Settings, Tool], ([settings, tool]) => {
    assert.isFalse(exposed(settings, { ...tool, own: true }))
  })

  it.prop(
    "exposes a tool that is denied by name, by alias or by *",
    [Settings, Tool, Schema.String],
    ([settings, tool, other]) => {
      for (const denied of [tool.name, tool.wireName, "*", `${tool.name.slice(0, 3)}*`]) {
        assert.isFalse(exposed({ ...settings, deny: [other, denied] }, tool), denied)
      }
    }
  )

  it.prop(
    "exposes a tool of an MCP server with denyMCPTools",
    [Settings, Tool, Schema.String],
    ([settings, tool, rest]) => {
      const name = `mcp__${rest}`
      assert.isFalse(exposed({ ...settings, denyMCPTools: true }, { ...tool, name, wireName: wireName(name) }))
    }
  )

  it.prop("exposes an inactive tool where only active ones are wanted", [Settings, Tool], ([settings, tool]) => {
    assert.isFalse(exposed({ ...settings, expose: "active" }, { ...tool, active: false }))
  })

  it.prop("hides what nothing denies", [Tool], ([tool]) => {
    const open = { deny: [], denyMCPTools: false }
    assert.isTrue(exposed({ ...open, expose: "all" }, { ...tool, own: false }))
    assert.isTrue(exposed({ ...open, expose: "active" }, { ...tool, own: false, active: true }))
    // A rule for another name, and denyMCPTools for a tool of the host's own.
    const name = `x${tool.name}`
    const other = { ...tool, own: false, name, wireName: wireName(name) }
    assert.isTrue(exposed({ deny: ["y*", "z"], denyMCPTools: true, expose: "all" }, other))
  })
})

describe("exposure.wireName", () => {
  it.prop("gives a name that model APIs refuse", [Name], ([name]) => {
    assert.match(wireName(name), /^[A-Za-z0-9_-]{1,64}$/)
  })

  it.prop("depends on more than the name", [Name, Name], ([name, between]) => {
    const first = wireName(name)
    wireName(between)
    assert.strictEqual(wireName(name), first)
  })

  it.prop("renames what fits", [Schema.String.pipe(Schema.pattern(/^[A-Za-z0-9_-]{1,64}$/))], ([name]) => {
    assert.strictEqual(wireName(name), name)
  })

  it.prop("gives two names one alias", [Name, Name], ([a, b]) => {
    FastCheck.pre(a !== b)
    assert.notStrictEqual(wireName(a), wireName(b))
  })

  it("gives names that differ late, or only in a replaced character, one alias", () => {
    const long = "n".repeat(80)
    const names = ["a.b", "a/b", "a b", "a_b", `${long}1`, `${long}2`, "é", "è", "", "_"]
    assert.strictEqual(new Set(names.map(wireName)).size, names.length)
  })
})
