import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as CursorCliWorker from "../../../src/layers/jobs/CursorCliWorker.ts"
import { alive, pidsIn } from "../../support/processes.ts"
import type { Make } from "../../support/suites/worker.ts"
import { answerOf, of, runTurn, suite, textOf, withWorker } from "../../support/suites/worker.ts"

/** Patient: what takes long on a busy machine is not what these tests are about. */
const make: Make = (lab, command) =>
  CursorCliWorker.make({ name: "cursor", command, env: lab.env, home: lab.home, resultPatience: "30 seconds" })
const using = withWorker(make)
const usingHasty = withWorker((lab) =>
  CursorCliWorker.make({
    name: "cursor",
    env: lab.env,
    home: lab.home,
    resultPatience: "300 millis",
    quietPatience: "1 second"
  })
)

suite("CursorCliWorker", make)

describe("CursorCliWorker", { timeout: 60_000 }, () => {
  it.live("takes the result of a program that never ends after it", () =>
    usingHasty((worker, lab) =>
      Effect.gen(function* () {
        const run = yield* runTurn(worker, lab.turn("[hang-after-result] [ignore-sigterm] [say:the answer]"))
        assert.strictEqual(answerOf(run), "the answer")
        assert.strictEqual(of(run, "Warning").length, 1)
        assert.isFalse(alive(of(run, "Process")[0]!.pid))
      })
    )
  )

  it.live("does not wait for ever for a result that a background shell holds back", () =>
    usingHasty((worker, lab) =>
      Effect.gen(function* () {
        const run = yield* runTurn(worker, lab.turn("[background] [say:the server runs]"))
        assert.strictEqual(answerOf(run), "the server runs")
        assert.strictEqual(of(run, "Warning").length, 1)
        const pids = yield* pidsIn(lab.notes, "background")
        assert.deepStrictEqual(pids.filter(alive), [])
      })
    )
  )

  it.live("does not take a turn for finished that pauses in the middle, however long", () =>
    usingHasty((worker, lab) =>
      Effect.gen(function* () {
        const run = yield* runTurn(worker, lab.turn("[tell:wait] [slow:1500] [read:a.txt] [slow:1500] [say:now]"))
        assert.strictEqual(answerOf(run), "now")
      })
    )
  )

  it.live("does not record a run without a result as success, though it exits with 0", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        for (const words of ["[no-result]", "[cut-off]"]) {
          const run = yield* runTurn(worker, lab.turn(words))
          assert.strictEqual(run.failure?._tag, "ProtocolBroken", words)
        }
      })
    )
  )

  it.live("tells an untrusted folder, whether the program exits with 0 or waits for a person", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        for (const words of ["[untrusted]", "[untrusted-hang]"]) {
          const run = yield* runTurn(worker, lab.turn(words))
          assert.strictEqual(run.failure?._tag, "FolderUntrusted", words)
        }
      })
    )
  )

  it.live("fails a resumed turn that Cursor quietly began anew", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const session = crypto.randomUUID()
        const run = yield* runTurn(worker, lab.turn("[resume-new] [say:hello]", { session }))
        assert.strictEqual(run.failure?._tag, "SessionLost")
      })
    )
  )

  it.live("gives every job a configuration of its own with the user's login, and leaves the user's as it was", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const before = readFileSync(join(lab.home, ".cursor/cli-config.json"), "utf8")
        const turn = lab.turn("[env:CURSOR_CONFIG_DIR]")
        const run = yield* runTurn(worker, turn)
        assert.isTrue(answerOf(run).startsWith(turn.stateDir), answerOf(run))
        assert.deepStrictEqual(readdirSync(join(lab.home, ".cursor")), ["cli-config.json"])
        assert.strictEqual(readFileSync(join(lab.home, ".cursor/cli-config.json"), "utf8"), before)
      })
    )
  )

  it.live("says nothing twice of what Cursor repeats", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const run = yield* runTurn(
          worker,
          lab.turn("[tell:one one one] [read:a.txt] [tell:one one one] [parallel-tools] [say:two]")
        )
        assert.strictEqual(textOf(run), "one one oneone one onetwo")
      })
    )
  )

  it.live("reads on through megabytes of output", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        const run = yield* runTurn(worker, lab.turn("[flood:1] [say:done]"))
        assert.strictEqual(answerOf(run), "done")
        assert.strictEqual(textOf(run).length, (1 << 20) + 4)
      })
    )
  )

  it.live("refuses a model or session that would be read as an option", () =>
    using((worker, lab) =>
      Effect.gen(function* () {
        for (const more of [{ model: "--force" }, { session: "-f" }, { model: "a b" }, { model: "" }]) {
          const run = yield* runTurn(worker, lab.turn("[say:hello]", more))
          assert.strictEqual(run.failure?._tag, "WorkerRefused")
          assert.deepStrictEqual(run.items, [])
        }
      })
    )
  )
})
