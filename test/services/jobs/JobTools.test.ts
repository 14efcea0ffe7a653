import { assert, describe, it } from "@effect/vitest"
import Ajv2020 from "ajv/dist/2020.js"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { PrincipalId } from "../../../src/services/Auth.ts"
import type { Exchange } from "../../../src/services/Exchange.ts"
import { CapabilityMissing, silent } from "../../../src/services/Exchange.ts"
import type { ToolResult } from "../../../src/services/HostTools.ts"
import type { Job, StoredEvent } from "../../../src/services/jobs/Job.ts"
import * as JobModule from "../../../src/services/jobs/Job.ts"
import { Busy, JobNotFound, Jobs, NotNow } from "../../../src/services/jobs/Jobs.ts"
import type { JobToolName } from "../../../src/services/jobs/JobTools.ts"
import { definitions, JobTools, layer } from "../../../src/services/jobs/JobTools.ts"
import { WorkspaceRefused } from "../../../src/services/jobs/Workspace.ts"
import { Lifecycle } from "../../../src/services/Lifecycle.ts"
import * as FakeConfig from "../../support/suites/fakeConfig.ts"

const id = JobModule.JobId.make("00000000-0000-4000-8000-000000000001")
const jobOf = (more: Partial<Job> = {}): Job => ({
  ...Schema.decodeUnknownSync(JobModule.Job)({
    id,
    thread: "00000000-0000-4000-8000-0000000000aa",
    owner: "owner",
    client: "test/1",
    state: "running",
    tier: "execute",
    worker: "cursor",
    workspace: "/roots/app",
    prompt: "secret plan",
    title: "a title",
    timeoutSeconds: 900,
    createdAt: "2026-12-01T00:00:00.000Z",
    updatedAt: "2026-12-01T00:00:01.000Z",
    worktree: "/state/worktrees/1",
    session: "worker-session",
    lastSeq: 4
  }),
  ...more
})
const stored = (seq: number, event: StoredEvent["event"]): StoredEvent => ({
  seq,
  at: `2026-12-01T00:00:0${seq}.000Z`,
  event
})

interface World {
  readonly call: (
    name: JobToolName,
    args: object,
    exchange?: Partial<Exchange>
  ) => Effect.Effect<ToolResult, CapabilityMissing>
  readonly calls: Array<readonly [method: string, ...args: ReadonlyArray<unknown>]>
}

const world = (jobs: Partial<Jobs["Type"]>, tiers: ReadonlyArray<JobModule.Tier> = ["consult", "plan", "execute"]) =>
  Effect.gen(function* () {
    const calls: Array<readonly [string, ...Array<unknown>]> = []
    const config = yield* FakeConfig.make()
    const settings = FakeConfig.defaults
    yield* config.assign({ jobs: { ...settings.jobs, tiers } })
    const noted = Object.fromEntries(
      Object.entries(jobs).map(([name, method]) => [
        name,
        typeof method === "function"
          ? (...args: Array<unknown>) => {
              calls.push([name, ...args])
              return (method as (...args: Array<unknown>) => unknown)(...args)
            }
          : method
      ])
    )
    const built = layer.pipe(
      Layer.provide(
        Layer.mergeAll(
          Layer.mock(Jobs, {
            changes: Stream.never,
            stats: Effect.never,
            health: Effect.never,
            ...noted
          } as never),
          Layer.succeed(Lifecycle, {
            stop: (reason) => Effect.sync(() => void calls.push(["stop", reason]))
          }),
          config.layer
        )
      )
    )
    const tools = yield* Effect.provide(JobTools, built)
    return {
      calls,
      call: (name, args, exchange = {}) =>
        tools.execute(name, args as never, {
          principal: { id: PrincipalId.make("owner-abc"), name: "owner" },
          client: "test/1",
          exchange: { ...silent, ...exchange }
        })
    } satisfies World
  })

const structure = (result: ToolResult) => {
  assert.isFalse(result.isError, JSON.stringify(result.content))
  assert.deepStrictEqual(
    JSON.parse((result.content[0] as { readonly text: string }).text),
    result.structuredContent,
    "text and structure differ"
  )
  return result.structuredContent ?? {}
}
const refusal = (result: ToolResult): string => {
  assert.isTrue(result.isError)
  return (result.content[0] as { readonly text: string }).text
}

describe("JobTools.definitions", () => {
  it("names others than the nine of the seed, or has a schema that clients refuse", () => {
    assert.deepStrictEqual(
      definitions.map(({ name }) => name),
      [
        "cursor_run",
        "cursor_status",
        "cursor_reply",
        "cursor_cancel",
        "cursor_list",
        "cursor_diff",
        "bridge_health",
        "bridge_stats",
        "bridge_shutdown"
      ]
    )
    for (const { inputSchema, name, outputSchema } of definitions) {
      for (const schema of [inputSchema, outputSchema ?? {}]) {
        assert.strictEqual(schema["type"], "object", name)
        for (const key of ["$schema", "oneOf", "anyOf", "allOf"]) assert.notProperty(schema, key, name)
        assert.notInclude(JSON.stringify(schema), "$ref")
        assert.doesNotThrow(() => new Ajv2020({ strict: false }).compile(schema), name)
      }
    }
  })
})

