import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import type { Caller } from "./Caller.ts"
import type { CapabilityMissing, Exchange } from "./Exchange.ts"

export type JsonObject = Readonly<Record<string, unknown>>

/** MCP 2025-11-25, server/tools: hints for clients, not promises. */
export interface ToolAnnotations {
  readonly readOnlyHint?: boolean
  readonly destructiveHint?: boolean
  readonly idempotentHint?: boolean
  readonly openWorldHint?: boolean
}

/** A tool as the host has it, and as a client sees it. */
export interface HostTool {
  /** The host's own name. */
  readonly name: string
  /** What clients call it: `[A-Za-z0-9_-]{1,64}`. Equal to `name` where that fits. */
  readonly wireName: string
  readonly title: string
  readonly description: string
  /** JSON Schema 2020-12, `type: "object"`, no combinator at the root. */
  readonly inputSchema: JsonObject
  /** JSON Schema 2020-12 of `structuredContent`, where the tool's details have a known shape. */
  readonly outputSchema?: JsonObject
  readonly annotations: ToolAnnotations
  /** The host's own model may use it now. */
  readonly active: boolean
  /** The host has it from this very bridge: exporting it again would close a loop. */
  readonly own: boolean
}

export interface TextContent {
  readonly type: "text"
  readonly text: string
}
export interface ImageContent {
  readonly type: "image"
  /** base64 */
  readonly data: string
  readonly mimeType: string
}
export interface AudioContent {
  readonly type: "audio"
  /** base64 */
  readonly data: string
  readonly mimeType: string
}
export interface EmbeddedResource {
  readonly type: "resource"
  readonly resource: {
    readonly uri: string
    readonly mimeType?: string
    readonly text?: string
    readonly blob?: string
  }
}
export interface ResourceLink {
  readonly type: "resource_link"
  readonly uri: string
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly mimeType?: string
  readonly size?: number
}
export type ToolContent = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink

/** What a tool that ran gave back. A tool's own failure is a result, too. */
export interface ToolResult {
  readonly content: ReadonlyArray<ToolContent>
  readonly isError: boolean
  /** Conforms to the tool's outputSchema. Left out of an error's encoding: it breaks clients there. */
  readonly structuredContent?: JsonObject
  /** How it ran (exit code, time taken), beside the content and not instead of it. */
  readonly details?: JsonObject
}

/** The host's policy on one call with these arguments. */
export type Policy =
  | { readonly _tag: "Allow" }
  | { readonly _tag: "Deny"; readonly reason: string }
  /** `prompt` describes the whole action to a person. */
  | { readonly _tag: "Prompt"; readonly prompt: string }

/** The arguments do not fit the tool's schema. `detail` is written for a model to mend its call with. */
export class ArgumentsInvalid extends Schema.TaggedError<ArgumentsInvalid>()("ArgumentsInvalid", {
  tool: Schema.String,
  detail: Schema.String
}) {}

/** The tool broke down without a result of its own: the protocol's affair, not the model's. */
export class ToolFault extends Schema.TaggedError<ToolFault>()("ToolFault", { detail: Schema.String }) {}

/** The host has no session that could run a tool now. */
export class HostUnavailable extends Schema.TaggedError<HostUnavailable>()("HostUnavailable", {}) {}

export interface ExecuteOptions extends Caller {
  /** Unique per call; the host shows and logs the call under it. */
  readonly callId: string
  /** The line to that client. */
  readonly exchange: Exchange
}

/**
 * The host's tools, bare: no exposure rule, no approval, no audit (see ToolCalls).
 * `execute` runs what it is given, and its interruption ends the tool and every process it started.
 */
export class HostTools extends Context.Tag("pi-a2a-ext/services/HostTools")<
  HostTools,
  {
    /** In a stable order. */
    readonly catalog: Effect.Effect<ReadonlyArray<HostTool>>
    /** Ticks when the catalog may have changed. */
    readonly changes: Stream.Stream<void>
    /** Checks and normalizes raw arguments as the host would for its own model. */
    readonly validate: (
      tool: HostTool,
      args: JsonObject
    ) => Effect.Effect<JsonObject, ArgumentsInvalid | HostUnavailable>
    readonly policy: (tool: HostTool, args: JsonObject) => Effect.Effect<Policy, HostUnavailable>
    readonly execute: (
      tool: HostTool,
      args: JsonObject,
      options: ExecuteOptions
    ) => Effect.Effect<ToolResult, HostUnavailable | ToolFault | CapabilityMissing>
  }
>() {}
