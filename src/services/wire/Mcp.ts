import * as Schema from "effect/Schema"
import type { HostTool, ToolContent, ToolResult } from "../HostTools.ts"

/** `params` of `initialize` (2025 revisions). Unknown capabilities and fields are the client's own affair. */
export const InitializeParams = Schema.Struct({
  protocolVersion: Schema.String,
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

export const ListParams = Schema.Struct({ cursor: Schema.optional(Schema.String) })

/** `Tool` of the 2025 revisions. */
export const encodeTool = (tool: HostTool) => ({
  name: tool.wireName,
  title: tool.title,
  description: tool.description,
  inputSchema: tool.inputSchema,
  annotations: { title: tool.title, ...tool.annotations }
})

export const textResult = (text: string, isError: boolean): ToolResult => ({
  content: [{ type: "text", text }],
  isError
})

/** A lone surrogate is not Unicode: it breaks the model API behind the client. */
const wellFormed = (content: ToolContent): ToolContent =>
  content.type === "text" ? { type: "text", text: content.text.toWellFormed() } : content

/** `CallToolResult`. */
export const encodeToolResult = (result: ToolResult) => ({
  content: result.content.map(wellFormed),
  isError: result.isError
})
