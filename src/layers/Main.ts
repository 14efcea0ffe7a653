import { join } from "node:path"
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as ManagedRuntime from "effect/ManagedRuntime"
import { Listening } from "../services/Listening.ts"
import { Config } from "../services/Config.ts"
import { HostInfo } from "../services/HostInfo.ts"
import * as JobHostTools from "../services/jobs/jobHostTools.ts"
import { Lifecycle } from "../services/Lifecycle.ts"
import * as Features from "../services/mcp/features.ts"
import * as Invocations from "../services/mcp/Invocations.ts"
import * as McpServer from "../services/mcp/McpServer.ts"
import type { OmpHost } from "../services/OmpHost.ts"
import { hostName, isLoopback } from "../services/originRules.ts"
import * as Prompts from "../services/Prompts.ts"
import * as Resources from "../services/Resources.ts"
import * as ToolCalls from "../services/ToolCalls.ts"
import { arch, hostname, platform } from "node:os"
import pkg from "../../package.json" with { type: "json" }
import * as FileAudit from "./FileAudit.ts"
import * as FileConfig from "./FileConfig.ts"
import * as HeadlessApprovals from "./HeadlessApprovals.ts"
import * as HostCommands from "./HostCommands.ts"
import * as HostDialog from "./HostDialog.ts"
import * as HostLogger from "./hostLogger.ts"
import * as HostNotices from "./HostNotices.ts"
import * as Http from "./http/Server.ts"
import * as MemoryResults from "./MemoryResults.ts"
import * as MemorySessionStore from "./MemorySessionStore.ts"
import * as OmpHostTools from "./OmpHostTools.ts"
import * as OmpJobTools from "./OmpJobTools.ts"
import * as OmpPrompts from "./OmpPrompts.ts"
import * as OmpResources from "./OmpResources.ts"
import * as McpStdio from "./stdio/McpStdio.ts"
import * as TokenAuth from "./TokenAuth.ts"

/** This package's own. */
export const version = pkg.version

/** The whole shutdown, whatever a tool does with its signal. */
const shutdownMillis = 1500

/** The running bridge, for the host's entry. Nothing here rejects. */
export interface Bridge {
  readonly url: string
  /** Runs `/a2a <args>`. */
  readonly command: (args: string) => Promise<HostCommands.Notice>
  /** Words that may stand next on the command line, after `prefix`. */
  readonly completions: typeof HostCommands.completions
  /** Stops accepting, ends calls and their processes, writes the audit log out. Within 1.5 seconds. Idempotent. */
  readonly close: () => Promise<void>
}

export type Started =
  | { readonly _tag: "Started"; readonly bridge: Bridge }
  /** Nothing is left running. */
  | { readonly _tag: "Failed"; readonly reason: string }

type Paths = FileConfig.FileConfigOptions

/** From tools to answers, without a transport: what every way in shares. */
const protocol = McpServer.layer.pipe(Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)))

const levels = { debug: LogLevel.Debug, info: LogLevel.Info, warn: LogLevel.Warning, error: LogLevel.Error }

/** The settings, and the least severe level that they let through. */
const configured = (paths: Paths) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.flatMap(Config, ({ current }) => current),
      ({ logLevel }) => Logger.minimumLogLevel(levels[logLevel])
    )
  ).pipe(Layer.provideMerge(FileConfig.layer(paths)))

/** The job engine's modules are many: they are loaded where there are jobs. */
const jobsOf = (paths: Paths) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.promise(() => import("./MainJobs.ts")),
      ({ layer }) => layer({ stateDir: join(paths.agentDir, "a2a-bridge"), env: paths.env })
    )
  )

const compose = (host: OmpHost, lifecycle: Context.Tag.Service<Lifecycle>) => {
  const instance = crypto.randomUUID()
  // Filled in when the server listens; until then no request can ask for it.
  const own = { port: 0 }
  const isOwnUrl = (url: string): boolean => {
    const parsed = URL.canParse(url) ? new URL(url) : undefined
    return parsed !== undefined && Number(parsed.port) === own.port && isLoopback(hostName(parsed.host))
  }
  const paths = { agentDir: host.agentDir, env: host.env }
  const approvals = host.hasUI ? HostDialog.layer(host) : HeadlessApprovals.layer
  const audit = FileAudit.layer(paths, (trouble) =>
    Effect.sync(() =>
      host.notify(
        trouble === undefined
          ? "A2A bridge: the audit log is being written again"
          : `A2A bridge: cannot write the audit log ${trouble.file} (${trouble.reason}); calls go on without it`,
        trouble === undefined ? "info" : "error"
      )
    )
  )
  const announce = Layer.scopedDiscard(
    Effect.gen(function* () {
      const { port } = yield* Listening
      own.port = port
      yield* HostNotices.announce(host)
    })
  )
  const ompTools = OmpHostTools.layer(host, { instance, isOwnUrl })
  const withJobs = JobHostTools.among(ompTools).pipe(
    Layer.merge(OmpJobTools.layer(host)),
    Layer.provideMerge(jobsOf(paths)),
    // Another omp may have the jobs already: this one still has its tools to offer.
    Layer.catchAll((error) => {
      host.notify(`A2A bridge: no job tools here: ${error.detail}`, "warning")
      return ompTools
    })
  )
  /** Jobs where the settings allow a folder when the bridge starts. */
  const tools = Layer.unwrapEffect(
    Effect.map(
      Effect.flatMap(Config, ({ current }) => current),
      ({ workspaceRoots }) => (workspaceRoots.length === 0 ? ompTools : withJobs)
    )
  )
  return announce.pipe(
    Layer.provideMerge(Http.layer),
    Layer.provideMerge(protocol),
    Layer.provideMerge(Layer.mergeAll(OmpPrompts.layer(host), OmpResources.layer(host), MemoryResults.layer)),
    Layer.provideMerge(ToolCalls.layer),
    Layer.provideMerge(
      Layer.mergeAll(
        approvals,
        audit,
        TokenAuth.layer,
        MemorySessionStore.layer,
        Layer.succeed(HostInfo, hostInfo(host, instance)),
        tools
      )
    ),
    Layer.provideMerge(Layer.succeed(Lifecycle, lifecycle)),
    Layer.provideMerge(configured(paths)),
    Layer.provide(Layer.mergeAll(HostLogger.layer(host), Layer.setTracerEnabled(false)))
  )
}

