import { existsSync, readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import type * as Job from "../../../src/services/jobs/Job.ts"
import type { Submission } from "../../../src/services/jobs/Jobs.ts"
import { Jobs } from "../../../src/services/jobs/Jobs.ts"
import type { WorkerFailure } from "../../../src/services/jobs/Worker.ts"
import {
  BinaryMissing,
  FolderUntrusted,
  NotLoggedIn,
  ProtocolBroken,
  SessionLost,
  WorkerExited,
  WorkerRefused
} from "../../../src/services/jobs/Worker.ts"
import type { Machine } from "../../support/jobs.ts"
import { boot, machine, settled, submission, until } from "../../support/jobs.ts"
import { alice, bob } from "../../support/suites/jobs.ts"

type Bridge = Effect.Effect.Success<ReturnType<typeof boot>>

const start = (overrides: Parameters<typeof machine>[0] = {}) =>
  Effect.gen(function* () {
    const on = yield* machine(overrides)
    const { end, jobs } = yield* boot(on)
    return { on, end, jobs }
  })

/** The job's record as it stands, straight from the store. */
const stored = (on: Machine, id: string) => {
  const entry = on.store.entries.get(id)
  if (entry === undefined) throw new Error(`no job ${id}`)
  return entry
}
const tags = (on: Machine, id: string): ReadonlyArray<string> => stored(on, id).events.map(({ event }) => event._tag)
const stateIs = (on: Machine, id: string, state: Job.State) =>
  until(`${id} is ${state}`, () => stored(on, id).job.state === state)
const cleaned = (on: Machine, id: string) => until(`${id} is cleaned up`, () => tags(on, id).at(-1) === "CleanedUp")
const artifact = (on: Machine, id: string, name: string): string =>
  new TextDecoder().decode(stored(on, id).artifacts.get(name)?.bytes)

/** A job in a worker's hands. */
const working = (on: Machine, jobs: Bridge["jobs"], fields: Partial<Submission> = {}) =>
  Effect.gen(function* () {
    const job = yield* jobs.submit(submission(fields))
    yield* until("the worker has it", () => on.workers.alive.some(({ turn }) => turn.jobId === job.id))
    return { job, run: on.workers.of(job.id) }
  })

/** A job that waits for an answer. */
const asking = (on: Machine, jobs: Bridge["jobs"], fields: Partial<Submission> = {}) =>
  Effect.gen(function* () {
    const { job, run } = yield* working(on, jobs, fields)
    run.say({ _tag: "Session", sessionId: `session of ${job.id}` })
    run.ask("which file?")
    yield* stateIs(on, job.id, "input-required")
    return job
  })

describe("submit", () => {
  it.scoped("waits for the work, or returns before the job is stored", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.opening = yield* Deferred.make<void>()
      const job = yield* jobs.submit(submission({ prompt: "\n  fix the parser\nand more", model: "m" }))
      assert.strictEqual(job.state, "queued")
      assert.deepInclude(stored(on, job.id).job, {
        title: "fix the parser",
        worker: "fake",
        workspace: "/repo",
        model: "m",
        timeoutSeconds: 900
      })
      assert.strictEqual(tags(on, job.id)[0], "Submitted")
    })
  )

  it.scoped("stores a job that it refuses", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const refused = (fields: Partial<Submission>) =>
        Effect.map(Effect.flip(jobs.submit(submission(fields))), ({ _tag }) => _tag)
      assert.strictEqual(yield* refused({ worker: "nobody" }), "WorkerUnknown")
      assert.strictEqual(yield* refused({ workspace: "/etc" }), "WorkspaceRefused")
      on.settings = { ...on.settings, roots: [] }
      assert.strictEqual(yield* refused({}), "WorkspaceRefused")
      on.settings = { ...on.settings, roots: ["/repo", "/other"] }
      assert.strictEqual(yield* refused({}), "WorkspaceRefused")
      on.store.failing.add("insert")
      assert.strictEqual(yield* refused({ workspace: "/repo" }), "StoreFailed")
      assert.strictEqual(on.store.entries.size, 0)
      on.store.failing.clear()
      // The failed ones hold no place.
      for (let n = 0; n < 4; n++) yield* jobs.submit(submission({ workspace: "/repo" }))
    })
  )

  it.scoped("lets a caller run longer than the operator allows", () =>
    Effect.gen(function* () {
      const { jobs } = yield* start({ maxTimeoutSeconds: 60, defaultTimeoutSeconds: 30 })
      const seconds = (timeoutSeconds: number | undefined) =>
        Effect.map(jobs.submit(submission({ timeoutSeconds })), (job) => job.timeoutSeconds)
      assert.deepStrictEqual(
        [yield* seconds(undefined), yield* seconds(10), yield* seconds(9999), yield* seconds(-1)],
        [30, 10, 60, 1]
      )
    })
  )
})

