/**
 * Real omp processes for tests: own HOME, port 0, everything ended when the file is done. A process that omp leaves
 * behind (a bash child of a killed host) is found by its HOME, so nothing outlives a failed test.
 */
import { spawn } from "node:child_process"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll } from "vitest"

export const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "")
export const bunBinary = join(root, "node_modules/.bin/bun")
export const ompBinary = join(root, "node_modules/.bin/omp")
export const entry = join(root, "extensions/a2a-bridge.ts")

const pollMillis = 25

/** Waits until `probe` answers something truthy, and gives that. The only wait that tests use. */
export const until = async <A>(
  what: string | (() => string),
  probe: () => A | Promise<A>,
  timeoutMillis = 45_000
): Promise<Exclude<A, undefined | null | false | 0 | "">> => {
  const deadline = performance.now() + timeoutMillis
  for (;;) {
    const found = await probe()
    if (found) return found as Exclude<A, undefined | null | false | 0 | "">
    if (performance.now() > deadline) {
      throw new Error(`not within ${timeoutMillis} ms: ${typeof what === "string" ? what : what()}`)
    }
    await Bun.sleep(pollMillis)
  }
}

/** A number that no other test, nor another copy of this one, has on a command line. */
export const uniqueSeconds = (): string =>
  String(100_000 + Math.floor(crypto.getRandomValues(new Uint32Array(1))[0]! % 800_000))

const cmdline = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8")
  } catch {
    return ""
  }
}
const environ = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8")
  } catch {
    return ""
  }
}
const pids = (): ReadonlyArray<string> => readdirSync("/proc").filter((name) => /^\d+$/.test(name))

/** Whether some process of this machine runs exactly this command line. */
export const running = (...argv: ReadonlyArray<string>): boolean => {
  const wanted = `${argv.join("\0")}\0`
  return pids().some((pid) => cmdline(pid) === wanted)
}

/** Processes that run under this HOME: those that a test started, and those that they started. */
export const processesOf = (home: string): ReadonlyArray<number> =>
  pids()
    .filter((pid) => environ(pid).split("\0").includes(`HOME=${home}`))
    .map(Number)

/** A port that nobody listened on a moment ago. */
export const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      server.close(() => resolve(port))
    })
  })

export const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" })
    socket.once("connect", () => {
      socket.destroy()
      resolve(true)
    })
    socket.once("error", () => resolve(false))
  })

