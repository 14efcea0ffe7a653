/** What every worker must do, whatever it speaks with its agent. The agent is the fake one, as a real process. */
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Ref from "effect/Ref"
import * as Stream from "effect/Stream"
import * as FilePrivateConfig from "../../../src/layers/jobs/FilePrivateConfig.ts"
import * as ProcessTree from "../../../src/layers/jobs/ProcessTree.ts"
import * as SdkAcpConnections from "../../../src/layers/jobs/SdkAcpConnections.ts"
import type { AcpConnections } from "../../../src/services/jobs/AcpConnections.ts"
import type { WorkerEvent } from "../../../src/services/jobs/Job.ts"
import type { PrivateConfig } from "../../../src/services/jobs/PrivateConfig.ts"
import type { Processes } from "../../../src/services/jobs/Processes.ts"
import type { Turn, TurnEnd, Worker, WorkerFailure } from "../../../src/services/jobs/Worker.ts"
import type { Lab } from "../agentLab.ts"
import { lab } from "../agentLab.ts"
import { alive, pidsIn } from "../processes.ts"

export type Item = WorkerEvent | TurnEnd
export type Make = (lab: Lab, command?: ReadonlyArray<string>) => Effect.Effect<Worker, never, Machine>

export interface Run {
  readonly items: ReadonlyArray<Item>
  readonly failure: WorkerFailure | undefined
}

/** A whole turn: what it said, and how it failed where it did. */
export const runTurn = (worker: Worker, turn: Turn): Effect.Effect<Run> =>
  Effect.gen(function* () {
    const items: Array<Item> = []
    const ended = yield* worker.run(turn).pipe(
      Stream.runForEach((item) => Effect.sync(() => items.push(item))),
      Effect.either
    )
    return { items, failure: Either.isLeft(ended) ? ended.left : undefined }
  })

export const of = <T extends Item["_tag"]>(run: Run, tag: T): ReadonlyArray<Extract<Item, { readonly _tag: T }>> =>
  run.items.filter((item): item is Extract<Item, { readonly _tag: T }> => item._tag === tag)

export const textOf = (run: Run): string =>
  of(run, "Text")
    .map(({ text }) => text)
    .join("")

export const answerOf = (run: Run): string => {
  assert.isUndefined(run.failure, String(run.failure))
  const end = run.items.at(-1)
  assert.strictEqual(end?._tag, "Answered")
  return end?._tag === "Answered" ? end.text : ""
}

/** What workers build on. */
type Machine = AcpConnections | PrivateConfig | Processes
const machine: Layer.Layer<Machine> = Layer.mergeAll(
  SdkAcpConnections.layer,
  ProcessTree.layerWith({ patience: "300 millis", killPatience: "10 seconds" }),
  FilePrivateConfig.layer
)

/** Runs a test with a worker over a fresh lab, whose processes ignore SIGTERM more often than not. */
export const withWorker =
  (make: Make) =>
  <A>(body: (worker: Worker, lab: Lab) => Effect.Effect<A, never, Machine>) =>
    Effect.gen(function* () {
      const here = yield* lab
      return yield* body(yield* make(here), here)
    }).pipe(Effect.scoped, Effect.provide(machine))