describe("a job", () => {
  it.scoped("ends without its artifacts, or keeps its worktree, or tells of it in another order", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      assert.strictEqual(run.turn.prompt, "do it")
      assert.strictEqual(statSync(run.turn.stateDir).mode & 0o777, 0o700)
      on.workspace.worktrees.get(job.id)?.push("a.txt", "b.txt")
      run.say(
        { _tag: "Process", pid: 42, startedAt: "1" },
        { _tag: "Session", sessionId: "s" },
        { _tag: "Text", text: "hello " },
        { _tag: "Text", text: "world" },
        { _tag: "Denied", what: "rm `-rf`", reason: "tier" },
        { _tag: "Usage", inputTokens: 3, outputTokens: 4 }
      )
      run.answer("all ```done```")
      yield* cleaned(on, job.id)
      assert.deepStrictEqual(tags(on, job.id), [
        "Submitted",
        "Started",
        "Warning",
        "Process",
        "Session",
        "Text",
        "Denied",
        "Usage",
        "Completed",
        "CleanedUp"
      ])
      const done = stored(on, job.id).job
      assert.deepInclude(done, { state: "completed", result: "all ```done```", session: "s" })
      assert.strictEqual(done.diffstat?.files.length, 2)
      assert.notProperty(done, "worktree")
      assert.isFalse(run.alive)
      assert.strictEqual(on.workspace.worktrees.size, 0)
      assert.strictEqual(artifact(on, job.id, "patch"), "+++ a.txt\n+++ b.txt\n")
      assert.deepStrictEqual(JSON.parse(artifact(on, job.id, "diffstat")), done.diffstat)
      const report = artifact(on, job.id, "report")
      for (const part of [
        "completed",
        "do it",
        "````text\nall ```done```\n````",
        "`a.txt`: modified",
        "`` rm `-rf` ``"
      ])
        assert.include(report, part)
      assert.deepStrictEqual(
        (yield* jobs.artifacts(job.id, alice)).map(({ mediaType, name }) => `${name} ${mediaType}`),
        ["diffstat application/json", "patch text/x-diff", "report text/markdown"]
      )
    })
  )

  it.scoped("costs a transaction for each token, or loses one", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      const tokens = Array.from({ length: 1000 }, (_, n) => `${n} `)
      for (const token of tokens) run.text(token)
      yield* settled
      yield* TestClock.adjust("50 millis")
      run.say({ _tag: "Thought", text: "hm" })
      run.text("end")
      run.answer()
      yield* cleaned(on, job.id)
      const texts = stored(on, job.id).events.flatMap(({ event }) => (event._tag === "Text" ? [event.text] : []))
      assert.strictEqual(texts.join(""), `${tokens.join("")}end`)
      assert.isAtMost(texts.length, 4)
    })
  )

  it.scoped("shows a text only when the next one comes", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      run.text("thinking aloud")
      yield* settled
      yield* TestClock.adjust("50 millis")
      yield* until("the text is stored", () => tags(on, job.id).includes("Text"))
      run.say({ _tag: "ToolStarted", callId: "1", title: "read" })
      yield* until("at once", () => tags(on, job.id).includes("ToolStarted"))
    })
  )

  it.scoped("stores more, or larger, than it may, or does not say what is missing", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxEventBytes: 100, maxResultBytes: 10, maxEventsPerJob: 20 })
      const { job, run } = yield* working(on, jobs)
      run.say({ _tag: "ToolEnded", callId: "1", ok: true, detail: "é".repeat(500) })
      for (let n = 0; n < 50; n++) run.say({ _tag: "ToolStarted", callId: `${n}`, title: "x" })
      run.say({ _tag: "Session", sessionId: "late, and needed" })
      run.answer("0123456789abc")
      yield* cleaned(on, job.id)
      const { events, job: done } = stored(on, job.id)
      const warnings = events.flatMap(({ event }) => (event._tag === "Warning" ? [event.text] : []))
      assert.deepStrictEqual(warnings.slice(1), [
        "902 bytes of an event of kind ToolEnded were cut",
        "the job has said 20 things: what comes now is not recorded, but for its end",
        "the result was cut from 13 to 10 bytes"
      ])
      assert.isAtMost(events.length, 26)
      assert.strictEqual(done.result, "0123456789")
      assert.strictEqual(done.session, "late, and needed")
    })
  )

  const failures: ReadonlyArray<readonly [WorkerFailure, Job.FailureReason]> = [
    [new BinaryMissing({ command: "agent", detail: "ENOENT" }), "binary-missing"],
    [new NotLoggedIn({ detail: "log in" }), "not-logged-in"],
    [new FolderUntrusted({ detail: "trust" }), "folder-untrusted"],
    [new ProtocolBroken({ detail: "noise" }), "protocol-broken"],
    [new SessionLost({ sessionId: "s" }), "session-lost"],
    [new WorkerExited({ code: 3, stderr: "boom" }), "worker-exited"],
    [new WorkerRefused({ detail: "quota" }), "worker-refused"]
  ]
  it.scoped.each(failures)("does not fail with its worker, or loses what was made: %s", ([failure, reason]) =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      on.workspace.worktrees.get(job.id)?.push("half.txt")
      run.text("so far")
      run.say({ _tag: "Fails", failure })
      yield* cleaned(on, job.id)
      assert.strictEqual(stored(on, job.id).job.failure?.reason, reason)
      assert.include(tags(on, job.id), "Text")
      assert.include(artifact(on, job.id, "patch"), "half.txt")
      assert.strictEqual((yield* jobs.stats).running, 0)
    })
  )

  it.scoped("is taken for done where the worker falls silent, or takes the bridge down with it", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const silent = yield* working(on, jobs)
      silent.run.say({ _tag: "Eof" })
      yield* stateIs(on, silent.job.id, "failed")
      assert.strictEqual(stored(on, silent.job.id).job.failure?.reason, "protocol-broken")
      const broken = yield* working(on, jobs)
      broken.run.say({ _tag: "Dies", defect: new Error("a bug") })
      yield* stateIs(on, broken.job.id, "failed")
      assert.deepStrictEqual(stored(on, broken.job.id).job.failure, {
        reason: "internal",
        message: "the bridge failed: a bug"
      })
    })
  )

  it.scoped("waits for a worker that does not end after its answer", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      run.answer("done")
      run.text("and on and on")
      yield* stateIs(on, job.id, "completed")
      assert.isFalse(run.alive)
    })
  )

  it.scoped("runs on where no worktree can be made", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.openFails = true
      const job = yield* jobs.submit(submission())
      yield* stateIs(on, job.id, "failed")
      assert.deepInclude(stored(on, job.id).job.failure, { reason: "workspace" })
      assert.include(stored(on, job.id).job.failure?.message ?? "", "no-commits")
      assert.lengthOf(on.workers.runs, 0)
    })
  )

  it.scoped.each(["consult", "plan"] as const)("of tier %s may change files, or loses what it changed", (tier) =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs, { tier })
      on.workspace.worktrees.get(job.id)?.push("sneaky.txt")
      run.answer()
      yield* cleaned(on, job.id)
      assert.deepStrictEqual(stored(on, job.id).job.failure, {
        reason: "tree-changed",
        message: `a job of tier ${tier} changes nothing, but changed sneaky.txt`
      })
      assert.include(artifact(on, job.id, "patch"), "sneaky.txt")
      const asked = yield* working(on, jobs, { tier })
      on.workspace.worktrees.get(asked.job.id)?.push("sneaky.txt")
      asked.run.ask()
      yield* stateIs(on, asked.job.id, "failed")
      const innocent = yield* working(on, jobs, { tier })
      innocent.run.answer()
      yield* stateIs(on, innocent.job.id, "completed")
    })
  )
})

