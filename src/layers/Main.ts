import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as ManagedRuntime from "effect/ManagedRuntime"
import { Listening } from "../services/Listening.ts"
import { HostInfo } from "../services/HostInfo.ts"
import * as Features from "../services/mcp/features.ts"
import * as Invocations from "../services/mcp/Invocations.ts"
import * as McpServer from "../services/mcp/McpServer.ts"
import type { OmpHost } from "../services/OmpHost.ts"
import { hostName, isLoopback } from "../services/originRules.ts"
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
import * as OmpPrompts from "./OmpPrompts.ts"
import * as OmpResources from "./OmpResources.ts"
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

const compose = (host: OmpHost) => {
  const instance = crypto.randomUUID()
  // Filled in when the server listens; until then no request can ask for it.
  const own = { port: 0 }
  const isOwnUrl = (url: string): boolean => {
    const parsed = URL.canParse(url) ? new URL(url) : undefined
    return parsed !== undefined && Number(parsed.port) === own.port && isLoopback(hostName(parsed.host))
  }
  const paths = { agentDir: host.agentDir, env: host.env }
  const config = FileConfig.layer(paths)
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
  return announce.pipe(
    Layer.provideMerge(Http.layer),
    Layer.provideMerge(McpServer.layer),
    Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)),
    Layer.provideMerge(Layer.mergeAll(OmpPrompts.layer(host), OmpResources.layer(host), MemoryResults.layer)),
    Layer.provideMerge(ToolCalls.layer),
    Layer.provideMerge(
      Layer.mergeAll(
        approvals,
        audit,
        TokenAuth.layer,
        MemorySessionStore.layer,
        Layer.succeed(HostInfo, hostInfo(host, instance)),
        OmpHostTools.layer(host, { instance, isOwnUrl })
      )
    ),
    Layer.provideMerge(config),
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

const runtimeOf = (host: OmpHost) => ManagedRuntime.make(compose(host))

/** Starts the bridge for a running omp. Never rejects, and leaves nothing behind where it fails. */
export const bridge = async (host: OmpHost): Promise<Started> => {
  const runtime = runtimeOf(host)
  const dispose = async () => {
    await Promise.race([runtime.dispose().catch(() => undefined), Bun.sleep(shutdownMillis)])
  }
  const started = await runtime.runPromiseExit(Listening)
  if (started._tag === "Failure") {
    await dispose()
    return { _tag: "Failed", reason: reasonOf(started.cause) }
  }
  let closing: Promise<void> | undefined
  return {
    _tag: "Started",
    bridge: {
      url: started.value.url,
      command: async (args) => {
        const exit = await runtime.runPromiseExit(HostCommands.run(args))
        return exit._tag === "Success" ? exit.value : { level: "error", text: `A2A bridge: ${reasonOf(exit.cause)}` }
      },
      completions: HostCommands.completions,
      close: () => (closing ??= dispose())
    }
  }
}
