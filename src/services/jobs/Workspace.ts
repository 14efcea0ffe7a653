import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Diffstat, JobId } from "./Job.ts"
import { PathRefusal } from "./pathRules.ts"

/** The path is not one that remote parties may work in. */
export class WorkspaceRefused extends Schema.TaggedError<WorkspaceRefused>()("WorkspaceRefused", {
  path: Schema.String,
  reason: PathRefusal
}) {}

/** The folder is allowed, but no worktree can be made of it. */
export class WorkspaceUnusable extends Schema.TaggedError<WorkspaceUnusable>()("WorkspaceUnusable", {
  path: Schema.String,
  reason: Schema.Literal(
    "no-repository",
    "no-commits",
    "bare",
    /** The folder is not in the commit that a worktree starts from. */
    "untracked",
    "git-missing",
    "git-failed",
    "disk"
  ),
  detail: Schema.String
}) {}

/** The worktree's changes cannot be read. The worktree stays. */
export class CollectFailed extends Schema.TaggedError<CollectFailed>()("CollectFailed", { detail: Schema.String }) {}

/** The worktree is still there. */
export class RemoveFailed extends Schema.TaggedError<RemoveFailed>()("RemoveFailed", {
  path: Schema.String,
  detail: Schema.String
}) {}

/** A worktree of one job. */
export interface Checkout {
  readonly jobId: JobId
  /** The worktree. */
  readonly root: string
  /** Where the worker works: the requested folder's place in the worktree. */
  readonly cwd: string
  /** The repository's own top level: the user's checkout, which is never touched. */
  readonly repository: string
  /** The commit that it started from, as a full hash. */
  readonly base: string
  /** For people: uncommitted changes that are not in it, env files that were copied. */
  readonly notes: ReadonlyArray<string>
}

/** What a job changed. */
export interface Changes {
  /** `git apply --binary` takes it on `base`: binary files, renames, modes, untracked files included. Empty where nothing changed. */
  readonly patch: Uint8Array
  readonly diffstat: Diffstat
}

export class Workspace extends Context.Tag("pi-a2a-ext/services/jobs/Workspace")<
  Workspace,
  {
    /** The real path of a folder inside an allowed root. Changes nothing. */
    readonly resolve: (path: string) => Effect.Effect<string, WorkspaceRefused>
    /** A fresh worktree at the repository's HEAD; what the user has uncommitted stays out of it. */
    readonly open: (jobId: JobId, path: string) => Effect.Effect<Checkout, WorkspaceRefused | WorkspaceUnusable>
    /** The worktree of a job as it was left, by this bridge or the one before; none where it is gone. */
    readonly reopen: (jobId: JobId, path: string) => Effect.Effect<Checkout | undefined, WorkspaceRefused>
    /** All changes since `base`, commits of the worker included. */
    readonly collect: (checkout: Checkout) => Effect.Effect<Changes, CollectFailed>
    /** Removes the worktree, its branch-less commits' reachability and git's record of it. Gone already is success. */
    readonly remove: (jobId: JobId, root: string) => Effect.Effect<void, RemoveFailed>
    /** Jobs that have a worktree on disk. */
    readonly leftovers: Effect.Effect<ReadonlyArray<{ readonly jobId: JobId; readonly root: string }>>
  }
>() {}