describe("the clock", () => {
  it.scoped("lets a job run longer than it may, or fails it while its processes are still there", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workers.lingering = yield* Deferred.make<void>()
      const { job, run } = yield* working(on, jobs, { timeoutSeconds: 10 })
      yield* TestClock.adjust("9 seconds")
      yield* settled
      assert.strictEqual(stored(on, job.id).job.state, "running")
      yield* TestClock.adjust("1 seconds")
      yield* settled
      assert.strictEqual(stored(on, job.id).job.state, "running")
      assert.isTrue(run.alive)
      yield* Deferred.succeed(on.workers.lingering, undefined)
      yield* stateIs(on, job.id, "failed")
      assert.strictEqual(stored(on, job.id).job.failure?.reason, "timed-out")
    })
  )

  it.scoped("counts the time in which a question is open, or forgets the time before it", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs, { timeoutSeconds: 10 })
      yield* TestClock.adjust("6 seconds")
      run.say({ _tag: "Session", sessionId: "s" })
      run.ask()
      yield* stateIs(on, job.id, "input-required")
      yield* TestClock.adjust("1 hour")
      yield* jobs.reply(job.id, alice, "that one")
      yield* until("it goes on", () => on.workers.alive.length === 1)
      yield* TestClock.adjust("3 seconds")
      yield* settled
      assert.strictEqual(stored(on, job.id).job.state, "running")
      yield* TestClock.adjust("1 seconds")
      yield* stateIs(on, job.id, "failed")
    })
  )
})

describe("cancel", () => {
  it.scoped("returns before the processes are gone, or lets a late answer overwrite it", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workers.lingering = yield* Deferred.make<void>()
      const { job, run } = yield* working(on, jobs)
      on.workspace.worktrees.get(job.id)?.push("half.txt")
      const canceling = yield* Effect.fork(jobs.cancel(job.id, alice, "changed my mind"))
      yield* settled
      run.answer("too late")
      yield* settled
      assert.isNull(yield* Fiber.poll(canceling).pipe(Effect.map((exit) => (exit._tag === "None" ? null : exit))))
      assert.strictEqual(stored(on, job.id).job.state, "running")
      yield* Deferred.succeed(on.workers.lingering, undefined)
      const canceled = yield* Fiber.join(canceling)
      assert.strictEqual(canceled.state, "canceled")
      assert.isFalse(run.alive)
      yield* cleaned(on, job.id)
      assert.notInclude(tags(on, job.id), "Completed")
      assert.include(artifact(on, job.id, "patch"), "half.txt")
    })
  )

  it.scoped("fails for one of two who cancel at once, or twice", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job } = yield* working(on, jobs)
      const both = yield* Effect.all([jobs.cancel(job.id, alice, "a"), jobs.cancel(job.id, alice, "b")], {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(
        both.map(({ state }) => state),
        ["canceled", "canceled"]
      )
      const late = yield* Effect.flip(jobs.cancel(job.id, alice, "c"))
      assert.deepInclude(late, { _tag: "NotNow", state: "canceled", operation: "cancel" })
      assert.lengthOf(
        tags(on, job.id).filter((tag) => tag === "Canceled"),
        1
      )
    })
  )

  it.scoped("claims to have cancelled what has completed", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      run.answer()
      yield* stateIs(on, job.id, "completed")
      assert.deepInclude(yield* Effect.flip(jobs.cancel(job.id, alice, "late")), { _tag: "NotNow", state: "completed" })
    })
  )

  it.scoped("starts a job that was cancelled in the queue, or leaves the worktree of one that asked", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxConcurrent: 1, whenBusy: "queue" })
      const first = yield* working(on, jobs)
      const second = yield* jobs.submit(submission())
      assert.strictEqual((yield* jobs.cancel(second.id, alice, "no")).state, "canceled")
      first.run.answer()
      yield* stateIs(on, first.job.id, "completed")
      const asked = yield* asking(on, jobs)
      assert.isTrue(on.workspace.worktrees.has(asked.id))
      assert.strictEqual((yield* jobs.cancel(asked.id, alice, "no")).state, "canceled")
      yield* cleaned(on, asked.id)
      assert.isFalse(on.workspace.worktrees.has(asked.id))
      assert.notInclude(tags(on, second.id), "Started")
      assert.lengthOf(on.workers.runs, 2)
    })
  )

  it.scoped("leaves a worktree that was being made", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.opening = yield* Deferred.make<void>()
      const job = yield* jobs.submit(submission())
      yield* until("it is being made", () => on.workspace.worktrees.has(job.id))
      yield* jobs.cancel(job.id, alice, "no")
      yield* cleaned(on, job.id)
      assert.strictEqual(on.workspace.worktrees.size, 0)
    })
  )

  it.scoped("fails some of a storm, or leaves something of it", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ whenBusy: "queue" })
      const all = yield* Effect.forEach(Array.from({ length: 50 }), () => jobs.submit(submission()))
      yield* until("four run", () => on.workers.alive.length === 4)
      const canceled = yield* Effect.forEach(all, ({ id }) => jobs.cancel(id, alice, "storm"), {
        concurrency: "unbounded"
      })
      assert.isTrue(canceled.every(({ state }) => state === "canceled"))
      yield* until("all is gone", () => on.workers.alive.length === 0 && on.workspace.worktrees.size === 0)
      const { running, states } = yield* jobs.stats
      assert.strictEqual(running, 0)
      assert.strictEqual(states.canceled, 50)
    })
  )
})

