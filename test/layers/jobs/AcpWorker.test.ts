import { existsSync, readFileSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import * as AcpWorker from "../../../src/layers/jobs/AcpWorker.ts"
import type { Lab } from "../../support/agentLab.ts"
import { alive, eventually, pidsIn } from "../../support/processes.ts"
import type { Make } from "../../support/suites/worker.ts"
import { answerOf, of, runTurn, suite, textOf, withWorker } from "../../support/suites/worker.ts"

const optionsFor = (lab: Lab, words = ""): AcpWorker.Options => ({
  name: "acp",
  command: ["agent", "acp"],
  env: { ...lab.env, ...(words === "" ? {} : { FAKE_AGENT: words }) },
  home: lab.home,
  config: { variable: "CURSOR_CONFIG_DIR", from: join(lab.home, ".cursor"), files: ["cli-config.json"] },
  modes: { plan: "plan", consult: "ask" },
  authMethod: "cursor_login",
  cancelPatience: "10 seconds"
})

const make: Make = (lab, command) =>
  AcpWorker.make({ ...optionsFor(lab), ...(command === undefined ? {} : { command }) })
const using = withWorker(make)
const usingWith = (words: string, more: Partial<AcpWorker.Options> = {}) =>
  withWorker((lab) => AcpWorker.make({ ...optionsFor(lab, words), ...more }))

suite("AcpWorker", make)

describe("AcpWorker", { timeout: 60_000 }, () => {
  describe("answers permission requests", () => {
    const ask = (tier: "consult" | "plan" | "execute", words: string) =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(worker, lab.turn(words, { tier }))
          return { outcome: answerOf(run), denied: of(run, "Denied").map(({ reason }) => reason) }
        })
      )

    it.live("by the tier and the kind of tool", () =>
      Effect.gen(function* () {
        for (const kind of ["read", "search"]) {
          assert.deepStrictEqual(yield* ask("consult", `[permission:${kind}]`), { outcome: "yes", denied: [] })
        }
        for (const kind of ["execute", "other"]) {
          const { denied, outcome } = yield* ask("plan", `[permission:${kind}]`)
          assert.strictEqual(outcome, "no")
          assert.strictEqual(denied.length, 1)
        }
        assert.deepStrictEqual(yield* ask("execute", "[permission:execute]"), { outcome: "yes", denied: [] })
      })
    )

    it.live("by where the files are, in every tier", () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* ask("execute", "[permission:edit .]")).outcome, "yes")
        assert.deepStrictEqual(yield* ask("execute", "[permission:edit /etc/passwd]"), {
          outcome: "no",
          denied: ["outside the worktree: /etc/passwd"]
        })
        assert.strictEqual((yield* ask("consult", "[permission:read ../notes]")).outcome, "no")
      })
    )

    it.live("with nothing that the agent would remember", () =>
      Effect.gen(function* () {
        const { denied, outcome } = yield* ask("execute", "[always] [permission:edit .]")
        assert.strictEqual(outcome, "never")
        assert.strictEqual(denied.length, 1)
      })
    )
  })

  describe("serves files", () => {
    it.live("of the worktree: whole, in part, and written where the tier allows", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[read-fs:a.txt]", { tier: "plan" }))), "alpha\n")
          const lines = "[shell:seq 5 > five.txt] [read-fs:five.txt 2 3]"
          assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn(lines))), "2\n3\n4")
          assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[write-fs:new/b.txt]"))), "written")
          assert.strictEqual(readFileSync(join(lab.work, "new/b.txt"), "utf8"), "by client\n")
        })
      )
    )

    it.live("to nobody outside of it, nor git's own, nor through a link, nor in a tier that changes nothing", () =>
      using((worker, lab) =>
        Effect.gen(function* () {
          const outside = join(lab.home, "secret")
          symlinkSync(lab.home, join(lab.work, "home"))
          symlinkSync(outside, join(lab.work, "dangling"))
          const cases: ReadonlyArray<readonly [words: string, tier: "plan" | "execute"]> = [
            ["[write-fs:../home/secret]", "execute"],
            [`[write-fs:${outside}]`, "execute"],
            ["[write-fs:home/secret]", "execute"],
            ["[write-fs:dangling]", "execute"],
            ["[write-fs:.git/config]", "execute"],
            ["[write-fs:a.txt]", "plan"],
            ["[read-fs:home/.cursor/cli-config.json]", "execute"],
            ["[read-fs:/etc/passwd]", "plan"]
          ]
          for (const [words, tier] of cases) {
            assert.match(answerOf(yield* runTurn(worker, lab.turn(words, { tier }))), /^refused: /, words)
          }
          assert.isFalse(existsSync(outside))
          assert.strictEqual(readFileSync(join(lab.work, "a.txt"), "utf8"), "alpha\n")
        })
      )
    )
  })

  describe("goes on with a session", () => {
    it.live("that the agent can only resume", () =>
      usingWith("[resume-only]")((worker, lab) =>
        Effect.gen(function* () {
          const turn = lab.turn("[remember:fig]")
          const session = of(yield* runTurn(worker, turn), "Session")[0]!.sessionId
          assert.strictEqual(answerOf(yield* runTurn(worker, { ...turn, prompt: "[recall]", session })), "fig")
        })
      )
    )

    it.live("or says that it is lost, where the agent can do neither", () =>
      usingWith("[no-load]")((worker, lab) =>
        Effect.gen(function* () {
          const run = yield* runTurn(worker, lab.turn("[say:hello]", { session: "s" }))
          assert.strictEqual(run.failure?._tag, "SessionLost")
        })
      )
    )
  })

  it.live("authenticates where the agent asks for it", () =>
    usingWith("[auth]")((worker, lab) =>
      Effect.gen(function* () {
        assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[say:in]"))), "in")
      })
    )
  )

  it.live("asks for the tier's mode and the caller's model, by value or name", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[mode]", { tier: "plan" }))), "plan")
        assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[mode]", { tier: "consult" }))), "agent")
        assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[model]", { model: "Two" }))), "two")
        const run = yield* runTurn(worker, lab.turn("[model]", { model: "three" }))
        assert.strictEqual(run.failure?._tag, "WorkerRefused")
      })
    )
  )

  it.live("ends the turn with Cursor's question, options and all, and stops the agent", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const run = yield* runTurn(worker, lab.turn("[question:Which way?] [edit:a.txt]"))
        assert.deepStrictEqual(run.items.at(-1), { _tag: "Question", question: "Choose\nWhich way?\n- left\n- right" })
        assert.strictEqual(readFileSync(join(lab.notes, "asked"), "utf8"), "cancelled")
        assert.isTrue(existsSync(join(lab.notes, "cancelled")))
      })
    )
  )

  it.live("takes Cursor's plan for the answer in the plan tier, and lets it go on in the execute tier", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const planned = yield* runTurn(worker, lab.turn("[plan] [hang]", { tier: "plan" }))
        assert.strictEqual(answerOf(planned), "# The plan\n1. Do it")
        assert.deepStrictEqual(of(planned, "Plan"), [{ _tag: "Plan", entries: [{ text: "Do it", status: "pending" }] }])
        assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[plan]"))), "accepted")
        assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn("[plan]", { tier: "consult" }))), "cancelled")
      })
    )
  )

  it.live("tells plans and to-dos", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const entries = of(yield* runTurn(worker, lab.turn("[todos]")), "Plan").map((plan) => plan.entries)
        assert.deepStrictEqual(entries, [
          [{ text: "One", status: "completed" }],
          [{ text: "Two", status: "in_progress" }]
        ])
      })
    )
  )

  it.live("says that it does not have what the agent asks of it beyond that", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        for (const method of ["terminal/create", "cursor/generate_image", "x/y"]) {
          assert.strictEqual(answerOf(yield* runTurn(worker, lab.turn(`[request:${method}]`))), "-32601", method)
        }
      })
    )
  )

  it.live("fails with the agent's stop reason where it is not the turn's end", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        for (const reason of ["refusal", "max_tokens", "max_turn_requests", "cancelled"]) {
          const { failure } = yield* runTurn(worker, lab.turn(`[say:so far] [stop:${reason}]`))
          assert.strictEqual(failure?._tag, "WorkerRefused", reason)
          assert.include(failure?._tag === "WorkerRefused" ? failure.detail : "", reason)
        }
      })
    )
  )

  it.live("fails where the agent speaks another version, or never answers", () =>
    Effect.gen(function* () {
      const failureWith = (words: string) =>
        usingWith(words, { startPatience: "2 seconds" })((worker, lab) => runTurn(worker, lab.turn("[say:hello]")))
      assert.strictEqual((yield* failureWith("[version:2]")).failure?._tag, "ProtocolBroken")
      assert.strictEqual((yield* failureWith("[silent]")).failure?._tag, "ProtocolBroken")
    })
  )

  it.live("asks the agent to stop before it is ended", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(Stream.runDrain(worker.run(lab.turn("[child] [hang]"))))
        const pids = yield* pidsIn(lab.notes, "child")
        yield* Fiber.interrupt(fiber)
        assert.isTrue(existsSync(join(lab.notes, "cancelled")))
        assert.deepStrictEqual(pids.filter(alive), [])
      })
    )
  )

  it.live("does not wait for one that does not stop", () =>
    usingWith("", { cancelPatience: "200 millis" })((worker, lab) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(
          Stream.runDrain(worker.run(lab.turn("[ignore-cancel] [ignore-sigterm] [child] [hang]")))
        )
        const pids = yield* pidsIn(lab.notes, "child")
        yield* Fiber.interrupt(fiber)
        yield* eventually("the agent was told", () => existsSync(join(lab.notes, "cancelled")))
        assert.deepStrictEqual(pids.filter(alive), [])
      })
    )
  )

  it.live("hears every update though nobody takes them for a while", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const text = "seven. ".repeat(2000)
        let first = true
        const items = yield* worker.run(lab.turn(`[say:${text}]`)).pipe(
          Stream.tap(() => {
            const wait = first ? Effect.sleep("500 millis") : Effect.void
            first = false
            return wait
          }),
          Stream.runCollect,
          Effect.orDie
        )
        const run = { items: [...items], failure: undefined }
        assert.strictEqual(textOf(run), text)
        assert.strictEqual(answerOf(run), text)
      })
    )
  )
})
