import * as DateTime from "effect/DateTime"
import * as Schema from "effect/Schema"
import { PrincipalId } from "../Auth.ts"

export const JobId = Schema.UUID.pipe(Schema.brand("JobId"))
export type JobId = typeof JobId.Type

/** Jobs of one conversation with one worker: the first job's reply continues where it ended. */
export const ThreadId = Schema.UUID.pipe(Schema.brand("ThreadId"))
export type ThreadId = typeof ThreadId.Type

/** All that a caller may choose of a worker's power: `consult` answers, `plan` plans, `execute` changes the worktree. */
export const Tier = Schema.Literal("consult", "plan", "execute")
export type Tier = typeof Tier.Type

export const Terminal = Schema.Literal("completed", "failed", "canceled", "orphaned")
/** `orphaned`: the bridge died while the job ran. */
export const State = Schema.Literal("queued", "running", "input-required", ...Terminal.literals)
export type State = typeof State.Type

export const isTerminal = (state: State): state is typeof Terminal.Type =>
  (Terminal.literals as ReadonlyArray<State>).includes(state)

/** Why a job failed, for programs; `message` of the event is for people. */
export const FailureReason = Schema.Literal(
  "binary-missing",
  "not-logged-in",
  "folder-untrusted",
  "protocol-broken",
  "session-lost",
  "worker-exited",
  "worker-refused",
  "timed-out",
  "tree-changed",
  "workspace",
  "shutdown",
  "internal"
)
export type FailureReason = typeof FailureReason.Type

/** Tokens, as the worker reports them. */
export const Usage = Schema.Struct({
  inputTokens: Schema.JsonNumber,
  outputTokens: Schema.JsonNumber,
  cacheReadTokens: Schema.optional(Schema.JsonNumber),
  cacheWriteTokens: Schema.optional(Schema.JsonNumber)
})
export type Usage = typeof Usage.Type

const tagged = <T extends string, F extends Schema.Struct.Fields>(tag: T, fields: F) => Schema.TaggedStruct(tag, fields)

/** What a worker says while it works. */
export const WorkerEvent = Schema.Union(
  /** The worker's own session: what a reply resumes. */
  tagged("Session", { sessionId: Schema.String }),
  /** The worker's process group and its start time: what a restarted bridge may kill. */
  tagged("Process", { pid: Schema.Int, startedAt: Schema.String }),
  tagged("Text", { text: Schema.String }),
  tagged("Thought", { text: Schema.String }),
  tagged("ToolStarted", { callId: Schema.String, title: Schema.String, kind: Schema.optional(Schema.String) }),
  tagged("ToolEnded", { callId: Schema.String, ok: Schema.Boolean, detail: Schema.optional(Schema.String) }),
  tagged("Plan", { entries: Schema.Array(Schema.Struct({ text: Schema.String, status: Schema.String })) }),
  /** The worker asked for something that the tier does not allow. */
  tagged("Denied", { what: Schema.String, reason: Schema.String }),
  tagged("Usage", Usage.fields),
  /** Something a person should know that ends nothing. */
  tagged("Warning", { text: Schema.String })
)
export type WorkerEvent = typeof WorkerEvent.Type

/** All that happens to a job, in order; the job is what these make of it. */
export const Event = Schema.Union(
  tagged("Submitted", {}),
  tagged("Started", {}),
  ...WorkerEvent.members,
  /** The worker needs an answer before it goes on; the turn has ended. */
  tagged("Asked", { question: Schema.String }),
  tagged("Replied", { prompt: Schema.String }),
  tagged("Completed", { text: Schema.String }),
  tagged("Failed", { reason: FailureReason, message: Schema.String }),
  tagged("Canceled", { reason: Schema.String }),
  tagged("Orphaned", { message: Schema.String }),
  /** The worktree is gone, or could not be removed (then it is tried again). */
  tagged("CleanedUp", {}),
  tagged("CleanUpFailed", { message: Schema.String })
)
export type Event = typeof Event.Type

/** An event with its place in the job, from 1 without gaps, and its time (ISO 8601). */
export const StoredEvent = Schema.Struct({ seq: Schema.Int, at: Schema.String, event: Event })
export type StoredEvent = typeof StoredEvent.Type

const running: Partial<Record<Event["_tag"], State>> = {
  Asked: "input-required",
  Completed: "completed",
  Failed: "failed",
  Canceled: "canceled",
  Orphaned: "orphaned"
}

const transitions: { readonly [S in State]: Partial<Record<Event["_tag"], State>> } = {
  queued: { Submitted: "queued", Started: "running", Failed: "failed", Canceled: "canceled", Orphaned: "orphaned" },
  running,
  "input-required": { Replied: "queued", Failed: "failed", Canceled: "canceled" },
  completed: {},
  failed: {},
  canceled: {},
  orphaned: {}
}

/** Events that a state does not accept leave it unchanged. */
export const step = (state: State, event: Event): State => transitions[state][event._tag] ?? state

const workerTags: { readonly [T in WorkerEvent["_tag"]]: true } = {
  Session: true,
  Process: true,
  Text: true,
  Thought: true,
  ToolStarted: true,
  ToolEnded: true,
  Plan: true,
  Denied: true,
  Usage: true,
  Warning: true
}
/** By name only: what a worker made is checked where it is stored. */
export const isWorkerEvent = (event: Event): event is WorkerEvent => event._tag in workerTags