describe("places", () => {
  it.scoped("runs more than it may, or refuses without saying so, or forgets a place that is free", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxConcurrent: 2 })
      const one = yield* working(on, jobs)
      yield* working(on, jobs)
      const busy = yield* Effect.flip(jobs.submit(submission()))
      assert.deepInclude(busy, { _tag: "Busy", running: 2, limit: 2 })
      one.run.answer()
      yield* stateIs(on, one.job.id, "completed")
      yield* working(on, jobs)
    })
  )

  it.scoped("starts those that wait in another order, or takes more than may wait", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxConcurrent: 1, whenBusy: "queue", maxQueued: 3 })
      const order: Array<string> = []
      for (let n = 0; n < 4; n++) order.push((yield* jobs.submit(submission())).id)
      assert.strictEqual((yield* Effect.flip(jobs.submit(submission())))._tag, "Busy")
      for (const id of order) {
        yield* until(`${id} runs`, () => on.workers.alive.length === 1 && on.workers.alive[0]?.turn.jobId === id)
        on.workers.of(id).answer()
        yield* stateIs(on, id, "completed")
      }
      assert.deepStrictEqual(
        on.workers.runs.map(({ turn }) => turn.jobId),
        order
      )
    })
  )

  it.scoped("does not take a live edit of the limit", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxConcurrent: 1, whenBusy: "queue" })
      for (let n = 0; n < 3; n++) yield* jobs.submit(submission())
      on.settings = { ...on.settings, maxConcurrent: 4 }
      yield* jobs.submit(submission())
      yield* until("all run", () => on.workers.alive.length === 4)
    })
  )

  it.scoped("keeps the place of a job that asked", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxConcurrent: 1 })
      const asked = yield* asking(on, jobs)
      const other = yield* working(on, jobs)
      assert.strictEqual((yield* Effect.flip(jobs.reply(asked.id, alice, "a")))._tag, "Busy")
      assert.strictEqual(stored(on, asked.id).job.state, "input-required")
      other.run.answer()
      yield* stateIs(on, other.job.id, "completed")
      yield* jobs.reply(asked.id, alice, "a")
    })
  )
})

