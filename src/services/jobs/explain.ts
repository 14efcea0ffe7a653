import type { ArtifactNotFound, JobNotFound, NotNow, SubmitFailure } from "./Jobs.ts"
import type { PathRefusal } from "./pathRules.ts"

export type JobFailure = JobNotFound | NotNow | ArtifactNotFound | SubmitFailure

const paths: { readonly [R in PathRefusal]: string } = {
  "no-roots": "no folder is allowed on this host: the operator must set workspaceRoots in a2a-bridge.json",
  "several-roots": "several folders are allowed: name one of them, or one inside; bridge_health lists them",
  "not-absolute": "give an absolute path",
  nul: "it holds a NUL character",
  "dot-dot": "it holds '..'; give the path itself",
  "bad-name": "a name in it is not one that every file system takes",
  "device-name": "it holds the name of a device",
  "short-name": "it holds a short (8.3) name; give the long one",
  unc: "network and device paths are not allowed",
  outside: "it is outside every allowed folder; bridge_health lists those",
  "link-escape": "a link in it leads outside every allowed folder",
  absent: "there is no such folder",
  "not-a-folder": "it is not a folder"
}

const unusable = {
  "no-repository": "it is not inside a git repository; jobs work in worktrees of one",
  "no-commits": "the repository has no commit yet; make one first",
  untracked: "the folder is not under version control: commit it first",
  bare: "the repository is bare; jobs need one with a working tree",
  "git-missing": "git is not installed on this host",
  "git-failed": "git refused to make a worktree",
  disk: "the worktree could not be written"
} as const

/** What a refused request says to the model on the other side: what was wrong, and what to do. */
export const explain = (failure: JobFailure): string => {
  switch (failure._tag) {
    case "JobNotFound":
      return `no job '${failure.jobId}': cursor_list names yours; ended jobs are kept for a limited time`
    case "NotNow":
      return `job ${failure.jobId} is ${failure.state}: ${failure.operation} is not possible now; cursor_status tells when it is`
    case "ArtifactNotFound":
      return `job ${failure.jobId} has no ${failure.name} (yet): it is made when the job ends`
    case "WorkspaceRefused":
      return `workspace '${failure.path}' refused: ${paths[failure.reason]}`
    case "WorkspaceUnusable":
      return `workspace '${failure.path}' cannot be used: ${unusable[failure.reason]} (${failure.detail})`
    case "WorkerUnknown":
      return `no worker '${failure.worker}'; this host has ${failure.known.join(", ")}`
    case "Busy":
      return `${failure.running} of ${failure.limit} jobs are running: wait for one to end, or cancel one (maxConcurrency)`
    case "Closing":
      return "the bridge is shutting down and takes no new jobs"
    case "StoreFailed":
      return `the job store failed at '${failure.operation}': ${failure.detail}; nothing was changed`
  }
}
