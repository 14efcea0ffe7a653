import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import { fit, fitResult } from "./caps.ts"
import { patience } from "./cleanUp.ts"
import * as Ending from "./ending.ts"
import type { EngineSettings } from "./EngineSettings.ts"
import type { Event, Job, JobId, ThreadId, WorkerEvent } from "./Job.ts"
import { apply, remaining } from "./Job.ts"
import type { JobLog } from "./JobLog.ts"
import { now } from "./JobLog.ts"
import { JobStore } from "./JobStore.ts"
import { keepChanges, keepReport } from "./keepsakes.ts"
import type { End, Slots, Ticket } from "./slots.ts"
import * as Turn from "./turn.ts"
import { SessionLost, Workers } from "./Worker.ts"
import { Workspace } from "./Workspace.ts"

type Outcome = End | Extract<Event, { readonly _tag: "Asked" }>

/** For what a job changed that did not end well: the last look at its worktree. */
const lastLook = "10 seconds"

export interface Surroundings {
  readonly settings: Effect.Effect<EngineSettings>
  readonly log: JobLog
  readonly slots: Slots
  /** Starts what goes on after the job has ended. */
  readonly background: (effect: Effect.Effect<unknown>) => Effect.Effect<unknown>
  /** Starts the removal of the job's worktree. */
  readonly cleanUp: (id: JobId) => Effect.Effect<void>
  /** The folder of the workers of a thread. Made where it is missing, mode 0700. */
  readonly folderOf: (thread: ThreadId) => Effect.Effect<string, Ending.StateDirFailed>
}

/**
 * Takes a job from its place in the queue to its end, or to its question. Exactly one of these is stored, whatever
 * happens at the same time.
 */
