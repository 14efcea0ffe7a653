import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as JobEngine from "../../src/layers/jobs/JobEngine.ts"
import type { EngineSettings } from "../../src/services/jobs/EngineSettings.ts"
import { defaults } from "../../src/services/jobs/EngineSettings.ts"
import type { Diffstat, JobId, WorkerEvent } from "../../src/services/jobs/Job.ts"
import type { Submission } from "../../src/services/jobs/Jobs.ts"
import { Jobs } from "../../src/services/jobs/Jobs.ts"
import { Processes } from "../../src/services/jobs/Processes.ts"
import type { Turn, TurnEnd, Worker, WorkerFailure } from "../../src/services/jobs/Worker.ts"
import { Workers, WorkerUnknown } from "../../src/services/jobs/Worker.ts"
import type { Checkout } from "../../src/services/jobs/Workspace.ts"
import {
  CollectFailed,
  RemoveFailed,
  Workspace,
  WorkspaceRefused,
  WorkspaceUnusable
} from "../../src/services/jobs/Workspace.ts"
import { MemoryJobStore } from "./memoryJobStore.ts"
import { folder } from "./suites/folder.ts"
import { alice } from "./suites/jobs.ts"

type Said =
  | WorkerEvent
  | TurnEnd
  | { readonly _tag: "Fails"; readonly failure: WorkerFailure }
  | { readonly _tag: "Dies"; readonly defect: unknown }
  | { readonly _tag: "Eof" }

/** One turn in the hands of a test, which says what the worker says. */
export class FakeRun {
  readonly turn: Turn
  /** Its processes are there. */
  alive = true
  private readonly queue: Queue.Queue<Said>

  constructor(turn: Turn, queue: Queue.Queue<Said>) {
    this.turn = turn
    this.queue = queue
  }

  get said(): Stream.Stream<Said> {
    return Stream.fromQueue(this.queue, { maxChunkSize: 1 })
  }

  say(...said: ReadonlyArray<Said>): void {
    for (const one of said) this.queue.unsafeOffer(one)
  }

  text(text: string): void {
    this.say({ _tag: "Text", text })
  }

  answer(text = "done"): void {
    this.say({ _tag: "Answered", text })
  }

  ask(question = "which?"): void {
    this.say({ _tag: "Question", question })
  }
}

export class FakeWorkers {
  readonly runs: Array<FakeRun> = []
  /** Held: processes do not end before it is done. */
  lingering: Deferred.Deferred<void> | undefined
  readonly names: Array<string> = ["fake", "other"]

  get alive(): ReadonlyArray<FakeRun> {
    return this.runs.filter((run) => run.alive)
  }

  of(id: string): FakeRun {
    const run = this.runs.findLast(({ turn }) => turn.jobId === id)
    if (run === undefined) throw new Error(`no worker runs ${id}`)
    return run
  }

  private worker(name: string): Worker {
    return {
      name,
      health: Effect.succeed({ ok: true, detail: "1.0" }),
      run: (turn) =>
        Stream.unwrapScoped(
          Effect.acquireRelease(
            Effect.map(Queue.unbounded<Said>(), (queue) => {
              const run = new FakeRun(turn, queue)
              this.runs.push(run)
              return run
            }),
            (run) =>
              Effect.zipRight(
                this.lingering === undefined ? Effect.void : Deferred.await(this.lingering),
                Effect.sync(() => void (run.alive = false))
              )
          ).pipe(
            Effect.map((run) =>
              run.said.pipe(
                Stream.takeWhile((said): said is Exclude<Said, { readonly _tag: "Eof" }> => said._tag !== "Eof"),
                Stream.mapEffect((said): Effect.Effect<WorkerEvent | TurnEnd, WorkerFailure> => {
                  if (said._tag === "Fails") return Effect.fail(said.failure)
                  if (said._tag === "Dies") return Effect.die(said.defect)
                  return Effect.succeed(said)
                })
              )
            )
          )
        )
    }
  }

  readonly layer = Layer.sync(Workers, () => ({
    get: (name) =>
      name === undefined || this.names.includes(name)
        ? Effect.succeed(this.worker(name ?? "fake"))
        : new WorkerUnknown({ worker: name, known: [...this.names] }),
    all: Effect.sync(() => this.names.map((name) => this.worker(name)))
  }))
}

export const changed = (...paths: ReadonlyArray<string>): Diffstat => ({
  files: paths.map((path) => ({ path, change: "modified", binary: false, insertions: 1, deletions: 0 })),
  insertions: paths.length,
  deletions: 0
})

/** Worktrees that are entries of a map. */
export class FakeWorkspace {
  /** What each worktree's job has changed. */
  readonly worktrees = new Map<JobId, Array<string>>()
  readonly opened: Array<JobId> = []
  roots: ReadonlyArray<string> = ["/repo"]
  openFails = false
  collectFails = false
  removeFails: string | undefined
  /** Held: worktrees are not ready before it is done. */
  opening: Deferred.Deferred<void> | undefined
  patch: string | undefined

