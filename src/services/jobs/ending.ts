import * as Cause from "effect/Cause"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Event, FailureReason } from "./Job.ts"
import type { StoreFailed } from "./JobStore.ts"
import type { WorkerFailure, WorkerUnknown } from "./Worker.ts"
import type { CollectFailed, WorkspaceRefused, WorkspaceUnusable } from "./Workspace.ts"

/** The job ran as long as it may. */
export class TimedOut extends Schema.TaggedError<TimedOut>()("TimedOut", { seconds: Schema.Number }) {}

/** A tier that only reads changed files. */
export class TreeChanged extends Schema.TaggedError<TreeChanged>()("TreeChanged", {
  tier: Schema.String,
  files: Schema.Array(Schema.String)
}) {}

/** The worktree that a reply goes on in is gone. */
export class WorktreeGone extends Schema.TaggedError<WorktreeGone>()("WorktreeGone", {}) {}

/** The worker's folder cannot be made. */
export class StateDirFailed extends Schema.TaggedError<StateDirFailed>()("StateDirFailed", {
  path: Schema.String,
  detail: Schema.String
}) {}

export type RunFailure =
  | WorkerFailure
  | WorkerUnknown
  | WorkspaceRefused
  | WorkspaceUnusable
  | CollectFailed
  | StoreFailed
  | TimedOut
  | TreeChanged
  | WorktreeGone
  | StateDirFailed

type Failed = Extract<Event, { readonly _tag: "Failed" }>

const failed = (reason: FailureReason, message: string): Failed => ({ _tag: "Failed", reason, message })

const names = (files: ReadonlyArray<string>): string =>
  files.length > 5 ? `${files.slice(0, 5).join(", ")} and ${files.length - 5} more` : files.join(", ")

/** How a failure is told: a reason for programs, and words for people. */
export const ofFailure = (failure: RunFailure): Failed => {
  switch (failure._tag) {
    case "BinaryMissing":
      return failed("binary-missing", `the worker's program '${failure.command}' is missing: ${failure.detail}`)
    case "NotLoggedIn":
      return failed("not-logged-in", `the worker is not logged in: ${failure.detail}`)
    case "FolderUntrusted":
      return failed("folder-untrusted", `the worker does not trust the folder: ${failure.detail}`)
    case "ProtocolBroken":
      return failed("protocol-broken", `the worker broke its protocol: ${failure.detail}`)
    case "SessionLost":
      return failed("session-lost", `the worker does not know its session '${failure.sessionId}' any more`)
    case "WorkerExited": {
      const how = failure.signal === undefined ? `code ${failure.code ?? "unknown"}` : `signal ${failure.signal}`
      const tail = failure.stderr.trim()
      return failed("worker-exited", `the worker ended without a result (${how})${tail === "" ? "" : `: ${tail}`}`)
    }
    case "WorkerRefused":
      return failed("worker-refused", `the worker gave up: ${failure.detail}`)
    case "WorkspaceRefused":
      return failed("workspace", `the workspace '${failure.path}' is not allowed (${failure.reason})`)
    case "WorkspaceUnusable":
      return failed("workspace", `no worktree of '${failure.path}' (${failure.reason}): ${failure.detail}`)
    case "CollectFailed":
      return failed("workspace", `the changes cannot be read: ${failure.detail}`)
    case "WorktreeGone":
      return failed("workspace", "the job's worktree is gone")
    case "StateDirFailed":
      return failed("internal", `the worker's folder '${failure.path}' cannot be made: ${failure.detail}`)
    case "WorkerUnknown":
      return failed("internal", `no worker '${failure.worker}' is configured any more`)
    case "TimedOut":
      return failed("timed-out", `the job ran for ${failure.seconds} seconds, as long as it may`)
    case "TreeChanged":
      return failed(
        "tree-changed",
        `a job of tier ${failure.tier} changes nothing, but changed ${names(failure.files)}`
      )
    case "StoreFailed":
      return failed("internal", `the job store failed at '${failure.operation}': ${failure.detail}`)
  }
}

export const shutDown = (reason: string): Failed => failed("shutdown", reason)

/** An interruption that nobody asked for is the bridge's own end. */
export const ofCause = (cause: Cause.Cause<RunFailure>): Failed => {
  const failure = Cause.failureOption(cause)
  if (Option.isSome(failure)) return ofFailure(failure.value)
  if (Cause.isInterruptedOnly(cause)) return shutDown("the bridge ended")
  const defect = Cause.squash(cause)
  return failed("internal", `the bridge failed: ${defect instanceof Error ? defect.message : String(defect)}`)
}
