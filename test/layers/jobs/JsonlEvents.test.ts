import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as JsonlEvents from "../../../src/layers/jobs/JsonlEvents.ts"
import { Jobs } from "../../../src/services/jobs/Jobs.ts"
import { boot, machine, settled, submission, until } from "../../support/jobs.ts"
import { folder } from "../../support/suites/folder.ts"

const setup = Effect.gen(function* () {
  const directory = join(yield* folder, "events")
  const on = yield* machine()
  const { jobs } = yield* boot(on)
  const troubles: Array<string | undefined> = []
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const export_ = JsonlEvents.layer(directory, (trouble) =>
    Effect.sync(() => void troubles.push(trouble?.reason))
  ).pipe(Layer.provide(Layer.succeed(Jobs, jobs)))
  const open = Effect.zipRight(Effect.asVoid(Scope.extend(Layer.build(Layer.fresh(export_)), scope)), settled)
  const fileOf = (id: string) => join(directory, id, "events.jsonl")
  const lines = (id: string): ReadonlyArray<unknown> =>
    existsSync(fileOf(id))
      ? readFileSync(fileOf(id), "utf8")
          .split("\n")
          .filter((line) => line !== "")
          .map((line) => JSON.parse(line) as unknown)
      : []
  const whole = (id: string) =>
    (on.store.entries.get(id)?.events ?? []).map(({ at, event, seq }) => ({ jobId: id, seq, at, event }))
  const complete = (id: string) =>
    until("all is written", () => lines(id).length === whole(id).length && lines(id).length > 0)
  const run = (texts: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const job = yield* jobs.submit(submission())
      yield* until("it runs", () => on.workers.alive.some(({ turn }) => turn.jobId === job.id))
      for (const text of texts) on.workers.of(job.id).say({ _tag: "Warning", text })
      on.workers.of(job.id).answer()
      yield* until("it is over", () => on.store.entries.get(job.id)?.events.at(-1)?.event._tag === "CleanedUp")
      return job
    })
  return { complete, directory, fileOf, jobs, lines, on, open, run, scope, troubles, whole }
})

describe("JsonlEvents", () => {
  it.scoped("leaves an event out, or writes one twice, or lets others read", () =>
    Effect.gen(function* () {
      const { complete, directory, fileOf, lines, open, run, troubles, whole } = yield* setup
      yield* open
      const jobs = [yield* run(["a\nb", "c"]), yield* run([])]
      for (const { id } of jobs) {
        yield* complete(id)
        assert.deepStrictEqual(lines(id), whole(id))
        assert.strictEqual(statSync(fileOf(id)).mode & 0o777, 0o600)
      }
      assert.strictEqual(statSync(directory).mode & 0o777, 0o700)
      assert.deepStrictEqual(troubles, [])
    })
  )

  it.scoped("leaves a gap where it was not there, or believes half a line", () =>
    Effect.gen(function* () {
      const { complete, fileOf, lines, open, run, scope, whole } = yield* setup
      yield* open
      const job = yield* run(["a"])
      yield* complete(job.id)
      yield* Scope.close(scope, Exit.void)
      // The process died in the middle of a line, three events ago.
      const text = readFileSync(fileOf(job.id), "utf8").split("\n")
      writeFileSync(fileOf(job.id), `${text.slice(0, 2).join("\n")}\n`)
      appendFileSync(fileOf(job.id), `{"jobId":"${job.id}","seq":3,"at`)
      yield* open
      yield* complete(job.id)
      assert.deepStrictEqual(lines(job.id), whole(job.id))
    })
  )

  it.scoped("stops a job, or complains of each event, or leaves a gap, where the disk takes nothing", () =>
    Effect.gen(function* () {
      const { complete, directory, lines, open, run, troubles, whole } = yield* setup
      // A file where a folder should be: it stops root, too.
      mkdirSync(join(directory, ".."), { recursive: true })
      writeFileSync(directory, "")
      yield* open
      const first = yield* run(["a", "b", "c"])
      yield* until("it is told", () => troubles.length === 1)
      yield* settled
      assert.lengthOf(troubles, 1)
      rmSync(directory)
      const second = yield* run([])
      for (const { id } of [first, second]) {
        yield* complete(id)
        assert.deepStrictEqual(lines(id), whole(id))
      }
      assert.deepStrictEqual([troubles.length, troubles[1]], [2, undefined])
    })
  )
})