describe("reply", () => {
  it.scoped("goes on in another worktree or session, or under another id", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const job = yield* asking(on, jobs)
      assert.strictEqual(stored(on, job.id).job.question, "which file?")
      const again = yield* jobs.reply(job.id, alice, "the second")
      assert.strictEqual(again.id, job.id)
      yield* until("it goes on", () => on.workers.alive.length === 1)
      assert.deepInclude(on.workers.of(job.id).turn, {
        prompt: "the second",
        session: `session of ${job.id}`,
        cwd: on.workspace.rootOf(job.id)
      })
      assert.deepStrictEqual(on.workspace.opened, [job.id])
      assert.deepInclude(yield* Effect.flip(jobs.reply(job.id, alice, "and")), { _tag: "NotNow", operation: "reply" })
      on.workers.of(job.id).answer()
      yield* cleaned(on, job.id)
      assert.include(artifact(on, job.id, "report"), "the second")
    })
  )

  it.scoped("lets two answers to one question both through", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const job = yield* asking(on, jobs)
      const both = yield* Effect.all(
        ["a", "b"].map((text) => Effect.either(jobs.reply(job.id, alice, text))),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(both.map(({ _tag }) => _tag).sort(), ["Left", "Right"])
      yield* until("it goes on", () => on.workers.alive.length === 1)
      assert.lengthOf(on.workers.runs, 2)
    })
  )

  it.scoped("after the end loses thread, session, tier or worker, or changes the old job", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs, { tier: "plan", worker: "other", model: "m", timeoutSeconds: 77 })
      run.say({ _tag: "Session", sessionId: "s" })
      run.answer()
      yield* cleaned(on, job.id)
      const before = stored(on, job.id).job
      const next = yield* jobs.reply(job.id, alice, "and now?")
      assert.notStrictEqual(next.id, job.id)
      const same = ({ client, model, owner, thread, tier, timeoutSeconds, worker, workspace }: Job.Job) => ({
        client,
        model,
        owner,
        thread,
        tier,
        timeoutSeconds,
        worker,
        workspace
      })
      assert.deepStrictEqual(same(next), same(before))
      assert.deepStrictEqual(stored(on, job.id).job, before)
      yield* until("it runs", () => on.workers.alive.length === 1)
      const { turn } = on.workers.of(next.id)
      assert.deepInclude(turn, { session: "s", prompt: "and now?", model: "m" })
      // What the worker keeps of the session lies in its folder.
      assert.strictEqual(turn.stateDir, run.turn.stateDir)
      assert.deepStrictEqual(on.workspace.opened, [job.id, next.id])
    })
  )

  it.scoped("starts without what was said before, or twice in one session", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const mute = yield* working(on, jobs)
      mute.run.answer()
      yield* stateIs(on, mute.job.id, "completed")
      assert.deepInclude(yield* Effect.flip(jobs.reply(mute.job.id, alice, "and?")), { _tag: "NotNow" })
      const first = yield* working(on, jobs)
      first.run.say({ _tag: "Session", sessionId: "s" })
      first.run.answer()
      yield* stateIs(on, first.job.id, "completed")
      const second = yield* jobs.reply(first.job.id, alice, "1")
      assert.deepInclude(yield* Effect.flip(jobs.reply(first.job.id, alice, "2")), { _tag: "NotNow", jobId: second.id })
      const asked = yield* working(on, jobs)
      asked.run.ask()
      yield* stateIs(on, asked.job.id, "input-required")
      yield* jobs.reply(asked.job.id, alice, "x")
      yield* stateIs(on, asked.job.id, "failed")
      assert.strictEqual(stored(on, asked.job.id).job.failure?.reason, "session-lost")
    })
  )

  it.scoped("goes on in a fresh worktree where the old one is gone", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const job = yield* asking(on, jobs)
      on.workspace.worktrees.clear()
      yield* jobs.reply(job.id, alice, "x")
      yield* stateIs(on, job.id, "failed")
      assert.deepStrictEqual(stored(on, job.id).job.failure, {
        reason: "workspace",
        message: "the job's worktree is gone"
      })
    })
  )
})

describe("follow", () => {
  it.scoped("returns without an event, or waits longer than it may, or past the end", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      yield* until("the notes are stored", () => tags(on, job.id).includes("Warning"))
      const follow = (since: number, waitSeconds: number) =>
        jobs.follow(job.id, alice, { since, waitSeconds, limit: 100 })
      const first = yield* follow(0, 55)
      assert.deepStrictEqual(
        first.events.map(({ seq }) => seq),
        [1, 2, 3]
      )
      const waiting = yield* Effect.fork(follow(3, 55))
      yield* settled
      run.say({ _tag: "ToolStarted", callId: "1", title: "x" })
      assert.deepStrictEqual(
        (yield* Fiber.join(waiting)).events.map(({ event }) => event._tag),
        ["ToolStarted"]
      )
      const idle = yield* Effect.fork(follow(4, 20))
      yield* settled
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual((yield* Fiber.join(idle)).events, [])
      const greedy = yield* Effect.fork(follow(4, 3600))
      yield* settled
      yield* TestClock.adjust("55 seconds")
      assert.deepStrictEqual((yield* Fiber.join(greedy)).events, [])
      assert.deepStrictEqual((yield* follow(4, 0)).events, [])
      const last = yield* Effect.fork(follow(4, 55))
      yield* settled
      run.answer()
      const end = yield* Fiber.join(last)
      assert.deepStrictEqual([end.job.state, end.events[0]?.event._tag], ["completed", "Completed"])
      yield* cleaned(on, job.id)
      assert.deepStrictEqual((yield* follow(6, 55)).events, [])
      assert.lengthOf((yield* jobs.follow(job.id, alice, { since: 0, waitSeconds: 0, limit: 2 })).events, 2)
    })
  )
})

