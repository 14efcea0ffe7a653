import * as Schema from "effect/Schema"
import { logLevels } from "../Exchange.ts"
import type { HostTool, ToolContent, ToolResult } from "../HostTools.ts"
import { isRecord } from "./JsonRpc.ts"

/** `params` of `initialize` (2025 revisions). Unknown capabilities and fields are the client's own affair. */
export const InitializeParams = Schema.Struct({
  protocolVersion: Schema.String,
  capabilities: Schema.optional(Schema.Record({ key: Schema.String, value: Schema.Unknown })),
  clientInfo: Schema.optional(Schema.Struct({ name: Schema.String, version: Schema.optional(Schema.String) }))
})

export const CallToolParams = Schema.Struct({
  name: Schema.String,
  /** Anything but an object is answered as a failed tool call, which a model can mend, not as a protocol error. */
  arguments: Schema.optional(Schema.Unknown)
})

export const CancelledParams = Schema.Struct({
  requestId: Schema.Union(Schema.String, Schema.Int),
  reason: Schema.optional(Schema.String)
})

export const GetPromptParams = Schema.Struct({
  name: Schema.String,
  arguments: Schema.optional(Schema.Record({ key: Schema.String, value: Schema.String }))
})

export const ReadResourceParams = Schema.Struct({ uri: Schema.String })

export const CompleteParams = Schema.Struct({
  ref: Schema.Union(
    Schema.Struct({ type: Schema.Literal("ref/prompt"), name: Schema.String }),
    Schema.Struct({ type: Schema.Literal("ref/resource"), uri: Schema.String })
  ),
  argument: Schema.Struct({ name: Schema.String, value: Schema.String })
})

export const SetLevelParams = Schema.Struct({ level: Schema.Literal(...logLevels) })

/** `SubscriptionFilter`, with the tasks extension's `taskIds`. */
export const ListenParams = Schema.Struct({
  notifications: Schema.Struct({
    toolsListChanged: Schema.optional(Schema.Boolean),
    promptsListChanged: Schema.optional(Schema.Boolean),
    resourcesListChanged: Schema.optional(Schema.Boolean),
    resourceSubscriptions: Schema.optional(Schema.Array(Schema.String)),
    taskIds: Schema.optional(Schema.Array(Schema.String))
  })
})

export const TaskParams = Schema.Struct({ taskId: Schema.String })

export const UpdateTaskParams = Schema.Struct({
  taskId: Schema.String,
  inputResponses: Schema.Record({ key: Schema.String, value: Schema.Unknown })
})

/** Key of the `experimental` capability that carries `HostInfo.instance`. */
export const instanceKey = "pi-a2a-ext/instance"

/** `Tool` of the 2025 revisions. */
export const encodeTool = (tool: HostTool) => ({
  name: tool.wireName,
  title: tool.title,
  description: tool.description,
  inputSchema: tool.inputSchema,
  ...(tool.outputSchema === undefined ? {} : { outputSchema: tool.outputSchema }),
  annotations: { title: tool.title, ...tool.annotations }
})

export const textResult = (text: string, isError: boolean): ToolResult => ({
  content: [{ type: "text", text }],
  isError
})

/** A lone surrogate is not Unicode: it breaks the model API behind the client. */
const wellFormed = (content: ToolContent): ToolContent =>
  content.type === "text" ? { type: "text", text: content.text.toWellFormed() } : content

/** A result for clients that know no `resource_link`: its name and URI as text. */
export const linksAsText = (result: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> => {
  const { content } = result
  if (!Array.isArray(content)) return result
  const asText = (block: unknown): unknown =>
    isRecord(block) && block["type"] === "resource_link"
      ? { type: "text", text: `${String(block["name"])}: ${String(block["uri"])}` }
      : block
  return { ...result, content: content.map(asText) }
}

/** Key of a result's `_meta` that carries what is known of how the tool ran. For programs: no client shows it to a model. */
export const detailsKey = "pi-a2a-ext/details"

/** `CallToolResult`. Structured content never goes with an error: clients check it against the schema all the same. */
export const encodeToolResult = (result: ToolResult): Readonly<Record<string, unknown>> => ({
  content: result.content.map(wellFormed),
  ...(result.structuredContent === undefined || result.isError ? {} : { structuredContent: result.structuredContent }),
  isError: result.isError,
  ...(result.details === undefined ? {} : { _meta: { [detailsKey]: result.details } })
})
