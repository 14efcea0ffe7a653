import { assert, describe, it } from "@effect/vitest"
import { ApprovalRefused } from "../../../src/services/Approvals.ts"
import { ArgumentsInvalid, HostUnavailable } from "../../../src/services/HostTools.ts"
import { refusalText } from "../../../src/services/mcp/refusals.ts"
import { PolicyDenied, ToolNotExposed } from "../../../src/services/ToolCalls.ts"

describe("mcp/refusals", () => {
  it("a model is not told what happened and what can be done", () => {
    assert.include(refusalText(new ToolNotExposed({ tool: "bash" })), "'bash'")
    assert.include(refusalText(new ArgumentsInvalid({ tool: "bash", detail: "command: missing" })), "command: missing")
    assert.include(refusalText(new PolicyDenied({ tool: "bash", reason: "blocked by rule" })), "blocked by rule")
    assert.include(refusalText(new HostUnavailable()), "try again")
    assert.include(refusalText(new ApprovalRefused({ tool: "bash", reason: "denied" })), "denied")
    const late = refusalText(new ApprovalRefused({ tool: "bash", reason: "timeout", waitedSeconds: 30 }))
    assert.include(late, "30 seconds")
    assert.include(late, "approval.timeoutSeconds")
    assert.include(refusalText(new ApprovalRefused({ tool: "bash", reason: "nobody" })), "tools.approval.bash: allow")
  })
})