describe("watch", () => {
  it.scoped("shows an event twice or never, or a job as it was not, to early, late and slow ones", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      const collect = (since: number, pace: Effect.Effect<void> = Effect.void) =>
        Effect.fork(
          jobs.watch(job.id, alice, since).pipe(
            Stream.tap(() => pace),
            Stream.runCollect,
            Effect.map(Chunk.toReadonlyArray)
          )
        )
      const early = yield* collect(0)
      const slow = yield* collect(0, settled)
      for (let n = 0; n < 300; n++) run.say({ _tag: "ToolStarted", callId: `${n}`, title: "x" })
      yield* settled
      const middle = yield* collect(100)
      run.say({ _tag: "Session", sessionId: "s" })
      run.ask("?")
      yield* stateIs(on, job.id, "input-required")
      yield* jobs.reply(job.id, alice, "!")
      yield* until("it goes on", () => on.workers.alive.length === 1)
      on.workspace.worktrees.get(job.id)?.push("a")
      on.workers.of(job.id).answer("bye")
      yield* cleaned(on, job.id)
      const late = yield* collect(0)
      const events = stored(on, job.id).events.filter(({ event }) => event._tag !== "CleanedUp")
      for (const [watcher, since] of [
        [early, 0],
        [slow, 0],
        [middle, 100],
        [late, 0]
      ] as const) {
        const seen = yield* Fiber.join(watcher)
        assert.deepStrictEqual(
          seen.map(({ stored }) => stored),
          events.slice(since)
        )
        for (const {
          job,
          stored: { event, seq }
        } of seen) {
          assert.strictEqual(job.lastSeq, seq)
          if (event._tag === "Asked") assert.deepInclude(job, { state: "input-required", question: "?" })
          if (event._tag === "Started") assert.strictEqual(job.state, "running")
          if (event._tag === "Replied") assert.strictEqual(job.state, "queued")
        }
        assert.deepInclude(seen.at(-1)?.job, { state: "completed", result: "bye" })
        assert.lengthOf(seen.at(-1)?.job.diffstat?.files ?? [], 1)
      }
      assert.deepStrictEqual(yield* Fiber.join(yield* collect(events.length)), [])
    })
  )

  it.scoped("holds the job up where somebody does not look, or leaves listeners without an event", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const changes: Array<string> = []
      yield* jobs.changes.pipe(
        Stream.runForEach(({ stored }) => Effect.sync(() => changes.push(stored.event._tag))),
        Effect.forkScoped
      )
      yield* settled
      const { job, run } = yield* working(on, jobs)
      yield* Effect.forkScoped(Stream.runForEach(jobs.watch(job.id, alice, 0), () => Effect.never))
      yield* Effect.forkScoped(Stream.runForEach(jobs.changes, () => Effect.never))
      for (let n = 0; n < 2000; n++) run.say({ _tag: "ToolStarted", callId: `${n}`, title: "x" })
      run.answer()
      yield* cleaned(on, job.id)
      yield* until("all is told", () => changes.length === stored(on, job.id).events.length)
      assert.deepStrictEqual(changes, tags(on, job.id))
    })
  )

  it.scoped("hangs when the bridge closes", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const job = yield* asking(on, jobs)
      const watching = yield* Effect.fork(Stream.runDrain(jobs.watch(job.id, alice, 0)))
      const polling = yield* Effect.fork(jobs.follow(job.id, alice, { since: 99, waitSeconds: 55, limit: 1 }))
      yield* settled
      yield* jobs.shutdown("bye")
      yield* Fiber.join(watching)
      yield* Fiber.join(polling)
    })
  )
})

describe("owners", () => {
  it.scoped("lets one see, answer or end what is another's", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const job = yield* asking(on, jobs)
      const attempts: ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>> = [
        jobs.get(job.id, bob),
        jobs.get("not an id", alice),
        jobs.get(crypto.randomUUID(), alice),
        jobs.follow(job.id, bob, { since: 0, waitSeconds: 0, limit: 1 }),
        Stream.runDrain(jobs.watch(job.id, bob, 0)),
        jobs.reply(job.id, bob, "x"),
        jobs.cancel(job.id, bob, "x"),
        jobs.diff(job.id, bob, { offset: 0, limit: 1 }),
        jobs.artifacts(job.id, bob),
        jobs.readArtifact(job.id, bob, "patch", 0, 1)
      ]
      for (const attempt of attempts) assert.strictEqual((yield* Effect.flip(attempt))._tag, "JobNotFound")
      assert.strictEqual(stored(on, job.id).job.state, "input-required")
      assert.strictEqual((yield* jobs.list({ owner: bob }, 10)).total, 0)
    })
  )
})

describe("clean-up", () => {
  it.scoped("records a worktree as removed that is not, or gives up, or says the same again and again", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.removeFails = "busy"
      const { job, run } = yield* working(on, jobs)
      run.answer()
      yield* until("it is reported", () => tags(on, job.id).includes("CleanUpFailed"))
      yield* TestClock.adjust("10 seconds")
      yield* settled
      on.workspace.removeFails = "locked"
      yield* TestClock.adjust("30 seconds")
      yield* settled
      assert.deepStrictEqual(
        stored(on, job.id).events.flatMap(({ event }) => (event._tag === "CleanUpFailed" ? [event.message] : [])),
        ["busy", "locked"]
      )
      assert.isString(stored(on, job.id).job.worktree)
      assert.strictEqual(stored(on, job.id).job.state, "completed")
      on.workspace.removeFails = undefined
      yield* TestClock.adjust("10 minutes")
      yield* cleaned(on, job.id)
      assert.strictEqual(on.workspace.worktrees.size, 0)
    })
  )

  it.scoped("throws changes away that could not be read at once", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.collectFails = true
      const { job, run } = yield* working(on, jobs)
      on.workspace.worktrees.get(job.id)?.push("precious.txt")
      run.answer()
      yield* stateIs(on, job.id, "failed")
      assert.strictEqual(stored(on, job.id).job.failure?.reason, "workspace")
      yield* settled
      assert.isTrue(on.workspace.worktrees.has(job.id))
      on.workspace.collectFails = false
      yield* TestClock.adjust("2 seconds")
      yield* cleaned(on, job.id)
      assert.include(artifact(on, job.id, "patch"), "precious.txt")
      assert.lengthOf(stored(on, job.id).job.diffstat?.files ?? [], 1)
    })
  )
})

