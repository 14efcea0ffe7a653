import { assert, describe, it } from "vitest"
import { callResultOf, startBridge } from "../support/bridge.ts"
import { echo } from "../support/fakeHost.ts"

describe("logLevel", () => {
  it.each([
    ["warn", true],
    ["error", false]
  ] as const)("at %s, logs a warning where it must not, or keeps it where it must", async (logLevel, logged) => {
    await using bridge = await startBridge({
      config: { logLevel },
      tools: () => [{ ...echo, policy: { _tag: "Prompt", prompt: "may it?" } }],
      host: {
        hasUI: true,
        // The bridge warns of a dialog that breaks.
        choose: () => Promise.reject(new Error("no dialog"))
      }
    })
    assert.isTrue(callResultOf(await bridge.call(await bridge.open(), "echo", { text: "x" })).isError)
    assert.strictEqual(
      bridge.host.logs.some(({ level }) => level === "warn"),
      logged
    )
  })
})
