import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ProcessTree from "../../../src/layers/jobs/ProcessTree.ts"
import { Processes } from "../../../src/services/jobs/Processes.ts"
import { alive, eventually, folder, newJobId, pidsIn } from "../../support/processes.ts"

const env = { PATH: process.env["PATH"] }

/** For trees that ignore SIGTERM anyway. */
const quick = ProcessTree.layerWith({ patience: "200 millis", killPatience: "10 seconds" })

/** A bash script as a job's process; `$D` is a folder of its own. */
const bash = Effect.fnUntraced(function* (script: string, more: Record<string, string> = {}) {
  const cwd = yield* folder
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const processes = yield* Processes
  const jobId = newJobId()
  const running = yield* processes
    .spawn({ jobId, program: "bash", args: ["--norc", "-c", script], cwd, env: { ...env, ...more, D: cwd } })
    .pipe(Scope.extend(scope))
  return { running, cwd, jobId, close: Scope.close(scope, Exit.void) }
})

const ignoring = "trap '' TERM HUP INT;"
/** Writes its number, then waits much longer than any test. */
const stay = (name: string): string => `bash -c "${ignoring} echo \\$\\$ > $D/${name}.pid; exec sleep 1000"`

const dead = Effect.fnUntraced(function* (pids: ReadonlyArray<number>) {
  assert.deepStrictEqual(pids.filter(alive), [])
})