describe("JobTools.validate", () => {
  it.effect("takes an argument that there is not, or one of the wrong form", () =>
    Effect.gen(function* () {
      const config = yield* FakeConfig.make()
      const tools = yield* Effect.provide(
        JobTools,
        layer.pipe(
          Layer.provide(
            Layer.mergeAll(
              Layer.mock(Jobs, { changes: Stream.never, stats: Effect.never, health: Effect.never }),
              Layer.succeed(Lifecycle, { stop: () => Effect.void }),
              config.layer
            )
          )
        )
      )
      const detail = (name: JobToolName, args: object) =>
        Effect.map(Effect.flip(tools.validate(name, args as never)), (error) => error.detail)
      assert.match(yield* detail("cursor_run", {}), /prompt/)
      assert.match(yield* detail("cursor_run", { prompt: "x", tier: "root" }), /tier/)
      assert.match(yield* detail("cursor_run", { prompt: "x", flags: ["--force"] }), /flags/)
      assert.match(yield* detail("cursor_status", { jobId: "x", waitSeconds: 56 }), /waitSeconds/)
      assert.match(yield* detail("bridge_health", { deep: true }), /deep/)
      assert.deepStrictEqual(yield* tools.validate("cursor_run", { prompt: "x" }), { prompt: "x" })
    })
  )
})

describe("JobTools.execute", () => {
  it.effect("waits for the work, shows the bridge's own paths, or forgets whose job it is", () =>
    Effect.gen(function* () {
      const { call, calls } = yield* world({ submit: () => Effect.succeed(jobOf({ state: "queued", lastSeq: 1 })) })
      const run = structure(yield* call("cursor_run", { prompt: "do", tier: "plan", workspace: "/roots/app" }))
      assert.deepInclude(run, { jobId: id, state: "queued", lastSeq: 1 })
      for (const key of ["owner", "worktree", "session", "prompt"]) assert.notProperty(run, key)
      const submitted = calls[0]?.[1] as Record<string, unknown>
      assert.deepInclude(submitted, { owner: "owner", client: "test/1", tier: "plan", workspace: "/roots/app" })
    })
  )

  it.effect("runs a tier that the operator does not allow", () =>
    Effect.gen(function* () {
      const { call, calls } = yield* world({ submit: () => Effect.succeed(jobOf()) }, ["consult"])
      assert.match(refusal(yield* call("cursor_run", { prompt: "do", tier: "execute" })), /jobs\.tiers.*consult/)
      assert.isEmpty(calls)
    })
  )

  it.effect("goes on, by a reply, with a tier that is not allowed any more", () =>
    Effect.gen(function* () {
      const { call, calls } = yield* world({ get: () => Effect.succeed(jobOf()) }, ["consult"])
      assert.match(refusal(yield* call("cursor_reply", { jobId: id, prompt: "go on" })), /jobs\.tiers.*consult/)
      assert.deepStrictEqual(
        calls.map(([name]) => name),
        ["get"]
      )
    })
  )

  it.effect("says nothing of why it refuses", () =>
    Effect.gen(function* () {
      const { call } = yield* world({
        submit: ({ prompt }) =>
          prompt === "busy"
            ? new Busy({ running: 4, limit: 4 })
            : new WorkspaceRefused({ path: "/etc", reason: "outside" }),
        follow: (jobId) => new JobNotFound({ jobId }),
        cancel: () => new NotNow({ jobId: id, state: "completed", operation: "cancel" })
      })
      assert.match(refusal(yield* call("cursor_run", { prompt: "busy" })), /4 of 4 jobs/)
      assert.match(refusal(yield* call("cursor_run", { prompt: "x" })), /'\/etc'.*outside/)
      assert.match(refusal(yield* call("cursor_status", { jobId: "nope" })), /'nope'.*cursor_list/)
      assert.match(refusal(yield* call("cursor_cancel", { jobId: id })), /completed/)
    })
  )

  it.effect("shows processes and sessions of the host, or a text in as many events as it came in", () =>
    Effect.gen(function* () {
      const events = [
        stored(1, { _tag: "Submitted" }),
        stored(2, { _tag: "Session", sessionId: "s" }),
        stored(3, { _tag: "Process", pid: 7, startedAt: "x" }),
        stored(4, { _tag: "Text", text: "a" }),
        stored(5, { _tag: "Text", text: "b" }),
        stored(6, { _tag: "ToolStarted", callId: "1", title: "read" }),
        stored(7, { _tag: "Text", text: "c" })
      ]
      const { call } = yield* world({ follow: () => Effect.succeed({ job: jobOf({ lastSeq: 9 }), events }) })
      const status = structure(yield* call("cursor_status", { jobId: id }))
      assert.deepStrictEqual(
        (status["events"] as ReadonlyArray<Record<string, unknown>>).map(({ seq, text, type }) => [seq, type, text]),
        [
          [1, "submitted", undefined],
          [5, "text", "ab"],
          [6, "tool-started", undefined],
          [7, "text", "c"]
        ]
      )
      assert.deepInclude(status, { lastSeq: 7, more: true })
    })
  )

  it.effect("pages a list past its end, or takes a cursor that it never gave out", () =>
    Effect.gen(function* () {
      const { call, calls } = yield* world({ list: () => Effect.succeed({ jobs: [jobOf()], total: 3 }) })
      const first = structure(yield* call("cursor_list", { limit: 1 }))
      assert.deepInclude(first, { total: 3 })
      assert.isString(first["next"])
      yield* call("cursor_list", { limit: 1, cursor: first["next"] })
      assert.deepStrictEqual(calls[1]?.[3], { updatedAt: "2026-12-01T00:00:01.000Z", id })
      assert.match(refusal(yield* call("cursor_list", { cursor: "x" })), /cursor/)
    })
  )

  it.effect("shuts the bridge down before its jobs have ended", () =>
    Effect.gen(function* () {
      const { call, calls } = yield* world({ shutdown: () => Effect.void })
      assert.deepStrictEqual(structure(yield* call("bridge_shutdown", { reason: "enough" })), { stopping: true })
      assert.deepStrictEqual(calls, [
        ["shutdown", "enough"],
        ["stop", "enough"]
      ])
    })
  )
})

