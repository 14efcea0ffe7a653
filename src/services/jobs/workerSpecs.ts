import * as Schema from "effect/Schema"
import { Tier } from "./Job.ts"

const Name = Schema.String.pipe(Schema.pattern(/^[a-z0-9][a-z0-9._-]{0,62}$/i))
const Command = Schema.NonEmptyArray(Schema.NonEmptyString)

/** Cursor's own command line, spoken to by its stream-json. */
export const CursorCli = Schema.Struct({
  name: Name,
  kind: Schema.Literal("cursor-cli"),
  /** Program and first arguments; the first of `agent` and `cursor-agent` on PATH where it is left out. */
  command: Schema.optional(Command)
})

/** Any agent that speaks the Agent Client Protocol on its stdio. */
export const Acp = Schema.Struct({
  name: Name,
  kind: Schema.Literal("acp"),
  command: Command,
  /** Session modes to ask for by tier, where the agent offers them. */
  modes: Schema.optional(Schema.partial(Schema.Record({ key: Tier, value: Schema.String }))),
  /** The way to log in where the agent asks for it, if that needs no person. */
  authMethod: Schema.optional(Schema.String),
  /** A configuration folder that every job gets a copy of; a `~` at the beginning of `from` is the user's home. */
  config: Schema.optional(
    Schema.Struct({ variable: Schema.String, from: Schema.String, files: Schema.Array(Schema.String) })
  )
})

/** A worker, as the settings describe it. */
export const WorkerSpec = Schema.Union(CursorCli, Acp)
export type WorkerSpec = typeof WorkerSpec.Type

/** The workers that there are without settings. The first is the default. */
export const known: ReadonlyArray<WorkerSpec> = [
  { name: "cursor", kind: "cursor-cli" },
  {
    name: "cursor-acp",
    kind: "acp",
    command: ["agent", "acp"],
    modes: { consult: "ask", plan: "plan" },
    authMethod: "cursor_login",
    config: { variable: "CURSOR_CONFIG_DIR", from: "~/.cursor", files: ["cli-config.json", "auth.json"] }
  },
  // Not its plan mode: without a person it approves its own plan and goes on to carry it out.
  { name: "omp", kind: "acp", command: ["omp", "acp"] }
]
