import { access, constants, mkdir, readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import type { PrincipalId } from "../../services/Auth.ts"
import { titleOf } from "../../services/jobs/caps.ts"
import { cleanUp as cleanUpWorktree } from "../../services/jobs/cleanUp.ts"
import * as Ending from "../../services/jobs/ending.ts"
import type { EngineSettings } from "../../services/jobs/EngineSettings.ts"
import { timeoutOf } from "../../services/jobs/EngineSettings.ts"
import * as Housekeeping from "../../services/jobs/housekeeping.ts"
import * as Inquiries from "../../services/jobs/inquiries.ts"
import * as Job from "../../services/jobs/Job.ts"
import * as JobLog from "../../services/jobs/JobLog.ts"
import type { Submission } from "../../services/jobs/Jobs.ts"
import { Closing, Jobs, NotNow } from "../../services/jobs/Jobs.ts"
import type { StoreFailed } from "../../services/jobs/JobStore.ts"
import { JobStore } from "../../services/jobs/JobStore.ts"
import type { Processes } from "../../services/jobs/Processes.ts"
import * as Serve from "../../services/jobs/serve.ts"
import type { End } from "../../services/jobs/slots.ts"
import * as Slots from "../../services/jobs/slots.ts"
import { Workers } from "../../services/jobs/Worker.ts"
import { Workspace, WorkspaceRefused } from "../../services/jobs/Workspace.ts"

/** Workers end politely or are killed within some two seconds; what takes longer is left to the next start. */
const workersWait = "3 seconds"
const cleanUpWait = "1 second"
const tidying = "1 hour"
const everyJob = 1_000_000

const isThreadId = Schema.is(Job.ThreadId)
const threadsOf = (stateDir: string): string => join(stateDir, "threads")
const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Fails with what is wrong. */
const makeFolder = (path: string): Effect.Effect<void, string> =>
  Effect.tryPromise({
    try: async () => {
      await mkdir(path, { recursive: true, mode: 0o700 })
      await access(path, constants.W_OK)
    },
    catch: reasonOf
  })

const make = (settings: Effect.Effect<EngineSettings>) =>
  Effect.gen(function* () {
    const store = yield* JobStore
    const workspace = yield* Workspace
    const workers = yield* Workers
    const context = yield* Effect.context<JobStore | Workspace>()
    const log = yield* JobLog.make
    const slots = yield* Slots.make(settings)

    const fibers = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
    const background = (effect: Effect.Effect<unknown>) => Effect.forkIn(Effect.interruptible(effect), fibers)

    const cleaning = new Map<Job.JobId, Deferred.Deferred<void>>()
    const cleanUp = Effect.fnUntraced(function* (id: Job.JobId) {
      if (cleaning.has(id)) return
      const tried = yield* Deferred.make<void>()
      cleaning.set(id, tried)
      yield* background(
        cleanUpWorktree(log, id, Deferred.succeed(tried, undefined)).pipe(
          Effect.provide(context),
          Effect.ensuring(Effect.sync(() => cleaning.delete(id)))
        )
      )
    })

    const folderOf = Effect.fnUntraced(function* (thread: Job.ThreadId) {
      const path = join(threadsOf((yield* settings).stateDir), thread)
      yield* Effect.mapError(makeFolder(path), (detail) => new Ending.StateDirFailed({ path, detail }))
      return path
    })
    const forgetThreads = Effect.fnUntraced(function* (stateDir: string) {
      const names = yield* Effect.promise(() => readdir(threadsOf(stateDir)).catch(() => []))
      for (const name of names) {
        if (!isThreadId(name) || (yield* store.list({ thread: name }, 1)).total > 0) continue
        const path = join(threadsOf(stateDir), name)
        yield* Effect.promise(() => rm(path, { recursive: true, force: true }).catch(() => undefined))
      }
    })
    const tidy = Effect.flatMap(settings, (limits) =>
      Effect.zipRight(Housekeeping.tidy(limits, log, slots, cleanUp), forgetThreads(limits.stateDir))
    ).pipe(
      Effect.provide(context),
      Effect.catchAll(({ detail }) => Effect.logWarning("old jobs stay", { detail }))
    )

    const serve = yield* Serve.make({ settings, log, slots, background, cleanUp, folderOf })
    const launch = (ticket: Slots.Ticket) => background(serve(ticket))

    type Fields = "owner" | "client" | "tier" | "worker" | "workspace" | "prompt" | "timeoutSeconds"
    const create = Effect.fnUntraced(function* (fields: Pick<Job.Job, Fields> & Partial<Job.Job>) {
      const at = yield* JobLog.now
      const job: Job.Job = {
        thread: Job.ThreadId.make(crypto.randomUUID()),
        title: titleOf(fields.prompt),
        ...fields,
        id: Job.JobId.make(crypto.randomUUID()),
        state: "queued",
        createdAt: at,
        updatedAt: at,
        lastSeq: 0
      }
      return yield* log.insert(job, [{ _tag: "Submitted" }])
    })

    const submit = Effect.fn("Jobs.submit")(function* (submission: Submission) {
      if (slots.isClosing()) return yield* new Closing()
      const { client, model, owner, prompt, tier, title } = submission
      const worker = yield* workers.get(submission.worker)
      const { roots } = yield* settings
      const path = submission.workspace ?? (roots.length === 1 ? roots[0] : undefined)
      if (path === undefined)
        return yield* new WorkspaceRefused({ path: "", reason: roots.length === 0 ? "no-roots" : "several-roots" })
      const resolved = yield* workspace.resolve(path)
      const prepare = (limits: EngineSettings) =>
        create({
          owner,
          client,
          tier,
          worker: worker.name,
          workspace: resolved,
          prompt,
          timeoutSeconds: timeoutOf(submission.timeoutSeconds, limits),
          ...(title === undefined || title.trim() === "" ? {} : { title: titleOf(title) }),
          ...(model === undefined ? {} : { model })
        })
      return yield* slots.take({ prompt, resumes: false }, prepare, launch)
    })

    const cannotReply = (job: Job.Job) => new NotNow({ jobId: job.id, state: job.state, operation: "reply" })

    const answer = (job: Job.Job, prompt: string) =>
      slots.take(
        { prompt, resumes: true },
        () =>
          Effect.flatMap(log.append(job.id, [{ _tag: "Replied", prompt }]), (stored) =>
            Option.isSome(stored) && stored.value.events.length > 0
              ? Effect.succeed(stored.value.job)
              : Effect.flatMap(log.find(job.id, job.owner), cannotReply)
          ),
        launch
      )

    const goOn = Effect.fnUntraced(function* (before: Job.Job, prompt: string) {
      const resolved = yield* workspace.resolve(before.workspace)
      const prepare = Effect.fnUntraced(function* (limits: EngineSettings) {
        const { jobs } = yield* store.list({ thread: before.thread, owner: before.owner }, everyJob)
        // One worker session takes one turn at a time.
        const busy = jobs.find(({ state }) => !Job.isTerminal(state))
        if (busy !== undefined) return yield* cannotReply(busy)
        const session = jobs.find((job) => job.session !== undefined)?.session
        // Without it the worker would know nothing of what was said.
        if (session === undefined) return yield* cannotReply(before)
        const { client, model, owner, thread, tier, worker } = before
        return yield* create({
          owner,
          client,
          thread,
          tier,
          worker,
          workspace: resolved,
          prompt,
          session,
          timeoutSeconds: timeoutOf(before.timeoutSeconds, limits),
          ...(model === undefined ? {} : { model })
        })
      })
      return yield* slots.take({ prompt, resumes: false }, prepare, launch)
    })

    const reply = Effect.fn("Jobs.reply")(function* (id: string, owner: PrincipalId, prompt: string) {
      if (slots.isClosing()) return yield* new Closing()
      const job = yield* log.find(id, owner)
      if (!Job.isTerminal(job.state) && job.state !== "input-required") return yield* cannotReply(job)
      yield* workers.get(job.worker)
      return yield* job.state === "input-required" ? answer(job, prompt) : goOn(job, prompt)
    })

    const cancel = Effect.fn("Jobs.cancel")(function* (id: string, owner: PrincipalId, reason: string) {
      const event: End = { _tag: "Canceled", reason }
      let ordered = false
      for (;;) {
        const job = yield* log.find(id, owner)
        if (ordered && job.state === "canceled") return job
        if (Job.isTerminal(job.state))
          return yield* new NotNow({ jobId: job.id, state: job.state, operation: "cancel" })
        ordered = true
        const ticket = slots.of(job.id)
        if (ticket !== undefined) {
          yield* Deferred.succeed(ticket.stop, event)
          yield* Deferred.await(ticket.done)
        } else {
          // Nobody works on it: it waits for input, or its end could not be stored.
          yield* slots.whileIdle(job.id, Effect.zipRight(log.append(job.id, [event]), cleanUp(job.id)))
        }
      }
    })

    const closed = yield* Deferred.make<void>()
    const shutdown = (reason: string) =>
      Effect.gen(function* () {
        if (slots.isClosing()) return yield* Deferred.await(closed)
        const tickets = yield* slots.close
        for (const { stop } of tickets) yield* Deferred.succeed(stop, Ending.shutDown(reason))
        const wait = (waits: Iterable<Deferred.Deferred<void>>, atMost: typeof workersWait | typeof cleanUpWait) =>
          Effect.forEach(waits, (done) => Deferred.await(done), { concurrency: "unbounded", discard: true }).pipe(
            Effect.interruptible,
            Effect.timeoutOption(atMost)
          )
        yield* wait(
          tickets.map(({ done }) => done),
          workersWait
        )
        yield* wait([...cleaning.values()], cleanUpWait)
        yield* log.close
        yield* Deferred.succeed(closed, undefined)
      }).pipe(Effect.uninterruptible)

    yield* Housekeeping.recover(log, cleanUp)
    // Before the fibers' own scope closes: jobs that end with it say why.
    yield* Effect.addFinalizer(() => shutdown("the bridge ended"))
    yield* background(Effect.repeat(tidy, Schedule.spaced(tidying)))

    return Jobs.of({
      ...(yield* Inquiries.make(settings, log, slots, makeFolder)),
      submit,
      reply,
      cancel,
      shutdown,
      get: log.find,
      follow: log.follow,
      watch: log.watch,
      changes: log.changes,
      list: store.list
    })
  })

/**
 * Runs jobs: one fiber for each that waits or works. The store is the truth; what is in memory here (who runs, who waits)
 * is gone with the process, and the next start orphans those jobs. Workers of a thread share a folder in `stateDir`, which
 * goes with the thread's last job: a session may need what an earlier turn left there.
 *
 * Does not know how a worktree is made, what a worker is, or where events are kept.
 */
export const layer = (
  settings: Effect.Effect<EngineSettings>
): Layer.Layer<Jobs, StoreFailed, JobStore | Workspace | Workers | Processes> => Layer.scoped(Jobs, make(settings))
