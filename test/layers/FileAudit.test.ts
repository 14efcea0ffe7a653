import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FastCheck from "effect/FastCheck"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/TestClock"
import * as FileAudit from "../../src/layers/FileAudit.ts"
import type { AuditRecord } from "../../src/services/Audit.ts"
import { Audit } from "../../src/services/Audit.ts"
import { call, suite } from "../support/suites/audit.ts"
import * as FakeConfig from "../support/suites/fakeConfig.ts"
import { folder } from "../support/suites/folder.ts"

const read = (file: string): ReadonlyArray<AuditRecord> =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as AuditRecord)
    : []

const setup = (
  limits: { readonly maxBytes: number; readonly generations: number } = FakeConfig.defaults.audit,
  where: (dir: string) => string = (dir) => dir
) =>
  Effect.gen(function* () {
    const dir = yield* folder
    const config = yield* FakeConfig.make({ audit: limits })
    const troubles: Array<{ readonly file: string; readonly reason: string } | undefined> = []
    const layer = FileAudit.layer({ agentDir: where(dir), env: {} }, (trouble) =>
      Effect.sync(() => void troubles.push(trouble))
    ).pipe(Layer.provide(config.layer))
    const file = join(where(dir), "a2a-bridge.log")
    const build = Effect.map(Layer.build(layer), Context.get(Audit))
    return { dir, file, config, troubles, build }
  })
const built = (...args: Parameters<typeof setup>) =>
  Effect.gen(function* () {
    const ready = yield* setup(...args)
    return { ...ready, audit: yield* ready.build }
  })
const generationsOf = (file: string) =>
  readdirSync(join(file, ".."))
    .filter((name) => /^a2a-bridge\.log\.\d+$/.test(name))
    .map((name) => Number(name.slice("a2a-bridge.log.".length)))
    .sort((a, b) => b - a)

suite(
  "FileAudit",
  Effect.map(built(), ({ audit, file }) => ({ audit, stored: Effect.sync(() => read(file)) }))
)