/**
 * Whether the event belongs into the job's record in this state: it moves the job, or adds to what is known of it. A
 * worker speaks while the job runs; a worktree goes once the job has ended.
 */
export const accepts = (state: State, event: Event): boolean =>
  transitions[state][event._tag] !== undefined ||
  (isTerminal(state) && (event._tag === "CleanedUp" || event._tag === "CleanUpFailed")) ||
  (state === "running" && isWorkerEvent(event))

export const Diffstat = Schema.Struct({
  files: Schema.Array(
    Schema.Struct({
      path: Schema.String,
      /** Set where the file was renamed. */
      from: Schema.optional(Schema.String),
      change: Schema.Literal("added", "modified", "deleted", "renamed", "mode"),
      binary: Schema.Boolean,
      insertions: Schema.Int,
      deletions: Schema.Int
    })
  ),
  insertions: Schema.Int,
  deletions: Schema.Int
})
export type Diffstat = typeof Diffstat.Type

/** A job as it stands. Times are ISO 8601. */
export const Job = Schema.Struct({
  id: JobId,
  thread: ThreadId,
  owner: PrincipalId,
  /** Name of the client that asked for it, for people. */
  client: Schema.String,
  state: State,
  tier: Tier,
  worker: Schema.String,
  /** The worker's own name of a model; its default without. */
  model: Schema.optional(Schema.String),
  /** The checkout that the job works for: a folder inside an allowed root. */
  workspace: Schema.String,
  prompt: Schema.String,
  title: Schema.String,
  timeoutSeconds: Schema.Number,
  createdAt: Schema.String,
  startedAt: Schema.optional(Schema.String),
  /** When the state last changed. */
  updatedAt: Schema.String,
  endedAt: Schema.optional(Schema.String),
  /** Milliseconds that it ran, turns that ended: what counts against `timeoutSeconds`. */
  ranMillis: Schema.optional(Schema.Number),
  /** The worker's session of this thread. */
  session: Schema.optional(Schema.String),
  question: Schema.optional(Schema.String),
  /** The worker's last word, cut to the configured size. */
  result: Schema.optional(Schema.String),
  failure: Schema.optional(Schema.Struct({ reason: FailureReason, message: Schema.String })),
  diffstat: Schema.optional(Diffstat),
  usage: Schema.optional(Usage),
  /** Folder of the worktree while there is one. */
  worktree: Schema.optional(Schema.String),
  /** Highest `seq` of its events. */
  lastSeq: Schema.Int
})
export type Job = typeof Job.Type

const addUsage = (a: Usage | undefined, b: Usage): Usage => ({
  inputTokens: (a?.inputTokens ?? 0) + b.inputTokens,
  outputTokens: (a?.outputTokens ?? 0) + b.outputTokens,
  cacheReadTokens: (a?.cacheReadTokens ?? 0) + (b.cacheReadTokens ?? 0),
  cacheWriteTokens: (a?.cacheWriteTokens ?? 0) + (b.cacheWriteTokens ?? 0)
})

const without = <K extends keyof Job>(job: Job, ...keys: ReadonlyArray<K>): Job => {
  const copy: Record<string, unknown> = { ...job }
  for (const key of keys) delete copy[key]
  return copy as Job
}

const millis = (iso: string): number => DateTime.unsafeMake(iso).epochMillis

/** Milliseconds from one ISO 8601 time to a later one. */
export const elapsed = (from: string, to: string): number => Math.max(0, millis(to) - millis(from))

/** Milliseconds that the job may still run. */
export const remaining = (job: Job): number => Math.max(0, job.timeoutSeconds * 1000 - (job.ranMillis ?? 0))

/** The job after an event that it accepts: `step`, and what the event says of the rest. */
export const apply = (job: Job, { at, event, seq }: StoredEvent): Job => {
  const state = step(job.state, event)
  const moved: Job = { ...job, lastSeq: seq, ...(state === job.state ? {} : { state, updatedAt: at }) }
  const left: Job =
    job.state === "running" && state !== "running"
      ? { ...moved, ranMillis: (job.ranMillis ?? 0) + elapsed(job.updatedAt, at) }
      : moved
  const ended = isTerminal(state) && !isTerminal(job.state) ? { ...left, endedAt: at } : left
  switch (event._tag) {
    case "Started":
      return state === job.state ? ended : { ...ended, startedAt: job.startedAt ?? at }
    case "Session":
      return { ...ended, session: event.sessionId }
    case "Usage": {
      const { _tag, ...usage } = event
      return { ...ended, usage: addUsage(job.usage, usage) }
    }
    case "Asked":
      return state === job.state ? ended : { ...ended, question: event.question }
    case "Completed":
      return state === job.state ? ended : { ...ended, result: event.text }
    case "Failed":
      return state === job.state
        ? ended
        : without({ ...ended, failure: { reason: event.reason, message: event.message } }, "question")
    case "Replied":
    case "Canceled":
      return state === job.state ? ended : without(ended, "question")
    case "CleanedUp":
      return without(ended, "worktree")
    default:
      return ended
  }
}

/**
 * The job before its first event, for a replay of them all. What no event carries, and the session that it may have
 * begun with, is as it stands now.
 */
export const initial = (job: Job): Job => ({
  ...without(job, "startedAt", "endedAt", "ranMillis", "question", "result", "failure", "usage"),
  state: "queued",
  updatedAt: job.createdAt,
  lastSeq: 0
})