describe("a store that fails", () => {
  it.scoped("makes a job run for ever, or complete without its patch", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      on.workspace.worktrees.get(job.id)?.push("precious.txt")
      on.store.failing.add("putArtifact")
      run.answer()
      yield* stateIs(on, job.id, "failed")
      assert.strictEqual(stored(on, job.id).job.failure?.reason, "internal")
      yield* settled
      assert.isTrue(on.workspace.worktrees.has(job.id))
      on.store.failing.clear()
      yield* TestClock.adjust("2 seconds")
      yield* cleaned(on, job.id)
      assert.include(artifact(on, job.id, "patch"), "precious.txt")
    })
  )

  it.scoped("forgets the end of a job, or keeps its worker or its place", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ maxConcurrent: 1 })
      const { job, run } = yield* working(on, jobs)
      on.store.failing.add("append")
      run.say({ _tag: "ToolStarted", callId: "1", title: "x" })
      yield* until("the worker is gone", () => !run.alive)
      yield* until(
        "the place is free",
        Effect.map(jobs.stats, ({ running }) => running === 0)
      )
      assert.strictEqual(stored(on, job.id).job.state, "running")
      assert.strictEqual((yield* Effect.flip(jobs.cancel(job.id, alice, "x")))._tag, "StoreFailed")
      on.store.failing.clear()
      yield* TestClock.adjust("2 seconds")
      yield* stateIs(on, job.id, "failed")
      assert.strictEqual(stored(on, job.id).job.failure?.reason, "internal")
      yield* cleaned(on, job.id)
    })
  )

  it.scoped("cannot be cancelled out of", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const { job, run } = yield* working(on, jobs)
      on.store.failing.add("append")
      run.answer()
      yield* until(
        "the place is free",
        Effect.map(jobs.stats, ({ running }) => running === 0)
      )
      on.store.failing.clear()
      assert.strictEqual((yield* jobs.cancel(job.id, alice, "x")).state, "canceled")
      yield* TestClock.adjust("1 minute")
      yield* cleaned(on, job.id)
      assert.notInclude(tags(on, job.id), "Completed")
    })
  )
})

describe("the end of the bridge", () => {
  it.scoped.each(["shutdown", "scope"] as const)("leaves a worker, or a job that seems to run: by %s", (how) =>
    Effect.gen(function* () {
      const { end, jobs, on } = yield* start({ maxConcurrent: 2, whenBusy: "queue" })
      const asked = yield* asking(on, jobs)
      const runs = [yield* working(on, jobs), yield* working(on, jobs)]
      const queued = yield* jobs.submit(submission())
      if (how === "shutdown") {
        yield* Effect.all([jobs.shutdown("bye"), jobs.shutdown("again")], { concurrency: "unbounded" })
        assert.strictEqual((yield* Effect.flip(jobs.submit(submission())))._tag, "Closing")
        assert.strictEqual((yield* Effect.flip(jobs.reply(asked.id, alice, "x")))._tag, "Closing")
        assert.strictEqual((yield* jobs.get(asked.id, alice)).state, "input-required")
      }
      yield* end
      assert.lengthOf(on.workers.alive, 0)
      for (const { id } of [...runs.map(({ job }) => job), queued])
        assert.strictEqual(stored(on, id).job.failure?.reason, "shutdown")
      assert.strictEqual(stored(on, asked.id).job.state, "input-required")
      assert.deepStrictEqual([...on.workspace.worktrees.keys()], [asked.id])
    })
  )

  it.scoped("waits for ever for a worker that does not end; or claims that it has", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workers.lingering = yield* Deferred.make<void>()
      const { job } = yield* working(on, jobs)
      const closing = yield* Effect.fork(jobs.shutdown("bye"))
      yield* settled
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(closing)
      assert.strictEqual(stored(on, job.id).job.state, "running")
      yield* Deferred.succeed(on.workers.lingering, undefined)
    })
  )
})

describe("the next start", () => {
  /** The bridge dies here: nothing of it runs on, nothing is stored any more. */
  const crash = (on: Machine) => {
    const entries = new Map(
      [...on.store.entries].map(([id, { artifacts, events, job }]) => [
        id,
        { job, events: [...events], artifacts: new Map(artifacts) }
      ])
    )
    const worktrees = new Map(on.workspace.worktrees)
    return (next: Machine) => {
      for (const [id, entry] of entries) next.store.entries.set(id, entry)
      for (const [id, files] of worktrees) next.workspace.worktrees.set(id, files)
    }
  }

  it.scoped("forgets what a dead bridge left: jobs, processes, worktrees, patches; or touches what waits", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start({ whenBusy: "queue", maxConcurrent: 2 })
      const done = yield* working(on, jobs)
      done.run.answer()
      yield* cleaned(on, done.job.id)
      const asked = yield* asking(on, jobs)
      const ran = yield* working(on, jobs)
      ran.run.say({ _tag: "Process", pid: 4711, startedAt: "1" })
      on.workspace.worktrees.get(ran.job.id)?.push("precious.txt")
      yield* until("it is known", () => tags(on, ran.job.id).includes("Process"))
      const silent = yield* working(on, jobs)
      const queued = yield* jobs.submit(submission())
      on.workspace.worktrees.set(crypto.randomUUID() as Job.JobId, [])
      const left = crash(on)

      const next = yield* machine()
      left(next)
      const again = yield* boot(next)
      assert.sameDeepMembers(next.processes.reaped, [
        { jobId: ran.job.id, pid: 4711 },
        { jobId: silent.job.id, pid: undefined },
        { jobId: queued.id, pid: undefined }
      ])
      for (const { id } of [ran.job, silent.job, queued]) {
        assert.strictEqual(stored(next, id).job.state, "orphaned")
        assert.isString(stored(next, id).job.endedAt)
      }
      assert.include(
        JSON.stringify(stored(next, ran.job.id).events.find(({ event }) => event._tag === "Orphaned")),
        "killed"
      )
      yield* cleaned(next, ran.job.id)
      yield* cleaned(next, silent.job.id)
      assert.include(artifact(next, ran.job.id, "patch"), "precious.txt")
      yield* until("only what waits is left", () => next.workspace.worktrees.size === 1)
      assert.isTrue(next.workspace.worktrees.has(asked.id))
      assert.strictEqual(stored(next, done.job.id).job.state, "completed")

      yield* again.jobs.reply(asked.id, alice, "the first")
      yield* until("it goes on", () => next.workers.alive.length === 1)
      assert.deepInclude(next.workers.of(asked.id).turn, { session: `session of ${asked.id}`, prompt: "the first" })
      next.workers.of(asked.id).answer()
      yield* cleaned(next, asked.id)
      assert.strictEqual(stored(next, asked.id).job.state, "completed")
    })
  )

  it.scoped("believes in a worktree that was gone already", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.removeFails = "busy"
      const { job, run } = yield* working(on, jobs)
      run.answer()
      yield* until("it is still there", () => tags(on, job.id).includes("CleanUpFailed"))
      const left = crash(on)
      const next = yield* machine()
      left(next)
      next.workspace.worktrees.clear()
      yield* boot(next)
      yield* cleaned(next, job.id)
      assert.notProperty(stored(next, job.id).job, "worktree")
    })
  )

  it.scoped("goes on as if nothing were, where the store cannot be read", () =>
    Effect.gen(function* () {
      const on = yield* machine()
      on.store.failing.add("list")
      const failure = yield* Effect.flip(Effect.provide(Jobs, on.layer))
      assert.strictEqual(failure._tag, "StoreFailed")
    })
  )
})

