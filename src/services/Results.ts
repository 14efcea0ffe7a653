import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { PrincipalId } from "./Auth.ts"
import type { TextContent, ToolContent, ToolResult } from "./HostTools.ts"
import { boundary } from "./ranges.ts"
import type { Resource, ResourceContents, ResourceNotFound, ResourceTemplate } from "./Resources.ts"

export const resultScheme = "result://"

export const resultTemplate: ResourceTemplate = {
  uriTemplate: `${resultScheme}{id}{?offset,length}`,
  name: "result",
  title: "Result of a call, whole or in part",
  description: "What a call returned that was too large to send at once. offset and length count UTF-16 units."
}

/** What of a block may be long: its text, or its data in base64. */
const bodyOf = (block: ToolContent): string => {
  switch (block.type) {
    case "text":
      return block.text
    case "image":
    case "audio":
      return block.data
    case "resource":
      return block.resource.text ?? block.resource.blob ?? ""
    case "resource_link":
      return ""
  }
}

const encoder = new TextEncoder()

/** Bytes of a block's text (UTF-8) or data (base64). */
export const sizeOf = (block: ToolContent): number => encoder.encode(bodyOf(block)).length

/** No UTF-16 unit takes more bytes in UTF-8. */
const maxBytesOfUnit = 3

const surelyFits = (content: ReadonlyArray<ToolContent>, limit: number): boolean =>
  content.reduce((sum, block) => sum + bodyOf(block).length * maxBytesOfUnit, 0) <= limit

/** Kept of each end of a text that is too large, in UTF-16 units: both together fit into the smallest limit. */
const previewLength = 2048

/** Both ends of a text, and where to find what lies between. */
export const previewOf = (text: string, uri: string): string => {
  if (text.length <= 2 * previewLength) return text
  const head = text.slice(0, boundary(text, previewLength))
  const tail = text.slice(boundary(text, text.length - previewLength))
  const left = text.length - head.length - tail.length
  return (
    `${head}\n\n[${left} of ${text.length} characters left out here: the whole is the resource ${uri}; ` +
    `read it in pieces with ${uri}?offset=${head.length}&length=65536]\n\n${tail}`
  )
}

const isText = (block: ToolContent): block is TextContent => block.type === "text"

/** What is to be kept of a result, and what is sent in its place, given the URI under which a block is kept. */
export interface Kept {
  readonly text: string
  readonly mimeType: string
  /** Text, or base64. */
  readonly binary: boolean
}

/** The largest blocks first, until the rest fits: those are replaced by a preview and a link. */
export const shrink = (result: ToolResult, limit: number, tool: string, keep: (kept: Kept) => string): ToolResult => {
  if (surelyFits(result.content, limit)) return result
  const bySize = result.content
    .map((block, index) => ({ index, size: sizeOf(block) }))
    .toSorted((a, b) => b.size - a.size)
  const over = bySize.reduce((sum, { size }) => sum + size, 0) - limit
  if (over <= 0) return result
  const chosen = new Set<number>()
  let saved = 0
  for (const { index, size } of bySize) {
    if (saved >= over) break
    const block = result.content[index]
    if (block === undefined || !(isText(block) || block.type === "image" || block.type === "audio")) continue
    chosen.add(index)
    saved += size
  }
  const content = result.content.flatMap((block, index): ReadonlyArray<ToolContent> => {
    if (!chosen.has(index)) return [block]
    if (isText(block)) {
      const uri = keep({ text: block.text, mimeType: "text/plain", binary: false })
      const size = encoder.encode(block.text).length
      return [
        { type: "text", text: previewOf(block.text, uri) },
        { type: "resource_link", uri, name: `${tool} result`, mimeType: "text/plain", size }
      ]
    }
    if (block.type !== "image" && block.type !== "audio") return [block]
    const uri = keep({ text: block.data, mimeType: block.mimeType, binary: true })
    return [
      { type: "text", text: `[${block.type} too large to send: it is the resource ${uri}]` },
      { type: "resource_link", uri, name: `${tool} ${block.type}`, mimeType: block.mimeType }
    ]
  })
  // Structured content would be as large, and does not go without the text that it stands for.
  return { content, isError: result.isError, ...(result.details === undefined ? {} : { details: result.details }) }
}

/** Results that were too large to send, kept for the principal that asked for them. */
export class Results extends Context.Tag("pi-a2a-ext/services/Results")<
  Results,
  {
    /** The result as it may be sent: itself, or previews with links to what is kept. */
    readonly fit: (owner: PrincipalId, tool: string, result: ToolResult) => Effect.Effect<ToolResult>
    readonly list: (owner: PrincipalId) => Effect.Effect<ReadonlyArray<Resource>>
    /** A kept result, or the range of it that the URI names. */
    readonly read: (uri: string, owner: PrincipalId) => Effect.Effect<ReadonlyArray<ResourceContents>, ResourceNotFound>
  }
>() {}