  rootOf(id: JobId): string {
    return `/worktrees/${id}`
  }

  private checkout(jobId: JobId, notes: ReadonlyArray<string>): Checkout {
    const root = this.rootOf(jobId)
    return { jobId, root, cwd: root, repository: "/repo", base: "0".repeat(40), notes }
  }

  readonly layer = Layer.sync(Workspace, () => ({
    resolve: (path) =>
      this.roots.some((root) => path === root || path.startsWith(`${root}/`))
        ? Effect.succeed(path)
        : new WorkspaceRefused({ path, reason: this.roots.length === 0 ? "no-roots" : "outside" }),
    open: (jobId, path) =>
      Effect.gen(this, function* () {
        if (this.openFails) return yield* new WorkspaceUnusable({ path, reason: "no-commits", detail: "empty" })
        this.worktrees.set(jobId, [])
        this.opened.push(jobId)
        if (this.opening !== undefined) yield* Deferred.await(this.opening)
        return this.checkout(jobId, ["uncommitted changes are not in it"])
      }),
    reopen: (jobId) => Effect.sync(() => (this.worktrees.has(jobId) ? this.checkout(jobId, []) : undefined)),
    collect: ({ jobId }) =>
      Effect.suspend(() => {
        const files = this.worktrees.get(jobId)
        if (this.collectFails || files === undefined) return new CollectFailed({ detail: "index is broken" })
        const patch = this.patch ?? files.map((file) => `+++ ${file}\n`).join("")
        return Effect.succeed({ patch: new TextEncoder().encode(patch), diffstat: changed(...files) })
      }),
    remove: (jobId, root) =>
      Effect.suspend(() => {
        if (this.removeFails !== undefined) return new RemoveFailed({ path: root, detail: this.removeFails })
        this.worktrees.delete(jobId)
        return Effect.void
      }),
    leftovers: Effect.sync(() => [...this.worktrees.keys()].map((jobId) => ({ jobId, root: this.rootOf(jobId) })))
  }))
}

export class FakeProcesses {
  readonly reaped: Array<{ readonly jobId: JobId; readonly pid: number | undefined }> = []
  /** Whether something still runs. */
  found = true

  readonly layer = Layer.mock(Processes, {
    reap: (jobId, recorded) =>
      Effect.sync(() => {
        this.reaped.push({ jobId, pid: recorded?.pid })
        return this.found
      })
  })
}

/** What one bridge after another finds on the same machine. */
export class Machine {
  readonly store = new MemoryJobStore()
  readonly workers = new FakeWorkers()
  readonly workspace = new FakeWorkspace()
  readonly processes = new FakeProcesses()
  settings: EngineSettings

  constructor(stateDir: string, overrides: Partial<EngineSettings> = {}) {
    this.settings = { ...defaults, roots: ["/repo"], stateDir, ...overrides }
  }

  readonly layer = Layer.suspend(() =>
    JobEngine.layer(Effect.sync(() => this.settings)).pipe(
      Layer.provide(Layer.mergeAll(this.store.layer, this.workers.layer, this.workspace.layer, this.processes.layer))
    )
  )
}

export const machine = (overrides: Partial<EngineSettings> = {}) =>
  Effect.map(folder, (path) => new Machine(path, overrides))

/** A running bridge, and how to end it in good order. */
export const boot = Effect.fnUntraced(function* (on: Machine) {
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const context = yield* Layer.build(Layer.fresh(on.layer)).pipe(Scope.extend(scope))
  return { jobs: Context.get(context, Jobs), end: Scope.close(scope, Exit.void) }
})

export const submission = (fields: Partial<Submission> = {}): Submission => ({
  owner: alice,
  client: "test/1",
  prompt: "do it",
  tier: "execute",
  workspace: undefined,
  worker: undefined,
  model: undefined,
  timeoutSeconds: undefined,
  title: undefined,
  ...fields
})

/** Lets everything go on that does not wait for the clock, until the condition holds. Fails after real seconds. */
export const until = (what: string, condition: (() => boolean) | Effect.Effect<boolean, unknown>) =>
  Effect.gen(function* () {
    const deadline = performance.now() + 10_000
    for (;;) {
      if (typeof condition === "function" ? condition() : yield* Effect.orDie(condition)) return
      if (performance.now() > deadline) return yield* Effect.die(new Error(`it never came: ${what}`))
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
    }
  })

/** Whatever can happen now has happened: a while without the clock moving. */
export const settled = Effect.repeatN(
  Effect.promise(() => new Promise((resolve) => setImmediate(resolve))),
  15
)
