import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Option from "effect/Option"
import type { PrincipalId } from "../Auth.ts"
import type { Event, Job, JobId, State, StoredEvent, Tier } from "./Job.ts"

/** The store cannot be read or written; what was asked for did not happen. */
export class StoreFailed extends Schema.TaggedError<StoreFailed>()("StoreFailed", {
  operation: Schema.String,
  detail: Schema.String
}) {}

/** Something a job made, kept beside it. */
export interface Artifact {
  readonly name: string
  readonly mediaType: string
  /** Bytes. */
  readonly size: number
}

/** Fields of a job that no event carries. */
export type Patch = Partial<Pick<Job, "diffstat" | "worktree" | "timeoutSeconds">>

export interface Filter {
  readonly owner?: PrincipalId
  readonly states?: ReadonlyArray<State>
  readonly thread?: string
  /** ISO 8601: only jobs whose state changed after it. */
  readonly updatedAfter?: string
  /** Only jobs that have a worktree. */
  readonly hasWorktree?: true
}

/** A place in a list that is sorted by `updatedAt`, then by id, both descending: the next page starts after it. */
export interface Position {
  readonly updatedAt: string
  readonly id: string
}

/** What is kept, and for how long. */
export interface Retention {
  /** Milliseconds since the end of a job. */
  readonly maxAge: number
  /** Ended jobs. Those that wait for input are neither counted nor removed. */
  readonly maxJobs: number
}

/** Jobs that one `prune` removes at most: a store may stop everything while it works. */
export const pruneBatch = 100

/** A job as stored, and the events that have just been stored with it. */
export interface Recorded {
  readonly job: Job
  readonly events: ReadonlyArray<StoredEvent>
}

/** How many jobs there are of each kind. */
export interface Counts {
  readonly states: Readonly<Record<State, number>>
  readonly tiers: Readonly<Record<Tier, number>>
}

/**
 * Jobs, their events and what they made, past the process's end. Each method is one transaction. What is stored reads
 * back as it was given: what could not is refused.
 */
export class JobStore extends Context.Tag("pi-a2a-ext/services/jobs/JobStore")<
  JobStore,
  {
    /** A new job, with those of the first events that it accepts (seq 1...). */
    readonly insert: (job: Job, events: ReadonlyArray<Event>, at: string) => Effect.Effect<Recorded, StoreFailed>
    /**
     * Adds events that the job's state accepts (`Job.accepts`, one after the other), with `patch`, all or nothing. The
     * job and the events as stored: none where none was accepted. The patch is for the job that the events make: it is
     * left out where events were given and none was accepted. Absent where there is no such job.
     */
    readonly append: (
      id: JobId,
      events: ReadonlyArray<Event>,
      at: string,
      patch?: Patch
    ) => Effect.Effect<Option.Option<Recorded>, StoreFailed>
    readonly get: (id: JobId) => Effect.Effect<Option.Option<Job>, StoreFailed>
    /** Sorted as `Position` says; `total` counts all that pass the filter, whatever the page. */
    readonly list: (
      filter: Filter,
      limit: number,
      after?: Position
    ) => Effect.Effect<{ readonly jobs: ReadonlyArray<Job>; readonly total: number }, StoreFailed>
    /** Events with `seq` above `since`, oldest first, at most `limit`; of all kinds, or of some. */
    readonly events: (
      id: JobId,
      since: number,
      limit: number,
      tags?: ReadonlyArray<Event["_tag"]>
    ) => Effect.Effect<ReadonlyArray<StoredEvent>, StoreFailed>
    /** Replaces one of the same name. Fails where there is no such job. */
    readonly putArtifact: (
      id: JobId,
      name: string,
      mediaType: string,
      bytes: Uint8Array
    ) => Effect.Effect<void, StoreFailed>
    readonly artifacts: (id: JobId) => Effect.Effect<ReadonlyArray<Artifact>, StoreFailed>
    /** A piece of an artifact, by bytes. Absent where there is no such artifact. */
    readonly readArtifact: (
      id: JobId,
      name: string,
      offset: number,
      length: number
    ) => Effect.Effect<Option.Option<{ readonly artifact: Artifact; readonly bytes: Uint8Array }>, StoreFailed>
    /** The last recorded process of a job, as its `Process` event says. */
    readonly processOf: (
      id: JobId
    ) => Effect.Effect<Option.Option<{ readonly pid: number; readonly startedAt: string }>, StoreFailed>
    /**
     * Removes ended jobs that are too old or too many, with all that is theirs; not one that still has a worktree. Oldest
     * first, `pruneBatch` at most: done when none is left to remove.
     */
    readonly prune: (retention: Retention, now: string) => Effect.Effect<ReadonlyArray<JobId>, StoreFailed>
    readonly counts: Effect.Effect<Counts, StoreFailed>
  }
>() {}
