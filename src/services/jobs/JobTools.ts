import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as JSONSchema from "effect/JSONSchema"
import * as Layer from "effect/Layer"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Principal } from "../Auth.ts"
import { PrincipalId } from "../Auth.ts"
import { Config } from "../Config.ts"
import type { CapabilityMissing } from "../Exchange.ts"
import type { ExecuteOptions, HostTool, JsonObject, ToolAnnotations, ToolResult } from "../HostTools.ts"
import { ArgumentsInvalid } from "../HostTools.ts"
import { Lifecycle } from "../Lifecycle.ts"
import { toInputSchema } from "../toolSchema.ts"
import { isRecord } from "../wire/JsonRpc.ts"
import type { JobFailure } from "./explain.ts"
import { explain } from "./explain.ts"
import type { Job } from "./Job.ts"
import { Diffstat, isTerminal, State, Tier } from "./Job.ts"
import { Jobs } from "./Jobs.ts"
import { EventView, eventViews, JobView, viewOf } from "./views.ts"

/** Jobs belong to an account, not to one of its credentials: a rotated token still has them. */
export const accountOf = (principal: Principal): PrincipalId => PrincipalId.make(principal.name)

const JobRef = Schema.String.annotations({ description: "jobId, as cursor_run returned it" })
const Prompt = Schema.NonEmptyTrimmedString.annotations({ description: "What the worker is to do, in full" })
const waitLimit = 55

/** Effect's empty struct takes any object. */
const NoArguments = Schema.Struct({}).pipe(
  Schema.filter((given) => {
    const names = Object.keys(given)
    return names.length === 0 || `takes no arguments, and got ${names.join(", ")}`
  })
)

const inputs = {
  cursor_run: Schema.Struct({
    prompt: Prompt,
    tier: Schema.optionalWith(Tier, { default: () => "consult" as const }).annotations({
      description:
        "consult: answers questions. plan: makes a plan. execute: changes files. All work in a git worktree of their " +
        "own, never in the checkout; what execute changed is read with cursor_diff."
    }),
    workspace: Schema.optional(Schema.String).annotations({
      description: "Absolute path of the folder to work in, inside an allowed one; may be left out where there is one"
    }),
    worker: Schema.optional(Schema.String).annotations({ description: "Name of a worker; see bridge_health" }),
    model: Schema.optional(Schema.String).annotations({
      description: "Model of the worker, by the worker's own names"
    }),
    timeoutSeconds: Schema.optional(Schema.Int.pipe(Schema.between(10, 86_400))).annotations({
      description: "Wall clock of the job; the host's default where left out"
    }),
    title: Schema.optional(Schema.String.pipe(Schema.maxLength(200))).annotations({
      description: "A few words for lists; made from the prompt where left out"
    })
  }),
  cursor_status: Schema.Struct({
    jobId: JobRef,
    since: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }).annotations({
      description: "Only events after this number (lastSeq of the status before)"
    }),
    waitSeconds: Schema.optionalWith(Schema.Number.pipe(Schema.between(0, waitLimit)), {
      default: () => 0
    }).annotations({ description: `Wait up to this long, at most ${waitLimit}, for something new` }),
    limit: Schema.optionalWith(Schema.Int.pipe(Schema.between(1, 1000)), { default: () => 200 }).annotations({
      description: "At most this many events"
    })
  }),
  cursor_reply: Schema.Struct({
    jobId: JobRef,
    prompt: Prompt
  }),
  cursor_cancel: Schema.Struct({
    jobId: JobRef,
    reason: Schema.optional(Schema.String.pipe(Schema.maxLength(500)))
  }),
  cursor_list: Schema.Struct({
    states: Schema.optional(Schema.Array(State)),
    threadId: Schema.optional(Schema.String),
    limit: Schema.optionalWith(Schema.Int.pipe(Schema.between(1, 100)), { default: () => 20 }),
    cursor: Schema.optional(Schema.String).annotations({ description: "`next` of the list before" })
  }),
  cursor_diff: Schema.Struct({
    jobId: JobRef,
    offset: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }).annotations({
      description: "Byte at which to start; `next` of the page before"
    }),
    limit: Schema.optionalWith(Schema.Int.pipe(Schema.between(1024, 256 * 1024)), {
      default: () => 64 * 1024
    }).annotations({ description: "Bytes of patch on one page" })
  }),
  bridge_health: NoArguments,
  bridge_stats: NoArguments,
  bridge_shutdown: Schema.Struct({ reason: Schema.optional(Schema.String.pipe(Schema.maxLength(500))) })
} as const
export type JobToolName = keyof typeof inputs

const Check = Schema.Struct({ ok: Schema.Boolean, detail: Schema.String })
const Count = Schema.Int