export const suite = (name: string, make: Make) => {
  const using = withWorker(make)

  describe(`${name} as a worker`, { timeout: 60_000 }, () => {
    it.live("says its process and session, its text, and one end as the last thing", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(
            worker,
            lab.turn("[think:hm] [tell:First I look.] [read:a.txt] [say:It says alpha.]")
          )
          assert.strictEqual(answerOf(run), "It says alpha.")
          assert.strictEqual(textOf(run), "First I look.It says alpha.")
          assert.deepStrictEqual(
            of(run, "Thought").map(({ text }) => text),
            ["hm"]
          )
          assert.strictEqual(of(run, "Session").length, 1)
          assert.strictEqual(of(run, "Process").length, 1)
          assert.strictEqual(run.items[0]?._tag, "Process")
          assert.isFalse(alive(of(run, "Process")[0]!.pid))
          assert.strictEqual(of(run, "Answered").length + of(run, "Question").length, 1)
          assert.deepStrictEqual(of(run, "Warning"), [])
        })
      )
    )

    it.live("pairs the beginning and end of every tool call, and tells failed ones", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(worker, lab.turn("[read:a.txt] [read:nowhere.txt] [parallel-tools]"))
          answerOf(run)
          const started = of(run, "ToolStarted")
          const ended = of(run, "ToolEnded")
          assert.strictEqual(started.length, 4)
          assert.deepStrictEqual(started.map(({ callId }) => callId).sort(), ended.map(({ callId }) => callId).sort())
          const byId = new Map(ended.map((end) => [end.callId, end.ok]))
          assert.deepStrictEqual(
            started.map(({ callId }) => byId.get(callId)),
            [true, false, false, true]
          )
          assert.include(started[0]!.title, "a.txt")
        })
      )
    )

    it.live("hands over a request of any size and content unchanged", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const request = `[measure] "quotes" 'and' $HOME \`ticks\` \\ %PATH% ü 漢\r\n${"line of text\n".repeat(20_000)}--end`
          const run = yield* runTurn(worker, lab.turn(request))
          assert.strictEqual(answerOf(run), String(Bun.hash(request)))
        })
      )
    )

    it.live("changes files in the execute tier", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          answerOf(yield* runTurn(worker, lab.turn("[edit:a.txt]")))
          assert.strictEqual(readFileSync(join(lab.work, "a.txt"), "utf8"), "alpha\nchanged by the agent\n")
        })
      )
    )

    for (const tier of ["consult", "plan"] as const) {
      it.live(`has an edit refused in the ${tier} tier, and says so`, () =>
        using((worker, lab) =>
          Effect.gen(function* () {
            const run = yield* runTurn(worker, lab.turn("[edit:a.txt]", { tier }))
            answerOf(run)
            assert.strictEqual(readFileSync(join(lab.work, "a.txt"), "utf8"), "alpha\n")
            assert.strictEqual(of(run, "Denied").length, 1)
            assert.include(of(run, "Denied")[0]!.what, "a.txt")
          })
        )
      )
    }

    it.live("ends with a question where the worker cannot go on", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(worker, lab.turn("[ask:Which database?]"))
          assert.isUndefined(run.failure)
          assert.deepStrictEqual(run.items.at(-1), { _tag: "Question", question: "Which database?" })
        })
      )
    )

    it.live("goes on with the session that it is given", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const turn = lab.turn("[remember:plum]")
          const first = yield* runTurn(worker, turn)
          answerOf(first)
          const session = of(first, "Session")[0]!.sessionId
          const second = yield* runTurn(worker, { ...turn, prompt: "[recall]", session })
          assert.strictEqual(answerOf(second), "plum")
          assert.notInclude(textOf(second), "remember")
        })
      )
    )

    it.live("does not begin anew where the session is lost", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(worker, lab.turn("[say:hello]", { session: crypto.randomUUID() }))
          assert.strictEqual(run.failure?._tag, "SessionLost")
          assert.deepStrictEqual(of(run, "Answered"), [])
        })
      )
    )

    it.live("ends, when cancelled, everything that it started: children, daemons, and what ignores SIGTERM", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const seen = yield* Ref.make<ReadonlyArray<Item>>([])
          const fiber = yield* worker.run(lab.turn("[ignore-sigterm] [child] [detached-child] [hang]")).pipe(
            Stream.runForEach((item) => Ref.update(seen, (items) => [...items, item])),
            Effect.fork
          )
          const pids = yield* pidsIn(lab.notes, "child", "detached")
          assert.isTrue(pids.every(alive))
          yield* Fiber.interrupt(fiber)
          const main = (yield* Ref.get(seen)).flatMap((item) => (item._tag === "Process" ? [item.pid] : []))
          assert.strictEqual(main.length, 1)
          assert.deepStrictEqual([...main, ...pids].filter(alive), [])
        })
      )
    )

    it.live("leaves nothing running after a turn that went well", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          answerOf(yield* runTurn(worker, lab.turn("[child] [detached-child] [say:done]")))
          const pids = yield* pidsIn(lab.notes, "child", "detached")
          assert.deepStrictEqual(pids.filter(alive), [])
        })
      )
    )

    it.live("tells a program that is missing", () =>
      Effect.gen(function* () {
        const here = yield* lab
        const worker = yield* make(here, ["no-such-agent-here"])
        const run = yield* runTurn(worker, here.turn("[say:hello]"))
        assert.strictEqual(run.failure?._tag, "BinaryMissing")
        const health = yield* worker.health
        assert.isFalse(health.ok)
        assert.include(health.detail, "no-such-agent-here")
      }).pipe(Effect.scoped, Effect.provide(machine))
    )

    it.live("tells that it is not logged in", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          writeFileSync(join(lab.home, ".cursor/cli-config.json"), "{}")
          const run = yield* runTurn(worker, lab.turn("[say:hello]"))
          assert.strictEqual(run.failure?._tag, "NotLoggedIn")
        })
      )
    )

    it.live("tells how it exited, with its last words", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const { failure } = yield* runTurn(worker, lab.turn("[tell:So far so good.] [exit:7]"))
          assert.strictEqual(failure?._tag, "WorkerExited")
          if (failure?._tag !== "WorkerExited") return
          assert.strictEqual(failure.code, 7)
          assert.include(failure.stderr, "connection lost")
        })
      )
    )

    it.live("tells that the agent's own model refused", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const { failure } = yield* runTurn(worker, lab.turn("[error:usage limit reached]"))
          assert.strictEqual(failure?._tag, "WorkerRefused")
          assert.include(failure?._tag === "WorkerRefused" ? failure.detail : "", "usage limit reached")
        })
      )
    )

    it.live("passes over garbage in the stream, and warns of it once", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(worker, lab.turn("[garbage] [malformed] [garbage] [unknown-events] [say:fine]"))
          assert.strictEqual(answerOf(run), "fine")
          assert.strictEqual(of(run, "Warning").length, 1)
        })
      )
    )

    it.live("reports the tokens that were used", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const usage = of(yield* runTurn(worker, lab.turn("[say:hello]")), "Usage")
          assert.strictEqual(usage.length, 1)
          assert.strictEqual(usage[0]!.inputTokens, 11)
          assert.strictEqual(usage[0]!.outputTokens, 7)
          assert.deepStrictEqual(of(yield* runTurn(worker, lab.turn("[usage-missing]")), "Usage"), [])
        })
      )
    )

    it.live("keeps the bridge's secrets, and the repository that it runs in, from the worker", () =>
      Effect.gen(function* () {
        const here = yield* lab
        const env = { ...here.env, A2A_BRIDGE_TOKEN: "secret", GIT_DIR: "/elsewhere", OPENAI_API_KEY: "the worker's" }
        const worker = yield* make({ ...here, env })
        assert.strictEqual(answerOf(yield* runTurn(worker, here.turn("[env:A2A_BRIDGE_TOKEN]"))), "unset")
        assert.strictEqual(answerOf(yield* runTurn(worker, here.turn("[env:GIT_DIR]"))), "unset")
        assert.strictEqual(answerOf(yield* runTurn(worker, here.turn("[env:OPENAI_API_KEY]"))), "the worker's")
      }).pipe(Effect.scoped, Effect.provide(machine))
    )

    it.live("runs several turns at once without their getting in each other's way", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const runs = yield* Effect.forEach(
            [1, 2, 3],
            (number) => runTurn(worker, lab.turn(`[slow:100] [say:number ${number}]`)),
            { concurrency: "unbounded" }
          )
          assert.deepStrictEqual(runs.map(answerOf), ["number 1", "number 2", "number 3"])
        })
      )
    )

    it.live("is healthy where its program answers", () =>
      using((worker) =>
        Effect.gen(function* () {
          const health = yield* worker.health
          assert.isTrue(health.ok, health.detail)
          assert.include(health.detail, "fake")
        })
      )
    )
  })
}