const hostInfo = (host: OmpHost, instance: string): HostInfo["Type"] => ({
  name: "omp-a2a-bridge",
  title: "omp",
  version,
  instance,
  instructions:
    `These tools run on another machine or session than yours: the host '${hostname()}' (${platform()} ${arch()}), ` +
    `in ${host.cwd}, inside a running omp ${host.version}. Paths and commands are that host's. ` +
    (host.hasUI
      ? "Calls may wait for a person at the host to approve them."
      : "Calls that need the approval of a person are refused: nobody is there to ask.")
})

const reasonOf = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  return error instanceof Error ? error.message : String(error)
}

/** How long what is being answered has before a bridge that was told to stop does so. */
const lastWordsMillis = 200

/** Starts the bridge for a running omp. Never rejects, and leaves nothing behind where it fails. */
export const bridge = async (host: OmpHost): Promise<Started> => {
  const stop = (reason: string) =>
    Effect.sync(() => {
      host.notify(`A2A bridge: stopping (${reason})`, "warning")
      setTimeout(() => void close(), lastWordsMillis)
    })
  const runtime = ManagedRuntime.make(compose(host, { stop }))
  const dispose = async () => {
    await Promise.race([runtime.dispose().catch(() => undefined), Bun.sleep(shutdownMillis)])
  }
  let closing: Promise<void> | undefined
  const close = () => (closing ??= dispose())
  const started = await runtime.runPromiseExit(Listening)
  if (started._tag === "Failure") {
    await dispose()
    return { _tag: "Failed", reason: reasonOf(started.cause) }
  }
  return {
    _tag: "Started",
    bridge: {
      url: started.value.url,
      command: async (args) => {
        const exit = await runtime.runPromiseExit(HostCommands.run(args))
        return exit._tag === "Success" ? exit.value : { level: "error", text: `A2A bridge: ${reasonOf(exit.cause)}` }
      },
      completions: HostCommands.completions,
      close
    }
  }
}

/** A bridge without an omp: jobs alone. */
export interface StandaloneOptions {
  /** For settings, jobs and the audit log. */
  readonly stateDir: string
  readonly env: Readonly<Record<string, string | undefined>>
  readonly lifecycle: Context.Tag.Service<Lifecycle>
}

const standaloneParts = ({ env, lifecycle, stateDir }: StandaloneOptions) => {
  const paths = { agentDir: stateDir, env }
  return protocol.pipe(
    Layer.provideMerge(Layer.mergeAll(Prompts.empty, Resources.empty, MemoryResults.layer)),
    Layer.provideMerge(ToolCalls.layer),
    Layer.provideMerge(
      Layer.mergeAll(
        HeadlessApprovals.layer,
        FileAudit.layer(paths, (trouble) =>
          trouble === undefined
            ? Effect.logInfo("the audit log is being written again")
            : Effect.logError(`cannot write the audit log ${trouble.file}: ${trouble.reason}`)
        ),
        TokenAuth.layer,
        MemorySessionStore.layer,
        Layer.succeed(HostInfo, {
          name: "pi-a2a",
          title: "Coding agents as governed workers",
          version,
          instance: crypto.randomUUID(),
          instructions:
            `These tools give tasks to coding agents on the host '${hostname()}' (${platform()} ${arch()}). Each works in ` +
            `a git worktree of its own; read what it changed with cursor_diff. bridge_health lists the folders allowed.`
        }),
        JobHostTools.alone
      )
    ),
    Layer.provideMerge(jobsOf(paths)),
    Layer.provideMerge(Layer.succeed(Lifecycle, lifecycle)),
    Layer.provideMerge(configured(paths)),
    Layer.provide(Layer.setTracerEnabled(false))
  )
}

/** The nine tools over HTTP. */
export const standalone = (options: StandaloneOptions) => Http.layer.pipe(Layer.provideMerge(standaloneParts(options)))

/** The nine tools over stdio: the same protocol core, one client. */
export const stdio = (options: StandaloneOptions, streams: McpStdio.StdioOptions) =>
  Effect.provide(McpStdio.serve(streams), standaloneParts(options))
