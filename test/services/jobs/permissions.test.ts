import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import { Tier } from "../../../src/services/jobs/Job.ts"
import { decide, isWithin, refusalOf } from "../../../src/services/jobs/permissions.ts"

const Kind = Schema.Literal(
  "read",
  "edit",
  "delete",
  "move",
  "search",
  "execute",
  "think",
  "fetch",
  "switch_mode",
  "other",
  "something_new"
)
const OptionKind = Schema.Literal("allow_once", "allow_always", "reject_once", "reject_always", "something_new")
const Location = Schema.Literal("/w", "/w/a", "/w/b/c", "/", "/etc/passwd", "/w2/a", "/w/.git/config", "/w/../x", "/wx")
const inside = new Set(["/w", "/w/a", "/w/b/c"])
const harmless = new Set(["read", "search", "fetch", "think"])

describe("decide", () => {
  it.prop(
    "allows exactly what the tier allows inside the worktree, for once, and never selects an option that says the opposite",
    [Tier, Kind, Schema.Array(Location), Schema.Array(OptionKind)],
    ([tier, kind, locations, kinds]) => {
      const options = kinds.map((kind, index) => ({ optionId: String(index), kind }))
      const { optionId, refused } = decide({ tier, root: "/w", kind, locations, options })
      const selected = options.find((option) => option.optionId === optionId)?.kind
      const allowed =
        (tier === "execute" || harmless.has(kind)) &&
        locations.every((path) => inside.has(path)) &&
        kinds.includes("allow_once")
      assert.strictEqual(refused === undefined, allowed)
      if (allowed) assert.strictEqual(selected, "allow_once")
      else if (kinds.includes("reject_once")) assert.strictEqual(selected, "reject_once")
      else assert.strictEqual(selected, kinds.includes("reject_always") ? "reject_always" : undefined)
    }
  )
})

describe("isWithin", () => {
  it("takes Windows paths as well, and no folder that only begins alike", () => {
    assert.isTrue(isWithin("C:\\w", "C:\\w\\a\\b"))
    assert.isTrue(isWithin("C:\\w\\", "C:\\w"))
    for (const path of ["C:\\w2", "C:\\w\\..\\x", "D:\\w\\a", "C:\\w\\.GIT\\config"]) {
      assert.isFalse(isWithin("C:\\w", path), path)
    }
    assert.isTrue(isWithin("/w", "/w/.gitignore"))
    assert.isTrue(isWithin("/repo/.git/worktrees/w", "/repo/.git/worktrees/w/a"))
  })
})

it("refusalOf says what is in the way", () => {
  const base = { root: "/w", locations: [] }
  assert.strictEqual(refusalOf({ ...base, tier: "plan", kind: "edit" }), "the plan tier does not allow edit")
  assert.strictEqual(
    refusalOf({ ...base, tier: "execute", kind: "edit", locations: ["/w/a", "/x"] }),
    "outside the worktree: /x"
  )
})
