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

/** RFC 6750 §2.1 `b64token`; at least 16 characters, so that nobody keeps a guessable one. */
export const tokenPattern = /^[A-Za-z0-9._~+/-]{16,512}={0,2}$/

const Port = Schema.Int.pipe(Schema.between(0, 65535)).annotations({
  description: "an integer from 0 to 65535 (0 picks a free port)"
})
const Host = Schema.NonEmptyTrimmedString.annotations({ description: "a non-empty string, the address to listen on" })
const Token = Schema.String.pipe(Schema.pattern(tokenPattern)).annotations({
  description: "16 to 512 characters of A-Z a-z 0-9 . _ ~ + / -"
})
const Names = Schema.Array(Schema.NonEmptyTrimmedString)
const Deny = Names.annotations({ description: "an array of tool names or globs (* and ?)" })
const DenyMCPTools = Schema.Boolean.annotations({ description: "true or false: hide every tool named mcp__*" })
const Expose = Schema.Literal("all", "active").annotations({
  description: '"all" (every tool of the session) or "active" (those that the host\'s own model may use)'
})
const AllowedOrigins = Names.annotations({ description: "an array of origins such as https://app.example" })
const AllowedHosts = Names.annotations({ description: "an array of host names that a Host header may carry" })
const MaxBodyBytes = Schema.Int.pipe(Schema.between(1024, 64 * 1024 * 1024)).annotations({
  description: "an integer from 1024 to 67108864, in bytes"
})
const TimeoutSeconds = Schema.Number.pipe(Schema.between(1, 3600)).annotations({
  description: "a number from 1 to 3600, in seconds"
})
const AuditMaxBytes = Schema.Int.pipe(Schema.between(4096, 1024 * 1024 * 1024)).annotations({
  description: "an integer from 4096 to 1073741824, in bytes"
})
const AuditGenerations = Schema.Int.pipe(Schema.between(1, 100)).annotations({
  description: "an integer from 1 to 100, rotated files to keep"
})

const Approval = Schema.Struct({
  timeoutSeconds: Schema.optionalWith(TimeoutSeconds, { default: () => 30 })
}).annotations({ description: "an object" })
const AuditSettings = Schema.Struct({
  maxBytes: Schema.optionalWith(AuditMaxBytes, { default: () => 512 * 1024 }),
  generations: Schema.optionalWith(AuditGenerations, { default: () => 5 })
}).annotations({ description: "an object" })

const RequestsPerSecond = Schema.Number.pipe(Schema.between(0, 1_000_000)).annotations({
  description: "a number from 0 to 1000000 (0 lifts the limit)"
})
const Burst = Schema.Int.pipe(Schema.between(1, 1_000_000)).annotations({
  description: "an integer from 1 to 1000000"
})
const ConcurrentCalls = Schema.Int.pipe(Schema.between(1, 100_000)).annotations({
  description: "an integer from 1 to 100000"
})
const MaxResultBytes = Schema.Int.pipe(Schema.between(16 * 1024, 64 * 1024 * 1024)).annotations({
  description: "an integer from 16384 to 67108864, in bytes"
})
const RateLimit = Schema.Struct({
  requestsPerSecond: Schema.optionalWith(RequestsPerSecond, { default: () => 200 }),
  burst: Schema.optionalWith(Burst, { default: () => 1000 }),
  concurrentCalls: Schema.optionalWith(ConcurrentCalls, { default: () => 256 })
}).annotations({ description: "an object" })

