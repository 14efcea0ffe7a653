/** What tests of processes look at: the machine itself, by other means than the code under test. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, realpathSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { JobId } from "../../src/services/jobs/Job.ts"

export const newJobId = (): JobId => Schema.decodeSync(JobId)(crypto.randomUUID())

/** Processes that work in this folder or below it. */
export const processesIn = (folder: string): ReadonlyArray<number> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        const cwd = readlinkSync(`/proc/${name}/cwd`)
        return cwd === folder || cwd.startsWith(`${folder}/`)
      } catch {
        return false
      }
    })
    .map(Number)
    .filter((pid) => pid !== process.pid && alive(pid))

/** A folder of a test's own. What still works there at the end was left by a failed test, and is killed. */
export const folder = Effect.acquireRelease(
  Effect.sync(() => realpathSync(mkdtempSync(join(tmpdir(), "a2a-jobs-")))),
  (path) =>
    Effect.sync(() => {
      for (const pid of processesIn(path)) process.kill(pid, "SIGKILL")
      rmSync(path, { recursive: true, force: true })
    })
)

/** Whether this process runs: it is there, and not merely waiting to be looked at by its parent. */
export const alive = (pid: number): boolean => {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"))
  } catch {
    return false
  }
}

/** Waits for a condition, with a deadline. */
export const eventually = <A>(what: string, probe: () => A | undefined | false, timeoutMillis = 15_000) =>
  Effect.promise(async () => {
    const deadline = performance.now() + timeoutMillis
    for (;;) {
      const found = probe()
      if (found !== undefined && found !== false) return found
      if (performance.now() > deadline) throw new Error(`not within ${timeoutMillis} ms: ${what}`)
      await Bun.sleep(10)
    }
  })

/** Process numbers that a child wrote into files `<name>.pid` of a folder, once all are there. */
export const pidsIn = (folder: string, ...names: ReadonlyArray<string>) =>
  eventually(`${names.join(", ")} in ${folder}`, () => {
    const pids = names.map((name) => {
      const file = join(folder, `${name}.pid`)
      return existsSync(file) ? Number(readFileSync(file, "utf8")) : 0
    })
    return pids.every((pid) => pid > 0) ? pids : undefined
  })
