import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Stream from "effect/Stream"
import * as FileAudit from "../../src/layers/FileAudit.ts"
import * as HeadlessApprovals from "../../src/layers/HeadlessApprovals.ts"
import * as Http from "../../src/layers/http/Server.ts"
import * as MemoryResults from "../../src/layers/MemoryResults.ts"
import * as MemorySessionStore from "../../src/layers/MemorySessionStore.ts"
import { Auth, PrincipalId, Unauthorized } from "../../src/services/Auth.ts"
import type { AskFailed, CapabilityMissing, Exchange } from "../../src/services/Exchange.ts"
import { HostInfo } from "../../src/services/HostInfo.ts"
import type { HostTool, JsonObject, ToolResult } from "../../src/services/HostTools.ts"
import { HostTools, ToolFault } from "../../src/services/HostTools.ts"
import { Lifecycle } from "../../src/services/Lifecycle.ts"
import { Listening } from "../../src/services/Listening.ts"
import * as Features from "../../src/services/mcp/features.ts"
import * as Invocations from "../../src/services/mcp/Invocations.ts"
import * as McpServer from "../../src/services/mcp/McpServer.ts"
import * as Prompts from "../../src/services/Prompts.ts"
import * as Resources from "../../src/services/Resources.ts"
import * as ToolCalls from "../../src/services/ToolCalls.ts"
import type { HttpAnswer } from "./bridge.ts"
import * as FakeConfig from "./suites/fakeConfig.ts"

export interface PortTool {
  readonly inputSchema?: JsonObject
  readonly run: (
    args: JsonObject,
    exchange: Exchange
  ) => Effect.Effect<ToolResult, ToolFault | CapabilityMissing | AskFailed>
}

type Running = ReturnType<PortTool["run"]>

const gone: Running = new ToolFault({ detail: "no such tool" })

export interface PortServer extends AsyncDisposable {
  readonly url: string
  /** POST to /mcp as this principal; any name is a valid bearer. */
  readonly post: (body: unknown, headers?: Readonly<Record<string, string>>, as?: string) => Promise<HttpAnswer>
  /** What went to the log so far, one string an entry. */
  readonly logs: ReadonlyArray<string>
  /** Moves the time that is read, not the timers: what has an end reaches it. */
  readonly forward: (millis: number) => void
}

const toolOf = (name: string, { inputSchema }: PortTool): HostTool => ({
  name,
  wireName: name,
  title: name,
  description: `The tool ${name}.`,
  inputSchema: inputSchema ?? { type: "object" },
  annotations: { readOnlyHint: true },
  active: true,
  own: false
})

/**
 * HTTP and the protocol core as they are, over tools that do what omp's never do: ask, die, give structured content.
 * The bearer names the principal.
 */
export const startPortServer = async (tools: Readonly<Record<string, PortTool>>): Promise<PortServer> => {
  const agentDir = mkdtempSync(join(tmpdir(), "pi-a2a-port-"))
  let ahead = 0
  const clock = Clock.make()
  const shifted: Clock.Clock = Object.assign(Object.create(clock) as Clock.Clock, {
    unsafeCurrentTimeMillis: () => clock.unsafeCurrentTimeMillis() + ahead,
    currentTimeMillis: Effect.map(clock.currentTimeMillis, (now) => now + ahead)
  })
  const logs: Array<string> = []
  const logger = Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ annotations, logLevel, message }) => {
      logs.push(JSON.stringify([logLevel.label, message, [...annotations]]))
    })
  )
  const host = Layer.succeed(HostTools, {
    catalog: Effect.succeed(Object.entries(tools).map(([name, tool]) => toolOf(name, tool))),
    changes: Stream.never,
    validate: (_tool, args) => Effect.succeed(args),
    policy: () => Effect.succeed({ _tag: "Allow" as const }),
    execute: (tool, args, { exchange }) =>
      Effect.catchTag(tools[tool.name]?.run(args, exchange) ?? gone, "AskFailed", ({ reason }) =>
        Effect.succeed<ToolResult>({ content: [{ type: "text", text: reason }], isError: true })
      )
  })
  const auth = Layer.succeed(Auth, {
    authenticate: (authorization) => {
      const name = /^Bearer (\w+)$/.exec(authorization ?? "")?.[1]
      return name === undefined
        ? new Unauthorized({ reason: "missing" })
        : Effect.succeed({ id: PrincipalId.make(name), name })
    },
    rotate: Effect.never,
    revocations: Stream.never,
    rejected: Effect.succeed(0)
  })
  const config = await Effect.runPromise(FakeConfig.make())
  const runtime = ManagedRuntime.make(
    Http.layer.pipe(
      Layer.provideMerge(McpServer.layer),
      Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)),
      Layer.provideMerge(ToolCalls.layer),
      Layer.provideMerge(
        Layer.mergeAll(
          host,
          auth,
          MemoryResults.layer,
          Layer.succeed(Lifecycle, { stop: () => Effect.void }),
          HeadlessApprovals.layer,
          FileAudit.layer({ agentDir, env: {} }, () => Effect.void),
          MemorySessionStore.layer,
          Prompts.empty,
          Resources.empty,
          Layer.succeed(HostInfo, {
            name: "fake",
            title: "fake",
            version: "1",
            instance: "one",
            instructions: "a host"
          })
        )
      ),
      Layer.provideMerge(config.layer),
      Layer.provide(Layer.mergeAll(logger, Layer.setClock(shifted)))
    )
  )
  const dispose = async () => {
    await runtime.dispose()
    rmSync(agentDir, { recursive: true, force: true })
  }
  const { port } = await runtime.runPromise(Listening).catch(async (error: unknown) => {
    await dispose()
    throw error
  })
  const url = `http://127.0.0.1:${port}`
  return {
    url,
    logs,
    post: async (body, headers = {}, as = "alice") => {
      const response = await fetch(`${url}/mcp`, {
        method: "POST",
        headers: { authorization: `Bearer ${as}`, "content-type": "application/json", ...headers },
        body: JSON.stringify(body)
      })
      return { status: response.status, headers: Object.fromEntries(response.headers), text: await response.text() }
    },
    forward: (millis) => {
      ahead += millis
    },
    [Symbol.asyncDispose]: dispose
  }
}
