import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import type { PrincipalId } from "../Auth.ts"
import type { Diffstat, Job, State, StoredEvent, Tier } from "./Job.ts"
import { JobId } from "./Job.ts"
import type { Artifact, Filter, Position, StoreFailed } from "./JobStore.ts"
import type { WorkerHealth, WorkerUnknown } from "./Worker.ts"
import type { WorkspaceRefused, WorkspaceUnusable } from "./Workspace.ts"

/** No such job, or another principal's: the two are told apart by nobody. */
export class JobNotFound extends Schema.TaggedError<JobNotFound>()("JobNotFound", { jobId: Schema.String }) {}

/** As many jobs as may run are running (and, where jobs queue, as many wait as may). */
export class Busy extends Schema.TaggedError<Busy>()("Busy", { running: Schema.Int, limit: Schema.Int }) {}

/** The job's state does not allow it. */
export class NotNow extends Schema.TaggedError<NotNow>()("NotNow", {
  jobId: JobId,
  state: Schema.String,
  operation: Schema.Literal("reply", "cancel", "diff")
}) {}

/** The bridge is closing: nothing new is taken. */
export class Closing extends Schema.TaggedError<Closing>()("Closing", {}) {}

/** The artifact does not exist (yet). */
export class ArtifactNotFound extends Schema.TaggedError<ArtifactNotFound>()("ArtifactNotFound", {
  jobId: JobId,
  name: Schema.String
}) {}

export interface Submission {
  readonly owner: PrincipalId
  readonly client: string
  readonly prompt: string
  readonly tier: Tier
  /** A folder inside an allowed root. Left out where there is exactly one root, and it is meant. */
  readonly workspace: string | undefined
  readonly worker: string | undefined
  readonly model: string | undefined
  readonly timeoutSeconds: number | undefined
  readonly title: string | undefined
}

export type SubmitFailure = WorkspaceRefused | WorkspaceUnusable | WorkerUnknown | Busy | Closing | StoreFailed

/** A piece of a job's patch, cut at a line's end where one is near. */
export interface DiffPage {
  readonly diffstat: Diffstat
  readonly text: string
  /** Bytes. */
  readonly offset: number
  readonly total: number
  /** Where the next page starts; none after the last. */
  readonly next: number | undefined
}

export interface Stats {
  readonly states: Readonly<Record<State, number>>
  readonly tiers: Readonly<Record<Tier, number>>
  /** Since the bridge started. */
  readonly succeeded: number
  readonly failed: number
  readonly canceled: number
  /** Milliseconds from start to end, of jobs ended since the bridge started. */
  readonly duration: { readonly median: number; readonly p95: number; readonly max: number }
  readonly running: number
  readonly limit: number
}

export interface Health {
  readonly ok: boolean
  readonly workers: ReadonlyArray<WorkerHealth & { readonly name: string }>
  readonly roots: ReadonlyArray<{ readonly path: string; readonly ok: boolean; readonly detail: string }>
  readonly stateDir: { readonly path: string; readonly ok: boolean; readonly detail: string }
  readonly running: number
  readonly limit: number
}

/** Governed work: a caller chooses a tier and a folder, the bridge does the rest. */
export class Jobs extends Context.Tag("pi-a2a-ext/services/jobs/Jobs")<
  Jobs,
  {
    /** Checks all that can be checked at once, stores the job and returns: never waits for the work. */
    readonly submit: (submission: Submission) => Effect.Effect<Job, SubmitFailure>
    readonly get: (id: string, owner: PrincipalId) => Effect.Effect<Job, JobNotFound | StoreFailed>
    /**
     * The job, and its events above `since`. Waits up to `waitSeconds` for the first such event, or for the job's end;
     * then returns what is there.
     */
    readonly follow: (
      id: string,
      owner: PrincipalId,
      options: { readonly since: number; readonly waitSeconds: number; readonly limit: number }
    ) => Effect.Effect<{ readonly job: Job; readonly events: ReadonlyArray<StoredEvent> }, JobNotFound | StoreFailed>
    /** Every event above `since`, stored ones first, each once and in order; ends with the job. */
    readonly watch: (
      id: string,
      owner: PrincipalId,
      since: number
    ) => Stream.Stream<{ readonly job: Job; readonly stored: StoredEvent }, JobNotFound | StoreFailed>
    /** Every stored event of every job, from now on. */
    readonly changes: Stream.Stream<{ readonly job: Job; readonly stored: StoredEvent }>
    /** Goes on with a job that waits for input; after an end, a new job of the same thread. */
    readonly reply: (
      id: string,
      owner: PrincipalId,
      prompt: string
    ) => Effect.Effect<Job, JobNotFound | NotNow | SubmitFailure>
    /** Ends the job and every process of it. Returns once they are gone and the job says so. */
    readonly cancel: (
      id: string,
      owner: PrincipalId,
      reason: string
    ) => Effect.Effect<Job, JobNotFound | NotNow | StoreFailed>
    readonly list: (
      filter: Filter,
      limit: number,
      after?: Position
    ) => Effect.Effect<{ readonly jobs: ReadonlyArray<Job>; readonly total: number }, StoreFailed>
    readonly diff: (
      id: string,
      owner: PrincipalId,
      page: { readonly offset: number; readonly limit: number }
    ) => Effect.Effect<DiffPage, JobNotFound | ArtifactNotFound | StoreFailed>
    readonly artifacts: (
      id: string,
      owner: PrincipalId
    ) => Effect.Effect<ReadonlyArray<Artifact>, JobNotFound | StoreFailed>
    readonly readArtifact: (
      id: string,
      owner: PrincipalId,
      name: string,
      offset: number,
      length: number
    ) => Effect.Effect<
      { readonly artifact: Artifact; readonly bytes: Uint8Array },
      JobNotFound | ArtifactNotFound | StoreFailed
    >
    readonly stats: Effect.Effect<Stats, StoreFailed>
    readonly health: Effect.Effect<Health>
    /** Cancels what runs, stores all, takes nothing new. Idempotent; returns when it is done. */
    readonly shutdown: (reason: string) => Effect.Effect<void>
  }
>() {}
