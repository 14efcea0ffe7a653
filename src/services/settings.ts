import * as Schema from "effect/Schema"
import { WorkerSpec } from "./jobs/workerSpecs.ts"

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

const WorkspaceRoots = Names.annotations({
  description: "an array of absolute paths: the folders that jobs may work in (none: every job is refused)"
})
const StateDir = Schema.NonEmptyTrimmedString.annotations({
  description: "an absolute path, the folder for jobs, their worktrees and what they made"
})
const CursorBin = Schema.NonEmptyTrimmedString.annotations({
  description: "the Cursor CLI: a path, or a name to find on PATH"
})
const DefaultTimeoutSec = Schema.Int.pipe(Schema.between(10, 86_400)).annotations({
  description: "an integer from 10 to 86400, in seconds"
})
const MaxConcurrency = Schema.Int.pipe(Schema.between(1, 64)).annotations({
  description: "an integer from 1 to 64, jobs that run at a time"
})
const AdminToken = Schema.String.pipe(Schema.pattern(tokenPattern)).annotations({
  description: "16 to 512 characters of A-Z a-z 0-9 . _ ~ + / -"
})
const EventLogDir = Schema.NonEmptyTrimmedString.annotations({
  description: "an absolute path, the folder for a copy of each job's events"
})
const PersistEvents = Schema.Boolean.annotations({
  description: "true or false: copy each job's events to <stateDir>/events"
})
const LogLevel = Schema.Literal("debug", "info", "warn", "error").annotations({
  description: '"debug", "info", "warn" or "error"'
})

const Workers = Schema.Array(WorkerSpec).annotations({
  description:
    'an array of { "name", "kind": "cursor-cli" or "acp", "command": [program, ...arguments] }; one with a known name ' +
    "replaces it"
})
const DefaultWorker = Schema.NonEmptyTrimmedString.annotations({ description: "the name of a worker" })
const Tiers = Schema.Array(Schema.Literal("consult", "plan", "execute")).annotations({
  description: 'an array of "consult", "plan" and "execute": the tiers that callers may choose'
})
const WhenBusy = Schema.Literal("refuse", "queue").annotations({ description: '"refuse" or "queue"' })
const MaxQueued = Schema.Int.pipe(Schema.between(0, 1000)).annotations({ description: "an integer from 0 to 1000" })
const JobBytes = Schema.Int.pipe(Schema.between(4096, 64 * 1024 * 1024)).annotations({
  description: "an integer from 4096 to 67108864, in bytes"
})
const MaxEvents = Schema.Int.pipe(Schema.between(100, 1_000_000)).annotations({
  description: "an integer from 100 to 1000000"
})
const KeepDays = Schema.Number.pipe(Schema.between(0, 3650)).annotations({ description: "a number from 0 to 3650" })
const KeepJobs = Schema.Int.pipe(Schema.between(0, 100_000)).annotations({
  description: "an integer from 0 to 100000"
})
const CopyFiles = Names.annotations({
  description: "an array of names or globs of untracked files that are copied into a job's worktree, such as .env"
})

const jobDefaults = {
  worker: "cursor",
  workers: [],
  tiers: ["consult", "plan", "execute"],
  whenBusy: "refuse",
  maxQueued: 32,
  maxResultBytes: 256 * 1024,
  maxEventBytes: 64 * 1024,
  maxEvents: 20_000,
  keepDays: 14,
  keepJobs: 500,
  copyFiles: []
} as const
const JobSettings = Schema.Struct({
  worker: Schema.optionalWith(DefaultWorker, { default: () => jobDefaults.worker }),
  workers: Schema.optionalWith(Workers, { default: () => jobDefaults.workers }),
  tiers: Schema.optionalWith(Tiers, { default: () => jobDefaults.tiers }),
  whenBusy: Schema.optionalWith(WhenBusy, { default: () => jobDefaults.whenBusy }),
  maxQueued: Schema.optionalWith(MaxQueued, { default: () => jobDefaults.maxQueued }),
  maxResultBytes: Schema.optionalWith(JobBytes, { default: () => jobDefaults.maxResultBytes }),
  maxEventBytes: Schema.optionalWith(JobBytes, { default: () => jobDefaults.maxEventBytes }),
  maxEvents: Schema.optionalWith(MaxEvents, { default: () => jobDefaults.maxEvents }),
  keepDays: Schema.optionalWith(KeepDays, { default: () => jobDefaults.keepDays }),
  keepJobs: Schema.optionalWith(KeepJobs, { default: () => jobDefaults.keepJobs }),
  copyFiles: Schema.optionalWith(CopyFiles, { default: () => jobDefaults.copyFiles })
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
  maxResultBytes: Schema.optionalWith(MaxResultBytes, { default: () => 2 * 1024 * 1024 }),
  logLevel: Schema.optionalWith(LogLevel, { default: () => "info" as const }),
  workspaceRoots: Schema.optionalWith(WorkspaceRoots, { default: () => [] }),
  stateDir: Schema.optional(StateDir),
  cursorBin: Schema.optionalWith(CursorBin, { default: () => "agent" }),
  defaultTimeoutSec: Schema.optionalWith(DefaultTimeoutSec, { default: () => 900 }),
  maxConcurrency: Schema.optionalWith(MaxConcurrency, { default: () => 4 }),
  adminShutdownToken: Schema.optional(Schema.Redacted(AdminToken)),
  persistEvents: Schema.optionalWith(PersistEvents, { default: () => false }),
  eventLogDir: Schema.optional(EventLogDir),
  jobs: Schema.optionalWith(JobSettings, { default: () => jobDefaults })
}).annotations({ identifier: "A2aBridgeConfig", title: "a2a-bridge.json", description: "Settings of pi-a2a-ext" })
export type BridgeConfig = typeof ConfigFile.Type
export type ConfigFileEncoded = typeof ConfigFile.Encoded

