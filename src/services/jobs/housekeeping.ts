import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { EngineSettings } from "./EngineSettings.ts"
import type { Job, JobId } from "./Job.ts"
import { Terminal } from "./Job.ts"
import type { JobLog } from "./JobLog.ts"
import type { Filter, Position } from "./JobStore.ts"
import { JobStore, pruneBatch } from "./JobStore.ts"
import { Processes } from "./Processes.ts"
import type { Slots } from "./slots.ts"
import { Workspace } from "./Workspace.ts"

const page = 200

const all = Effect.fnUntraced(function* (filter: Filter) {
  const store = yield* JobStore
  const found: Array<Job> = []
  let after: Position | undefined
  for (;;) {
    const { jobs } = yield* store.list(filter, page, after)
    found.push(...jobs)
    after = jobs.at(-1)
    if (after === undefined) return found
  }
})

const orphan = Effect.fnUntraced(function* (log: JobLog, job: Job) {
  const store = yield* JobStore
  const processes = yield* Processes
  const killed = yield* processes.reap(job.id, Option.getOrUndefined(yield* store.processOf(job.id)))
  const message =
    job.state === "queued"
      ? "the bridge ended before the job started"
      : `the bridge ended while the job ran${killed ? "; its processes still ran, and were killed" : ""}`
  yield* log.append(job.id, [{ _tag: "Orphaned", message }])
})

/**
 * What an earlier run of the bridge left. Jobs that wait for an answer go on waiting. Processes first: nothing may still
 * write into a worktree that is being read or removed.
 */
export const recover = Effect.fnUntraced(function* (log: JobLog, cleanUp: (id: JobId) => Effect.Effect<void>) {
  const workspace = yield* Workspace
  const cut = yield* all({ states: ["running", "queued"] })
  yield* Effect.forEach(cut, (job) => orphan(log, job), { concurrency: 8, discard: true })
  const known = yield* all({ states: [...Terminal.literals], hasWorktree: true })
  const leftovers = yield* workspace.leftovers
  const ids = new Set([...known.map(({ id }) => id), ...leftovers.map(({ jobId }) => jobId)])
  yield* Effect.forEach(ids, cleanUp, { discard: true })
})

/** What is kept longer than the operator wants. */
export const tidy = Effect.fnUntraced(function* (
  { retention }: EngineSettings,
  log: JobLog,
  slots: Slots,
  cleanUp: (id: JobId) => Effect.Effect<void>
) {
  const store = yield* JobStore
  const at = yield* DateTime.now
  const oldest = DateTime.formatIso(DateTime.subtractDuration(at, retention.maxAge))
  for (const { id, updatedAt } of yield* all({ states: ["input-required"] })) {
    if (updatedAt >= oldest) continue
    const reason = "nobody answered its question for as long as jobs are kept"
    yield* slots.whileIdle(id, Effect.zipRight(log.append(id, [{ _tag: "Canceled", reason }]), cleanUp(id)))
  }
  while ((yield* store.prune(retention, DateTime.formatIso(at))).length === pruneBatch) yield* Effect.yieldNow()
})