const outputs: { readonly [N in JobToolName]: Schema.Schema.AnyNoContext } = {
  cursor_run: JobView,
  cursor_status: Schema.Struct({ ...JobView.fields, events: Schema.Array(EventView), more: Schema.Boolean }),
  cursor_reply: JobView,
  cursor_cancel: JobView,
  cursor_list: Schema.Struct({
    jobs: Schema.Array(JobView),
    total: Count,
    next: Schema.optional(Schema.String)
  }),
  cursor_diff: Schema.Struct({
    jobId: Schema.String,
    diffstat: Diffstat,
    patch: Schema.String,
    offset: Count,
    total: Count,
    next: Schema.optional(Count)
  }),
  bridge_health: Schema.Struct({
    ok: Schema.Boolean,
    workers: Schema.Array(Schema.Struct({ name: Schema.String, ...Check.fields })),
    roots: Schema.Array(Schema.Struct({ path: Schema.String, ...Check.fields })),
    stateDir: Schema.Struct({ path: Schema.String, ...Check.fields }),
    running: Count,
    limit: Count,
    tiers: Schema.Array(Tier)
  }),
  bridge_stats: Schema.Struct({
    states: Schema.Record({ key: Schema.String, value: Count }),
    tiers: Schema.Record({ key: Schema.String, value: Count }),
    succeeded: Count,
    failed: Count,
    canceled: Count,
    duration: Schema.Struct({ median: Schema.Number, p95: Schema.Number, max: Schema.Number }),
    running: Count,
    limit: Count
  }),
  bridge_shutdown: Schema.Struct({ stopping: Schema.Boolean })
}

interface Text {
  readonly title: string
  readonly description: string
  readonly annotations: ToolAnnotations
  /** omp's approval tier. */
  readonly tier: "read" | "write" | "exec"
}

const reads: ToolAnnotations = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false
}
const starts: ToolAnnotations = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: false,
  openWorldHint: true
}
const ends: ToolAnnotations = { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false }

const texts: { readonly [N in JobToolName]: Text } = {
  cursor_run: {
    title: "Start a job",
    description:
      "Gives a task to a coding agent on this host and returns at once with a jobId. The agent works in a git worktree " +
      "of its own; nothing it does reaches the checkout. Follow the job with cursor_status.",
    annotations: starts,
    tier: "exec"
  },
  cursor_status: {
    title: "State of a job",
    description:
      "State, result and new events of a job. With waitSeconds it waits for news, so that following a job takes few " +
      "calls: pass lastSeq of the answer as `since` of the next.",
    annotations: reads,
    tier: "read"
  },
  cursor_reply: {
    title: "Answer a job",
    description:
      "Answers a job in state input-required, which goes on; or continues an ended one, as a new job in the same " +
      "conversation with the worker. Returns at once.",
    annotations: starts,
    tier: "exec"
  },
  cursor_cancel: {
    title: "Cancel a job",
    description: "Ends a job and every process that it started. Returns when they are gone.",
    annotations: ends,
    tier: "write"
  },
  cursor_list: {
    title: "Jobs",
    description: "Your jobs, the one that changed last first.",
    annotations: reads,
    tier: "read"
  },
  cursor_diff: {
    title: "What a job changed",
    description:
      "Files that an ended job changed, and the patch, page by page. `git apply --binary` takes the whole patch on the " +
      "commit that the job started from.",
    annotations: reads,
    tier: "read"
  },
  bridge_health: {
    title: "Health",
    description: "Whether jobs can run: workers and their versions, allowed folders, state folder, jobs running.",
    annotations: reads,
    tier: "read"
  },
  bridge_stats: {
    title: "Statistics",
    description: "Jobs by state and tier, and how long they took.",
    annotations: reads,
    tier: "read"
  },
  bridge_shutdown: {
    title: "Shut down",
    description: "Cancels running jobs, stores everything and ends the bridge. It does not come back by itself.",
    annotations: ends,
    tier: "exec"
  }
}

/** Without `$ref`, which some model APIs refuse. None of these schemas holds itself. */
const inlined = (value: unknown, definitions: JsonObject): unknown => {
  if (Array.isArray(value)) return value.map((one) => inlined(one, definitions))
  if (!isRecord(value)) return value
  const { $defs: _definitions, $ref, ...rest } = value
  const target = typeof $ref === "string" ? definitions[$ref.replace("#/$defs/", "")] : undefined
  const whole = isRecord(target) ? { ...target, ...rest } : rest
  return Object.fromEntries(Object.entries(whole).map(([key, inner]) => [key, inlined(inner, definitions)]))
}

const jsonSchemaOf = (schema: Schema.Schema.AnyNoContext): JsonObject => {
  const made: unknown = JSONSchema.make(Schema.encodedBoundSchema(schema), { target: "jsonSchema2020-12" })
  return toInputSchema(inlined(made, isRecord(made) && isRecord(made["$defs"]) ? made["$defs"] : {}))
}

