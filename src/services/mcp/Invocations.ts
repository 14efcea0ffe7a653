import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { PrincipalId } from "../Auth.ts"
import type {
  ClientCapabilities,
  Exchange,
  InputRequest,
  InputRequests,
  InputResponses,
  LogLevel,
  ProgressUpdate
} from "../Exchange.ts"
import { Config } from "../Config.ts"
import { AskFailed, atLeast, CapabilityMissing } from "../Exchange.ts"
import { isRecord } from "../wire/JsonRpc.ts"
import type { McpFailure } from "./failures.ts"
import { TooManyCalls } from "./failures.ts"
import { Progress } from "./Progress.ts"
import { Signals } from "./Signals.ts"

/** What a call says to its client while it runs. */
export type Signal =
  | { readonly _tag: "Notification"; readonly method: string; readonly params: Readonly<Record<string, unknown>> }
  /** The call waits for the client: `Invocation.pending` has the questions. */
  | { readonly _tag: "InputNeeded" }
  /** The call asks to go on as a task. */
  | { readonly _tag: "Escalated" }
  /** The client's stream is to end here, and to be taken up again later. */
  | { readonly _tag: "Detached" }
  | { readonly _tag: "Done"; readonly exit: Exit.Exit<Readonly<Record<string, unknown>>, McpFailure> }

interface Question {
  readonly request: InputRequest
  readonly answer: Deferred.Deferred<unknown, AskFailed>
  answered: boolean
}

export interface TaskInfo {
  readonly createdAt: string
  readonly ttlMs: number
  lastUpdatedAt: string
}

/** What a client can do, and wants to hear of its call. */
export interface Wishes {
  readonly capabilities: ClientCapabilities
  readonly progressToken: string | number | undefined
  /** Least severe level that the client wants; none where it wants none. */
  readonly logLevel: () => LogLevel | undefined
}

/** One running call, and its line to whoever follows it. */
export interface Invocation {
  readonly id: string
  readonly owner: PrincipalId
  /** The session that it belongs to, in the legacy era. */
  readonly sid: string | undefined
  /** Method and parameters in one string: a retry must be one of the same request. */
  readonly binding: string
  readonly fiber: Fiber.RuntimeFiber<Readonly<Record<string, unknown>>, McpFailure>
  /** In order. Has one reader at a time; nobody reads it once the call is a task. */
  readonly signals: Signals<Signal>
  readonly pending: Map<string, Question>
  task: TaskInfo | undefined
  /** Those of the request that follows it now: one that is sent again may say something else (2026-07-28). */
  wishes: Wishes
  /** There while the call waits for its client to come back, another object each time. */
  parking: object | undefined
  readonly progress: Progress
  /** Cancelled: whatever its tool still says, and however it ends, its client hears nothing of it. */
  silent: boolean
}

/** Questions that still want an answer. */
export const outstanding = (invocation: Invocation): InputRequests =>
  Object.fromEntries(
    [...invocation.pending].flatMap(([key, { answered, request }]) => (answered ? [] : [[key, request] as const]))
  )

export interface InvocationOptions extends Wishes {
  readonly owner: PrincipalId
  readonly sid?: string
  readonly binding: string
  /** Whether the era has tasks, and this request may become one. */
  readonly tasks: boolean
}

/** Time to live of a task, from its creation. */
export const taskTtlMs = 24 * 60 * 60 * 1000
export const taskPollIntervalMs = 1000
/** How long a call waits for a client that was asked and has not come back. */
export const parkedFor = "10 minutes"
/** Tasks that one principal may have at a time; a finished one makes room. */
const maxTasks = 256

/** How often calls are looked at for whether a sign of life is due. */
const beatEvery = "5 seconds"

export const tasksExtension = "io.modelcontextprotocol/tasks"

const capabilityOf: Readonly<Record<InputRequest["method"], string>> = {
  "elicitation/create": "elicitation",
  "sampling/createMessage": "sampling",
  "roots/list": "roots"
}