describe("ProcessTree ends, when its scope closes,", { timeout: 30_000 }, () => {
  it.live("a process that ignores SIGTERM", () =>
    Effect.gen(function* () {
      const { close, cwd } = yield* bash(`${ignoring} echo $$ > $D/self.pid; while :; do sleep 0.1; done`)
      const pids = yield* pidsIn(cwd, "self")
      yield* close
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("one that ends by itself on SIGTERM, before SIGKILL comes", () =>
    Effect.gen(function* () {
      const { close, cwd } = yield* bash(
        `trap 'echo bye > $D/said; exit 0' TERM; echo $$ > $D/self.pid; while :; do sleep 0.05; done`
      )
      const pids = yield* pidsIn(cwd, "self")
      yield* close
      yield* dead(pids)
      assert.isTrue(existsSync(join(cwd, "said")))
    }).pipe(Effect.scoped, Effect.provide(ProcessTree.layerWith({ patience: "10 seconds" })))
  )

  it.live("a grandchild in a session of its own", () =>
    Effect.gen(function* () {
      const { close, cwd } = yield* bash(`setsid ${stay("grandchild")} & wait`)
      const pids = yield* pidsIn(cwd, "grandchild")
      yield* close
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("a daemon: forked twice, session of its own, parent gone", () =>
    Effect.gen(function* () {
      const { close, cwd } = yield* bash(`( setsid ${stay("daemon")} > /dev/null 2>&1 < /dev/null & ); sleep 1000`)
      const pids = yield* pidsIn(cwd, "daemon")
      yield* close
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("a background shell that outlived the process itself", () =>
    Effect.gen(function* () {
      const { close, cwd, running } = yield* bash(
        `${stay("shell")} & disown; until [ -s $D/shell.pid ]; do sleep 0.01; done`
      )
      const pids = yield* pidsIn(cwd, "shell")
      assert.deepStrictEqual(yield* running.exit, { code: 0, signal: undefined })
      assert.isTrue(alive(pids[0]!))
      yield* close
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("one without the mark in its environment, in the group of one that is gone", () =>
    Effect.gen(function* () {
      const { close, cwd } = yield* bash(
        `env -i D=$D PATH=$PATH ${stay("bare")} & ${stay("marked")} & until [ -s $D/bare.pid ]; do sleep 0.01; done`
      )
      const pids = yield* pidsIn(cwd, "bare", "marked")
      yield* close
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("one without the mark, in a session of its own, below one that lives", () =>
    Effect.gen(function* () {
      const { close, cwd } = yield* bash(`env -i D=$D PATH=$PATH setsid ${stay("bare")} & wait`)
      const pids = yield* pidsIn(cwd, "bare")
      yield* close
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("processes that keep forking while they are ended", () =>
    Effect.gen(function* () {
      const fork = `f() { ${ignoring} sleep 0.02; (f &) ; }; echo $$ > $D/self.pid; f; f; f; sleep 1000`
      const { close, cwd, jobId } = yield* bash(fork)
      yield* pidsIn(cwd, "self")
      yield* close
      const { reap } = yield* Processes
      assert.isFalse(yield* reap(jobId, undefined))
    }).pipe(Effect.scoped, Effect.provide(quick))
  )
})

describe("ProcessTree", { timeout: 30_000 }, () => {
  it.live("leaves the processes of other jobs alone", () =>
    Effect.gen(function* () {
      const other = yield* bash(stay("other"))
      const mine = yield* bash(stay("mine"))
      const [pid] = yield* pidsIn(other.cwd, "other")
      yield* pidsIn(mine.cwd, "mine")
      yield* mine.close
      assert.isTrue(alive(pid!))
      yield* other.close
      yield* dead([pid!])
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("gives more input than a pipe holds to a process that reads late, and all of its output back", () =>
    Effect.gen(function* () {
      const { running } = yield* bash("sleep 0.2; cat; echo gone >&2")
      const bytes = new Uint8Array(300_000).map((_, index) => index % 251)
      yield* Effect.fork(Effect.zipRight(running.write(bytes), running.endInput))
      const chunks = yield* Stream.runCollect(running.stdout)
      assert.deepStrictEqual(new Uint8Array(Buffer.concat(Chunk.toArray(chunks))), bytes)
      assert.deepStrictEqual(yield* running.exit, { code: 0, signal: undefined })
      assert.strictEqual(yield* running.stderr, "gone\n")
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("ends the output of a process that is gone though a child of it holds the pipe", () =>
    Effect.gen(function* () {
      const { running } = yield* bash(`sleep 1000 & echo last`)
      const chunks = yield* Stream.runCollect(running.stdout)
      assert.strictEqual(Buffer.concat(Chunk.toArray(chunks)).toString(), "last\n")
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("does not break on input that nobody takes", () =>
    Effect.gen(function* () {
      const { running } = yield* bash("exit 3")
      assert.deepStrictEqual(yield* running.exit, { code: 3, signal: undefined })
      yield* running.write(new Uint8Array(200_000))
      yield* running.endInput
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("says which signal ended a process, and keeps only the tail of its stderr", () =>
    Effect.gen(function* () {
      const { running } = yield* bash("head -c 100000 /dev/zero | tr '\\0' x >&2; echo end >&2; kill -9 $$")
      assert.deepStrictEqual(yield* running.exit, { code: undefined, signal: "SIGKILL" })
      const tail = yield* running.stderr
      assert.strictEqual(tail.length, 8192)
      assert.isTrue(tail.endsWith("xend\n"))
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("tells a program that is not there from a folder that is not there", () =>
    Effect.gen(function* () {
      const { find, spawn } = yield* Processes
      const command = { jobId: newJobId(), program: "no-such-program-here", args: [], cwd: "/", env }
      assert.strictEqual((yield* Effect.flip(Effect.scoped(spawn(command))))._tag, "BinaryMissing")
      const elsewhere = { ...command, program: "bash", cwd: "/no/such/folder" }
      assert.strictEqual((yield* Effect.flip(Effect.scoped(spawn(elsewhere))))._tag, "WorkerExited")
      assert.isTrue(Option.isNone(yield* find(["no-such-program-here"], env)))
      assert.isTrue(Option.isSome(yield* find(["no-such-program-here", "bash"], env)))
      assert.isTrue(Option.isNone(yield* find(["bash"], { PATH: "/nowhere" })))
    }).pipe(Effect.provide(quick))
  )
})

/** A job's process whose bridge is gone: nothing here closes its scope. */
const orphan = Effect.fnUntraced(function* (jobId: string, script: string) {
  const cwd = yield* folder
  const child = Bun.spawn(["bash", "-c", script], {
    cwd,
    env: { ...env, D: cwd, ...(jobId === "" ? {} : { PI_A2A_JOB: jobId }) },
    stdio: ["ignore", "ignore", "ignore"],
    detached: true
  })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      try {
        process.kill(-child.pid, "SIGKILL")
      } catch {
        // Gone, as it should be.
      }
    })
  )
  const ticks = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ")[1]!.split(" ")[19]!
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()
  return { cwd, child, pid: child.pid, startedAt: `${boot}:${ticks}`, ticks, boot }
})

describe("ProcessTree.reap", { timeout: 30_000 }, () => {
  it.live("kills a recorded process with all that descends from it", () =>
    Effect.gen(function* () {
      const { reap } = yield* Processes
      const left = yield* orphan("", `setsid ${stay("below")} & ${ignoring} wait; sleep 1000`)
      const pids = yield* pidsIn(left.cwd, "below")
      assert.isTrue(yield* reap(newJobId(), left))
      yield* dead([left.pid, ...pids])
      assert.isFalse(yield* reap(newJobId(), left))
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("does not touch a process that has the number but another start, or another boot", () =>
    Effect.gen(function* () {
      const { reap } = yield* Processes
      const other = yield* orphan("", stay("other"))
      yield* pidsIn(other.cwd, "other")
      const { boot, pid, ticks } = other
      assert.isFalse(yield* reap(newJobId(), { pid, startedAt: `${boot}:${Number(ticks) - 1}` }))
      assert.isFalse(yield* reap(newJobId(), { pid, startedAt: `${crypto.randomUUID()}:${ticks}` }))
      assert.isFalse(yield* reap(newJobId(), { pid, startedAt: "" }))
      assert.isTrue(alive(pid))
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("finds what was never recorded by the job's mark, nested in another job's or not", () =>
    Effect.gen(function* () {
      const { reap } = yield* Processes
      const jobId = newJobId()
      const plain = yield* orphan(jobId, stay("a"))
      const nested = yield* orphan(`${newJobId()} ${jobId}`, stay("b"))
      const others = yield* orphan(newJobId(), stay("c"))
      yield* pidsIn(plain.cwd, "a")
      yield* pidsIn(nested.cwd, "b")
      yield* pidsIn(others.cwd, "c")
      assert.isTrue(yield* reap(jobId, undefined))
      yield* dead([plain.pid, nested.pid])
      assert.isTrue(alive(others.pid))
    }).pipe(Effect.scoped, Effect.provide(quick))
  )

  it.live("finds a daemon of a recorded process that is gone", () =>
    Effect.gen(function* () {
      const { reap } = yield* Processes
      const jobId = newJobId()
      const left = yield* orphan(jobId, `( setsid ${stay("daemon")} & )`)
      const pids = yield* pidsIn(left.cwd, "daemon")
      yield* eventually("its leader ends", () => !alive(left.pid))
      assert.isTrue(yield* reap(jobId, left))
      yield* dead(pids)
    }).pipe(Effect.scoped, Effect.provide(quick))
  )
})
