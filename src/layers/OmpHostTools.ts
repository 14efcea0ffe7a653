import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { closedDevice } from "../services/devices.ts"
import type { Exchange } from "../services/Exchange.ts"
import { wireName } from "../services/exposure.ts"
import type { HostTool, JsonObject, Policy, ToolAnnotations, ToolContent, ToolResult } from "../services/HostTools.ts"
import { ArgumentsInvalid, HostTools, HostUnavailable } from "../services/HostTools.ts"
import { instanceKey } from "../services/wire/Mcp.ts"
import type { OmpHost, OmpMcpServer, OmpTool, OmpToolResult } from "../services/OmpHost.ts"
import { toInputSchema } from "../services/toolSchema.ts"
import { isRecord } from "../services/wire/JsonRpc.ts"

export interface OmpHostToolsOptions {
  /** This bridge's `ServerInfo.instance`. */
  readonly instance: string
  /** Whether a URL is one at which this bridge listens. */
  readonly isOwnUrl: (url: string) => boolean
}

/** Tools whose tier depends on their arguments, but which change nothing in any of their tiers. */
const readers = new Set(["read", "grep", "glob", "ast_grep"])
/** Tools that reach beyond the machine. */
const openWorld = new Set(["web_search", "fetch", "browser", "github"])

const annotationsOf = (tool: OmpTool): ToolAnnotations => {
  const openWorldHint = openWorld.has(tool.name) || tool.mcpServer !== undefined || tool.name === "bash"
  if (tool.tier === "read" || readers.has(tool.name)) {
    return { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint }
  }
  return { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint }
}

const titleOf = (tool: OmpTool): string => {
  const label = tool.label.trim()
  return label === "" || label === tool.name ? tool.name.replaceAll("_", " ") : label
}

/** Text and image blocks as they are, anything else as its JSON: nothing that a tool says is dropped. */
const toContent = (block: unknown): ToolContent => {
  if (isRecord(block)) {
    if (block["type"] === "text" && typeof block["text"] === "string") return { type: "text", text: block["text"] }
    if (block["type"] === "image" && typeof block["data"] === "string" && typeof block["mimeType"] === "string") {
      return { type: "image", data: block["data"], mimeType: block["mimeType"] }
    }
  }
  return { type: "text", text: JSON.stringify(block) ?? String(block) }
}

