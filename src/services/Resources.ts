import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { PrincipalId } from "./Auth.ts"
import type { Caller } from "./Caller.ts"
import type { Refusal } from "./ToolCalls.ts"

export interface Resource {
  readonly uri: string
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly mimeType?: string
  /** Bytes. */
  readonly size?: number
}

export interface ResourceTemplate {
  /** RFC 6570 */
  readonly uriTemplate: string
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly mimeType?: string
}

export type ResourceContents = {
  readonly uri: string
  readonly mimeType?: string
} & ({ readonly text: string } | { /** base64 */ readonly blob: string })

export class ResourceNotFound extends Schema.TaggedError<ResourceNotFound>()("ResourceNotFound", {
  uri: Schema.String
}) {}

/** What remote parties may read. Another principal's resource is reported as absent. */
export class Resources extends Context.Tag("pi-a2a-ext/services/Resources")<
  Resources,
  {
    /** In a stable order. */
    readonly list: (owner: PrincipalId) => Effect.Effect<ReadonlyArray<Resource>>
    readonly templates: ReadonlyArray<ResourceTemplate>
    readonly read: (
      uri: string,
      caller: Caller
    ) => Effect.Effect<ReadonlyArray<ResourceContents>, ResourceNotFound | Refusal>
    /** Values for a variable of a template, best first. */
    readonly complete: (
      uriTemplate: string,
      argument: { readonly name: string; readonly value: string }
    ) => Effect.Effect<ReadonlyArray<string>>
    /** Ticks when the list may have changed. */
    readonly changes: Stream.Stream<void>
    /** URIs whose contents changed. */
    readonly updates: Stream.Stream<string>
  }
>() {}

export const empty = Layer.succeed(Resources, {
  list: () => Effect.succeed([]),
  templates: [],
  read: (uri) => new ResourceNotFound({ uri }),
  complete: () => Effect.succeed([]),
  changes: Stream.never,
  updates: Stream.never
})
