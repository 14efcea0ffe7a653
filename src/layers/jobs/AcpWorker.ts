import { constants, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import type * as Sdk from "@agentclientprotocol/sdk"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Runtime from "effect/Runtime"
import * as Stream from "effect/Stream"
import * as Take from "effect/Take"
import type { Told } from "../../services/jobs/acpUpdates.ts"
import * as Acp from "../../services/jobs/acpUpdates.ts"
import { forWorker } from "../../services/jobs/environment.ts"
import type { Tier, WorkerEvent } from "../../services/jobs/Job.ts"
import { JobId } from "../../services/jobs/Job.ts"
import * as Lines from "../../services/jobs/lines.ts"
import { decide, refusalOf } from "../../services/jobs/permissions.ts"
import { PrivateConfig } from "../../services/jobs/PrivateConfig.ts"
import type { Environment, Running } from "../../services/jobs/Processes.ts"
import { Processes } from "../../services/jobs/Processes.ts"
import { promptOf, questionOf } from "../../services/jobs/prompts.ts"
import type { Turn, TurnEnd, Worker, WorkerFailure, WorkerHealth } from "../../services/jobs/Worker.ts"
import { BinaryMissing, NotLoggedIn, SessionLost, WorkerRefused } from "../../services/jobs/Worker.ts"
import { complaintOf, withoutResult } from "../../services/jobs/workerFailures.ts"

export interface Options {
  readonly name: string
  /** Program and arguments that start the agent's ACP server on its stdio. */
  readonly command: ReadonlyArray<string>
  /** The bridge's own environment. */
  readonly env: Environment
  /** The user's home. */
  readonly home: string
  /** A configuration folder that every job gets a copy of: the variable that names it, and what is copied from where. */
  readonly config?: {
    readonly variable: string
    readonly from: string
    readonly files: ReadonlyArray<string>
  }
  /** Session modes to ask for by tier, where the agent offers them. */
  readonly modes?: { readonly [T in Tier]?: string }
  /** The method to authenticate by where the agent asks for it, if it needs no person. */
  readonly authMethod?: string
  /** How long the agent may take to answer what comes before the prompt. */
  readonly startPatience?: Duration.DurationInput
  /** How long it may take to stop by itself once it was told to. */
  readonly cancelPatience?: Duration.DurationInput
}

type Item = WorkerEvent | TurnEnd

const messageBytes = 32 << 20
const noiseLength = 4096
const authRequired = -32000

// Some 80 ms and 20 MB that a bridge without such a worker does not pay.
const loadSdk = Effect.promise(() => import("@agentclientprotocol/sdk"))

/** The agent answered with an error, or not at all: the connection is gone. */
class RequestFailed extends Data.TaggedError("RequestFailed")<{
  readonly code: number | undefined
  readonly detail: string
}> {}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const requestFailed = (error: unknown): RequestFailed => {
  const { code, data } = Acp.fieldsOf(error instanceof Error ? { ...error } : error)
  const more = data === undefined || data === null ? "" : ` ${JSON.stringify(data)}`
  return new RequestFailed({ code: typeof code === "number" ? code : undefined, detail: `${reasonOf(error)}${more}` })
}

/** The real path of a file that may not exist yet. */
const realPath = (path: string): string => {
  try {
    return realpathSync(path)
  } catch {
    const parent = dirname(path)
    return parent === path ? path : join(realPath(parent), basename(path))
  }
}

/** What one connection heard and was asked, for the turn that it serves. */
const connect = Effect.fnUntraced(function* (
  sdk: typeof Sdk,
  child: Running,
  turn: Pick<Turn, "tier" | "cwd">,
  emit: (events: ReadonlyArray<WorkerEvent>) => Effect.Effect<unknown>
) {
  const runtime = yield* Effect.runtime()
  const promise = Runtime.runPromise(runtime)
  const root = realPath(turn.cwd)
  const asked = yield* Deferred.make<TurnEnd>()
  const sent = new Map<unknown, string>()
  let told: Told = Acp.nothing
  let session: string | undefined
  let usage: ReadonlyArray<WorkerEvent> = []
  let noise = ""
  let misunderstood = 0
  let unfinished = Lines.nothing

  const misread = (text: string): ReadonlyArray<Sdk.AnyMessage> => {
    misunderstood++
    noise = `${noise}${text}\n`.slice(0, noiseLength)
    return []
  }

  const todos = (params: unknown): ReadonlyArray<WorkerEvent> => {
    const entries = Acp.planOf(Acp.fieldsOf(params)["todos"])
    return entries.length === 0 ? [] : [{ _tag: "Plan", entries }]
  }

  /** Notifications are heard here, in their order; the SDK gets requests, and the answers that it waits for. */
  const receive = Effect.fnUntraced(function* (line: string) {
    if (line.trim() === "") return []
    let message: Readonly<Record<string, unknown>>
    try {
      const value: unknown = JSON.parse(line)
      message = Acp.fieldsOf(value)
    } catch {
      return misread(line)
    }
    if (typeof message["method"] === "string") {
      if ("id" in message) return [message as unknown as Sdk.AnyMessage]
      const params = Acp.fieldsOf(message["params"])
      if (message["method"] === "cursor/update_todos") yield* emit(todos(params))
      // What comes before a session is known is the history of one that is loaded.
      if (message["method"] !== "session/update" || session === undefined || params["sessionId"] !== session) return []
      const [after, events] = Acp.fold(told, params["update"])
      told = after
      yield* emit(events)
      return []
    }
    if (!sent.has(message["id"])) return misread(line)
    if (sent.get(message["id"]) === "session/prompt") {
      usage = Acp.usageOf(Acp.fieldsOf(message["result"])["usage"])
    }
    sent.delete(message["id"])
    return [message as unknown as Sdk.AnyMessage]
  })

  const readable = yield* child.stdout.pipe(
    Stream.mapConcatEffect((bytes) => {
      const split = Lines.split(unfinished, bytes, messageBytes)
      unfinished = split.unfinished
      misunderstood += split.dropped
      return Effect.map(Effect.forEach(split.lines, receive), (messages) => messages.flat())
    }),
    Stream.toReadableStreamEffect()
  )
  const writable = new WritableStream<Sdk.AnyMessage>({
    write: (message) => {
      if ("method" in message && "id" in message) sent.set(message.id, message.method)
      return promise(child.write(new TextEncoder().encode(`${JSON.stringify(message)}\n`)))
    }
  })

  const denied = (what: string, reason: string) => emit([{ _tag: "Denied", what, reason }])
  const located = (path: string): string => realPath(resolve(root, path))

  const permission = Effect.fnUntraced(function* (params: Sdk.RequestPermissionRequest) {
    const call = told.calls.get(params.toolCall.toolCallId)
    const { optionId, refused } = decide({
      tier: turn.tier,
      root,
      kind: params.toolCall.kind ?? call?.kind ?? "other",
      locations: (params.toolCall.locations ?? []).map(({ path }) => located(path)),
      options: params.options
    })
    if (refused !== undefined) yield* denied(params.toolCall.title ?? call?.title ?? "tool", refused)
    const outcome: Sdk.RequestPermissionOutcome =
      optionId === undefined ? { outcome: "cancelled" } : { outcome: "selected", optionId }
    return { outcome }
  })

  /** A file for a method of the client; an answer to the agent where the tier or the worktree's edge forbids it. */
  const file = Effect.fnUntraced(function* (kind: "read" | "edit", path: string) {
    const real = located(path)
    const refused = refusalOf({ tier: turn.tier, root, kind, locations: [real] })
    if (refused === undefined) return real
    yield* denied(`${kind} ${path}`, refused)
    return yield* Effect.fail(new sdk.RequestError(-32602, refused))
  })
  const onDisk = <A>(work: () => A) =>
    Effect.try({
      try: work,
      catch: (error) => {
        const missing = (error as NodeJS.ErrnoException).code === "ENOENT"
        return new sdk.RequestError(missing ? -32002 : -32603, reasonOf(error))
      }
    })
  const readFile = Effect.fnUntraced(function* ({ limit, line, path }: Sdk.ReadTextFileRequest) {
    const real = yield* file("read", path)
    const text = yield* onDisk(() => readFileSync(real, "utf8"))
    if (typeof line !== "number" && typeof limit !== "number") return { content: text }
    const from = Math.max(0, (line ?? 1) - 1)
    const lines = text.split("\n").slice(from, typeof limit === "number" ? from + limit : undefined)
    return { content: lines.join("\n") }
  })
  const writeFile = Effect.fnUntraced(function* ({ content, path }: Sdk.WriteTextFileRequest) {
    const real = yield* file("edit", path)
    yield* onDisk(() => {
      mkdirSync(dirname(real), { recursive: true })
      // A link that leads nowhere yet looks like no file.
      const { O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants
      writeFileSync(real, content, { flag: (O_WRONLY | O_CREAT | O_TRUNC | (O_NOFOLLOW ?? 0)) as never })
    })
    return {}
  })

  const question = Effect.fnUntraced(function* (params: unknown) {
    yield* Deferred.succeed(asked, { _tag: "Question", question: Acp.askedOf(params) })
    return { outcome: { outcome: "cancelled" } }
  })
  const plan = Effect.fnUntraced(function* (params: unknown) {
    yield* emit(todos(params))
    if (turn.tier === "execute") return { outcome: { outcome: "accepted" } }
    // The plan is what was asked for.
    const text = Acp.stringOf(Acp.fieldsOf(params)["plan"]) ?? ""
    if (turn.tier === "plan" && text !== "") yield* Deferred.succeed(asked, { _tag: "Answered", text })
    return { outcome: { outcome: "cancelled" } }
  })

  /** An effect as the SDK wants it. */
  const handle =
    <P, A>(handler: (params: P) => Effect.Effect<A, Sdk.RequestError>) =>
    async ({ params }: { readonly params: P }): Promise<A> => {
      const answer = await promise(Effect.either(handler(params)))
      if (Either.isLeft(answer)) throw answer.left
      return answer.right
    }
  const raw = (params: unknown): unknown => params
  const { client: methods } = sdk.methods
  const connection = yield* Effect.acquireRelease(
    Effect.sync(() =>
      sdk
        .client({ name: "pi-a2a" })
        .onRequest(methods.session.requestPermission, handle(permission))
        .onRequest(methods.fs.readTextFile, handle(readFile))
        .onRequest(methods.fs.writeTextFile, handle(writeFile))
        .onRequest("cursor/ask_question", raw, handle(question))
        .onRequest("cursor/create_plan", raw, handle(plan))
        .onRequest(
          "cursor/update_todos",
          raw,
          handle((params: unknown) => Effect.as(emit(todos(params)), { outcome: { outcome: "accepted" } }))
        )
        .connect({ readable, writable })
    ),
    (connection) => Effect.sync(() => connection.close())
  )

  const request = <M extends Sdk.AgentRequestMethod>(method: M, params: Sdk.AgentRequestParamsByMethod[M]) =>
    Effect.tryPromise({ try: () => connection.agent.request(method, params), catch: requestFailed })

  return {
    asked,
    request,
    cancel: (sessionId: string) =>
      Effect.promise(() => connection.agent.notify("session/cancel", { sessionId }).catch(() => undefined)),
    /** From here on, updates of this session are events. */
    attend: (sessionId: string) =>
      Effect.sync(() => {
        session = sessionId
      }),
    message: Effect.sync(() => told.message),
    usage: Effect.sync(() => usage),
    warnings: Effect.sync((): ReadonlyArray<WorkerEvent> => {
      if (misunderstood === 0) return []
      return [{ _tag: "Warning", text: `${misunderstood} lines of the worker's output were not understood` }]
    }),
    complaints: Effect.map(child.stderr, (stderr) => `${noise}${stderr}`.trim())
  }
})

const endOf = (text: string): TurnEnd => {
  const question = questionOf(text)
  return question === undefined ? { _tag: "Answered", text } : { _tag: "Question", question }
}

type Connection = Effect.Effect.Success<ReturnType<typeof connect>>

const clientCapabilities: Sdk.ClientCapabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: false }

/** Any agent that speaks the Agent Client Protocol as a worker: one process, one session, one prompt a turn. */
export const make = Effect.fnUntraced(function* (options: Options) {
  const processes = yield* Processes
  const configs = yield* PrivateConfig
  const base = forWorker(options.env)
  const startPatience = options.startPatience ?? "60 seconds"
  const cancelPatience = options.cancelPatience ?? "1 second"
  const [program = "", ...args] = options.command

  const launch = Effect.fnUntraced(function* (jobId: JobId, cwd: string, env: Environment) {
    const found = yield* processes.find([program], base)
    if (Option.isNone(found)) return yield* new BinaryMissing({ command: program, detail: "not found on PATH" })
    // No browser opens on the desktop of whoever runs the bridge.
    return yield* processes.spawn({
      jobId,
      program: found.value,
      args,
      cwd,
      env: { ...base, ...env, NO_OPEN_BROWSER: "1" }
    })
  })

  /** What a failed request means, once it is known whether the agent is still there. */
  const meaning = (turn: Turn | undefined, child: Running, connection: Connection, { code, detail }: RequestFailed) =>
    Effect.gen(function* (): Effect.fn.Return<WorkerFailure> {
      if (code === authRequired || (code !== undefined && complaintOf(detail) === "not-logged-in")) {
        return new NotLoggedIn({ detail })
      }
      if (code !== undefined) return new WorkerRefused({ detail })
      const exit = yield* Effect.timeoutOption(child.exit, "2 seconds")
      return withoutResult(
        turn?.session,
        yield* connection.complaints,
        Option.getOrUndefined(exit),
        Option.isSome(exit) ? "ended without a result" : detail
      )
    })

  /** What comes before the prompt has a limit of its own: nobody who could be waited for is there. */
  const soon = <A>(what: string, request: Effect.Effect<A, RequestFailed>) =>
    Effect.timeoutFail(request, {
      duration: startPatience,
      onTimeout: () => new RequestFailed({ code: undefined, detail: `no answer to ${what}` })
    })

  const initialize = (connection: Connection) =>
    soon("initialize", connection.request("initialize", { protocolVersion: 1, clientCapabilities })).pipe(
      Effect.filterOrFail(
        ({ protocolVersion }) => protocolVersion === 1,
        ({ protocolVersion }) => new RequestFailed({ code: undefined, detail: `speaks version ${protocolVersion}` })
      )
    )

  const loggedIn = <A>(connection: Connection, open: Effect.Effect<A, RequestFailed>) =>
    Effect.catchIf(
      open,
      ({ code }) => code === authRequired && options.authMethod !== undefined,
      (refusal) =>
        soon("authenticate", connection.request("authenticate", { methodId: options.authMethod ?? "" })).pipe(
          Effect.mapError(({ detail }) => new RequestFailed({ code: refusal.code, detail })),
          Effect.zipRight(open)
        )
    )

  /** A session, as new or as the turn names it, with the model and mode that it is to have. */
  const openSession = Effect.fnUntraced(function* (turn: Turn, connection: Connection) {
    const { agentCapabilities } = yield* initialize(connection)
    const sessionId = turn.session
    const place = { cwd: turn.cwd, mcpServers: [] }
    const lost = (failure: RequestFailed) =>
      failure.code === undefined || failure.code === authRequired || complaintOf(failure.detail) === "not-logged-in"
        ? failure
        : new SessionLost({ sessionId: sessionId ?? "" })
    const opened = yield* sessionId === undefined
      ? loggedIn(connection, soon("session/new", connection.request("session/new", place)))
      : agentCapabilities?.sessionCapabilities?.resume
        ? loggedIn(
            connection,
            soon("session/resume", connection.request("session/resume", { ...place, sessionId }))
          ).pipe(
            Effect.map((session) => ({ ...session, sessionId })),
            Effect.mapError(lost)
          )
        : agentCapabilities?.loadSession === true
          ? loggedIn(
              connection,
              soon("session/load", connection.request("session/load", { ...place, sessionId }))
            ).pipe(
              Effect.map((session) => ({ ...session, sessionId })),
              Effect.mapError(lost)
            )
          : new SessionLost({ sessionId })
    const mode = options.modes?.[turn.tier]
    if (mode !== undefined && opened.modes?.availableModes.some(({ id }) => id === mode)) {
      yield* soon(
        "session/set_mode",
        connection.request("session/set_mode", { sessionId: opened.sessionId, modeId: mode })
      )
    }
    if (turn.model !== undefined) {
      const choice = opened.configOptions?.find(({ category, type }) => category === "model" && type === "select")
      const models =
        choice?.type === "select" ? choice.options.flatMap((one) => ("options" in one ? one.options : [one])) : []
      const model = models.find(({ name, value }) => value === turn.model || name === turn.model)
      if (choice === undefined || model === undefined) {
        return yield* new WorkerRefused({ detail: `no model named ${turn.model}` })
      }
      const value = { sessionId: opened.sessionId, configId: choice.id, value: model.value }
      yield* soon("session/set_config_option", connection.request("session/set_config_option", value))
    }
    return opened.sessionId
  })

  const converse = Effect.fnUntraced(function* (
    turn: Turn,
    connection: Connection,
    emit: (events: ReadonlyArray<WorkerEvent>) => Effect.Effect<unknown>
  ) {
    const sessionId = yield* openSession(turn, connection)
    yield* connection.attend(sessionId)
    yield* emit([{ _tag: "Session", sessionId }])
    const text = promptOf(turn.tier, turn.cwd, turn.prompt)
    const prompt = yield* Effect.fork(
      connection.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] })
    )
    /** Told to stop; then a moment to do so. */
    const stop = Effect.zipRight(
      connection.cancel(sessionId),
      Effect.timeoutOption(Fiber.await(prompt), cancelPatience)
    )
    const first = yield* Effect.raceFirst(
      Effect.map(Fiber.join(prompt), Either.left),
      Effect.map(Deferred.await(connection.asked), Either.right)
    ).pipe(Effect.onInterrupt(() => stop))
    yield* emit(yield* connection.usage)
    if (Either.isRight(first)) {
      yield* stop
      return first.right
    }
    const { stopReason } = first.left
    const message = yield* connection.message
    if (stopReason !== "end_turn") {
      return yield* new WorkerRefused({ detail: message === "" ? stopReason : `${stopReason}: ${message}` })
    }
    return endOf(message)
  })

  const run = (turn: Turn): Stream.Stream<Item, WorkerFailure> =>
    Stream.unwrapScoped(
      Effect.gen(function* () {
        const sdk = yield* loadSdk
        const { config } = options
        const configDir = join(turn.stateDir, basename(program))
        const warnings = config === undefined ? [] : yield* configs.prepare(config.from, configDir, config.files)
        const child = yield* launch(turn.jobId, turn.cwd, config === undefined ? {} : { [config.variable]: configDir })
        // Full, it holds up the reading of the agent's output, and so the agent.
        const items = yield* Effect.acquireRelease(Queue.bounded<Take.Take<Item, WorkerFailure>>(256), Queue.shutdown)
        const emit = (events: ReadonlyArray<Item>) =>
          Effect.forEach(events, (event) => Queue.offer(items, Take.of(event)), { discard: true })
        const connection = yield* connect(sdk, child, turn, emit)
        yield* converse(turn, connection, emit).pipe(
          Effect.catchTag("RequestFailed", (failure) =>
            Effect.flatMap(meaning(turn, child, connection, failure), Effect.fail)
          ),
          Effect.flatMap((end) => Effect.flatMap(connection.warnings, (more) => emit([...more, end]))),
          Effect.matchCauseEffect({
            onSuccess: () => Queue.offer(items, Take.end),
            onFailure: (cause) => Queue.offer(items, Take.failCause(cause))
          }),
          Effect.forkScoped
        )
        const first: WorkerEvent = { _tag: "Process", pid: child.pid, startedAt: child.startedAt }
        return Stream.concat(
          Stream.make<Array<Item>>(first, ...warnings),
          Stream.flattenTake(Stream.fromQueue(items, { maxChunkSize: 1 }))
        )
      })
    )

  const health: Effect.Effect<WorkerHealth> = Effect.gen(function* () {
    const sdk = yield* loadSdk
    const child = yield* launch(JobId.make(crypto.randomUUID()), options.home, {})
    const connection = yield* connect(sdk, child, { tier: "consult", cwd: options.home }, () => Effect.void)
    const { agentInfo } = yield* initialize(connection).pipe(
      Effect.catchTag("RequestFailed", (failure) =>
        Effect.flatMap(meaning(undefined, child, connection, failure), Effect.fail)
      )
    )
    return { ok: true, detail: `${agentInfo?.name ?? program} ${agentInfo?.version ?? ""}`.trim() }
  }).pipe(
    Effect.scoped,
    Effect.timeout("20 seconds"),
    Effect.catchAll((failure) => {
      switch (failure._tag) {
        case "TimeoutException":
          return Effect.succeed({ ok: false, detail: "did not answer within 20 seconds" })
        case "BinaryMissing":
          return Effect.succeed({ ok: false, detail: `${failure.command}: not found on PATH` })
        case "WorkerExited":
          return Effect.succeed({ ok: false, detail: failure.stderr })
        case "SessionLost":
          return Effect.succeed({ ok: false, detail: failure.sessionId })
        default:
          return Effect.succeed({ ok: false, detail: failure.detail })
      }
    })
  )

  const worker: Worker = { name: options.name, run, health }
  return worker
})