describe("JobTools for a client that takes tasks", () => {
  const ended = jobOf({ state: "completed", result: "done", lastSeq: 9 })
  const change = (job: Job) => ({ job, stored: stored(job.lastSeq, { _tag: "Completed", text: "done" }) })

  it.effect("answers before the job has ended", () =>
    Effect.gen(function* () {
      const escalated: Array<boolean> = []
      const { call } = yield* world({
        submit: () => Effect.succeed(jobOf()),
        watch: () => Stream.make(change(jobOf({ lastSeq: 5 })), change(ended))
      })
      const result = yield* call(
        "cursor_run",
        { prompt: "do" },
        { offersTask: true, escalate: (required) => Effect.sync(() => void escalated.push(required)) }
      )
      assert.deepInclude(structure(result), { state: "completed", result: "done" })
      assert.deepStrictEqual(escalated, [false])
    })
  )

  it.effect("leaves the job running when its task is cancelled", () =>
    Effect.gen(function* () {
      const watching = yield* Deferred.make<void>()
      const { call, calls } = yield* world({
        submit: () => Effect.succeed(jobOf()),
        watch: () =>
          Stream.drain(Stream.fromEffect(Deferred.succeed(watching, undefined))).pipe(Stream.concat(Stream.never)),
        cancel: () => Effect.succeed(jobOf({ state: "canceled" }))
      })
      const fiber = yield* Effect.fork(call("cursor_run", { prompt: "do" }, { offersTask: true }))
      yield* Deferred.await(watching)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(calls.at(-1)?.slice(0, 3), ["cancel", id, "owner"])
    })
  )

  it.effect("puts no question to the client, or does not hand its answer to the worker", () =>
    Effect.gen(function* () {
      const asked: Array<unknown> = []
      let round = 0
      const { call, calls } = yield* world({
        submit: () => Effect.succeed(jobOf()),
        watch: () =>
          round++ === 0
            ? Stream.make(change(jobOf({ state: "input-required", question: "which?", lastSeq: 6 })))
            : Stream.make(change(ended)),
        reply: () => Effect.succeed(jobOf({ lastSeq: 7 }))
      })
      const result = yield* call(
        "cursor_run",
        { prompt: "do" },
        {
          offersTask: true,
          ask: (requests) => {
            asked.push(requests["answer"]?.params["message"])
            return Effect.succeed({ answer: { action: "accept", content: { answer: "that one" } } })
          }
        }
      )
      assert.deepStrictEqual(asked, ["which?"])
      assert.deepStrictEqual(calls.find(([name]) => name === "reply")?.slice(1), [id, "owner", "that one"])
      assert.deepInclude(structure(result), { state: "completed" })
    })
  )

  it.effect("hangs, or loses the question, where the client cannot be asked", () =>
    Effect.gen(function* () {
      const { call } = yield* world({
        submit: () => Effect.succeed(jobOf()),
        watch: () => Stream.make(change(jobOf({ state: "input-required", question: "which?", lastSeq: 6 })))
      })
      const result = yield* call(
        "cursor_run",
        { prompt: "do" },
        { offersTask: true, ask: () => new CapabilityMissing({ required: { elicitation: {} } }) }
      )
      assert.deepInclude(structure(result), { state: "input-required", question: "which?" })
    })
  )
})
