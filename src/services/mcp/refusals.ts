import type { Refusal } from "../ToolCalls.ts"

const approvalText = (refusal: Extract<Refusal, { _tag: "ApprovalRefused" }>): string => {
  switch (refusal.reason) {
    case "denied":
      return `The person at the host denied this call of '${refusal.tool}'.`
    case "timeout":
      return (
        `Nobody at the host answered the approval of '${refusal.tool}' within ${refusal.waitedSeconds ?? "the given"} ` +
        `seconds, so it was not run. Ask the operator to answer the dialog, to raise approval.timeoutSeconds in ` +
        `a2a-bridge.json, or to set tools.approval.${refusal.tool}: allow in omp's config.`
      )
    case "nobody":
      return (
        `'${refusal.tool}' needs the approval of a person, and this host has nobody to ask (it runs without a user ` +
        `interface), so it was not run. Ask the operator to set tools.approval.${refusal.tool}: allow in omp's ` +
        `config, or to run the host in a terminal.`
      )
  }
}

/** What a refused call says to the model on the other side: what happened, and what can be done. */
export const refusalText = (refusal: Refusal): string => {
  switch (refusal._tag) {
    case "ToolNotExposed":
      return `tool '${refusal.tool}' is not exposed by this bridge; tools/list names those that are`
    case "ArgumentsInvalid":
      return refusal.detail
    case "PolicyDenied":
      return refusal.reason
    case "ApprovalRefused":
      return approvalText(refusal)
    case "HostUnavailable":
      return "main session not available: the host is starting or shutting down; try again in a moment"
  }
}