/** The file `a2a-bridge.json`. Every field but `token` may be left out; no other field is accepted. */
export const ConfigFile = Schema.Struct({
  $schema: Schema.optional(Schema.String),
  port: Schema.optionalWith(Port, { default: () => 0 }),
  token: Schema.Redacted(Token),
  host: Schema.optionalWith(Host, { default: () => "127.0.0.1" }),
  deny: Schema.optionalWith(Deny, { default: () => [] }),
  denyMCPTools: Schema.optionalWith(DenyMCPTools, { default: () => false }),
  expose: Schema.optionalWith(Expose, { default: () => "all" as const }),
  approval: Schema.optionalWith(Approval, { default: () => ({ timeoutSeconds: 30 }) }),
  audit: Schema.optionalWith(AuditSettings, { default: () => ({ maxBytes: 512 * 1024, generations: 5 }) }),
  allowedOrigins: Schema.optionalWith(AllowedOrigins, { default: () => [] }),
  allowedHosts: Schema.optionalWith(AllowedHosts, { default: () => [] }),
  rateLimit: Schema.optionalWith(RateLimit, {
    default: () => ({ requestsPerSecond: 200, burst: 1000, concurrentCalls: 256 })
  }),
  maxBodyBytes: Schema.optionalWith(MaxBodyBytes, { default: () => 1024 * 1024 }),
  maxResultBytes: Schema.optionalWith(MaxResultBytes, { default: () => 2 * 1024 * 1024 })
}).annotations({ identifier: "A2aBridgeConfig", title: "a2a-bridge.json", description: "Settings of pi-a2a-ext" })
export type BridgeConfig = typeof ConfigFile.Type
export type ConfigFileEncoded = typeof ConfigFile.Encoded

const leaves: Readonly<Record<string, Schema.Schema.AnyNoContext>> = {
  $schema: Schema.String.annotations({ description: "a string" }),
  port: Port,
  token: Token,
  host: Host,
  deny: Deny,
  denyMCPTools: DenyMCPTools,
  expose: Expose,
  approval: Approval,
  "approval.timeoutSeconds": TimeoutSeconds,
  audit: AuditSettings,
  "audit.maxBytes": AuditMaxBytes,
  "audit.generations": AuditGenerations,
  rateLimit: RateLimit,
  "rateLimit.requestsPerSecond": RequestsPerSecond,
  "rateLimit.burst": Burst,
  "rateLimit.concurrentCalls": ConcurrentCalls,
  allowedOrigins: AllowedOrigins,
  allowedHosts: AllowedHosts,
  maxBodyBytes: MaxBodyBytes,
  maxResultBytes: MaxResultBytes
}

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
  if (field === "token") return typeof value === "string" ? `a string of ${value.length} characters` : typeof value
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

const flag = (text: string): unknown =>
  text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : text
const number = (text: string): unknown => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text)
const list = (text: string): unknown =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "")

/** Environment variable -> field, and how its text is read. Each overrides one field of the file. */
export const environment = {
  A2A_BRIDGE_PORT: ["port", number],
  A2A_BRIDGE_TOKEN: ["token", (text: string): unknown => text],
  A2A_BRIDGE_HOST: ["host", (text: string): unknown => text],
  A2A_BRIDGE_DENY: ["deny", list],
  A2A_BRIDGE_DENY_MCP_TOOLS: ["denyMCPTools", flag],
  A2A_BRIDGE_EXPOSE: ["expose", (text: string): unknown => text],
  A2A_BRIDGE_APPROVAL_TIMEOUT_SECONDS: ["approval.timeoutSeconds", number],
  A2A_BRIDGE_AUDIT_MAX_BYTES: ["audit.maxBytes", number],
  A2A_BRIDGE_AUDIT_GENERATIONS: ["audit.generations", number],
  A2A_BRIDGE_ALLOWED_ORIGINS: ["allowedOrigins", list],
  A2A_BRIDGE_ALLOWED_HOSTS: ["allowedHosts", list],
  A2A_BRIDGE_RATE_LIMIT_REQUESTS_PER_SECOND: ["rateLimit.requestsPerSecond", number],
  A2A_BRIDGE_RATE_LIMIT_BURST: ["rateLimit.burst", number],
  A2A_BRIDGE_RATE_LIMIT_CONCURRENT_CALLS: ["rateLimit.concurrentCalls", number],
  A2A_BRIDGE_MAX_BODY_BYTES: ["maxBodyBytes", number],
  A2A_BRIDGE_MAX_RESULT_BYTES: ["maxResultBytes", number]
} as const satisfies Record<string, readonly [field: string, read: (text: string) => unknown]>

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
export const restartFields = ["port", "host"] as const satisfies ReadonlyArray<keyof BridgeConfig>

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