export const declaresTasks = (capabilities: ClientCapabilities): boolean =>
  isRecord(capabilities["extensions"]) && isRecord(capabilities["extensions"][tasksExtension])

/** MCP 2025-11-25, elicitation: an empty object stands for the form mode alone. */
const declares = (capabilities: ClientCapabilities, request: InputRequest): boolean => {
  const declared = capabilities[capabilityOf[request.method]]
  if (!isRecord(declared)) return false
  if (request.method !== "elicitation/create") return true
  const mode = request.params["mode"] ?? "form"
  return mode === "url" ? isRecord(declared["url"]) : isRecord(declared["form"]) || !isRecord(declared["url"])
}

/** Running calls of every era: follow, answer, cancel; as tasks, keep them past their connection. */
export class Invocations extends Context.Tag("pi-a2a-ext/services/mcp/Invocations")<
  Invocations,
  {
    readonly start: (
      options: InvocationOptions,
      run: (exchange: Exchange) => Effect.Effect<Readonly<Record<string, unknown>>, McpFailure>
    ) => Effect.Effect<Invocation, TooManyCalls>
    /** Gives answers to questions that are pending; others are ignored. */
    readonly answer: (invocation: Invocation, responses: InputResponses) => Effect.Effect<void>
    /** Fails the questions with these keys, or all that are pending. */
    readonly refuse: (invocation: Invocation, reason: string, keys?: ReadonlyArray<string>) => Effect.Effect<void>
    /** A call of this principal by its id, task or parked. */
    readonly find: (id: string, owner: PrincipalId) => Effect.Effect<Invocation | undefined>
    /** Makes a task of a call, found from now on by its id. */
    readonly toTask: (invocation: Invocation) => Effect.Effect<TaskInfo>
    /** Ends the call, and every process of its tool. Does not wait for that. */
    readonly cancel: (invocation: Invocation) => Effect.Effect<void>
    readonly cancelWhere: (predicate: (invocation: Invocation) => boolean) => Effect.Effect<void>
    /** Ends the call unless the client comes back to it in time. */
    readonly park: (invocation: Invocation) => Effect.Effect<void>
    /** The client came back, with these wishes: `false` where the call does not wait for it. */
    readonly unpark: (invocation: Invocation, wishes: Wishes) => Effect.Effect<boolean>
    /** Tasks as their state changes, from now on. */
    readonly taskChanges: Stream.Stream<Invocation>
    /** Number of calls running, and a tick at each change of it. */
    readonly running: Effect.Effect<number>
    readonly ticks: Stream.Stream<void>
  }
>() {}

