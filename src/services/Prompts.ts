import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Caller } from "./Caller.ts"
import type { AskFailed, CapabilityMissing, Exchange } from "./Exchange.ts"
import type { ToolContent } from "./HostTools.ts"
import type { Refusal } from "./ToolCalls.ts"

export interface PromptArgument {
  readonly name: string
  readonly description?: string
  readonly required?: boolean
}

export interface Prompt {
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly arguments?: ReadonlyArray<PromptArgument>
}

export interface PromptMessage {
  readonly role: "user" | "assistant"
  readonly content: ToolContent
}

export class PromptNotFound extends Schema.TaggedError<PromptNotFound>()("PromptNotFound", { name: Schema.String }) {}

/** A required argument is missing, or one has no usable value. */
export class PromptArgumentsInvalid extends Schema.TaggedError<PromptArgumentsInvalid>()("PromptArgumentsInvalid", {
  name: Schema.String,
  detail: Schema.String
}) {}

export class Prompts extends Context.Tag("pi-a2a-ext/services/Prompts")<
  Prompts,
  {
    /** In a stable order. */
    readonly list: Effect.Effect<ReadonlyArray<Prompt>>
    readonly get: (
      name: string,
      args: Readonly<Record<string, string>>,
      caller: Caller,
      exchange: Exchange
    ) => Effect.Effect<
      { readonly description?: string; readonly messages: ReadonlyArray<PromptMessage> },
      PromptNotFound | PromptArgumentsInvalid | CapabilityMissing | AskFailed | Refusal
    >
    /** Values for an argument, best first. */
    readonly complete: (
      name: string,
      argument: { readonly name: string; readonly value: string }
    ) => Effect.Effect<ReadonlyArray<string>>
    /** Ticks when the list may have changed. */
    readonly changes: Stream.Stream<void>
  }
>() {}

export const empty = Layer.succeed(Prompts, {
  list: Effect.succeed([]),
  get: (name) => new PromptNotFound({ name }),
  complete: () => Effect.succeed([]),
  changes: Stream.never
})