describe("old jobs", () => {
  it.scoped("stay longer than they may, or take with them what waits, or leave their folders", () =>
    Effect.gen(function* () {
      const hour = 3_600_000
      const { jobs, on } = yield* start({ retention: { maxAge: 2 * hour, maxJobs: 2 } })
      const finish = Effect.gen(function* () {
        const { job, run } = yield* working(on, jobs)
        run.answer()
        yield* cleaned(on, job.id)
        yield* TestClock.adjust("1 second")
        return job
      })
      const asked = yield* asking(on, jobs)
      const [first, second, third] = [yield* finish, yield* finish, yield* finish]
      assert.lengthOf(readdirSync(join(on.settings.stateDir, "threads")), 4)
      yield* TestClock.adjust("1 hour")
      yield* until("one too many is gone", () => !on.store.entries.has(first.id))
      assert.isTrue(on.store.entries.has(second.id) && on.store.entries.has(third.id))
      yield* until("its folder too", () => !existsSync(join(on.settings.stateDir, "threads", first.thread)))
      assert.strictEqual(stored(on, asked.id).job.state, "input-required")
      yield* TestClock.adjust("1 hour")
      yield* settled
      yield* TestClock.adjust("1 hour")
      yield* until("all are gone", () => !on.store.entries.has(third.id))
      yield* stateIs(on, asked.id, "canceled")
      yield* cleaned(on, asked.id)
      assert.isFalse(on.workspace.worktrees.has(asked.id))
    })
  )
})

describe("what is asked", () => {
  it.scoped("cuts a patch where it must not, or never ends", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      on.workspace.patch = Array.from({ length: 200 }, (_, n) => `+line ${n} é€😀\n`).join("")
      const { job, run } = yield* working(on, jobs)
      assert.strictEqual(
        (yield* Effect.flip(jobs.diff(job.id, alice, { offset: 0, limit: 10 })))._tag,
        "ArtifactNotFound"
      )
      run.answer()
      yield* stateIs(on, job.id, "completed")
      for (const limit of [1, 7, 100, 1_000_000]) {
        let text = ""
        let offset: number | undefined = 0
        while (offset !== undefined) {
          const page: Effect.Effect.Success<ReturnType<typeof jobs.diff>> = yield* jobs.diff(job.id, alice, {
            offset,
            limit
          })
          assert.isAtLeast(page.text.length, 1)
          if (limit >= 100) assert.isTrue(page.text.endsWith("\n"))
          text += page.text
          offset = page.next
        }
        assert.strictEqual(text, on.workspace.patch)
      }
      const beyond = yield* jobs.diff(job.id, alice, { offset: 1_000_000, limit: 10 })
      assert.deepInclude(beyond, { text: "", next: undefined })
    })
  )

  it.scoped("counts what was not, or calls a bridge well that cannot work", () =>
    Effect.gen(function* () {
      const { jobs, on } = yield* start()
      const one = yield* working(on, jobs)
      yield* TestClock.adjust("3 seconds")
      one.run.answer()
      yield* stateIs(on, one.job.id, "completed")
      const two = yield* working(on, jobs, { tier: "plan" })
      yield* jobs.cancel(two.job.id, alice, "x")
      const stats = yield* jobs.stats
      assert.deepInclude(stats, { succeeded: 1, failed: 0, canceled: 1, running: 0, limit: 4 })
      assert.deepStrictEqual(stats.tiers, { consult: 0, plan: 1, execute: 1 })
      assert.deepStrictEqual(stats.duration, { median: 0, p95: 3000, max: 3000 })
      assert.isTrue((yield* jobs.health).ok)
      on.workspace.roots = []
      const health = yield* jobs.health
      assert.isFalse(health.ok)
      assert.deepStrictEqual(health.roots, [{ path: "/repo", ok: false, detail: "no-roots" }])
      on.workspace.roots = ["/repo"]
      on.store.failing.add("counts")
      assert.isFalse((yield* jobs.health).stateDir.ok)
    })
  )
})