/** The settings of one field, by its dotted name. */
export const leaves: Readonly<Record<string, Schema.Schema.AnyNoContext>> = {
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
  maxResultBytes: MaxResultBytes,
  logLevel: LogLevel,
  workspaceRoots: WorkspaceRoots,
  stateDir: StateDir,
  cursorBin: CursorBin,
  defaultTimeoutSec: DefaultTimeoutSec,
  maxConcurrency: MaxConcurrency,
  adminShutdownToken: AdminToken,
  persistEvents: PersistEvents,
  eventLogDir: EventLogDir,
  jobs: JobSettings,
  "jobs.worker": DefaultWorker,
  "jobs.workers": Workers,
  "jobs.tiers": Tiers,
  "jobs.whenBusy": WhenBusy,
  "jobs.maxQueued": MaxQueued,
  "jobs.maxResultBytes": JobBytes,
  "jobs.maxEventBytes": JobBytes,
  "jobs.maxEvents": MaxEvents,
  "jobs.keepDays": KeepDays,
  "jobs.keepJobs": KeepJobs,
  "jobs.copyFiles": CopyFiles
}

/** Fields whose values are shown to nobody. */
export const secretFields: ReadonlySet<string> = new Set(["token", "adminShutdownToken"])

const flag = (text: string): unknown =>
  text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : text
const number = (text: string): unknown => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text)
const separated =
  (separator: string) =>
  (text: string): unknown =>
    text
      .split(separator)
      .map((item) => item.trim())
      .filter((item) => item !== "")
const list = separated(",")
/** Paths may hold commas, and on Windows colons. */
const semicolons = separated(";")
const plain = (text: string): unknown => text

/** Environment variable -> field, and how its text is read. Each overrides one field of the file. */
export const environment = {
  A2A_BRIDGE_PORT: ["port", number],
  A2A_BRIDGE_TOKEN: ["token", plain],
  A2A_BRIDGE_HOST: ["host", plain],
  A2A_BRIDGE_DENY: ["deny", list],
  A2A_BRIDGE_DENY_MCP_TOOLS: ["denyMCPTools", flag],
  A2A_BRIDGE_EXPOSE: ["expose", plain],
  A2A_BRIDGE_APPROVAL_TIMEOUT_SECONDS: ["approval.timeoutSeconds", number],
  A2A_BRIDGE_AUDIT_MAX_BYTES: ["audit.maxBytes", number],
  A2A_BRIDGE_AUDIT_GENERATIONS: ["audit.generations", number],
  A2A_BRIDGE_ALLOWED_ORIGINS: ["allowedOrigins", list],
  A2A_BRIDGE_ALLOWED_HOSTS: ["allowedHosts", list],
  A2A_BRIDGE_RATE_LIMIT_REQUESTS_PER_SECOND: ["rateLimit.requestsPerSecond", number],
  A2A_BRIDGE_RATE_LIMIT_BURST: ["rateLimit.burst", number],
  A2A_BRIDGE_RATE_LIMIT_CONCURRENT_CALLS: ["rateLimit.concurrentCalls", number],
  A2A_BRIDGE_MAX_BODY_BYTES: ["maxBodyBytes", number],
  A2A_BRIDGE_MAX_RESULT_BYTES: ["maxResultBytes", number],
  CURSOR_BRIDGE_LOG_LEVEL: ["logLevel", plain],
  CURSOR_BRIDGE_WORKSPACE_ROOTS: ["workspaceRoots", semicolons],
  CURSOR_BRIDGE_STATE_DIR: ["stateDir", plain],
  CURSOR_BIN: ["cursorBin", plain],
  CURSOR_BRIDGE_TIMEOUT_SEC: ["defaultTimeoutSec", number],
  CURSOR_BRIDGE_MAX_CONCURRENCY: ["maxConcurrency", number],
  CURSOR_BRIDGE_ADMIN_SHUTDOWN_TOKEN: ["adminShutdownToken", plain],
  CURSOR_BRIDGE_PERSIST_EVENTS: ["persistEvents", flag],
  CURSOR_BRIDGE_EVENT_LOG_DIR: ["eventLogDir", plain],
  A2A_BRIDGE_WORKER: ["jobs.worker", plain],
  A2A_BRIDGE_TIERS: ["jobs.tiers", list],
  A2A_BRIDGE_WHEN_BUSY: ["jobs.whenBusy", plain],
  A2A_BRIDGE_COPY_FILES: ["jobs.copyFiles", list]
} as const satisfies Record<string, readonly [field: string, read: (text: string) => unknown]>