const names = Object.keys(inputs) as ReadonlyArray<JobToolName>

/** The nine tools as MCP lists them, and omp's tier of each. */
export const definitions: ReadonlyArray<HostTool & { readonly name: JobToolName; readonly tier: Text["tier"] }> =
  names.map((name) => ({
    name,
    wireName: name,
    ...texts[name],
    inputSchema: jsonSchemaOf(inputs[name]),
    outputSchema: jsonSchemaOf(outputs[name]),
    active: true,
    own: false
  }))

export const isJobTool = (name: string): name is JobToolName => Object.hasOwn(inputs, name)

/** Who calls, and the line back. */
export type JobCall = Pick<ExecuteOptions, "principal" | "client" | "exchange">

/** The nine tools (seed of wb-cursor-bridge), for remote callers and for the host's own model. */
export class JobTools extends Context.Tag("pi-a2a-ext/services/jobs/JobTools")<
  JobTools,
  {
    readonly validate: (name: JobToolName, args: JsonObject) => Effect.Effect<JsonObject, ArgumentsInvalid>
    /** Takes validated arguments. What the job engine refuses is a result that says why. */
    readonly execute: (
      name: JobToolName,
      args: JsonObject,
      call: JobCall
    ) => Effect.Effect<ToolResult, CapabilityMissing>
  }
>() {}

/** The text is the same as the structure, for clients that know only one of the two. */
const structured = (value: object): ToolResult => {
  const structuredContent = JSON.parse(JSON.stringify(value)) as JsonObject
  return { content: [{ type: "text", text: JSON.stringify(structuredContent) }], isError: false, structuredContent }
}

const refused = (text: string): ToolResult => ({ content: [{ type: "text", text }], isError: true })

const decodeCursor = (
  cursor: string | undefined
): Either.Either<{ updatedAt: string; id: string } | undefined, null> => {
  if (cursor === undefined) return Either.right(undefined)
  const match = /^([^|]{1,40})\|([0-9a-f-]{36})$/.exec(cursor)
  return match?.[1] !== undefined && match[2] !== undefined
    ? Either.right({ updatedAt: match[1], id: match[2] })
    : Either.left(null)
}

