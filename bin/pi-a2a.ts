#!/usr/bin/env bun
/** `pi-a2a`: the bridge from the command line. */
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join, resolve } from "node:path"
import { createInterface } from "node:readline/promises"
import * as Args from "@effect/cli/Args"
import * as Command from "@effect/cli/Command"
import * as Options from "@effect/cli/Options"
import * as BunContext from "@effect/platform-bun/BunContext"
import * as BunRuntime from "@effect/platform-bun/BunRuntime"
import * as Console from "effect/Console"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { Config } from "../src/services/Config.ts"
import { clients, instructions } from "../src/services/connect.ts"
import { Listening } from "../src/services/Listening.ts"
import { standalone, stdio, version } from "../src/layers/Main.ts"
import { claimStdout } from "../src/layers/stdio/stdout.ts"
import type { Frame, OmpRpcProcess } from "../src/layers/OmpRpcProcess.ts"
import * as Omp from "../src/layers/OmpRpcProcess.ts"

const root = resolve(import.meta.dir, "..")

/** omp does not start without a model. This one is never called: no tool call needs it. */
const placeholderModel = `providers:
  none:
    baseUrl: http://127.0.0.1:9/v1
    apiKey: none
    api: openai-completions
    models:
      - id: no-model
        name: No model (tools only)
        reasoning: false
        input: [text]
        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }
        contextWindow: 128000
        maxTokens: 4096
`

const prepareState = (state: string): string => {
  const agentDir = join(state, "agent")
  mkdirSync(agentDir, { recursive: true, mode: 0o700 })
  const models = join(agentDir, "models.yml")
  if (!existsSync(models)) writeFileSync(models, placeholderModel, { mode: 0o600 })
  const config = join(agentDir, "config.yml")
  if (!existsSync(config)) writeFileSync(config, "setupVersion: 2\n", { mode: 0o600 })
  return agentDir
}

/** The omp to run: the one named, else the project's own, else the one on PATH. */
const ompCommand = (named: Option.Option<string>): ReadonlyArray<string> => {
  if (Option.isSome(named)) return [named.value]
  const own = join(root, "node_modules/@oh-my-pi/pi-coding-agent/dist/cli.js")
  return existsSync(own) ? [process.execPath, own] : ["omp"]
}

const question = (title: string, signal: AbortSignal): Promise<string> => {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  return lines.question(`\n${title}\nApprove? [y/N] `, { signal }).finally(() => lines.close())
}

/** Asks the person at the terminal; where there is none, nothing is approved. */
const decide = (omp: OmpRpcProcess, frame: Extract<Frame, { _tag: "Select" }>) =>
  Effect.gen(function* () {
    if (!process.stdin.isTTY) return yield* omp.answer(frame.id, undefined)
    const answer = yield* Effect.tryPromise((signal) => question(frame.title, signal)).pipe(
      Effect.orElseSucceed(() => "")
    )
    const [approve, deny] = frame.options
    yield* omp.answer(frame.id, /^y(es)?$/i.test(answer.trim()) ? approve : deny)
  })

const hostCommand = Command.make(
  "host",
  {
    cwd: Options.directory("cwd", { exists: "yes" }).pipe(
      Options.withDefault(process.cwd()),
      Options.withDescription("where the tools work; the current directory by default")
    ),
    port: Options.integer("port").pipe(
      Options.optional,
      Options.withDescription("fixed port; by default the one in a2a-bridge.json, or a free one")
    ),
    state: Options.text("state").pipe(
      Options.withDefault(join(process.env["XDG_STATE_HOME"] ?? join(homedir(), ".local/state"), "pi-a2a")),
      Options.withDescription("folder for omp's and the bridge's own files")
    ),
    omp: Options.text("omp").pipe(
      Options.optional,
      Options.withDescription("omp to run instead of the project's own, such as `omp` for the one on PATH")
    ),
    args: Args.text({ name: "omp-args" }).pipe(Args.repeated, Args.withDescription("passed on to omp"))
  },
  ({ args, cwd, omp: named, port, state }) =>
    Effect.gen(function* () {
      const agentDir = prepareState(resolve(state))
      const omp = yield* Omp.start({
        command: ompCommand(named),
        args: ["--extension", join(root, "extensions/a2a-bridge.ts"), ...args],
        cwd: resolve(cwd),
        env: {
          ...process.env,
          PI_CODING_AGENT_DIR: agentDir,
          ...(Option.isSome(port) ? { A2A_BRIDGE_PORT: String(port.value) } : {})
        }
      })
      let asking: Fiber.RuntimeFiber<void> | undefined
      const show = (frame: Frame) =>
        Effect.gen(function* () {
          switch (frame._tag) {
            case "Notify": {
              if (frame.level !== "info") yield* Console.error(`${frame.level}: ${frame.text}`)
              else yield* Console.log(frame.text)
              if (frame.text.startsWith("A2A bridge listening")) {
                yield* Console.log(
                  `headless omp in ${resolve(cwd)}; its files are in ${resolve(state)}; Ctrl-C ends it\n`
                )
                yield* omp.command("/a2a token")
                yield* omp.command("/a2a connect")
              }
              return
            }
            case "Select":
              asking = yield* Effect.fork(decide(omp, frame))
              return
            case "Withdraw":
              if (asking !== undefined) yield* Fiber.interruptFork(asking)
          }
        })
      yield* Stream.runForEach(omp.frames, show)
    }).pipe(
      Effect.scoped,
      Effect.catchTag("OmpExited", (error) =>
        Effect.zipRight(
          Console.error(error.message),
          Effect.sync(() => {
            process.exitCode = error.code === 0 ? 0 : 1
          })
        )
      )
    )
).pipe(Command.withDescription("Run a headless omp with the bridge up, in the current directory; needs no model"))