export const make = Effect.fnUntraced(function* (around: Surroundings) {
  const { background, cleanUp, folderOf, log, settings, slots } = around
  const store = yield* JobStore
  const workspace = yield* Workspace
  const workers = yield* Workers

  const turn = Effect.fnUntraced(function* (ticket: Ticket, job: Job) {
    const { id } = ticket
    const limits = yield* settings
    const stateDir = yield* folderOf(job.thread)
    const worker = yield* workers.get(job.worker)
    const checkout = ticket.resumes
      ? yield* workspace.reopen(id, job.workspace)
      : yield* workspace.open(id, job.workspace)
    if (checkout === undefined) return yield* new Ending.WorktreeGone()
    ticket.checkout = checkout
    // Without it the worker would know nothing of its own question.
    if (ticket.resumes && job.session === undefined) return yield* new SessionLost({ sessionId: "" })

    let used = job.lastSeq
    let full = false
    const record = Effect.fnUntraced(function* (events: ReadonlyArray<WorkerEvent>, patch?: { worktree: string }) {
      const fitted = fit(events, used, limits, full)
      full = fitted.full
      if (fitted.events.length === 0 && patch === undefined) return
      const stored = yield* log.append(id, fitted.events, patch)
      if (Option.isSome(stored)) used = stored.value.job.lastSeq
    })
    const notes = ticket.resumes ? [] : checkout.notes
    yield* record(
      notes.map((text) => ({ _tag: "Warning", text })),
      { worktree: checkout.root }
    )
    const { model, session, tier } = job
    return yield* Turn.run(
      worker,
      { jobId: id, tier, cwd: checkout.cwd, prompt: ticket.prompt, session, stateDir, model },
      limits.maxEventBytes,
      record
    )
  })

  const work = Effect.fnUntraced(function* (ticket: Ticket): Effect.fn.Return<Outcome | undefined, Ending.RunFailure> {
    const begun = yield* log.append(ticket.id, [{ _tag: "Started" }])
    if (Option.isNone(begun) || begun.value.events.length === 0) return undefined
    const { job } = begun.value
    const turned = yield* turn(ticket, job).pipe(
      Effect.timeoutFail({
        duration: remaining(job),
        onTimeout: () => new Ending.TimedOut({ seconds: job.timeoutSeconds })
      })
    )
    const asked = turned._tag === "Question"
    const reads = job.tier !== "execute"
    if (ticket.checkout !== undefined && (!asked || reads)) ticket.changes = yield* workspace.collect(ticket.checkout)
    const files = ticket.changes?.diffstat.files ?? []
    if (reads && files.length > 0)
      return yield* new Ending.TreeChanged({ tier: job.tier, files: files.map(({ path }) => path) })
    return asked ? { _tag: "Asked", question: turned.question } : { _tag: "Completed", text: turned.text }
  })

  /** Stores the end: now, or as soon as the store can. Clean-up only after that: it would remove what is not safe yet. */
  const persist = (id: JobId, event: End, patch?: { readonly diffstat: NonNullable<Job["diffstat"]> }) => {
    const ended = Effect.zipRight(log.append(id, [event], patch), cleanUp(id))
    return Effect.catchAll(ended, ({ detail }) =>
      Effect.zipRight(
        Effect.logError("the end of a job cannot be stored yet", { job: id, detail }),
        background(Effect.ignore(Effect.retry(ended, patience)))
      )
    )
  }

  const conclude = Effect.fnUntraced(function* (ticket: Ticket, wanted: End) {
    const { id } = ticket
    const hurried = wanted._tag === "Failed" && wanted.reason === "shutdown"
    if (ticket.checkout !== undefined && ticket.changes === undefined && !hurried)
      ticket.changes = Option.getOrUndefined(
        yield* workspace.collect(ticket.checkout).pipe(Effect.interruptible, Effect.timeout(lastLook), Effect.option)
      )
    const { changes } = ticket
    let event: End = wanted
    if (event._tag === "Completed") {
      const { text, warning } = fitResult(event.text, (yield* settings).maxResultBytes)
      if (warning !== undefined) yield* Effect.ignore(log.append(id, [{ _tag: "Warning", text: warning }]))
      event = { _tag: "Completed", text }
    }
    const keep = Effect.gen(function* () {
      if (changes !== undefined) yield* keepChanges(store, id, changes)
      const job = yield* store.get(id)
      if (Option.isNone(job) || job.value.startedAt === undefined || hurried) return
      const ended = apply(job.value, { seq: job.value.lastSeq + 1, at: yield* now, event })
      yield* keepReport(store, changes === undefined ? ended : { ...ended, diffstat: changes.diffstat })
    })
    // Where what it made is not safe, the job has not done what it was for.
    const failure = Option.getOrUndefined(yield* Effect.option(Effect.flip(keep)))
    if (failure !== undefined && event._tag === "Completed") event = Ending.ofFailure(failure)
    // Before anybody hears of the end: who does may want the place at once.
    yield* slots.release(ticket)
    yield* persist(id, event, changes === undefined ? undefined : { diffstat: changes.diffstat })
  })

  const settle = Effect.fnUntraced(function* (ticket: Ticket, exit: Exit.Exit<Outcome | undefined, Ending.RunFailure>) {
    const outcome = Exit.isSuccess(exit) ? exit.value : Ending.ofCause(exit.cause)
    // It had ended before it could start.
    if (outcome === undefined) return yield* cleanUp(ticket.id)
    if (outcome._tag !== "Asked") return yield* conclude(ticket, outcome)
    yield* slots.release(ticket)
    yield* Effect.catchAll(log.append(ticket.id, [outcome]), (failure) => conclude(ticket, Ending.ofFailure(failure)))
  })

  return (ticket: Ticket): Effect.Effect<void> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const turned = Effect.zipRight(Deferred.await(ticket.go), work(ticket))
        const exit = yield* Effect.exit(restore(Effect.raceFirst(turned, Deferred.await(ticket.stop))))
        yield* Effect.catchAllCause(settle(ticket, exit), (cause) =>
          Effect.zipRight(
            Effect.logError("a job did not end as it should", { job: ticket.id, cause }),
            persist(ticket.id, Ending.ofCause(cause))
          )
        )
      })
    ).pipe(Effect.ensuring(slots.leave(ticket)))
})
