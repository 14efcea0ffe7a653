import { readdir, readFile } from "node:fs/promises"
import { basename } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { GitOptions } from "../../services/jobs/Git.ts"
import { cut, Git, GitFailed, GitMissing } from "../../services/jobs/Git.ts"

export interface Options {
  /** The environment that git starts from: PATH, HOME... */
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Beyond it a run hangs: a filter that waits, a file system that does not answer. */
const patience = "10 minutes"
const defaultMaxBytes = 256 * 1024 * 1024
const maxStderr = 64 * 1024

/** What a repository's or a user's configuration must not decide here. */
const settings = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.untrackedCache=false",
  "core.splitIndex=false",
  "index.sparse=false",
  "sparse.expectFilesOutsideOfPatterns=false",
  // A changed file must not pass for an unchanged one.
  "core.ignoreStat=false",
  "core.trustctime=true",
  "core.checkStat=default",
  "core.safecrlf=false",
  "core.quotePath=true",
  "core.askPass=",
  "submodule.recurse=false",
  "gc.auto=0",
  "maintenance.auto=false"
].flatMap((setting) => ["-c", setting])

/** Where a user keeps configuration elsewhere than at its usual place. */
const kept = new Set(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"])

const environment = (from: Options["env"]): Record<string, string> => {
  const env: Record<string, string> = {}
  for (const [name, value] of Object.entries(from)) {
    const upper = name.toUpperCase()
    if (value === undefined || (upper.startsWith("GIT_") && !kept.has(upper))) continue
    if (["SSH_ASKPASS", "LANGUAGE", "LC_ALL"].includes(upper)) continue
    env[name] = value
  }
  return {
    ...env,
    LC_ALL: "C",
    GIT_TERMINAL_PROMPT: "0",
    // `status` would write the user's index.
    GIT_OPTIONAL_LOCKS: "0",
    // Pointers instead of downloads; where the pointers are unchanged they are no change.
    GIT_LFS_SKIP_SMUDGE: "1"
  }
}

type Child = Bun.Subprocess<"ignore" | Uint8Array, "pipe", "pipe">

const kill = (pid: number): void => {
  try {
    process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL")
  } catch {
    // Gone already.
  }
}

const read = async (stream: ReadableStream<Uint8Array>, limit: number, onLimit: () => void): Promise<Uint8Array> => {
  const chunks: Array<Uint8Array> = []
  let size = 0
  for await (const chunk of stream) {
    size += chunk.length
    if (size > limit) onLimit()
    else chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const finish = async (child: Child, options: GitOptions): Promise<Uint8Array | GitFailed> => {
  const limit = options.maxBytes ?? defaultMaxBytes
  let beyond = false
  const [stdout, stderr] = await Promise.all([
    read(child.stdout, limit, () => {
      beyond = true
      kill(child.pid)
    }),
    read(child.stderr, maxStderr, () => undefined)
  ])
  const code = await child.exited
  if (beyond) return new GitFailed({ detail: `more than ${limit} bytes` })
  if (child.signalCode !== null) return new GitFailed({ detail: `git was ended by ${child.signalCode}` })
  if (code === 0 || options.codes?.includes(code)) return stdout
  return new GitFailed({ code, detail: cut(Buffer.from(stderr).toString("utf8")) || `git ended with code ${code}` })
}

/** Process groups that work on what has this name: it is in git's arguments, or in the environment of its children. */
const strays = async (name: string): Promise<ReadonlyArray<number>> => {
  const groups = new Set<number>()
  if (process.platform === "linux") {
    for (const pid of await readdir("/proc")) {
      if (!/^\d+$/.test(pid)) continue
      const [command, env, stat] = await Promise.all(
        ["cmdline", "environ", "stat"].map((file) => readFile(`/proc/${pid}/${file}`, "latin1").catch(() => ""))
      )
      if (basename(command!.split("\0")[0]!) !== "git" || !`${command}\0${env}`.includes(name)) continue
      // proc(5): the name may hold anything but ends at the last parenthesis; then state, parent, group.
      const group = Number(stat!.slice(stat!.lastIndexOf(")") + 2).split(" ")[2])
      if (group > 1) groups.add(group)
    }
  } else if (process.platform !== "win32") {
    const ps = Bun.spawn(["ps", "-axo", "pgid=,command="], { stdin: "ignore", stdout: "pipe", stderr: "ignore" })
    for (const line of (await new Response(ps.stdout).text()).split("\n")) {
      const [, group, command] = /^\s*(\d+)\s+(.*)$/.exec(line) ?? []
      if (command?.includes(name) && basename(command.split(" ")[0]!) === "git") groups.add(Number(group))
    }
  }
  return [...groups]
}

const make = (options: Options) => {
  const base = environment(options.env)

  const run = (args: ReadonlyArray<string>, options: GitOptions = {}) =>
    Effect.acquireUseRelease(
      Effect.try({
        try: (): Child =>
          Bun.spawn(["git", ...settings, ...args], {
            env: { ...base, ...options.env },
            stdin: options.input ?? "ignore",
            stdout: "pipe",
            stderr: "pipe",
            // Its own process group, so that its children end with it.
            detached: true
          }),
        catch: (error) => new GitMissing({ detail: error instanceof Error ? error.message : String(error) })
      }),
      (child) =>
        Effect.flatMap(
          Effect.tryPromise({
            try: () => finish(child, options),
            catch: (error) => new GitFailed({ detail: error instanceof Error ? error.message : String(error) })
          }),
          (output) => (output instanceof GitFailed ? Effect.fail(output) : Effect.succeed(output))
        ),
      (child) =>
        Effect.promise(async () => {
          if (child.exitCode === null && child.signalCode === null) kill(child.pid)
          await child.exited
        })
    ).pipe(
      Effect.timeoutFail({
        duration: patience,
        onTimeout: () => new GitFailed({ detail: `git did not end within ${patience}` })
      })
    )

  return Git.of({
    run,
    endStrays: (name) =>
      Effect.promise(async () => {
        const deadline = performance.now() + 5000
        for (;;) {
          const groups = await strays(name).catch(() => [])
          if (groups.length === 0 || performance.now() > deadline) return
          for (const group of groups) kill(group)
          await Bun.sleep(10)
        }
      })
  })
}

export const layer = (options: Options) => Layer.sync(Git, () => make(options))
