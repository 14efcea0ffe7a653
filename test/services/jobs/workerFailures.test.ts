import { assert, describe, it } from "@effect/vitest"
import { complaintOf, withoutResult } from "../../../src/services/jobs/workerFailures.ts"

describe("complaintOf", () => {
  it("knows what Cursor prints before it works", () => {
    const known = {
      "⚠ Workspace Trust Required\n  Cursor Agent can execute code": "folder-untrusted",
      "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY environment variable.":
        "not-logged-in",
      "You are not logged in": "not-logged-in",
      "Error: No chat found with ID 1": "session-lost",
      "Session abc not found": "session-lost"
    }
    for (const [text, complaint] of Object.entries(known)) assert.strictEqual(complaintOf(text), complaint, text)
  })

  it("makes nothing of other words", () => {
    for (const text of [
      "",
      "Error: ENOENT: no such file or directory, rename",
      "Error: connection lost",
      "port 4010"
    ]) {
      assert.isUndefined(complaintOf(text), text)
    }
  })
})

describe("withoutResult", () => {
  const tagOf = (...args: Parameters<typeof withoutResult>) => withoutResult(...args)._tag

  it("never calls an exit without a result a success", () => {
    assert.strictEqual(tagOf(undefined, "", { code: 0, signal: undefined }, "ended"), "ProtocolBroken")
    assert.strictEqual(tagOf(undefined, "", { code: 1, signal: undefined }, "ended"), "WorkerExited")
    assert.strictEqual(tagOf(undefined, "", { code: undefined, signal: "SIGSEGV" }, "ended"), "WorkerExited")
    assert.strictEqual(tagOf(undefined, "", undefined, "stands still"), "ProtocolBroken")
  })

  it("believes what the program says over how it exited, but a lost session only where one was asked for", () => {
    const exit = { code: 0, signal: undefined }
    assert.strictEqual(tagOf(undefined, "Workspace Trust Required", exit, ""), "FolderUntrusted")
    assert.strictEqual(tagOf(undefined, "Error: Authentication required.", exit, ""), "NotLoggedIn")
    assert.strictEqual(tagOf("s", "No chat found", exit, ""), "SessionLost")
    assert.strictEqual(tagOf(undefined, "No chat found", exit, ""), "ProtocolBroken")
  })
})
