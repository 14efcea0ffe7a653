import { basename, join } from "node:path"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import * as Take from "effect/Take"
import type { AcpConnection } from "../../services/jobs/AcpConnections.ts"
import { AcpConnections, AcpRequestFailed } from "../../services/jobs/AcpConnections.ts"
import { forWorker } from "../../services/jobs/environment.ts"
import type { Tier, WorkerEvent } from "../../services/jobs/Job.ts"
import { JobId } from "../../services/jobs/Job.ts"
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
  readonly config?:
    | {
        readonly variable: string
        readonly from: string
        readonly files: ReadonlyArray<string>
      }
    | undefined
  /** Session modes to ask for by tier, where the agent offers them. */
  readonly modes?: { readonly [T in Tier]?: string | undefined } | undefined
  /** The method to authenticate by where the agent asks for it, if it needs no person. */
  readonly authMethod?: string | undefined
  /** How long the agent may take to answer what comes before the prompt. */
  readonly startPatience?: Duration.DurationInput
  /** How long it may take to stop by itself once it was told to. */
  readonly cancelPatience?: Duration.DurationInput
  /** How long it may take to end by itself after the turn. */
  readonly leavePatience?: Duration.DurationInput
}

type Item = WorkerEvent | TurnEnd

const endOf = (text: string): TurnEnd => {
  const question = questionOf(text)
  return question === undefined ? { _tag: "Answered", text } : { _tag: "Question", question }
}

