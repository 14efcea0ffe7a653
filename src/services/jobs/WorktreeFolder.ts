import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { Disk } from "./gitChanges.ts"
import type { JobId } from "./Job.ts"
import type { WorktreeRecord } from "./WorktreeRecord.ts"

/** The disk refused. That something is not there is an answer, and no failure. */
export class FolderFailed extends Schema.TaggedError<FolderFailed>()("FolderFailed", { detail: Schema.String }) {}

/**
 * The folder of the bridge's worktrees: `<jobId>` is a job's worktree, `<jobId>.*` what is known of it. Nothing is
 * deleted but these, and git's records of them.
 */
export class WorktreeFolder extends Context.Tag("pi-a2a-ext/services/jobs/WorktreeFolder")<
  WorktreeFolder,
  {
    /** Its real path. Made, for this user alone, where it is absent. */
    readonly make: Effect.Effect<string, FolderFailed>
    /** Its real path; undefined where it is absent. */
    readonly find: Effect.Effect<string | undefined, FolderFailed>
    /** Jobs that have something in it. */
    readonly jobs: Effect.Effect<ReadonlyArray<JobId>, FolderFailed>

    /** Writes the first record of a job; false where the job has something in the folder. */
    readonly claim: (record: WorktreeRecord) => Effect.Effect<boolean, FolderFailed>
    readonly write: (record: WorktreeRecord) => Effect.Effect<void, FolderFailed>
    readonly read: (jobId: JobId) => Effect.Effect<WorktreeRecord | undefined, FolderFailed>
    /** Keeps the index of a fresh worktree. */
    readonly keepIndex: (jobId: JobId, gitDir: string) => Effect.Effect<void, FolderFailed>
    /** A place to work in, with a copy of the kept index (where there is one), for as long as the scope. */
    readonly scratch: (
      jobId: JobId
    ) => Effect.Effect<
      { readonly index: string; readonly seeded: boolean; readonly objects: string },
      FolderFailed,
      Scope.Scope
    >
    /** Copies files into a worktree that has nothing at their place. Those that were copied; no links, none through one. */
    readonly copy: (
      from: string,
      jobId: JobId,
      names: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<string>, FolderFailed>

    /** Git's records of the job's worktree, in the repository's git folder. */
    readonly gitRecords: (common: string, jobId: JobId) => Effect.Effect<ReadonlyArray<string>, FolderFailed>
    /** The repository's git folder, as the worktree has it. */
    readonly commonOf: (jobId: JobId) => Effect.Effect<string | undefined, FolderFailed>
    /** The worktree, also a read-only one; a link in its place, and not what it leads to. */
    readonly removeTree: (jobId: JobId) => Effect.Effect<void, FolderFailed>
    readonly removeGitRecords: (common: string, jobId: JobId) => Effect.Effect<void, FolderFailed>
    /** What is known of the job, its record last. */
    readonly forget: (jobId: JobId) => Effect.Effect<void, FolderFailed>

    /** In the disk's own spelling; undefined where it leads nowhere. */
    readonly realpath: (path: string) => Effect.Effect<string | undefined>
    /** What is at the path itself: a link is no folder. */
    readonly kind: (path: string) => Effect.Effect<"folder" | "other" | undefined, FolderFailed>
    readonly disk: (root: string) => Disk
  }
>() {}
