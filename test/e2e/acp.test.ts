import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { assert, describe, it } from "vitest"
import * as AcpWorker from "../../src/layers/jobs/AcpWorker.ts"
import * as FilePrivateConfig from "../../src/layers/jobs/FilePrivateConfig.ts"
import * as ProcessTree from "../../src/layers/jobs/ProcessTree.ts"
import * as SdkAcpConnections from "../../src/layers/jobs/SdkAcpConnections.ts"
import type { Tier } from "../../src/services/jobs/Job.ts"
import type { Turn, Worker } from "../../src/services/jobs/Worker.ts"
import type { ModelRequest, Turn as Reply } from "../support/fakeModel.ts"
import { call, fakeModel, say, stall } from "../support/fakeModel.ts"
import type { Home } from "../support/omp.ts"
import { bunBinary, ompBinary, processesOf, until, useLab } from "../support/omp.ts"
import { newJobId } from "../support/processes.ts"
import { answerOf, of, runTurn, textOf } from "../support/suites/worker.ts"

const machine = Layer.mergeAll(ProcessTree.layer, FilePrivateConfig.layer, SdkAcpConnections.layer)

describe("the real omp acp as a worker", () => {
  const lab = useLab()

  const start = async (script: (request: ModelRequest, index: number) => Reply, link = false) => {
    const model = fakeModel(script)
    lab.onEnd(model.close)
    const home = lab.home({ link, model: model.baseUrl })
    writeFileSync(join(home.work, "notes.txt"), "the code word is plum\n")
    const worker = await Effect.runPromise(
      AcpWorker.make({
        name: "omp",
        command: [bunBinary, ompBinary, "acp"],
        env: home.env,
        home: home.dir,
        leavePatience: "20 seconds"
      }).pipe(Effect.provide(machine))
    )
    return { model, home, worker }
  }

  const turnIn = (home: Home, prompt: string, more: Partial<Turn> & { readonly tier?: Tier } = {}): Turn => ({
    jobId: newJobId(),
    tier: "execute",
    cwd: home.work,
    prompt,
    session: undefined,
    stateDir: home.dir,
    model: undefined,
    ...more
  })
  const run = (worker: Worker, turn: Turn) => Effect.runPromise(runTurn(worker, turn))

  it("reads a file, answers, goes on with the session, and leaves no process", async () => {
    const { home, model, worker } = await start(({ last, lastRole }) =>
      lastRole === "tool"
        ? say(`I read: ${/code word is (\w+)/.exec(last)?.[1]}`)
        : last.includes("what was it")
          ? say("It was plum.")
          : call("read", { path: "notes.txt" })
    )
    const turn = turnIn(home, "read notes.txt")
    const first = await run(worker, turn)
    assert.strictEqual(answerOf(first), "I read: plum")
    assert.strictEqual(textOf(first), "I read: plum")
    assert.deepInclude(of(first, "ToolEnded")[0], { ok: true })
    assert.strictEqual(of(first, "ToolStarted")[0]?.kind, "read")
    assert.isAbove(of(first, "Usage")[0]?.inputTokens ?? 0, 0)
    assert.deepStrictEqual(of(first, "Warning"), [])
    assert.deepStrictEqual(processesOf(home.dir), [])

    const session = of(first, "Session")[0]!.sessionId
    const second = await run(worker, { ...turn, prompt: "what was it?", session })
    assert.strictEqual(answerOf(second), "It was plum.")
    assert.strictEqual(textOf(second), "It was plum.")
    // The earlier turn is in what the model gets.
    assert.include(JSON.stringify(model.requests.at(-1)?.messages), "I read: plum")

    const lost = await run(worker, { ...turn, session: crypto.randomUUID() })
    assert.strictEqual(lost.failure?._tag, "SessionLost")
  })

  it("writes in the execute tier; in the plan tier neither a write nor a command gets through", async () => {
    const script = ({ last, lastRole }: ModelRequest): Reply => {
      if (lastRole === "tool") return say("done")
      return last.includes("use bash")
        ? call("bash", { command: "echo changed > made.txt" })
        : call("write", { path: "made.txt", content: "changed\n" })
    }
    const { home, worker } = await start(script)
    const made = join(home.work, "made.txt")
    for (const prompt of ["use write", "use bash"]) {
      const planned = await run(worker, turnIn(home, prompt, { tier: "plan" }))
      answerOf(planned)
      assert.strictEqual(of(planned, "Denied").length, 1, prompt)
      assert.deepInclude(of(planned, "ToolEnded")[0], { ok: false }, prompt)
      assert.isFalse(existsSync(made), prompt)
      const executed = await run(worker, turnIn(home, prompt))
      answerOf(executed)
      assert.deepStrictEqual(of(executed, "Denied"), [], prompt)
      assert.strictEqual(readFileSync(made, "utf8"), "changed\n", prompt)
      await Bun.file(made).delete()
    }
  })

  it("is gone with all that it started when the turn is cancelled", async () => {
    const { home, model, worker } = await start((_, index) =>
      index === 0 ? call("bash", { command: "setsid sleep 1000 > /dev/null 2>&1 & echo started" }) : stall
    )
    const fiber = Effect.runFork(Stream.runDrain(worker.run(turnIn(home, "start the server"))))
    await until("the model is asked again", () => model.requests.length > 1, 60_000)
    assert.isAbove(processesOf(home.dir).length, 1)
    await Effect.runPromise(Fiber.interrupt(fiber))
    assert.deepStrictEqual(processesOf(home.dir), [])
  })

  it("opens no bridge of its own, though the extension is linked for the user's own omp", async () => {
    const { home, worker } = await start(() => say("hello"), true)
    assert.strictEqual(answerOf(await run(worker, turnIn(home, "hello"))), "hello")
    assert.isFalse(existsSync(home.bridgeFile), "it wrote settings with a token")
  })

  it("is healthy, and says which omp it is", async () => {
    const { worker } = await start(() => stall)
    const health = await Effect.runPromise(worker.health)
    assert.isTrue(health.ok, health.detail)
    assert.match(health.detail, /18\.2\.3/)
  })
})
