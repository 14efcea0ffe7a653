import { Database } from "bun:sqlite"
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as SqlJobStore from "../../../src/layers/jobs/SqlJobStore.ts"
import { JobStore } from "../../../src/services/jobs/JobStore.ts"
import { MemoryJobStore } from "../../support/memoryJobStore.ts"
import { folder } from "../../support/suites/folder.ts"
import { suite } from "../../support/suites/jobStore.ts"
import { job, time } from "../../support/suites/jobs.ts"

const inFolder = (use: (file: string) => Layer.Layer<JobStore, unknown>) =>
  Layer.unwrapScoped(Effect.map(folder, (path) => use(join(path, "state", "jobs.db"))))

suite(
  "SqlJobStore",
  inFolder((file) => SqlJobStore.layer(file))
)
suite(
  "The reference",
  Layer.suspend(() => new MemoryJobStore().layer)
)

const withStore = <A, E, R>(
  file: string,
  effect: Effect.Effect<A, E, R | JobStore>,
  options: SqlJobStore.Options = {}
) => Effect.provide(effect, Layer.fresh(SqlJobStore.layer(file, options)))
const refusal = (file: string) => Effect.flip(withStore(file, JobStore))

describe("SqlJobStore", () => {
  it.scoped("loses a job with the process, or lets others read the file", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "state", "jobs.db")
      const stored = yield* withStore(
        file,
        Effect.gen(function* () {
          const store = yield* JobStore
          const { job: one } = yield* store.insert(job({ prompt: "é\u0000\ud800" }), [{ _tag: "Started" }], time(1))
          yield* store.putArtifact(one.id, "patch", "text/x-diff", new Uint8Array([0, 255, 10]))
          for (const suffix of ["", "-wal"]) assert.strictEqual(statSync(`${file}${suffix}`).mode & 0o777, 0o600)
          assert.strictEqual(statSync(join(file, "..")).mode & 0o777, 0o700)
          return one
        })
      )
      yield* withStore(
        file,
        Effect.gen(function* () {
          const store = yield* JobStore
          assert.deepStrictEqual(Option.getOrThrow(yield* store.get(stored.id)), stored)
          const { bytes } = Option.getOrThrow(yield* store.readArtifact(stored.id, "patch", 0, 10))
          assert.deepStrictEqual([...bytes], [0, 255, 10])
        })
      )
    })
  )

  it.scoped("leaves a file or folder open that it finds open", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "state", "jobs.db")
      mkdirSync(join(file, ".."), { mode: 0o755 })
      writeFileSync(file, "", { mode: 0o644 })
      yield* withStore(file, JobStore)
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      assert.strictEqual(statSync(join(file, "..")).mode & 0o777, 0o700)
    })
  )

  it.scopedLive("lets two bridges at one store, or keeps it locked after the first has gone", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      yield* withStore(
        file,
        Effect.gen(function* () {
          const refused = yield* refusal(file)
          assert.strictEqual(refused._tag, "StoreFailed")
          assert.include(refused.detail, `another process has ${file} open`)
        })
      )
      yield* withStore(file, JobStore)
    })
  )

  it.scopedLive("does not wait for a bridge that is just ending", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      const old = new Database(file)
      old.run("PRAGMA journal_mode = WAL")
      old.run("BEGIN IMMEDIATE")
      yield* Effect.forkScoped(
        Effect.delay(
          Effect.sync(() => {
            old.run("COMMIT")
            old.close()
          }),
          "250 millis"
        )
      )
      yield* withStore(file, JobStore)
    })
  )

  it.scoped("opens, or touches, a store of a newer version", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      const newer = new Database(file)
      newer.run("PRAGMA user_version = 4711")
      newer.close()
      const refused = yield* refusal(file)
      assert.match(refused.detail, /newer version \(schema 4711, .*update/)
      const after = new Database(file)
      assert.deepStrictEqual(after.query("PRAGMA user_version").get(), { user_version: 4711 })
      after.close()
    })
  )

  it.scoped("takes another file for a store, or changes it", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      writeFileSync(file, "this is a letter to my aunt\n".repeat(100))
      assert.include((yield* refusal(file)).detail, "is not a database")
      assert.strictEqual(readFileSync(file, "utf8"), "this is a letter to my aunt\n".repeat(100))
    })
  )

  it.scoped("takes a damaged store for an empty one, or dies of it", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      const ids = yield* withStore(
        file,
        Effect.flatMap(JobStore, (store) =>
          Effect.forEach(Array.from({ length: 50 }), () =>
            Effect.map(
              store.insert(job({ prompt: "x".repeat(3000) }), [{ _tag: "Started" }], time(0)),
              (stored) => stored.job.id
            )
          )
        )
      )
      const content = readFileSync(file)
      writeFileSync(file, content.fill(0xa5, 4096 * 2))
      const failure = yield* Effect.flip(
        withStore(
          file,
          Effect.flatMap(JobStore, (store) => Effect.forEach(ids, (id) => store.get(id)))
        )
      )
      assert.strictEqual(failure._tag, "StoreFailed")
      assert.match(failure.detail, /is damaged: move it away/)
    })
  )

  it.scoped("returns a row that does not decode", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      const {
        job: { id }
      } = yield* withStore(
        file,
        Effect.flatMap(JobStore, (store) => store.insert(job(), [], time(0)))
      )
      const raw = new Database(file)
      raw.run("UPDATE jobs SET job = json_set(job, '$.state', 'asleep')")
      raw.close()
      const failure = yield* Effect.flip(
        withStore(
          file,
          Effect.flatMap(JobStore, (store) => store.get(id))
        )
      )
      assert.deepInclude(failure, { _tag: "StoreFailed", operation: "get" })
    })
  )

  it.scoped("stores what it could not read back", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      yield* withStore(
        file,
        Effect.gen(function* () {
          const store = yield* JobStore
          const {
            job: { id }
          } = yield* store.insert(job(), [{ _tag: "Started" }], time(0))
          const usage = { _tag: "Usage", inputTokens: Number.NaN, outputTokens: 0 } as const
          const failure = yield* Effect.flip(store.append(id, [{ _tag: "Text", text: "a" }, usage], time(1)))
          assert.strictEqual(failure.operation, "append")
          // Neither: all or nothing.
          assert.lengthOf(yield* store.events(id, 0, 10), 1)
          assert.strictEqual(Option.getOrThrow(yield* store.get(id)).lastSeq, 1)
        })
      )
    })
  )

  it.scoped("dies where the folder cannot be made, or the file not be written", () =>
    Effect.gen(function* () {
      const path = yield* folder
      writeFileSync(join(path, "in-the-way"), "")
      assert.strictEqual((yield* refusal(join(path, "in-the-way", "jobs.db")))._tag, "StoreFailed")
      mkdirSync(join(path, "a-folder.db"))
      assert.strictEqual((yield* refusal(join(path, "a-folder.db")))._tag, "StoreFailed")
      if (process.getuid?.() === 0) return
      const file = join(path, "locked", "jobs.db")
      mkdirSync(join(path, "locked"))
      chmodSync(join(path, "locked"), 0o500)
      assert.strictEqual((yield* refusal(file))._tag, "StoreFailed")
      chmodSync(join(path, "locked"), 0o700)
    })
  )

  it.scoped("fails for ever after the disk was full once, or keeps half a transaction", () =>
    Effect.gen(function* () {
      const file = join(yield* folder, "jobs.db")
      yield* withStore(
        file,
        Effect.gen(function* () {
          const store = yield* JobStore
          const {
            job: { id }
          } = yield* store.insert(job(), [{ _tag: "Started" }], time(0))
          const failure = yield* Effect.flip(store.putArtifact(id, "patch", "text/x-diff", new Uint8Array(1_000_000)))
          assert.include(failure.detail, "is full: make room")
          assert.deepStrictEqual(yield* store.artifacts(id), [])
          yield* store.append(id, [{ _tag: "Completed", text: "" }], time(1))
          assert.strictEqual(Option.getOrThrow(yield* store.get(id)).state, "completed")
        }),
        { maxBytes: 300_000 }
      )
    })
  )
})
