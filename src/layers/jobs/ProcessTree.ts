import { readdirSync, readFileSync } from "node:fs"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Command, Environment, ProcessIdentity, Running } from "../../services/jobs/Processes.ts"
import { Processes } from "../../services/jobs/Processes.ts"
import type { Row, Tree } from "../../services/jobs/processTree.ts"
import { membersOf, parsePs, parseStat } from "../../services/jobs/processTree.ts"
import { BinaryMissing, WorkerExited } from "../../services/jobs/Worker.ts"

export interface Options {
  /** How long processes have to end after SIGTERM. */
  readonly patience?: Duration.DurationInput
  /** How long they may take to be gone after SIGKILL before they are given up, with a warning. */
  readonly killPatience?: Duration.DurationInput
}

/**
 * Inherited by everything that descends from a job's process, whatever it does with sessions, groups and parents; the
 * jobs of nested bridges are separated by spaces. A process that clears its environment is still found by its group and
 * its parents, for as long as one of those is as it was.
 */
const mark = "PI_A2A_JOB"

const stderrBytes = 8192
/** Quiet time after a process's end until its output counts as complete, though a child may hold the pipe. */
const drain = "300 millis"
const pollInterval = "20 millis"

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const readText = (file: string): string | undefined => {
  try {
    return readFileSync(file, "utf8")
  } catch {
    // Gone, or another user's.
    return undefined
  }
}

const jobsIn = (environment: string): ReadonlyArray<string> =>
  environment
    .split("\0")
    .find((entry) => entry.startsWith(`${mark}=`))
    ?.slice(mark.length + 1)
    .split(" ") ?? []

/** Linux: /proc. */
const procRows = (): ReadonlyArray<Row> => {
  const boot = readText("/proc/sys/kernel/random/boot_id")?.trim() ?? ""
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    const row = parseStat(readText(`/proc/${name}/stat`) ?? "", boot)
    if (row === undefined) return []
    return [{ ...row, jobs: jobsIn(readText(`/proc/${name}/environ`) ?? "") }]
  })
}

const textOf = (argv: Array<string>): string => {
  const { stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "ignore", timeout: 5000 })
  return stdout.toString()
}

/** macOS and other Unixes: ps. Never run on one so far. */
const psRows = (): ReadonlyArray<Row> => {
  const marked = new Map<number, ReadonlyArray<string>>()
  for (const line of textOf(["ps", "-axwwE", "-o", "pid=,command="]).split("\n")) {
    // One job only: what follows it on the line may be the next variable.
    const found = new RegExp(`^\\s*(\\d+) .*\\b${mark}=(\\S+)`).exec(line)
    if (found?.[1] !== undefined && found[2] !== undefined) marked.set(Number(found[1]), [found[2]])
  }
  return parsePs(textOf(["ps", "-axww", "-o", "pid=,ppid=,pgid=,stat=,lstart="])).map((row) => ({
    ...row,
    jobs: marked.get(row.pid) ?? []
  }))
}

/** Windows: CIM, in which a process has no group. Never run on one so far. */
const cimRows = (): ReadonlyArray<Row> => {
  const script =
    "Get-CimInstance Win32_Process | ForEach-Object { '{0} {1} {2}' -f $_.ProcessId,$_.ParentProcessId,$_.CreationDate.Ticks }"
  return textOf(["powershell.exe", "-NoProfile", "-NonInteractive", "-Command", script])
    .split(/\r?\n/)
    .flatMap((line) => {
      const [pid, parent, startedAt] = line.split(" ")
      if (startedAt === undefined) return []
      return [{ pid: Number(pid), parent: Number(parent), group: 0, startedAt, ended: false, jobs: [] }]
    })
}

const rowsOf: (platform: NodeJS.Platform) => () => ReadonlyArray<Row> = (platform) =>
  platform === "linux" ? procRows : platform === "win32" ? cimRows : psRows

const signal = (platform: NodeJS.Platform, row: ProcessIdentity, name: "SIGTERM" | "SIGKILL"): void => {
  try {
    // Windows has no polite way: a console program gets no message that it could act on.
    if (platform === "win32") textOf(["taskkill", "/PID", String(row.pid), "/T", "/F"])
    else process.kill(row.pid, name)
  } catch {
    // Gone since the look, or not ours to signal: the next look tells.
  }
}

const makeKill = (options: Options, platform: NodeJS.Platform) => {
  const rows = rowsOf(platform)
  const patience = Duration.toMillis(options.patience ?? "1 second")
  const killPatience = Duration.toMillis(options.killPatience ?? "1 second")
  /** Ends a tree. The members found at first; whether all were gone at the end. */
  return Effect.fnUntraced(function* (job: string, root: ProcessIdentity | undefined) {
    let tree: Tree = { job, root, known: [] }
    const look = Effect.sync(() => {
      const members = membersOf(rows(), tree, process.pid)
      tree = { ...tree, known: [...tree.known, ...members] }
      return members
    })
    const first = yield* look
    let left = first
    for (const row of left) signal(platform, row, "SIGTERM")
    const start = yield* Clock.currentTimeMillis
    while (left.length > 0 && (yield* Clock.currentTimeMillis) - start < patience) {
      yield* Effect.sleep(pollInterval)
      left = yield* look
    }
    // A look is not atomic: a fork during it can be missed, so that only two empty ones in a row say that all are gone.
    const killStart = yield* Clock.currentTimeMillis
    let empty = 0
    while (empty < 2 && (yield* Clock.currentTimeMillis) - killStart < killPatience) {
      for (const row of left) signal(platform, row, "SIGKILL")
      yield* Effect.sleep(left.length > 0 ? pollInterval : "1 millis")
      left = yield* look
      empty = left.length === 0 ? empty + 1 : 0
    }
    if (left.length > 0) {
      yield* Effect.logWarning("processes of a job could not be ended").pipe(
        Effect.annotateLogs({ job, pids: left.map((row) => row.pid).join(" ") })
      )
    }
    return { found: first.length, gone: left.length === 0 }
  })
}

