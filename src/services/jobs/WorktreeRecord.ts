import * as Schema from "effect/Schema"
import { JobId } from "./Job.ts"

/** What is known of a job's worktree beside it on the disk: enough to go on with it, or to remove it, without a store. */
export const WorktreeRecord = Schema.Struct({
  version: Schema.Literal(1),
  jobId: JobId,
  /** `opening`: whoever wrote it may have died before the worktree was complete. */
  phase: Schema.Literal("opening", "ready"),
  repository: Schema.String,
  /** The repository's git folder. */
  common: Schema.String,
  base: Schema.String,
  /** The requested folder in the repository, "/" between names. */
  folder: Schema.String,
  /** Files that were copied into it from the checkout: never part of what the job changed. */
  copied: Schema.Array(Schema.String),
  notes: Schema.Array(Schema.String),
  /** Branches that the repository had when it was opened. */
  branchesBefore: Schema.Array(Schema.String),
  /** Branches that were made in it; set once its removal has begun. */
  branchesMade: Schema.optional(Schema.Array(Schema.String))
})
export type WorktreeRecord = typeof WorktreeRecord.Type

export const WorktreeRecordJson = Schema.parseJson(WorktreeRecord)
