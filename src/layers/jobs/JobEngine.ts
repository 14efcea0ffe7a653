import { access, constants, mkdir, readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import * as DateTime from "effect/DateTime"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import type { PrincipalId } from "../../services/Auth.ts"
import { admit, startable } from "../../services/jobs/admission.ts"
import { fit, fitResult, titleOf } from "../../services/jobs/caps.ts"
import { cleanUp as cleanUpWorktree, patience } from "../../services/jobs/cleanUp.ts"
import { overlap, pageLength } from "../../services/jobs/diffPage.ts"
import * as Ending from "../../services/jobs/ending.ts"
import type { EngineSettings } from "../../services/jobs/EngineSettings.ts"
import { timeoutOf } from "../../services/jobs/EngineSettings.ts"
import * as Job from "../../services/jobs/Job.ts"
import * as JobLog from "../../services/jobs/JobLog.ts"
import type { Health, Submission } from "../../services/jobs/Jobs.ts"
import { ArtifactNotFound, Busy, Closing, Jobs, NotNow } from "../../services/jobs/Jobs.ts"
import type { Filter, Position, StoreFailed } from "../../services/jobs/JobStore.ts"
import { JobStore, pruneBatch } from "../../services/jobs/JobStore.ts"
import { keepChanges, keepReport, patchName } from "../../services/jobs/keepsakes.ts"
import { Processes } from "../../services/jobs/Processes.ts"
import * as Tally from "../../services/jobs/tally.ts"
import * as Turn from "../../services/jobs/turn.ts"
import { SessionLost, Workers } from "../../services/jobs/Worker.ts"
import type { Changes, Checkout } from "../../services/jobs/Workspace.ts"
import { Workspace, WorkspaceRefused } from "../../services/jobs/Workspace.ts"

type End = Extract<Job.Event, { readonly _tag: "Completed" | "Failed" | "Canceled" }>
type Outcome = End | Extract<Job.Event, { readonly _tag: "Asked" }>

/** One stay of a job in the queue and in a worker's hands. */
interface Ticket {
  readonly id: Job.JobId
  readonly prompt: string
  /** Goes on in the job's worktree and session. */
  readonly resumes: boolean
  readonly go: Deferred.Deferred<void>
  readonly stop: Deferred.Deferred<End>
  readonly done: Deferred.Deferred<void>
  /** Counts as running. */
  holds: boolean
  checkout: Checkout | undefined
  changes: Changes | undefined
}

/** For work whose result nobody waits for long. */
const lastCollect = "10 seconds"
/** Workers end politely or are killed within some two seconds; what takes longer is left to the next start. */
const shutdownWait = "3 seconds"
const cleanUpWait = "1 second"
const healthWait = "5 seconds"
const everyJob = 1_000_000
const maxPageBytes = 1024 * 1024

const isThreadId = Schema.is(Job.ThreadId)

const make = (settings: Effect.Effect<EngineSettings>) =>
  Effect.gen(function* () {
    const store = yield* JobStore
    const workspace = yield* Workspace
    const workers = yield* Workers
    const processes = yield* Processes
    const log = yield* JobLog.make
    const context = yield* Effect.context<JobStore | Workspace>()

    const active = new Map<Job.JobId, Ticket>()
    const waiting: Array<Ticket> = []
    let running = 0
    let tally = Tally.empty
    let closing = false
    const cleaning = new Map<Job.JobId, Deferred.Deferred<void>>()
    // Whether a job may start, and which, is decided by one at a time.
    const gate = yield* Effect.makeSemaphore(1)
    const fibers = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
    const background = <A>(effect: Effect.Effect<A>) => Effect.forkIn(Effect.interruptible(effect), fibers)

    const stateDirOf = (stateDir: string, thread: Job.ThreadId) => join(stateDir, "threads", thread)

    // ---- slots

    const pump = Effect.map(settings, (limits) => {
      for (let n = startable({ running, waiting: waiting.length }, limits); n > 0; n--) {
        const next = waiting.shift()
        if (next === undefined) return
        next.holds = true
        running++
        Deferred.unsafeDone(next.go, Exit.void)
      }
    })
    const release = (ticket: Ticket) =>
      Effect.suspend(() => {
        if (ticket.holds) running--
        ticket.holds = false
        const place = waiting.indexOf(ticket)
        if (place >= 0) waiting.splice(place, 1)
        return pump
      })

    // ---- the end of a job

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

    /** The job as it ends with the event; absent where it had ended before. */
    const end = Effect.fnUntraced(function* (
      id: Job.JobId,
      event: End | Job.Event,
      patch?: { diffstat: Job.Diffstat }
    ) {
      const stored = yield* log.append(id, [event], patch)
      if (Option.isNone(stored) || stored.value.events.length === 0) return undefined
      tally = Tally.add(tally, stored.value.job)
      return stored.value.job
    })

    const conclude = Effect.fnUntraced(function* (ticket: Ticket, wanted: End) {
      const { id } = ticket
      let event: End = wanted
      const hurried = event._tag === "Failed" && event.reason === "shutdown"
      if (ticket.checkout !== undefined && ticket.changes === undefined && !hurried)
        ticket.changes = Option.getOrUndefined(
          yield* workspace
            .collect(ticket.checkout)
            .pipe(Effect.interruptible, Effect.timeout(lastCollect), Effect.option)
        )
      const { changes } = ticket
      if (event._tag === "Completed") {
        const { maxResultBytes } = yield* settings
        const { text, warning } = fitResult(event.text, maxResultBytes)
        if (warning !== undefined) yield* Effect.ignore(log.append(id, [{ _tag: "Warning", text: warning }]))
        event = { _tag: "Completed", text }
      }
      const keep = Effect.gen(function* () {
        if (changes !== undefined) yield* keepChanges(store, id, changes)
        const job = yield* store.get(id)
        if (Option.isNone(job) || job.value.startedAt === undefined || hurried) return
        const ended = Job.apply(job.value, { seq: job.value.lastSeq + 1, at: yield* JobLog.now, event })
        yield* keepReport(store, changes === undefined ? ended : { ...ended, diffstat: changes.diffstat })
      })
      yield* keep.pipe(
        Effect.catchAll((failure) => {
          // What it made is not safe: the job has not done what it was for. The worktree waits for the store.
          if (event._tag === "Completed") event = Ending.ofFailure(failure)
          return Effect.void
        })
      )
      yield* release(ticket)
      const store_ = end(id, event, changes === undefined ? undefined : { diffstat: changes.diffstat })
      yield* store_.pipe(
        Effect.zipRight(cleanUp(id)),
        Effect.catchAll((failure) =>
          Effect.zipRight(
            Effect.logError("the end of a job cannot be stored yet", { job: id, detail: failure.detail }),
            background(Effect.ignore(Effect.zipRight(Effect.retry(store_, patience), cleanUp(id))))
          )
        )
      )
    })

    // ---- a turn

    const turn = Effect.fnUntraced(function* (ticket: Ticket, job: Job.Job) {
      const { id } = ticket
      const { stateDir, ...limits } = yield* settings
      const path = stateDirOf(stateDir, job.thread)
      yield* Effect.tryPromise({
        try: () => mkdir(path, { recursive: true, mode: 0o700 }),
        catch: (error) => new Ending.StateDirFailed({ path, detail: String(error) })
      })
      const worker = yield* workers.get(job.worker)
      const checkout = ticket.resumes
        ? yield* workspace.reopen(id, job.workspace)
        : yield* workspace.open(id, job.workspace)
      if (checkout === undefined) return yield* new Ending.WorktreeGone()
      ticket.checkout = checkout
      if (ticket.resumes && job.session === undefined) return yield* new SessionLost({ sessionId: "" })

      let used = job.lastSeq
      let full = false
      const record = Effect.fnUntraced(function* (
        events: ReadonlyArray<Job.WorkerEvent>,
        patch?: { worktree: string }
      ) {
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
      const { model, session } = job
      return yield* Turn.run(
        worker,
        { jobId: id, tier: job.tier, cwd: checkout.cwd, prompt: ticket.prompt, session, stateDir: path, model },
        limits.maxEventBytes,
        record
      )
    })

    const work = Effect.fnUntraced(function* (
      ticket: Ticket
    ): Effect.fn.Return<Outcome | undefined, Ending.RunFailure> {
      const begun = yield* log.append(ticket.id, [{ _tag: "Started" }])
      if (Option.isNone(begun) || begun.value.events.length === 0) return undefined
      const { job } = begun.value
      const turned = yield* turn(ticket, job).pipe(
        Effect.timeoutFail({
          duration: Job.remaining(job),
          onTimeout: () => new Ending.TimedOut({ seconds: job.timeoutSeconds })
        })
      )
      if (turned._tag === "Question" && job.tier === "execute") return { _tag: "Asked", question: turned.question }
      if (ticket.checkout !== undefined) ticket.changes = yield* workspace.collect(ticket.checkout)
      const files = ticket.changes?.diffstat.files ?? []
      if (job.tier !== "execute" && files.length > 0)
        return yield* new Ending.TreeChanged({ tier: job.tier, files: files.map(({ path }) => path) })
      return turned._tag === "Question"
        ? { _tag: "Asked", question: turned.question }
        : { _tag: "Completed", text: turned.text }
    })

    /** Whatever happens to it, a job that came here leaves with one end, or with a question. */
    const serve = (ticket: Ticket) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const turned = Effect.zipRight(Deferred.await(ticket.go), work(ticket))
          const exit = yield* Effect.exit(restore(Effect.raceFirst(turned, Deferred.await(ticket.stop))))
          if (Exit.isFailure(exit)) yield* Effect.logDebug("job ended early", { job: ticket.id, cause: exit.cause })
          const outcome = Exit.isSuccess(exit) ? exit.value : Ending.ofCause(exit.cause)
          if (outcome === undefined) return yield* cleanUp(ticket.id)
          if (outcome._tag !== "Asked") return yield* conclude(ticket, outcome)
          ticket.changes = undefined
          yield* release(ticket)
          yield* Effect.catchAll(log.append(ticket.id, [outcome]), (failure) =>
            conclude(ticket, Ending.ofFailure(failure))
          )
        })
      ).pipe(
        Effect.ensuring(
          Effect.suspend(() => {
            if (active.get(ticket.id) === ticket) active.delete(ticket.id)
            return Effect.zipRight(release(ticket), Deferred.succeed(ticket.done, undefined))
          })
        )
      )

    /** Takes one more job, where there is room: `prepare` stores it. Its place in the queue is that of this call. */
    const enroll = <E>(
      resumes: boolean,
      prompt: string,
      prepare: (limits: EngineSettings) => Effect.Effect<Job.Job, E>
    ): Effect.Effect<Job.Job, E | Busy | Closing> =>
      gate
        .withPermits(1)(
          Effect.gen(function* () {
            if (closing) return yield* new Closing()
            const limits = yield* settings
            if (admit({ running, waiting: waiting.length }, limits) === "refuse")
              return yield* new Busy({ running, limit: limits.maxConcurrent })
            const job = yield* prepare(limits)
            const ticket: Ticket = {
              id: job.id,
              prompt,
              resumes,
              go: yield* Deferred.make<void>(),
              stop: yield* Deferred.make<End>(),
              done: yield* Deferred.make<void>(),
              holds: false,
              checkout: undefined,
              changes: undefined
            }
            active.set(job.id, ticket)
            waiting.push(ticket)
            yield* background(serve(ticket))
            yield* pump
            return job
          })
        )
        .pipe(Effect.uninterruptible)

    const create = (
      fields: Pick<Job.Job, "owner" | "client" | "tier" | "worker" | "workspace" | "prompt"> & Partial<Job.Job>
    ) =>
      Effect.gen(function* () {
        const at = yield* JobLog.now
        return yield* log.insert(
          {
            thread: Job.ThreadId.make(crypto.randomUUID()),
            title: titleOf(fields.prompt),
            timeoutSeconds: 0,
            ...fields,
            id: Job.JobId.make(crypto.randomUUID()),
            state: "queued",
            createdAt: at,
            updatedAt: at,
            lastSeq: 0
          },
          [{ _tag: "Submitted" }]
        )
      })

    const submit = Effect.fn("Jobs.submit")(function* (submission: Submission) {
      if (closing) return yield* new Closing()
      const { client, model, owner, prompt, tier, title } = submission
      const worker = yield* workers.get(submission.worker)
      const { roots } = yield* settings
      const only = roots.length === 1 ? roots[0] : undefined
      const path = submission.workspace ?? only
      if (path === undefined)
        return yield* new WorkspaceRefused({ path: "", reason: roots.length === 0 ? "no-roots" : "not-absolute" })
      const resolved = yield* workspace.resolve(path)
      return yield* enroll(false, prompt, (limits) =>
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
      )
    })

    const reply = Effect.fn("Jobs.reply")(function* (id: string, owner: PrincipalId, prompt: string) {
      if (closing) return yield* new Closing()
      const known = yield* log.find(id, owner)
      const notNow = (job: Job.Job) => new NotNow({ jobId: job.id, state: job.state, operation: "reply" })
      if (!Job.isTerminal(known.state) && known.state !== "input-required") return yield* notNow(known)
      const worker = yield* workers.get(known.worker)
      if (known.state === "input-required")
        return yield* enroll(true, prompt, () =>
          Effect.flatMap(log.append(known.id, [{ _tag: "Replied", prompt }]), (stored) =>
            Option.isSome(stored) && stored.value.events.length > 0
              ? Effect.succeed(stored.value.job)
              : Effect.flatMap(log.find(id, owner), notNow)
          )
        )
      const resolved = yield* workspace.resolve(known.workspace)
      return yield* enroll(false, prompt, (limits) =>
        Effect.gen(function* () {
          const { jobs } = yield* store.list({ thread: known.thread }, everyJob)
          // One worker session takes one turn at a time.
          const busy = jobs.find(({ state }) => !Job.isTerminal(state))
          if (busy !== undefined) return yield* notNow(busy)
          const session = jobs.find((job) => job.session !== undefined)?.session
          // Without it the worker would know nothing of what was said.
          if (session === undefined) return yield* notNow(known)
          const { client, model, thread, tier } = known
          return yield* create({
            owner,
            client,
            thread,
            tier,
            worker: worker.name,
            workspace: resolved,
            prompt,
            session,
            timeoutSeconds: timeoutOf(known.timeoutSeconds, limits),
            ...(model === undefined ? {} : { model })
          })
        })
      )
    })

    const cancel = Effect.fn("Jobs.cancel")(function* (id: string, owner: PrincipalId, reason: string) {
      const event: End = { _tag: "Canceled", reason }
      let ordered = false
      for (;;) {
        const job = yield* log.find(id, owner)
        if (ordered && job.state === "canceled") return job
        if (Job.isTerminal(job.state))
          return yield* new NotNow({ jobId: job.id, state: job.state, operation: "cancel" })
        const ticket = active.get(job.id)
        if (ticket !== undefined) {
          ordered = true
          yield* Deferred.succeed(ticket.stop, event)
          yield* Deferred.await(ticket.done)
          continue
        }
        // Nobody works on it: it waits for input, or its end could not be stored.
        const ended = yield* gate.withPermits(1)(
          Effect.suspend(() => (active.has(job.id) ? Effect.succeed(undefined) : end(job.id, event)))
        )
        if (ended === undefined) continue
        yield* cleanUp(job.id)
        return ended
      }
    })

    // ---- what an earlier run left, what is too old

    const all = (filter: Filter) =>
      Effect.gen(function* () {
        const found: Array<Job.Job> = []
        let after: Position | undefined
        for (;;) {
          const { jobs } = yield* store.list(filter, 200, after)
          found.push(...jobs)
          after = jobs.at(-1)
          if (after === undefined) return found
        }
      })

    const orphan = Effect.fnUntraced(function* (job: Job.Job) {
      const killed = yield* processes.reap(job.id, Option.getOrUndefined(yield* store.processOf(job.id)))
      const message =
        job.state === "queued"
          ? "the bridge ended before the job started"
          : `the bridge ended while the job ran${killed ? "; its processes still ran, and were killed" : ""}`
      yield* log.append(job.id, [{ _tag: "Orphaned", message }])
    })

    /** Processes first: nothing may still write into a worktree that is being read or removed. */
    const recover = Effect.gen(function* () {
      yield* Effect.forEach(yield* all({ states: ["running", "queued"] }), orphan, { concurrency: 8, discard: true })
      const known = yield* all({ states: [...Job.Terminal.literals], hasWorktree: true })
      const leftovers = yield* workspace.leftovers
      yield* Effect.forEach(new Set([...known.map(({ id }) => id), ...leftovers.map(({ jobId }) => jobId)]), cleanUp, {
        discard: true
      })
    })

    const forgetThreads = Effect.fnUntraced(function* (stateDir: string) {
      const folder = join(stateDir, "threads")
      const names = yield* Effect.promise(() => readdir(folder).catch(() => []))
      for (const name of names) {
        if (!isThreadId(name)) continue
        const { total } = yield* store.list({ thread: name }, 1)
        if (total === 0)
          yield* Effect.promise(() => rm(join(folder, name), { recursive: true, force: true }).catch(() => undefined))
      }
    })

    const tidy = Effect.gen(function* () {
      const { retention, stateDir } = yield* settings
      const at = yield* DateTime.now
      const oldest = DateTime.formatIso(DateTime.subtractDuration(at, retention.maxAge))
      for (const job of yield* all({ states: ["input-required"] })) {
        if (job.updatedAt >= oldest) continue
        const reason = "nobody answered its question for as long as jobs are kept"
        const ended = yield* gate.withPermits(1)(
          Effect.suspend(() =>
            active.has(job.id) ? Effect.succeed(undefined) : end(job.id, { _tag: "Canceled", reason })
          )
        )
        if (ended !== undefined) yield* cleanUp(job.id)
      }
      while ((yield* store.prune(retention, DateTime.formatIso(at))).length === pruneBatch) yield* Effect.yieldNow()
      yield* forgetThreads(stateDir)
    }).pipe(Effect.catchAll((failure: StoreFailed) => Effect.logWarning("old jobs stay", { detail: failure.detail })))

    // ---- the bridge's end

    const closed = yield* Deferred.make<void>()
    const shutdown = (reason: string) =>
      Effect.gen(function* () {
        if (closing) return yield* Deferred.await(closed)
        closing = true
        // Whoever is being taken right now is among those that are stopped.
        const tickets = yield* gate.withPermits(1)(Effect.sync(() => [...active.values()]))
        for (const ticket of tickets) yield* Deferred.succeed(ticket.stop, Ending.shutDown(reason))
        const wait = (waits: ReadonlyArray<Deferred.Deferred<void>>, atMost: "3 seconds" | "1 second") =>
          Effect.forEach(waits, (done) => Deferred.await(done), { concurrency: "unbounded", discard: true }).pipe(
            Effect.interruptible,
            Effect.timeoutOption(atMost)
          )
        yield* wait(
          tickets.map(({ done }) => done),
          shutdownWait
        )
        yield* wait([...cleaning.values()], cleanUpWait)
        yield* log.close
        yield* Deferred.succeed(closed, undefined)
      }).pipe(Effect.uninterruptible)

    yield* recover
    yield* Effect.addFinalizer(() => shutdown("the bridge ended"))
    yield* background(Effect.repeat(tidy, Schedule.spaced("1 hour")))

    // ---- what is asked about jobs

    const health = Effect.gen(function* () {
      const { maxConcurrent, roots, stateDir } = yield* settings
      const checkedWorkers = yield* Effect.forEach(
        yield* workers.all,
        ({ health, name }) =>
          health.pipe(
            Effect.timeoutTo({
              duration: healthWait,
              onSuccess: (answer) => answer,
              onTimeout: () => ({ ok: false, detail: "it did not answer in time" })
            }),
            Effect.map((answer) => ({ name, ...answer }))
          ),
        { concurrency: "unbounded" }
      )
      const checkedRoots = yield* Effect.forEach(roots, (path) =>
        workspace.resolve(path).pipe(
          Effect.match({
            onFailure: ({ reason }) => ({ path, ok: false, detail: reason as string }),
            onSuccess: (real) => ({ path, ok: true, detail: real })
          })
        )
      )
      const folder = yield* Effect.tryPromise(async () => {
        await mkdir(stateDir, { recursive: true, mode: 0o700 })
        await access(stateDir, constants.W_OK)
      }).pipe(
        Effect.zipRight(store.counts),
        Effect.match({
          onFailure: (failure) => ({
            path: stateDir,
            ok: false,
            detail: failure._tag === "StoreFailed" ? failure.detail : String(failure.error)
          }),
          onSuccess: () => ({ path: stateDir, ok: true, detail: "writable" })
        })
      )
      const answer: Health = {
        ok:
          folder.ok &&
          checkedRoots.length > 0 &&
          checkedRoots.every(({ ok }) => ok) &&
          checkedWorkers.some(({ ok }) => ok),
        workers: checkedWorkers,
        roots: checkedRoots,
        stateDir: folder,
        running,
        limit: maxConcurrent
      }
      return answer
    })

    const readArtifact = Effect.fnUntraced(function* (
      id: string,
      owner: PrincipalId,
      name: string,
      offset: number,
      length: number
    ) {
      const job = yield* log.find(id, owner)
      const read = yield* store.readArtifact(job.id, name, offset, length)
      if (Option.isNone(read)) return yield* new ArtifactNotFound({ jobId: job.id, name })
      return { job, ...read.value }
    })

    return Jobs.of({
      submit,
      reply,
      cancel,
      shutdown,
      health,
      get: log.find,
      follow: log.follow,
      watch: log.watch,
      changes: log.changes,
      list: store.list,
      diff: Effect.fnUntraced(function* (id, owner, page) {
        const limit = Math.min(Math.max(1, page.limit), maxPageBytes)
        const { artifact, bytes, job } = yield* readArtifact(id, owner, patchName, page.offset, limit + overlap)
        if (job.diffstat === undefined) return yield* new ArtifactNotFound({ jobId: job.id, name: patchName })
        const offset = Math.min(Math.max(0, page.offset), artifact.size)
        const used = pageLength(bytes, limit, offset + bytes.byteLength >= artifact.size)
        const next = offset + used
        return {
          diffstat: job.diffstat,
          text: new TextDecoder().decode(bytes.subarray(0, used)),
          offset,
          total: artifact.size,
          next: next < artifact.size ? next : undefined
        }
      }),
      artifacts: (id, owner) => Effect.flatMap(log.find(id, owner), (job) => store.artifacts(job.id)),
      readArtifact: (id, owner, name, offset, length) =>
        Effect.map(readArtifact(id, owner, name, offset, length), ({ artifact, bytes }) => ({ artifact, bytes })),
      stats: Effect.gen(function* () {
        const { states, tiers } = yield* store.counts
        const { maxConcurrent } = yield* settings
        const { canceled, failed, succeeded } = tally
        return {
          states,
          tiers,
          succeeded,
          failed,
          canceled,
          duration: Tally.durations(tally),
          running,
          limit: maxConcurrent
        }
      })
    })
  })

/**
 * Runs jobs: one fiber for each that waits or works. The store is the truth; what is in memory here (who runs, who waits)
 * is gone with the process, and the next start orphans those jobs.
 *
 * Does not know how a worktree is made, what a worker is, or where events are kept.
 */
export const layer = (
  settings: Effect.Effect<EngineSettings>
): Layer.Layer<Jobs, StoreFailed, JobStore | Workspace | Workers | Processes> => Layer.scoped(Jobs, make(settings))