describe("FileAudit", () => {
  it.effect.prop(
    "loses a record across rotations, or lets a file grow beyond its limit",
    [
      FastCheck.array(FastCheck.record({ size: FastCheck.nat(250), durable: FastCheck.boolean() }), {
        minLength: 1,
        maxLength: 60
      }),
      FastCheck.integer({ min: 200, max: 3000 })
    ],
    ([calls, maxBytes]) =>
      Effect.gen(function* () {
        const { audit, file } = yield* built({ maxBytes, generations: 1000 })
        for (const [n, { durable, size }] of calls.entries()) {
          yield* audit.start(call(`${n}`, { durable, args: { text: "é".repeat(size) } }))
        }
        yield* audit.flush
        const files = [...generationsOf(file).map((n) => `${file}.${n}`), file]
        assert.deepStrictEqual(
          files.flatMap((one) => read(one).map((record) => record.id)),
          calls.map((_, n) => `${n}`)
        )
        for (const one of files) {
          if (read(one).length > 1) assert.isAtMost(statSync(one).size, maxBytes)
          assert.strictEqual(statSync(one).mode & 0o777, 0o600)
          assert.isNotEmpty(read(one))
        }
      }).pipe(Effect.scoped),
    { timeout: 30_000, fastCheck: { numRuns: 25 } }
  )

  it.scoped("keeps more old files than it may, or drops the newest ones", () =>
    Effect.gen(function* () {
      const { audit, file } = yield* built({ maxBytes: 1000, generations: 3 })
      for (let n = 0; n < 100; n++) yield* audit.start(call(`${n}`, { durable: n % 10 === 0 }))
      yield* audit.flush
      assert.deepStrictEqual(generationsOf(file), [3, 2, 1])
      const kept = [3, 2, 1].flatMap((n) => read(`${file}.${n}`)).concat(read(file))
      const first = Number(kept[0]?.id)
      assert.deepStrictEqual(
        kept.map((record) => Number(record.id)),
        Array.from({ length: 100 - first }, (_, n) => first + n)
      )
    })
  )

  it.scoped("keeps old files that a lower limit no longer allows", () =>
    Effect.gen(function* () {
      const { audit, config, file } = yield* built({ maxBytes: 1000, generations: 5 })
      for (let n = 0; n < 100; n++) yield* audit.start(call(`${n}`))
      assert.lengthOf(generationsOf(file), 5)
      yield* config.assign({ audit: { maxBytes: 1000, generations: 2 } })
      for (let n = 0; n < 20; n++) yield* audit.start(call(`${n}`))
      assert.deepStrictEqual(generationsOf(file), [2, 1])
    })
  )

  it.scoped("does not take a live edit of the size limit", () =>
    Effect.gen(function* () {
      const { audit, config, file } = yield* built()
      yield* audit.start(call("1"))
      yield* config.assign({ audit: { maxBytes: 10, generations: 5 } })
      yield* audit.start(call("2"))
      assert.deepStrictEqual(
        [`${file}.1`, file].map((one) => read(one).map(({ id }) => id)),
        [["1"], ["2"]]
      )
    })
  )

  it.scoped("starts an existing log over, or leaves it open to others", () =>
    Effect.gen(function* () {
      const { build, file } = yield* setup()
      writeFileSync(file, '{"id":"old"}\n')
      chmodSync(file, 0o644)
      const audit = yield* build
      yield* audit.start(call("new"))
      assert.deepStrictEqual(
        read(file).map(({ id }) => id),
        ["old", "new"]
      )
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
    })
  )

  it.scoped("writes on into a log that was deleted or moved away", () =>
    Effect.gen(function* () {
      const { audit, file, troubles } = yield* built()
      yield* audit.start(call("1"))
      rmSync(file)
      yield* audit.start(call("2"))
      assert.deepStrictEqual(
        read(file).map(({ id }) => id),
        ["2"]
      )
      renameSync(file, `${file}.moved`)
      yield* audit.start(call("3"))
      assert.deepStrictEqual(
        read(file).map(({ id }) => id),
        ["3"]
      )
      assert.deepStrictEqual(
        read(`${file}.moved`).map(({ id }) => id),
        ["2"]
      )
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      assert.deepStrictEqual(troubles, [])
    })
  )

  it.effect.each(["from the start", "while it runs"])(
    "follows a link that is in the log's place %s, or fails the call",
    (when) =>
      Effect.gen(function* () {
        const { build, dir, file, troubles } = yield* setup()
        const target = join(dir, "target")
        writeFileSync(target, "")
        if (when === "from the start") symlinkSync(target, file)
        const audit = yield* build
        if (when === "while it runs") {
          yield* audit.start(call("0"))
          rmSync(file)
          symlinkSync(target, file)
        }
        const done = yield* audit.start(call("1"))
        yield* done({ _tag: "Ran", isError: false })
        yield* audit.start(call("2"))
        assert.strictEqual(readFileSync(target, "utf8"), "")
        assert.lengthOf(troubles, 1)
        assert.strictEqual(troubles[0]?.file, file)
        assert.include(troubles[0]?.reason ?? "", "symbolic link")
      }).pipe(Effect.scoped)
  )

  it.scoped("fails a call where the disk takes nothing, or tells of it other than once each time", () =>
    Effect.gen(function* () {
      // A file where a folder should be: it stops root, too.
      const { audit, dir, file, troubles } = yield* built(undefined, (dir) => join(dir, "in", "the", "way"))
      writeFileSync(join(dir, "in"), "")
      for (const id of ["1", "2", "3"]) yield* (yield* audit.start(call(id)))({ _tag: "Cancelled" })
      assert.deepStrictEqual(
        troubles.map((trouble) => trouble?.file),
        [file]
      )
      rmSync(join(dir, "in"))
      yield* audit.start(call("4"))
      yield* audit.start(call("5"))
      assert.deepStrictEqual(
        troubles.map((trouble) => trouble?.file),
        [file, undefined]
      )
      assert.deepStrictEqual(
        read(file).map(({ id }) => id),
        ["4", "5"]
      )
      rmSync(join(dir, "in"), { recursive: true })
      writeFileSync(join(dir, "in"), "")
      yield* audit.start(call("6"))
      assert.lengthOf(troubles, 3)
    })
  )

  it.scoped("fails a call where the log is a folder", () =>
    Effect.gen(function* () {
      const { audit, file, troubles } = yield* built()
      mkdirSync(file)
      yield* audit.start(call("1"))
      assert.lengthOf(troubles, 1)
    })
  )

  it.effect.each(["before the writer has begun", "while the writer waits", "just after other records"])(
    "loses what is queued at the end %s",
    (when) =>
      Effect.gen(function* () {
        const { build, file } = yield* setup()
        const scope = yield* Scope.make()
        const audit = yield* Scope.extend(build, scope)
        const ids = Array.from({ length: 2000 }, (_, n) => `${n}`)
        if (when !== "before the writer has begun") yield* TestClock.adjust(0)
        if (when === "just after other records") yield* audit.start(call("first"))
        yield* Effect.forEach(ids, (id) => audit.start(call(id, { durable: false })))
        yield* Scope.close(scope, Exit.void)
        const kept = read(file).map((record) => record.id)
        assert.deepStrictEqual(kept, when === "just after other records" ? ["first", ...ids] : ids)
      }).pipe(Effect.scoped)
  )

  it.effect.each([1, 2, 5])("loses the last %d records of a writer that is being woken for them", (count) =>
    Effect.gen(function* () {
      const { build, file } = yield* setup()
      const scope = yield* Scope.make()
      const audit = yield* Scope.extend(build, scope)
      yield* TestClock.adjust(0)
      const ids = Array.from({ length: count }, (_, n) => `${n}`)
      for (const id of ids) yield* audit.start(call(id, { durable: false }))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(
        read(file).map((record) => record.id),
        ids
      )
    }).pipe(Effect.scoped)
  )

  it("ignores A2A_BRIDGE_AUDIT", () => {
    assert.strictEqual(FileAudit.auditPath({ agentDir: "/a", env: {} }), "/a/a2a-bridge.log")
    assert.strictEqual(FileAudit.auditPath({ agentDir: "/a", env: { A2A_BRIDGE_AUDIT: "/b/c" } }), "/b/c")
    assert.strictEqual(FileAudit.auditPath({ agentDir: "/a", env: { A2A_BRIDGE_AUDIT: "" } }), "/a/a2a-bridge.log")
  })
})
