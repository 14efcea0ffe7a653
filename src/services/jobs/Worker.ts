import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import type { JobId, Tier, WorkerEvent } from "./Job.ts"

/** The worker's program is not there. */
export class BinaryMissing extends Schema.TaggedError<BinaryMissing>()("BinaryMissing", {
  command: Schema.String,
  detail: Schema.String
}) {}

/** The worker wants an account that it is not logged in to. */
export class NotLoggedIn extends Schema.TaggedError<NotLoggedIn>()("NotLoggedIn", { detail: Schema.String }) {}

/** The worker does not work in a folder that it was not told to trust. */
export class FolderUntrusted extends Schema.TaggedError<FolderUntrusted>()("FolderUntrusted", {
  detail: Schema.String
}) {}

/** The worker says what its protocol does not have, or nothing when it must say something. */
export class ProtocolBroken extends Schema.TaggedError<ProtocolBroken>()("ProtocolBroken", {
  detail: Schema.String
}) {}

/** The session to go on with is not known to the worker: going on without would lose what was said. */
export class SessionLost extends Schema.TaggedError<SessionLost>()("SessionLost", { sessionId: Schema.String }) {}

/** The worker ended without a result. `stderr` is its tail. */
export class WorkerExited extends Schema.TaggedError<WorkerExited>()("WorkerExited", {
  code: Schema.optional(Schema.Int),
  signal: Schema.optional(Schema.String),
  stderr: Schema.String
}) {}

/** The worker ended its turn with an error of its own (its model refused, ran out, was cut off). */
export class WorkerRefused extends Schema.TaggedError<WorkerRefused>()("WorkerRefused", { detail: Schema.String }) {}

export type WorkerFailure =
  | BinaryMissing
  | NotLoggedIn
  | FolderUntrusted
  | ProtocolBroken
  | SessionLost
  | WorkerExited
  | WorkerRefused

/** One turn of a conversation with a worker. */
export interface Turn {
  readonly jobId: JobId
  readonly tier: Tier
  /** Where it works: inside the job's worktree. */
  readonly cwd: string
  readonly prompt: string
  /** The worker's session to go on with; a fresh one without. */
  readonly session: string | undefined
  /** A folder of this job's own, for the worker's configuration and scratch files. Exists, mode 0700. */
  readonly stateDir: string
  readonly model: string | undefined
}

/** How a turn ended, last in its stream. */
export type TurnEnd =
  | { readonly _tag: "Answered"; readonly text: string }
  /** The worker cannot go on without an answer. */
  | { readonly _tag: "Question"; readonly question: string }

/** Whether a worker could work now. */
export interface WorkerHealth {
  readonly ok: boolean
  /** Its version, or what is wrong and what to do. */
  readonly detail: string
}

/** A coding agent's command line as a worker. */
export interface Worker {
  readonly name: string
  /**
   * Runs one turn. Says a `Session` and a `Process` as soon as they are known; ends with exactly one TurnEnd, or fails.
   * Closing the stream early ends every process that the turn started; the stream is over, closed or not, only when they
   * are gone.
   */
  readonly run: (turn: Turn) => Stream.Stream<WorkerEvent | TurnEnd, WorkerFailure>
  readonly health: Effect.Effect<WorkerHealth>
}

/** No worker of that name is configured. */
export class WorkerUnknown extends Schema.TaggedError<WorkerUnknown>()("WorkerUnknown", {
  worker: Schema.String,
  known: Schema.Array(Schema.String)
}) {}

export class Workers extends Context.Tag("pi-a2a-ext/services/jobs/Workers")<
  Workers,
  {
    /** The named worker, or the default one. */
    readonly get: (name: string | undefined) => Effect.Effect<Worker, WorkerUnknown>
    readonly all: Effect.Effect<ReadonlyArray<Worker>>
  }
>() {}