/** YAML is a superset of JSON. */
const yaml = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`

/** The one model that omp needs to start; nothing answers there unless a fake model's URL is given. */
export const modelsFile = (baseUrl = "http://127.0.0.1:9/v1"): unknown => ({
  providers: {
    fake: {
      baseUrl,
      apiKey: "dummy",
      api: "openai-completions",
      models: [
        {
          id: "fake-1",
          name: "Fake One",
          reasoning: false,
          input: ["text"],
          cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
          contextWindow: 128_000,
          maxTokens: 4096
        }
      ]
    }
  }
})

export interface HomeOptions {
  /** omp's own settings, config.yml. */
  readonly config?: Readonly<Record<string, unknown>>
  /** a2a-bridge.json: an object, or the very text. Left out: the bridge writes its own. */
  readonly bridge?: unknown
  /** Base URL of a fake model. */
  readonly model?: string
  /** mcp.json's servers. */
  readonly mcpServers?: Readonly<Record<string, unknown>>
  /** Whether the extension is linked into ~/.omp/agent/extensions (default yes). */
  readonly link?: boolean
}

export interface Home {
  readonly dir: string
  /** ~/.omp/agent */
  readonly agent: string
  /** Working directory of the omp that is started here. */
  readonly work: string
  readonly bridgeFile: string
  /** The child's whole environment. */
  readonly env: Readonly<Record<string, string>>
  readonly settings: () => Record<string, unknown>
  readonly token: () => string
  /** Overwrites a2a-bridge.json with the stored settings and `change` over them. */
  readonly edit: (change: Readonly<Record<string, unknown>>) => void
  /** Lines of ~/.omp/logs. */
  readonly log: () => string
  readonly audit: () => ReadonlyArray<Record<string, unknown>>
}

const foreign = /^(PI|OMP|A2A|XDG|CLAUDE|ANTHROPIC|OPENAI|VITEST|TMUX)(_|$)/

/** What a child inherits: neither settings of an omp that runs these tests, nor keys, nor vitest's own. */
const cleanEnv = (home: string): Record<string, string> => ({
  ...Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      value === undefined || foreign.test(name) || name === "NODE_ENV" || name === "TEST" ? [] : [[name, value]]
    )
  ),
  HOME: home,
  LANG: "C.UTF-8",
  TERM: "xterm-256color"
})

const makeHome = (options: HomeOptions): Home => {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), "a2a-e2e-")))
  const agent = join(dir, ".omp/agent")
  const work = join(dir, "work")
  const bridgeFile = join(agent, "a2a-bridge.json")
  mkdirSync(join(agent, "extensions"), { recursive: true })
  mkdirSync(work)
  writeFileSync(join(agent, "models.yml"), yaml(modelsFile(options.model)))
  writeFileSync(
    join(agent, "config.yml"),
    yaml({ setupVersion: 2, startup: { checkUpdate: false }, ...options.config })
  )
  if (options.bridge !== undefined) {
    writeFileSync(bridgeFile, typeof options.bridge === "string" ? options.bridge : JSON.stringify(options.bridge))
  }
  if (options.mcpServers !== undefined) {
    writeFileSync(join(agent, "mcp.json"), JSON.stringify({ mcpServers: options.mcpServers }))
  }
  if (options.link !== false) symlinkSync(entry, join(agent, "extensions/a2a-bridge.ts"))
  const settings = () => JSON.parse(readFileSync(bridgeFile, "utf8")) as Record<string, unknown>
  return {
    dir,
    agent,
    work,
    bridgeFile,
    env: cleanEnv(dir),
    settings,
    token: () => String(settings()["token"]),
    edit: (change) => writeFileSync(bridgeFile, JSON.stringify({ ...settings(), ...change }, null, 2)),
    log: () => {
      const logs = join(dir, ".omp/logs")
      if (!existsSync(logs)) return ""
      return readdirSync(logs)
        .map((name) => join(logs, name))
        .map((file) => readFileSync(file, "utf8"))
        .join("")
    },
    audit: () => {
      const file = join(agent, "a2a-bridge.log")
      if (!existsSync(file)) return []
      return readFileSync(file, "utf8")
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as Record<string, unknown>)
    }
  }
}

/** A frame of omp's rpc mode: one JSON line on stdout. */
export type Frame = Readonly<Record<string, unknown>>

export interface Omp {
  readonly home: Home
  readonly pid: number
  readonly stdout: () => string
  readonly stderr: () => string
  readonly exitCode: () => number | undefined
  /** The exit code, or `signal <name>`. */
  readonly exited: Promise<number | string>
  readonly kill: (signal: NodeJS.Signals) => void
  readonly closeStdin: () => void
  /** Closes stdin and waits for the end. */
  readonly stop: () => Promise<number | string>
}

export interface RpcOmp extends Omp {
  readonly frames: () => ReadonlyArray<Frame>
  /** Lines on stdout that are no JSON object. */
  readonly noise: () => ReadonlyArray<string>
  /** Sends a command, and waits for its response. */
  readonly request: (command: Frame) => Promise<Frame>
  readonly send: (frame: Frame) => void
  /** Waits for a frame after the first `after` ones. */
  readonly frame: (
    what: string,
    matches: (frame: Frame) => boolean,
    after?: number,
    timeoutMillis?: number
  ) => Promise<Frame>
  readonly notices: () => ReadonlyArray<{ readonly text: string; readonly level: string }>
  readonly notice: (pattern: RegExp, after?: number) => Promise<string>
  /** Runs a slash command, and gives the first notice after it (that is like `answer`). */
  readonly slash: (line: string, answer?: RegExp) => Promise<{ readonly text: string; readonly level: string }>
  /** Base URL of the bridge, from its notice. */
  readonly url: () => Promise<string>
}

export interface StartOptions {
  readonly args?: ReadonlyArray<string>
  /** Over the home's clean environment. */
  readonly env?: Readonly<Record<string, string>>
  /** `pipe` (default) stays open until `stop`. */
  readonly stdin?: "pipe" | "ignore"
}

const startOmp = (home: Home, options: StartOptions): Omp & { readonly write: (text: string) => void } => {
  const child = spawn(bunBinary, [ompBinary, ...(options.args ?? [])], {
    cwd: home.work,
    env: { ...home.env, ...options.env },
    stdio: [options.stdin ?? "pipe", "pipe", "pipe"],
    // Its own process group: a Ctrl-C in the terminal of the tests is no business of omp's.
    detached: true
  })
  let stdout = ""
  let stderr = ""
  let exitCode: number | undefined
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => (stdout += chunk))
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => (stderr += chunk))
  child.stdin?.on("error", () => undefined)
  const exited = new Promise<number | string>((resolve) => {
    child.once("error", (error) => resolve(`not started: ${error.message}`))
    child.once("close", (code, signal) => {
      exitCode = code ?? -1
      resolve(code ?? `signal ${signal}`)
    })
  })
  const closeStdin = () => void child.stdin?.end()
  return {
    home,
    pid: child.pid ?? 0,
    stdout: () => stdout,
    stderr: () => stderr,
    exitCode: () => exitCode,
    exited,
    write: (text) => void child.stdin?.write(text),
    kill: (signal) => void child.kill(signal),
    closeStdin,
    stop: () => {
      closeStdin()
      return exited
    }
  }
}

const isObject = (value: unknown): value is Frame =>
  value !== null && typeof value === "object" && !Array.isArray(value)

const parseLine = (line: string): Frame | undefined => {
  try {
    const value: unknown = JSON.parse(line)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

const toNotice = (frame: Frame) =>
  frame["type"] === "extension_ui_request" && frame["method"] === "notify"
    ? [{ text: String(frame["message"]), level: String(frame["notifyType"] ?? "info") }]
    : []

const startRpc = (home: Home, options: StartOptions): RpcOmp => {
  const { write, ...omp } = startOmp(home, { ...options, args: ["--mode", "rpc", ...(options.args ?? [])] })
  const frames: Array<Frame> = []
  const noise: Array<string> = []
  let taken = 0
  const pump = () => {
    const text = omp.stdout()
    for (let end = text.indexOf("\n", taken); end >= 0; end = text.indexOf("\n", taken)) {
      const line = text.slice(taken, end)
      taken = end + 1
      const frame = parseLine(line)
      if (frame === undefined) noise.push(line)
      else frames.push(frame)
    }
    return frames
  }
  const state = () =>
    `omp ${omp.exitCode() ?? "runs"}; stderr: ${omp.stderr()}; last frames: ${pump()
      .slice(-8)
      .map((frame) => JSON.stringify(frame).slice(0, 300))
      .join("\n")}`
  const frame: RpcOmp["frame"] = (what, matches, after = 0, timeoutMillis = 45_000) =>
    until(
      () => `${what}; ${state()}`,
      () => pump().slice(after).find(matches),
      timeoutMillis
    )
  const send = (command: Frame) => write(`${JSON.stringify(command)}\n`)
  const request = async (command: Frame) => {
    const id = crypto.randomUUID()
    send({ id, ...command })
    return await frame(
      `the response to ${JSON.stringify(command)}`,
      (found) => found["type"] === "response" && found["id"] === id
    )
  }
  const notices = () => pump().flatMap(toNotice)
  const notice: RpcOmp["notice"] = (pattern, after = 0) =>
    until(
      () => `a notice like ${pattern}; ${state()}`,
      () =>
        notices()
          .slice(after)
          .find(({ text }) => pattern.test(text))?.text
    )
  return {
    ...omp,
    frames: pump,
    noise: () => {
      pump()
      return noise
    },
    send,
    request,
    frame,
    notices,
    notice,
    slash: async (line, answer = /./) => {
      const before = notices().length
      await request({ type: "prompt", message: line })
      return await until(
        () => `an answer to ${line}; ${state()}`,
        () =>
          notices()
            .slice(before)
            .find(({ text }) => answer.test(text))
      )
    },
    url: async () => {
      const text = await notice(/A2A bridge listening on http/)
      return /http:\/\/[^\s]+/.exec(text)?.[0] ?? text
    }
  }
}

export interface Lab {
  readonly home: (options?: HomeOptions) => Home
  /** Any omp command line; its output is text. */
  readonly omp: (home: Home, options?: StartOptions) => Omp
  /** omp in rpc mode. */
  readonly rpc: (home: Home, options?: StartOptions) => RpcOmp
  /** Runs at the end of the file or describe, in reverse order, whatever failed. */
  readonly onEnd: (action: () => unknown) => void
}

const killAll = async (home: Home) => {
  await until(
    `the end of every process of ${home.dir}`,
    () => {
      const left = processesOf(home.dir)
      for (const pid of left) {
        try {
          process.kill(pid, "SIGKILL")
        } catch {
          // It went by itself.
        }
      }
      return left.length === 0
    },
    10_000
  )
}

/** Call it at the top of a file or describe: what it makes is gone when that ends. */
export const useLab = (): Lab => {
  const cleanups: Array<() => unknown> = []
  afterAll(async () => {
    for (const cleanup of cleanups.toReversed()) await cleanup()
  })
  return {
    home: (options = {}) => {
      const home = makeHome(options)
      cleanups.push(async () => {
        await killAll(home)
        rmSync(home.dir, { recursive: true, force: true })
      })
      return home
    },
    omp: (home, options = {}) => startOmp(home, options),
    rpc: (home, options = {}) => startRpc(home, options),
    onEnd: (action) => void cleanups.push(action)
  }
}