/** Any agent that speaks the Agent Client Protocol as a worker: one process, one session, one prompt a turn. */
export const make = Effect.fnUntraced(function* (options: Options) {
  const processes = yield* Processes
  const configs = yield* PrivateConfig
  const connections = yield* AcpConnections
  const base = forWorker(options.env)
  const startPatience = options.startPatience ?? "60 seconds"
  const cancelPatience = options.cancelPatience ?? "1 second"
  const leavePatience = options.leavePatience ?? "2 seconds"
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
  const meaning = Effect.fnUntraced(function* (
    session: string | undefined,
    child: Running,
    connection: AcpConnection,
    failure: AcpRequestFailed
  ) {
    const { code, detail } = failure
    if (failure.wantsLogin || (code !== undefined && complaintOf(detail) === "not-logged-in")) {
      return yield* new NotLoggedIn({ detail })
    }
    if (code !== undefined) return yield* new WorkerRefused({ detail })
    const exit = yield* Effect.timeoutOption(child.exit, "2 seconds")
    const how = Option.isSome(exit) ? "ended without a result" : detail
    return yield* withoutResult(session, yield* connection.complaints, Option.getOrUndefined(exit), how)
  })

  /** What comes before the prompt has a limit of its own: nobody who could be waited for is there. */
  const soon = <A>(what: string, request: Effect.Effect<A, AcpRequestFailed>) =>
    Effect.timeoutFail(request, {
      duration: startPatience,
      onTimeout: () => new AcpRequestFailed({ code: undefined, detail: `no answer to ${what}` })
    })

  const initialize = (connection: AcpConnection) =>
    Effect.filterOrFail(
      soon("initialize", connection.initialize),
      ({ version }) => version === 1,
      ({ version }) => new AcpRequestFailed({ code: undefined, detail: `it speaks version ${version} of ACP` })
    )

  /** Where the agent asks for a login that needs no person, it is done, and `open` tried again. */
  const loggedIn = <A>(connection: AcpConnection, open: Effect.Effect<A, AcpRequestFailed>) =>
    Effect.catchIf(
      open,
      (failure) => failure.wantsLogin && options.authMethod !== undefined,
      ({ code }) =>
        soon("authenticate", connection.authenticate(options.authMethod ?? "")).pipe(
          Effect.mapError(({ detail }) => new AcpRequestFailed({ code, detail })),
          Effect.zipRight(open)
        )
    )

  /** A session, as new or as the turn names it, with the model and mode that it is to have. */
  const openSession = Effect.fnUntraced(function* (turn: Turn, connection: AcpConnection) {
    const { loads, resumes } = yield* initialize(connection)
    const { cwd, session } = turn
    const ask = Effect.gen(function* () {
      if (session === undefined) return yield* loggedIn(connection, soon("session/new", connection.newSession(cwd)))
      if (!resumes && !loads) return yield* new SessionLost({ sessionId: session })
      const how = resumes ? "resume" : "load"
      return yield* loggedIn(connection, soon(`session/${how}`, connection.continueSession(how, session, cwd))).pipe(
        Effect.mapError((failure) =>
          failure.code === undefined || failure.wantsLogin ? failure : new SessionLost({ sessionId: session })
        )
      )
    })
    const { models, modes, sessionId } = yield* ask
    const mode = options.modes?.[turn.tier]
    if (mode !== undefined && modes.includes(mode)) {
      yield* soon("session/set_mode", connection.setMode(sessionId, mode))
    }
    if (turn.model !== undefined) {
      const model = models.find(({ name, value }) => value === turn.model || name === turn.model)
      if (model === undefined) return yield* new WorkerRefused({ detail: `no model named ${turn.model}` })
      yield* soon("session/set_config_option", connection.setConfigOption(sessionId, model.configId, model.value))
    }
    return sessionId
  })

  const converse = Effect.fnUntraced(function* (
    turn: Turn,
    connection: AcpConnection,
    emit: (events: ReadonlyArray<WorkerEvent>) => Effect.Effect<unknown>
  ) {
    const sessionId = yield* openSession(turn, connection)
    yield* emit([{ _tag: "Session", sessionId }])
    // Interruptible, for its limit to hold where a finalizer waits for it.
    const stop = Effect.timeoutOption(Effect.interruptible(connection.cancel(sessionId)), cancelPatience)
    const first = yield* Effect.raceFirst(
      Effect.map(connection.prompt(sessionId, promptOf(turn.tier, turn.cwd, turn.prompt)), Either.left),
      Effect.map(connection.asked, Either.right)
    ).pipe(Effect.onInterrupt(() => stop))
    if (Either.isRight(first)) {
      yield* stop
      return first.right
    }
    const { message, stopReason, usage } = first.left
    if (usage !== undefined) yield* emit([{ _tag: "Usage", ...usage }])
    if (stopReason !== "end_turn") {
      return yield* new WorkerRefused({ detail: message === "" ? stopReason : `${stopReason}: ${message}` })
    }
    return endOf(message)
  })

  /** The end of its input is what an agent ends by itself at, having written down what it wants to keep. */
  const leave = (child: Running) => Effect.zipRight(child.endInput, Effect.timeoutOption(child.exit, leavePatience))

  const ending = (connection: AcpConnection, end: TurnEnd) =>
    Effect.map(connection.misunderstood, (lines): ReadonlyArray<Item> =>
      lines === 0
        ? [end]
        : [{ _tag: "Warning", text: `${lines} lines of the worker's output were not understood` }, end]
    )

  const run = (turn: Turn): Stream.Stream<Item, WorkerFailure> =>
    Stream.unwrapScoped(
      Effect.gen(function* () {
        const { config } = options
        const configDir = join(turn.stateDir, basename(program))
        const warnings = config === undefined ? [] : yield* configs.prepare(config.from, configDir, config.files)
        const child = yield* launch(turn.jobId, turn.cwd, config === undefined ? {} : { [config.variable]: configDir })
        // Full, it holds up the reading of the agent's output, and so the agent.
        const items = yield* Effect.acquireRelease(Queue.bounded<Take.Take<Item, WorkerFailure>>(256), Queue.shutdown)
        const emit = (events: ReadonlyArray<Item>) =>
          Effect.forEach(events, (event) => Queue.offer(items, Take.of(event)), { discard: true })
        const connection = yield* connections.open(child, turn, emit)
        yield* converse(turn, connection, emit).pipe(
          Effect.catchTag("AcpRequestFailed", (failure) => meaning(turn.session, child, connection, failure)),
          Effect.flatMap((end) => Effect.zipRight(leave(child), ending(connection, end))),
          Effect.flatMap(emit),
          Effect.matchCauseEffect({
            onSuccess: () => Queue.offer(items, Take.end),
            onFailure: (cause) => Queue.offer(items, Take.failCause(cause))
          }),
          Effect.forkScoped
        )
        const first: WorkerEvent = { _tag: "Process", pid: child.pid, startedAt: child.startedAt }
        return Stream.concat(Stream.make<Array<Item>>(first, ...warnings), Stream.flattenTake(Stream.fromQueue(items)))
      })
    )

  const health: Effect.Effect<WorkerHealth> = Effect.gen(function* () {
    const child = yield* launch(JobId.make(crypto.randomUUID()), options.home, {})
    const connection = yield* connections.open(child, { tier: "consult", cwd: options.home }, () => Effect.void)
    const { name } = yield* initialize(connection).pipe(
      Effect.catchTag("AcpRequestFailed", (failure) => meaning(undefined, child, connection, failure))
    )
    yield* leave(child)
    return { ok: true, detail: name ?? program }
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