/** How a command ran. omp says an exit code only where it is not 0. */
const runDetails = (tool: string, { details, isError }: OmpToolResult): JsonObject | undefined => {
  if (tool !== "bash" || !isRecord(details)) return undefined
  const { exitCode, timedOut, wallTimeMs } = details
  return {
    ...(typeof exitCode === "number" ? { exitCode } : isError || timedOut === true ? {} : { exitCode: 0 }),
    ...(typeof wallTimeMs === "number" ? { wallTimeMs } : {}),
    ...(timedOut === true ? { timedOut } : {})
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
const failedWith = (text: string): ToolResult => ({ content: [{ type: "text", text }], isError: true })

/** How long an interruption waits for a tool to end, once its signal is aborted. */
const abortPatience = "1 second"

/**
 * A promise as an interruptible effect. Unlike Effect.tryPromise, an interruption also waits for the promise to settle:
 * only then are the tool's processes really gone.
 */
const abortable = <A>(run: (signal: AbortSignal) => Promise<A>): Effect.Effect<A, unknown> =>
  Effect.async<A, unknown>((resume, signal) => {
    const settled = run(signal).then(
      (value) => resume(Effect.succeed(value)),
      (error: unknown) => resume(Effect.fail(error))
    )
    return Effect.promise(() => settled).pipe(Effect.interruptible, Effect.timeoutOption(abortPatience))
  })

const isOwn = (server: OmpMcpServer, options: OmpHostToolsOptions): boolean => {
  const experimental = isRecord(server.capabilities) ? server.capabilities["experimental"] : undefined
  const mark = isRecord(experimental) ? experimental[instanceKey] : undefined
  return (
    (isRecord(mark) && mark["id"] === options.instance) || (server.url !== undefined && options.isOwnUrl(server.url))
  )
}

const devicePolicy = (args: JsonObject): Policy | undefined => {
  const device = closedDevice(args)
  return device === undefined
    ? undefined
    : { _tag: "Deny", reason: `'${device}' is not exposed by this bridge; call the tool by its own name` }
}

const textOf = (content: ReadonlyArray<unknown>): string =>
  content.map((block) => (isRecord(block) && typeof block["text"] === "string" ? block["text"] : "")).join("")

/** The longest piece of output that one progress notification carries, in UTF-16 units. */
const maxProgressText = 4096

/**
 * omp reports everything so far, MCP wants what is new. Output that was rewritten (a progress bar, a cut tail) is sent
 * again whole.
 */
const progressOf = (exchange: Exchange) => {
  let seen = ""
  let progress = 0
  return (content: ReadonlyArray<unknown>): void => {
    const text = textOf(content)
    if (text === seen) return
    const fresh = text.startsWith(seen) ? text.slice(seen.length) : text
    seen = text
    progress = Math.max(progress + 1, text.length)
    exchange.progress({ progress, message: fresh.slice(-maxProgressText).toWellFormed() })
  }
}

const make = (host: OmpHost, options: OmpHostToolsOptions) => {
  // What the host builds once per tool is converted once: the key is the host's own tool object.
  const schemas = new WeakMap<object, HostTool["inputSchema"]>()

  const inputSchemaOf = (tool: OmpTool): HostTool["inputSchema"] => {
    const key = typeof tool.handle === "object" && tool.handle !== null ? tool.handle : tool
    const known = schemas.get(key)
    if (known !== undefined) return known
    const inputSchema = ((): HostTool["inputSchema"] => {
      try {
        return toInputSchema(host.wireSchema(tool))
      } catch (error) {
        host.log("warn", "tool schema not convertible; sent as an open object", {
          tool: tool.name,
          error: messageOf(error)
        })
        return toInputSchema({})
      }
    })()
    schemas.set(key, inputSchema)
    return inputSchema
  }

  const ownServers = (tools: ReadonlyArray<OmpTool>): ReadonlySet<string> => {
    const own = new Set<string>()
    for (const name of new Set(tools.flatMap((tool) => (tool.mcpServer === undefined ? [] : [tool.mcpServer])))) {
      const server = host.mcpServer(name)
      if (server !== undefined && isOwn(server, options)) own.add(name)
    }
    return own
  }

  const list = (): ReadonlyArray<HostTool> => {
    const tools = host.tools() ?? []
    const active = new Set(host.activeToolNames())
    const own = ownServers(tools)
    const taken = new Set<string>()
    return tools.flatMap((tool) => {
      const wire = wireName(tool.name)
      if (taken.has(wire)) return []
      taken.add(wire)
      return [
        {
          name: tool.name,
          wireName: wire,
          title: titleOf(tool),
          description: tool.description.trim() === "" ? titleOf(tool) : tool.description.toWellFormed(),
          inputSchema: inputSchemaOf(tool),
          annotations: annotationsOf(tool),
          active: active.has(tool.name),
          own: tool.mcpServer !== undefined && own.has(tool.mcpServer)
        }
      ]
    })
  }

  const names = Effect.sync(() => (host.tools() ?? []).map((tool) => tool.name).join("\n"))

  /** The host's tool of this moment: sessions change under a running bridge. */
  const resolve = (tool: HostTool): Effect.Effect<OmpTool, HostUnavailable> =>
    Effect.suspend(() => {
      const found = host.tools()?.find((candidate) => candidate.name === tool.name)
      return found === undefined ? new HostUnavailable() : Effect.succeed(found)
    })

  /** A command that the host moved to the background is still this call: wait for its real end. */
  const toTheEnd = async (tool: HostTool, result: OmpToolResult, signal: AbortSignal): Promise<ToolResult> => {
    const jobId = result.backgroundJob
    if (jobId === undefined) {
      const details = runDetails(tool.name, result)
      return {
        content: result.content.map(toContent),
        isError: result.isError,
        ...(details === undefined ? {} : { details })
      }
    }
    const cancel = () => host.cancelJob(jobId)
    if (signal.aborted) cancel()
    signal.addEventListener("abort", cancel, { once: true })
    try {
      const job = await host.awaitJob(jobId)
      return { content: [{ type: "text", text: job.text }], isError: job.isError }
    } finally {
      signal.removeEventListener("abort", cancel)
    }
  }

  return HostTools.of({
    catalog: Effect.sync(list),
    // omp has no event for every way in which a tool can come or go; names are cheap to compare.
    changes: Stream.repeatEffectWithSchedule(names, Schedule.spaced("2 seconds")).pipe(
      Stream.changes,
      Stream.drop(1),
      Stream.map(() => undefined)
    ),
    validate: (tool, args) =>
      Effect.flatMap(resolve(tool), (found) =>
        Effect.try({
          try: () => host.validate(found, "validate", args),
          catch: (error) => new ArgumentsInvalid({ tool: tool.wireName, detail: messageOf(error) })
        })
      ),
    policy: (tool, args) =>
      Effect.flatMap(resolve(tool), (found) =>
        // A policy that throws has not allowed anything.
        Effect.try(() => devicePolicy(args) ?? host.policy(found, args)).pipe(
          Effect.catchAll(({ error }) =>
            Effect.succeed({ _tag: "Deny" as const, reason: `the host's policy failed: ${messageOf(error)}` })
          )
        )
      ),
    execute: Effect.fnUntraced(function* (tool, args, { callId, client, exchange }) {
      const found = yield* resolve(tool)
      const onUpdate = progressOf(exchange)
      const shown = (result: ToolResult) =>
        host.present({ _tag: "End", callId, tool: tool.name, content: result.content, isError: result.isError })
      host.present({ _tag: "Start", callId, tool: tool.name, args, client })
      return yield* abortable(async (signal) =>
        toTheEnd(tool, await host.execute(found, callId, args, signal, onUpdate), signal)
      ).pipe(
        Effect.catchAll((error) => Effect.succeed(failedWith(messageOf(error)))),
        Effect.tap((result) => Effect.sync(() => shown(result))),
        Effect.onInterrupt(() => Effect.sync(() => shown(failedWith("cancelled by the remote client"))))
      )
    })
  })
}

export const layer = (host: OmpHost, options: OmpHostToolsOptions) => Layer.sync(HostTools, () => make(host, options))
