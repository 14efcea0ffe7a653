import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import * as Versions from "../../../src/services/mcp/versions.ts"

describe("mcp/versions", () => {
  it.each(["2025-03-26", "2025-06-18", "2025-11-25"])("the revision %s is not answered with itself", (version) => {
    assert.strictEqual(Versions.negotiate(version), version)
  })

  it.prop(
    "another revision is answered with one that is not the latest",
    [
      FastCheck.oneof(
        FastCheck.string(),
        FastCheck.constantFrom("2024-11-05", "2024-10-07", "2026-01-01", "toString", "")
      )
    ],
    ([version]) => {
      FastCheck.pre(!["2025-03-26", "2025-06-18", "2025-11-25"].includes(version))
      assert.strictEqual(Versions.negotiate(version), "2025-11-25")
    }
  )

  it.prop(
    "a revision other than 2025-03-26 has batches",
    [FastCheck.oneof(FastCheck.string(), FastCheck.constantFrom("2025-03-26", "2025-06-18", "2025-11-25"))],
    ([version]) => {
      assert.strictEqual(Versions.hasBatches(version), version === "2025-03-26")
    }
  )
})