interface Reader {
  readonly read: () => Promise<{ readonly done: boolean; readonly value?: Uint8Array | undefined }>
}

/**
 * Chunks of a pipe until it ends, or until it is quiet after the process's end. Leaves the pipe open: one that closes
 * under a process that is being ended would kill it before it has cleaned up.
 */
const outputOf = (reader: Reader, ended: Effect.Effect<unknown>): Stream.Stream<Uint8Array> => {
  // A pipe that breaks has ended.
  const read = Effect.promise(() => reader.read().catch(() => ({ done: true, value: undefined }) as const))
  const quiet = Effect.as(Effect.zipRight(ended, Effect.sleep(drain)), { done: true, value: undefined } as const)
  return Stream.repeatEffectOption(
    Effect.flatMap(Effect.raceFirst(read, quiet), (next) =>
      next.done || next.value === undefined ? Effect.fail(Option.none()) : Effect.succeed(next.value)
    )
  )
}

const find = (programs: ReadonlyArray<string>, env: Environment): Option.Option<string> => {
  for (const program of programs) {
    const found = Bun.which(program, { PATH: env["PATH"] ?? env["Path"] ?? "" })
    if (found !== null) return Option.some(found)
  }
  return Option.none()
}

export const makeProcesses = (options: Options = {}, platform = process.platform): Processes["Type"] => {
  const rows = rowsOf(platform)
  const kill = makeKill(options, platform)

  /** Of a child whose end Bun has not yet seen, so that the number is still its own. */
  const startOf = (pid: number): string =>
    (platform === "linux"
      ? parseStat(readText(`/proc/${pid}/stat`) ?? "", readText("/proc/sys/kernel/random/boot_id")?.trim() ?? "")
      : rows().find((row) => row.pid === pid)
    )?.startedAt ?? ""

  const spawn = Effect.fn("Processes.spawn")(function* (command: Command) {
    const program = find([command.program], command.env)
    if (Option.isNone(program)) {
      return yield* new BinaryMissing({ command: command.program, detail: "not found on PATH" })
    }
    const outer = process.env[mark]
    const start = Effect.try({
      try: () => {
        const child = Bun.spawn([program.value, ...command.args], {
          cwd: command.cwd,
          env: { ...command.env, [mark]: outer === undefined ? command.jobId : `${outer} ${command.jobId}` },
          stdin: "pipe",
          stdout: "pipe",
          stderr: "pipe",
          // setsid: its own session and group.
          detached: platform !== "win32"
        })
        return { child, startedAt: startOf(child.pid) }
      },
      catch: (error) => new WorkerExited({ code: undefined, signal: undefined, stderr: reasonOf(error) })
    })
    // What reads its pipes ends after it.
    const pipes = yield* Scope.make()
    const { child, startedAt } = yield* Effect.acquireRelease(start, ({ child, startedAt }) =>
      kill(command.jobId, { pid: child.pid, startedAt }).pipe(
        // Where the system told nothing of the process, the handle still can.
        Effect.zipRight(Effect.sync(() => child.kill("SIGKILL"))),
        Effect.zipRight(Scope.close(pipes, Exit.void))
      )
    )
    const [stdout, stderr] = yield* Effect.forEach([child.stdout, child.stderr], (pipe) =>
      Effect.acquireRelease(
        Effect.sync(() => pipe.getReader()),
        (reader) => Effect.promise(() => reader.cancel().catch(() => undefined))
      )
    ).pipe(Scope.extend(pipes))
    const ended = Effect.promise(() => child.exited)
    let tail = new Uint8Array()
    const complaints = yield* outputOf(stderr!, ended).pipe(
      Stream.runForEach((bytes) =>
        Effect.sync(() => {
          tail = new Uint8Array(Buffer.concat([tail, bytes]).subarray(-stderrBytes))
        })
      ),
      Effect.forkIn(pipes)
    )
    const running: Running = {
      pid: child.pid,
      startedAt,
      stdout: outputOf(stdout!, ended),
      stderr: Effect.sync(() => new TextDecoder().decode(tail)),
      write: (bytes) =>
        Effect.promise(async () => {
          try {
            child.stdin.write(bytes)
            await child.stdin.flush()
          } catch {
            // EPIPE.
          }
        }),
      endInput: Effect.promise(async () => {
        try {
          await child.stdin.end()
        } catch {
          // EPIPE.
        }
      }),
      exit: ended.pipe(
        // What it wrote last says why it ended.
        Effect.zipRight(Effect.timeoutOption(Fiber.await(complaints), "1 second")),
        Effect.map(() => ({
          code: child.exitCode ?? undefined,
          signal: child.signalCode === null ? undefined : String(child.signalCode)
        }))
      )
    }
    return running
  })

  return {
    spawn,
    find: (programs, env) => Effect.sync(() => find(programs, env)),
    reap: Effect.fn("Processes.reap")(function* (jobId, recorded) {
      const { found } = yield* kill(jobId, recorded)
      return found > 0
    })
  }
}

export const layerWith = (options: Options): Layer.Layer<Processes> => Layer.succeed(Processes, makeProcesses(options))

export const layer: Layer.Layer<Processes> = layerWith({})
