import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as JSONSchema from "effect/JSONSchema"
import * as ParseResult from "effect/ParseResult"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as SchemaAST from "effect/SchemaAST"
import type * as Stream from "effect/Stream"
import * as Struct from "effect/Struct"
import type { BridgeConfig } from "./settings.ts"
import { ConfigFile, environment, leaves, secretFields, tokenPattern } from "./settings.ts"

export type { BridgeConfig } from "./settings.ts"
export { ConfigFile, environment } from "./settings.ts"

/** One thing wrong with the settings: a dotted field, what stands there (shortened, never a token) and what should. */
export const ConfigIssue = Schema.Struct({ field: Schema.String, found: Schema.String, expected: Schema.String })
export type ConfigIssue = typeof ConfigIssue.Type

/** The settings cannot be used. `source` is the file's path, or `environment`. Nothing is started or changed. */
export class ConfigInvalid extends Schema.TaggedError<ConfigInvalid>()("ConfigInvalid", {
  source: Schema.String,
  issues: Schema.Array(ConfigIssue)
}) {
  override get message(): string {
    const lines = this.issues.map((issue) => `${issue.field}: found ${issue.found}, expected ${issue.expected}`)
    return `${this.source}: ${lines.join("; ")}`
  }
}

/** The settings file could not be read or written; the previous file is untouched. */
export class ConfigUnavailable extends Schema.TaggedError<ConfigUnavailable>()("ConfigUnavailable", {
  file: Schema.String,
  operation: Schema.Literal("read", "write"),
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.file}: cannot ${this.operation}: ${this.reason}`
  }
}

/** The token cannot be rotated where an environment variable fixes it. */
export class TokenPinned extends Schema.TaggedError<TokenPinned>()("TokenPinned", { variable: Schema.String }) {
  override get message(): string {
    return `the token comes from ${this.variable}: change it there, or unset it to let the bridge keep its own`
  }
}

const show = (field: string, value: unknown): string => {
  if (value === undefined) return "nothing"
  if (secretFields.has(field))
    return typeof value === "string" ? `a string of ${value.length} characters` : typeof value
  const text = JSON.stringify(value)
  return text.length > 80 ? `${text.slice(0, 77)}...` : text
}

const kind = (value: unknown): string =>
  value === null ? "null" : Array.isArray(value) ? "an array" : `a ${typeof value}`

const at = (value: unknown, path: ReadonlyArray<PropertyKey>): unknown =>
  path.reduce<unknown>(
    (here, key) =>
      here !== null && typeof here === "object" ? (here as Record<PropertyKey, unknown>)[key] : undefined,
    value
  )

const isRecord = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value)

const siblings = (parent: string): string =>
  Object.keys(leaves)
    .filter((name) => (parent === "" ? !name.includes(".") : name.startsWith(`${parent}.`)))
    .map((name) => name.slice(parent === "" ? 0 : parent.length + 1))
    .filter((name) => name !== "$schema")
    .join(", ")

const describe = (field: string): string => {
  const schema = leaves[field] ?? leaves[field.replace(/\.\d+$/, "")]
  const text = schema === undefined ? undefined : SchemaAST.getDescriptionAnnotation(schema.ast)
  return text?._tag === "Some" ? text.value : "another value"
}

const toIssues = (raw: unknown, error: ParseResult.ParseError): ReadonlyArray<ConfigIssue> => {
  const found = ParseResult.ArrayFormatter.formatErrorSync(error)
  const seen = new Map<string, ConfigIssue>()
  for (const { _tag, path } of found) {
    const field = path.map(String).join(".")
    // An object or array is reported beside the member that is wrong with it.
    const inner = found.some(
      (other) => other.path.length > path.length && path.every((key, i) => other.path[i] === key)
    )
    if (seen.has(field) || inner) continue
    const parent = path.slice(0, -1).map(String).join(".")
    seen.set(
      field,
      _tag === "Unexpected"
        ? { field, found: "an unknown field", expected: `one of ${siblings(parent)}` }
        : { field, found: show(field, at(raw, path)), expected: describe(field) }
    )
  }
  return [...seen.values()]
}

const options = { errors: "all", onExcessProperty: "error" } as const
const decodeFile = Schema.decodeUnknownEither(ConfigFile, options)

/** Strict: any malformed or unknown field fails. Use {@link heal} first for the one field that may be mended. */
export const decode = (source: string, raw: unknown): Either.Either<BridgeConfig, ConfigInvalid> =>
  isRecord(raw)
    ? Either.mapLeft(decodeFile(raw), (error) => new ConfigInvalid({ source, issues: toIssues(raw, error) }))
    : Either.left(
        new ConfigInvalid({
          source,
          issues: [{ field: "(the whole file)", found: kind(raw), expected: "a JSON object" }]
        })
      )

export const encode = Schema.encodeSync(ConfigFile)

/** A missing or unusable token is replaced by `fresh`; nothing else is touched. `undefined` where nothing was wrong. */
export const heal = (raw: Record<string, unknown>, fresh: string): Record<string, unknown> | undefined =>
  typeof raw["token"] === "string" && tokenPattern.test(raw["token"]) ? undefined : { ...raw, token: fresh }

/** The settings with every set variable of {@link environment} laid over them. An unusable one fails, by its name. */
export const overlay = (
  config: BridgeConfig,
  env: Readonly<Record<string, string | undefined>>
): Either.Either<BridgeConfig, ConfigInvalid> => {
  const raw: Record<string, unknown> = { ...encode(config) }
  const issues: Array<ConfigIssue> = []
  for (const [variable, [field, read]] of Struct.entries(environment)) {
    const text = env[variable]
    if (text === undefined) continue
    const value = read(text)
    const schema = leaves[field]
    if (schema === undefined || !Schema.is(Schema.typeSchema(schema))(value)) {
      issues.push({ field: variable, found: show(field, value), expected: describe(field) })
      continue
    }
    const [parent, child] = field.split(".")
    if (parent === undefined) continue
    raw[parent] = child === undefined ? value : { ...(raw[parent] as object), [child]: value }
  }
  return issues.length > 0
    ? Either.left(new ConfigInvalid({ source: "environment", issues }))
    : decode("environment", raw)
}

/** Fields that take effect only when the bridge starts again. */
export const restartFields = [
  "port",
  "host",
  "stateDir",
  "cursorBin",
  "persistEvents",
  "eventLogDir",
  "logLevel"
] as const satisfies ReadonlyArray<keyof BridgeConfig>

/** Names of the top-level fields in which the two settings differ. */
export const changedFields = (before: BridgeConfig, after: BridgeConfig): ReadonlyArray<string> => {
  const a = encode(before) as Record<string, unknown>
  const b = encode(after) as Record<string, unknown>
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].filter(
    (key) => JSON.stringify(a[key]) !== JSON.stringify(b[key])
  )
}

/** JSON Schema (2020-12) of the file, for editors. A file without a token is in order: it gets one. */
export const jsonSchema = (): Readonly<Record<string, unknown>> => ({
  ...JSONSchema.make(Schema.encodedBoundSchema(ConfigFile), { target: "jsonSchema2020-12" }),
  title: "a2a-bridge.json",
  description: "Settings of pi-a2a-ext",
  required: []
})

/** What a change of the file on disk led to. */
export type ConfigEvent =
  | { readonly _tag: "Applied"; readonly config: BridgeConfig; readonly changed: ReadonlyArray<string> }
  | { readonly _tag: "Rejected"; readonly error: ConfigInvalid | ConfigUnavailable }

/** Decoded, validated settings: always usable, always current. */
export class Config extends Context.Tag("pi-a2a-ext/services/Config")<
  Config,
  {
    /** Path of the settings file. */
    readonly file: string
    readonly current: Effect.Effect<BridgeConfig>
    /** Edits of the file from now on; a rejected one leaves {@link current} as it was. */
    readonly changes: Stream.Stream<ConfigEvent>
    /** Stores a new token in the file and makes it current. */
    readonly setToken: (
      token: Redacted.Redacted
    ) => Effect.Effect<BridgeConfig, ConfigInvalid | ConfigUnavailable | TokenPinned>
  }
>() {}

/** First six characters, as the design's notices show it; the rest stays secret. */
export const tokenHint = (token: Redacted.Redacted): string => `${Redacted.value(token).slice(0, 6)}...`