const make = Effect.gen(function* () {
  const config = yield* Config
  const clock = yield* Effect.clock
  const scope = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
  const invocations = new Map<string, Invocation>()
  const live = new Set<Invocation>()
  const taskChanges = yield* PubSub.unbounded<Invocation>()
  const ticks = yield* PubSub.sliding<void>(1)

  const interrupt = (invocation: Invocation) =>
    Effect.suspend(() => {
      if (live.has(invocation) && !invocation.silent) {
        invocation.silent = true
        // A tool may take its time to end: its client need not wait for that.
        invocation.signals.offer({ _tag: "Done", exit: Exit.interrupt(invocation.fiber.id()) })
      }
      return Fiber.interruptFork(invocation.fiber)
    })
  // All at once: closing their scope, which comes after this, would end one call after the other.
  yield* Effect.addFinalizer(() => Effect.forEach([...live], interrupt, { discard: true }))

  const touch = (task: TaskInfo, invocation: Invocation, now: number) => {
    task.lastUpdatedAt = DateTime.formatIso(DateTime.unsafeMake(now))
    taskChanges.unsafeOffer(invocation)
  }
  const touchTask = (invocation: Invocation) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      if (invocation.task !== undefined) touch(invocation.task, invocation, now)
    })

  const tellTo = (invocation: Invocation, signal: Signal) => {
    // A task has no stream: progress and log messages are not part of it (tasks extension, notifications).
    if (invocation.task === undefined && !invocation.silent) invocation.signals.offer(signal)
  }

  const report = (invocation: Invocation, update: ProgressUpdate | undefined) => {
    const { progressToken } = invocation.wishes
    if (progressToken === undefined || update === undefined) return
    tellTo(invocation, { _tag: "Notification", method: "notifications/progress", params: { progressToken, ...update } })
  }

  /** Signs of life for a call that asks for progress, until it ends. */
  const keepAlive = (invocation: Invocation) =>
    invocation.wishes.progressToken === undefined
      ? Effect.void
      : Effect.sync(() => {
          // A parked call has nobody to hear it, and whoever comes back may want to hear of it by another token.
          if (invocation.parking !== undefined) return
          report(invocation, invocation.progress.beat(clock.unsafeCurrentTimeMillis()))
        }).pipe(
          Effect.delay(beatEvery),
          Effect.forever,
          Effect.raceFirst(Fiber.await(invocation.fiber)),
          Effect.forkIn(scope)
        )

  const exchangeOf = (invocation: Invocation, tasks: boolean): Exchange => {
    const used = new Set<string>()
    const tell = (signal: Signal) => tellTo(invocation, signal)
    const offersTask = () => tasks && declaresTasks(invocation.wishes.capabilities)
    return {
      get offersTask() {
        return offersTask()
      },
      progress: (update) => {
        report(invocation, invocation.progress.said(update, clock.unsafeCurrentTimeMillis()))
      },
      log: (entry) => {
        const minimum = invocation.wishes.logLevel()
        if (minimum === undefined || !atLeast(entry.level, minimum)) return
        tell({ _tag: "Notification", method: "notifications/message", params: { ...entry } })
      },
      ask: Effect.fnUntraced(function* (requests: InputRequests) {
        const entries = Object.entries(requests)
        for (const [, request] of entries) {
          if (!declares(invocation.wishes.capabilities, request)) {
            return yield* new CapabilityMissing({ required: { [capabilityOf[request.method]]: {} } })
          }
        }
        const asked = entries.map(([key, request]) => {
          // A key names one question for the whole life of a call (tasks extension, update requests).
          const unique = used.has(key) ? `${key}-${used.size}` : key
          used.add(unique)
          return { key, unique, request, answer: Deferred.unsafeMake<unknown, AskFailed>(Fiber.id(invocation.fiber)) }
        })
        for (const { answer, request, unique } of asked)
          invocation.pending.set(unique, { request, answer, answered: false })
        tell({ _tag: "InputNeeded" })
        yield* touchTask(invocation)
        const answers = yield* Effect.forEach(asked, ({ answer, key }) =>
          Effect.map(Deferred.await(answer), (value) => [key, value] as const)
        ).pipe(
          Effect.ensuring(
            Effect.sync(() => {
              for (const { unique } of asked) invocation.pending.delete(unique)
            })
          )
        )
        yield* touchTask(invocation)
        return Object.fromEntries(answers)
      }),
      escalate: (required) =>
        Effect.suspend(() => {
          if (offersTask()) {
            tell({ _tag: "Escalated" })
            return Effect.void
          }
          return required ? new CapabilityMissing({ required: { extensions: { [tasksExtension]: {} } } }) : Effect.void
        }),
      detach: Effect.sync(() => tell({ _tag: "Detached" }))
    }
  }

  const start = Effect.fnUntraced(function* (
    options: InvocationOptions,
    run: (exchange: Exchange) => Effect.Effect<Readonly<Record<string, unknown>>, McpFailure>
  ) {
    const { concurrentCalls } = (yield* config.current).rateLimit
    const running = [...live].filter((one) => one.owner === options.owner).length
    if (running >= concurrentCalls) return yield* new TooManyCalls({ limit: concurrentCalls })
    const signals = new Signals<Signal>()
    const ready = yield* Deferred.make<Exchange>()
    const fiber = yield* Deferred.await(ready).pipe(Effect.flatMap(run), Effect.forkIn(scope))
    const invocation: Invocation = {
      id: crypto.randomUUID(),
      owner: options.owner,
      sid: options.sid,
      binding: options.binding,
      fiber,
      signals,
      pending: new Map(),
      task: undefined,
      wishes: options,
      parking: undefined,
      progress: new Progress(clock.unsafeCurrentTimeMillis()),
      silent: false
    }
    live.add(invocation)
    ticks.unsafeOffer(undefined)
    fiber.addObserver((exit) => {
      live.delete(invocation)
      ticks.unsafeOffer(undefined)
      if (!invocation.silent) signals.offer({ _tag: "Done", exit })
      if (invocation.task === undefined) invocations.delete(invocation.id)
      // A cancelled one has said so already, and stays so however its tool ends.
      else if (!invocation.silent) touch(invocation.task, invocation, clock.unsafeCurrentTimeMillis())
    })
    yield* Deferred.succeed(ready, exchangeOf(invocation, options.tasks))
    yield* keepAlive(invocation)
    return invocation
  })

  const forget = (invocation: Invocation) =>
    Effect.zipRight(
      interrupt(invocation),
      Effect.sync(() => invocations.delete(invocation.id))
    )

  const makeRoom = (owner: PrincipalId) => {
    const mine = [...invocations.values()].filter((one) => one.owner === owner && one.task !== undefined)
    const finished = mine.find((one) => !live.has(one))
    if (mine.length >= maxTasks && finished !== undefined) invocations.delete(finished.id)
  }

  return Invocations.of({
    start,
    answer: (invocation, responses) =>
      Effect.forEach(
        Object.entries(responses),
        ([key, value]) => {
          const question = invocation.pending.get(key)
          if (question === undefined) return Effect.void
          question.answered = true
          return Deferred.succeed(question.answer, value)
        },
        { discard: true }
      ),
    refuse: (invocation, reason, keys = [...invocation.pending.keys()]) =>
      Effect.forEach(
        keys,
        (key) => {
          const question = invocation.pending.get(key)
          if (question === undefined) return Effect.void
          question.answered = true
          return Deferred.fail(question.answer, new AskFailed({ reason }))
        },
        { discard: true }
      ),
    find: (id, owner) =>
      Effect.sync(() => {
        const found = invocations.get(id)
        return found?.owner === owner ? found : undefined
      }),
    toTask: Effect.fnUntraced(function* (invocation) {
      makeRoom(invocation.owner)
      const now = DateTime.formatIso(yield* DateTime.now)
      const task: TaskInfo = { createdAt: now, lastUpdatedAt: now, ttlMs: taskTtlMs }
      invocation.task = task
      invocations.set(invocation.id, invocation)
      yield* Effect.forkIn(Effect.zipRight(Effect.sleep(taskTtlMs), forget(invocation)), scope)
      return task
    }),
    cancel: Effect.fnUntraced(function* (invocation) {
      const runs = live.has(invocation) && !invocation.silent
      yield* interrupt(invocation)
      if (runs) yield* touchTask(invocation)
    }),
    cancelWhere: (predicate) => Effect.forEach([...live].filter(predicate), interrupt, { discard: true }),
    park: Effect.fnUntraced(function* (invocation) {
      const parking = {}
      invocation.parking = parking
      invocations.set(invocation.id, invocation)
      const expire = Effect.suspend(() => (invocation.parking === parking ? forget(invocation) : Effect.void))
      yield* Effect.forkIn(Effect.zipRight(Effect.sleep(parkedFor), expire), scope)
    }),
    unpark: (invocation, wishes) =>
      Effect.sync(() => {
        if (invocation.parking === undefined) return false
        invocation.parking = undefined
        invocation.wishes = wishes
        return true
      }),
    taskChanges: Stream.fromPubSub(taskChanges),
    running: Effect.sync(() => live.size),
    ticks: Stream.fromPubSub(ticks)
  })
})

export const layer = Layer.scoped(Invocations, make)
