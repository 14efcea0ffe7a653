import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

/** There is no git to run. */
export class GitMissing extends Schema.TaggedError<GitMissing>()("GitMissing", { detail: Schema.String }) {}

/** git said no, said too much, or did not end. */
export class GitFailed extends Schema.TaggedError<GitFailed>()("GitFailed", {
  /** Absent where git was ended by us. */
  code: Schema.optional(Schema.Int),
  /** The end of its stderr. */
  detail: Schema.String
}) {}

export interface GitOptions {
  /** `GIT_*` variables of this run. Those of our own environment never reach git. */
  readonly env?: Readonly<Record<string, string>>
  readonly input?: Uint8Array
  /** Bytes of stdout beyond which the run fails. */
  readonly maxBytes?: number
  /** Other exit codes than 0 that are answers. */
  readonly codes?: ReadonlyArray<number>
}

/**
 * The git program, without a shell, a prompt, a hook, a monitor or a background job, in the C locale. Ending the
 * effect early ends git and what git started.
 */
export class Git extends Context.Tag("pi-a2a-ext/services/jobs/Git")<
  Git,
  {
    /** Its stdout. */
    readonly run: (
      args: ReadonlyArray<string>,
      options?: GitOptions
    ) => Effect.Effect<Uint8Array, GitMissing | GitFailed>
    /** Ends git processes that another run of the bridge left at work on something of this (unique) name. */
    readonly endStrays: (name: string) => Effect.Effect<void>
  }
>() {}

/** Keeps the end: git says what went wrong last. */
export const cut = (text: string): string => {
  const trimmed = text.trim()
  return trimmed.length > 2000 ? `...${trimmed.slice(-2000)}` : trimmed
}