const make = Effect.gen(function* () {
  const jobs = yield* Jobs
  const config = yield* Config
  const lifecycle = yield* Lifecycle

  /** The job to its end, its questions put to the client. For callers that hold a task: it lasts as long as the job. */
  const accompany = (
    job: Job,
    owner: PrincipalId,
    exchange: JobCall["exchange"]
  ): Effect.Effect<Job, JobFailure | CapabilityMissing> =>
    Effect.gen(function* () {
      const settled = yield* jobs.watch(job.id, owner, job.lastSeq).pipe(
        Stream.map((change) => change.job),
        Stream.takeUntil(({ state }) => isTerminal(state) || state === "input-required"),
        Stream.runLast
      )
      const now = settled._tag === "Some" ? settled.value : yield* jobs.get(job.id, owner)
      if (now.state !== "input-required") return now
      const answer = yield* exchange
        .ask({
          answer: {
            method: "elicitation/create",
            params: {
              mode: "form",
              message: now.question ?? "The worker waits for an answer.",
              requestedSchema: {
                type: "object",
                properties: { answer: { type: "string", title: "Answer" } },
                required: ["answer"]
              }
            }
          }
        })
        .pipe(
          Effect.map(({ answer }) => {
            const content = isRecord(answer) && answer["action"] === "accept" ? answer["content"] : undefined
            return isRecord(content) && typeof content["answer"] === "string" ? content["answer"] : undefined
          }),
          // A client that cannot be asked still has cursor_reply.
          Effect.orElseSucceed(() => undefined)
        )
      if (answer === undefined || answer.trim() === "") return now
      return yield* accompany(yield* jobs.reply(now.id, owner, answer), owner, exchange)
    })

  const begin = Effect.fnUntraced(function* (
    job: Job,
    owner: PrincipalId,
    { exchange }: JobCall
  ): Effect.fn.Return<ToolResult, JobFailure | CapabilityMissing> {
    if (!exchange.offersTask) return structured(viewOf(job))
    yield* exchange.escalate(false)
    const ended = yield* accompany(job, owner, exchange).pipe(
      Effect.onInterrupt(() => Effect.ignore(jobs.cancel(job.id, owner, "its task was cancelled")))
    )
    return structured(viewOf(ended))
  })

  const tierRefusal = (tier: Tier) =>
    Effect.map(config.current, ({ jobs: { tiers } }) =>
      tiers.includes(tier)
        ? undefined
        : refused(`tier '${tier}' is not allowed on this host (jobs.tiers): ${tiers.join(", ")} are`)
    )

  type Args<N extends JobToolName> = (typeof inputs)[N]["Type"]
  type Run<N extends JobToolName> = (
    args: Args<N>,
    owner: PrincipalId,
    call: JobCall
  ) => Effect.Effect<ToolResult, JobFailure | CapabilityMissing>

  const runs: { readonly [N in JobToolName]: Run<N> } = {
    cursor_run: Effect.fnUntraced(function* (args, owner, call) {
      const forbidden = yield* tierRefusal(args.tier)
      if (forbidden !== undefined) return forbidden
      const job = yield* jobs.submit({
        owner,
        client: call.client,
        prompt: args.prompt,
        tier: args.tier,
        workspace: args.workspace,
        worker: args.worker,
        model: args.model,
        timeoutSeconds: args.timeoutSeconds,
        title: args.title
      })
      return yield* begin(job, owner, call)
    }),
    cursor_status: Effect.fnUntraced(function* ({ jobId, limit, since, waitSeconds }, owner) {
      const { events, job } = yield* jobs.follow(jobId, owner, { since, waitSeconds, limit })
      const lastSeq = events.at(-1)?.seq ?? since
      return structured({
        ...viewOf(job),
        lastSeq: Math.min(lastSeq, job.lastSeq),
        events: eventViews(events),
        more: lastSeq < job.lastSeq
      })
    }),
    cursor_reply: Effect.fnUntraced(function* ({ jobId, prompt }, owner, call) {
      // The settings may have changed since the job was allowed.
      const forbidden = yield* tierRefusal((yield* jobs.get(jobId, owner)).tier)
      if (forbidden !== undefined) return forbidden
      return yield* begin(yield* jobs.reply(jobId, owner, prompt), owner, call)
    }),
    cursor_cancel: ({ jobId, reason }, owner, { client }) =>
      Effect.map(jobs.cancel(jobId, owner, reason ?? `cancelled by ${client}`), (job) => structured(viewOf(job))),
    cursor_list: Effect.fnUntraced(function* ({ cursor, limit, states, threadId }, owner) {
      const after = decodeCursor(cursor)
      if (Either.isLeft(after)) return refused("cursor: not one that cursor_list returned as `next`")
      const { jobs: found, total } = yield* jobs.list(
        {
          owner,
          ...(states === undefined ? {} : { states }),
          ...(threadId === undefined ? {} : { thread: threadId })
        },
        limit,
        after.right
      )
      const last = found.at(-1)
      return structured({
        jobs: found.map(viewOf),
        total,
        next: last !== undefined && found.length === limit ? `${last.updatedAt}|${last.id}` : undefined
      })
    }),
    cursor_diff: Effect.fnUntraced(function* ({ jobId, limit, offset }, owner) {
      const page = yield* jobs.diff(jobId, owner, { offset, limit })
      return structured({
        jobId,
        diffstat: page.diffstat,
        patch: page.text,
        offset: page.offset,
        total: page.total,
        next: page.next
      })
    }),
    bridge_health: () =>
      Effect.zipWith(jobs.health, config.current, (health, { jobs: { tiers } }) => structured({ ...health, tiers })),
    bridge_stats: () => Effect.map(jobs.stats, structured),
    bridge_shutdown: ({ reason }, _owner, { client }) =>
      Effect.gen(function* () {
        const why = reason ?? `shut down by ${client}`
        yield* jobs.shutdown(why)
        yield* lifecycle.stop(why)
        return structured({ stopping: true })
      })
  }

  const decoders = Object.fromEntries(
    names.map((name) => [
      name,
      Schema.decodeUnknownEither(inputs[name] as Schema.Schema<unknown, unknown>, { onExcessProperty: "error" })
    ])
  )

  return JobTools.of({
    validate: (name, args) =>
      Effect.suspend(() => {
        const decoded = decoders[name]?.(args)
        if (decoded === undefined || Either.isRight(decoded)) return Effect.succeed(args)
        const detail = ParseResult.ArrayFormatter.formatErrorSync(decoded.left)
          .map(({ message, path }) => `${path.length === 0 ? "arguments" : path.join(".")}: ${message}`)
          .join("; ")
        return new ArgumentsInvalid({ tool: name, detail })
      }),
    execute: (name, args, call) =>
      // They were validated: what does not decode now is a fault of ours.
      Effect.orDie(Schema.decodeUnknown(inputs[name] as Schema.Schema<unknown, unknown>)(args)).pipe(
        Effect.flatMap((decoded) =>
          (runs[name] as unknown as Run<JobToolName>)(decoded as Args<JobToolName>, accountOf(call.principal), call)
        ),
        Effect.catchAll((error) =>
          error._tag === "CapabilityMissing" ? error : Effect.succeed(refused(explain(error)))
        )
      )
  })
})

export const layer = Layer.effect(JobTools, make)