const stateOption = Options.text("state").pipe(
  Options.withDefault(join(process.env["XDG_STATE_HOME"] ?? join(homedir(), ".local/state"), "pi-a2a")),
  Options.withDescription("folder for the settings (a2a-bridge.json), the jobs and the audit log")
)
const rootOption = Options.directory("root", { exists: "yes" }).pipe(
  Options.repeated,
  Options.withDescription("folder that jobs may work in, besides those in the settings; may be given more than once")
)

const connectLines = (url: string, token: string): string =>
  clients.map((client) => instructions[client]({ url, token, name: "pi-a2a" })).join("\n\n")

const sayAndFail = (error: unknown) =>
  Effect.zipRight(
    Console.error(error instanceof Error ? error.message : String(error)),
    Effect.sync(() => {
      process.exitCode = 1
    })
  )

/** The environment, with the roots of the command line before those of the environment. */
const environmentWith = (roots: ReadonlyArray<string>) => {
  const given = process.env["CURSOR_BRIDGE_WORKSPACE_ROOTS"]
  const all = [...roots.map((root) => resolve(root)), ...(given === undefined ? [] : [given])]
  return { ...process.env, ...(roots.length === 0 ? {} : { CURSOR_BRIDGE_WORKSPACE_ROOTS: all.join(";") }) }
}

const prepareFolder = (state: string): string => {
  mkdirSync(resolve(state), { recursive: true, mode: 0o700 })
  return resolve(state)
}

const serveCommand = Command.make(
  "serve",
  {
    state: stateOption,
    root: rootOption,
    port: Options.integer("port").pipe(
      Options.optional,
      Options.withDescription("fixed port; by default the one in a2a-bridge.json, or a free one")
    )
  },
  ({ port, root, state }) =>
    Effect.gen(function* () {
      const stopped = yield* Deferred.make<string>()
      const env = {
        ...environmentWith(root),
        ...(Option.isSome(port) ? { A2A_BRIDGE_PORT: String(port.value) } : {})
      }
      const layer = standalone({
        stateDir: prepareFolder(state),
        env,
        lifecycle: { stop: (reason) => Effect.asVoid(Deferred.succeed(stopped, reason)) }
      })
      yield* Effect.gen(function* () {
        const { url } = yield* Listening
        const { token, workspaceRoots } = yield* Effect.flatMap(Config, ({ current }) => current)
        yield* Console.log(`pi-a2a serving on ${url}`)
        yield* Console.log(
          `folders allowed: ${workspaceRoots.length === 0 ? "none: every job is refused (--root, or workspaceRoots)" : workspaceRoots.join(", ")}`
        )
        yield* Console.log(`\n${connectLines(url, Redacted.value(token))}`)
        const reason = yield* Deferred.await(stopped)
        yield* Console.error(`stopping: ${reason}`)
        // What is being answered has a moment to go out.
        yield* Effect.sleep("200 millis")
      }).pipe(Effect.provide(layer))
    }).pipe(Effect.catchAll(sayAndFail))
).pipe(Command.withDescription("Serve the nine job tools over HTTP, without an omp"))

const stdioCommand = Command.make("stdio", { state: stateOption, root: rootOption }, ({ root, state }) =>
  Effect.gen(function* () {
    const write = yield* claimStdout
    const stopped = yield* Deferred.make<string>()
    const options = {
      stateDir: prepareFolder(state),
      env: environmentWith(root),
      lifecycle: { stop: (reason: string) => Effect.asVoid(Deferred.succeed(stopped, reason)) }
    }
    const input = Stream.fromReadableStream(
      () => Bun.stdin.stream(),
      () => "stdin broke"
    )
    yield* stdio(options, { input, write }).pipe(
      Effect.raceFirst(Effect.zipRight(Deferred.await(stopped), Effect.sleep("200 millis"))),
      Effect.catchAll(sayAndFail)
    )
  }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.stringLogger))))
).pipe(
  Command.withDescription("Speak MCP on stdin and stdout: the nine job tools, for a client that starts this itself")
)

const cli = Command.run(
  Command.make("pi-a2a").pipe(
    Command.withDescription("Makes an omp coding agent callable over MCP, and coding agents into governed workers"),
    Command.withSubcommands([hostCommand, serveCommand, stdioCommand])
  ),
  { name: "pi-a2a", version }
)

cli(process.argv).pipe(Effect.provide(BunContext.layer), BunRuntime.runMain)
