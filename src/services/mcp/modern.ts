import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as PubSub from "effect/PubSub"
import * as Stream from "effect/Stream"
import type { Principal, PrincipalId } from "../Auth.ts"
import type { Caller } from "../Caller.ts"
import { CapabilityMissing } from "../Exchange.ts"
import type { Params, Request, RequestId } from "../wire/JsonRpc.ts"
import { isRecord } from "../wire/JsonRpc.ts"
import * as Wire from "../wire/Mcp.ts"
import { toErrorObject } from "./errorObjects.ts"
import type { McpFailure } from "./failures.ts"
import { MethodNotImplemented, ParamsInvalid, ResourceUnknown, StateRejected, TaskNotFound } from "./failures.ts"
import type { Result } from "./features.ts"
import { decodeParams, Features } from "./features.ts"
import type { Hub } from "./hub.ts"
import type { Invocation, Signal, Wishes } from "./Invocations.ts"
import { declaresTasks, Invocations, outstanding, taskPollIntervalMs, tasksExtension } from "./Invocations.ts"
import type { Headers, Meta } from "./modernRequest.ts"
import {
  checkHeaders,
  checkLogLevel,
  checkParamHeaders,
  checkVersion,
  decodeMeta,
  serverInfoKey,
  subscriptionKey
} from "./modernRequest.ts"
import type { Reply, StreamEvent } from "./reply.ts"
import { accepted, failed, failure, result, single } from "./reply.ts"
import { RequestState } from "./requestState.ts"
import { settle, settleExit } from "./settle.ts"
import { supportedVersions } from "./versions.ts"

export interface ModernIncoming {
  readonly principal: Principal
  readonly request: Request
  /** Left out by a transport without headers. */
  readonly headers: Headers | undefined
  /** Whether the client takes a stream for an answer. */
  readonly acceptsStream: boolean
}

/** A reply becomes a stream when the call has taken this long. */
export const streamAfter = "2 seconds"
/** A call of a client that knows tasks becomes one when it has taken this long. */
const taskAfter = "5 seconds"

/** How long a client may keep a list (2026-07-28, caching); changes are told to those who listen. */
const cache = { ttlMs: 5000, cacheScope: "private" }

const decodeListen = decodeParams(Wire.ListenParams)
const decodeTask = decodeParams(Wire.TaskParams)
const decodeUpdate = decodeParams(Wire.UpdateTaskParams)

const sorted = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(sorted)
    : isRecord(value)
      ? Object.fromEntries(
          Object.keys(value)
            .toSorted()
            .map((key) => [key, sorted(value[key])])
        )
      : value

const changing = new Set(["_meta", "inputResponses", "requestState"])

/** What makes a retry one of the same request: all but the parts that a retry changes. */
const bindingOf = (method: string, params: Params | undefined): string => {
  const same = Object.entries(params ?? {}).filter(([key]) => !changing.has(key))
  return JSON.stringify([method, sorted(Object.fromEntries(same))])
}

/** The eras differ in the code for a resource that is not there. */
const inThisEra = (error: McpFailure): McpFailure =>
  error._tag === "ResourceNotFound" ? new ResourceUnknown({ uri: error.uri }) : error

/** 2026-07-28: no session, every request says all about itself. */
export const make = Effect.fn("modern.make")(function* (hub: Hub) {
  const features = yield* Features
  const invocations = yield* Invocations
  const states = yield* RequestState

  const complete = (value: Result): Result => ({
    resultType: "complete",
    ...value,
    _meta: { ...(isRecord(value["_meta"]) ? value["_meta"] : {}), [serverInfoKey]: features.serverInfo }
  })

  const taskFields = (invocation: Invocation): Result => {
    const task = invocation.task
    return {
      taskId: invocation.id,
      createdAt: task?.createdAt,
      lastUpdatedAt: task?.lastUpdatedAt,
      ttlMs: task?.ttlMs,
      pollIntervalMs: taskPollIntervalMs
    }
  }

  /** `DetailedTask`: what `tasks/get` and `notifications/tasks` carry. */
  const detailed = Effect.fnUntraced(function* (invocation: Invocation) {
    const fields = taskFields(invocation)
    // For good: a task does not leave a terminal status.
    if (invocation.silent) return { ...fields, status: "cancelled" }
    const exit = invocation.fiber.unsafePoll()
    if (exit === null) {
      const inputRequests = outstanding(invocation)
      return Object.keys(inputRequests).length === 0
        ? { ...fields, status: "working" }
        : { ...fields, status: "input_required", inputRequests }
    }
    const settled = yield* settleExit(exit, "task")
    switch (settled._tag) {
      case "Value":
        return { ...fields, status: "completed", result: settled.value }
      case "Silent":
        return { ...fields, status: "cancelled" }
      case "Error": {
        const error = toErrorObject(inThisEra(settled.error))
        return { ...fields, status: "failed", statusMessage: error.message, error }
      }
    }
  })

  const inputRequired = Effect.fnUntraced(function* (invocation: Invocation) {
    yield* invocations.park(invocation)
    return {
      resultType: "input_required",
      inputRequests: outstanding(invocation),
      requestState: yield* states.sign(invocation.id, invocation.owner, invocation.binding)
    }
  })

  const asTask = Effect.fnUntraced(function* (invocation: Invocation) {
    yield* invocations.toTask(invocation)
    return { ...taskFields(invocation), resultType: "task", status: "working" }
  })

  /** What a signal answers the request with; `undefined` where the request goes on. */
  const answerTo = Effect.fnUntraced(function* (id: RequestId, invocation: Invocation, signal: Signal | "TooLong") {
    if (signal === "TooLong") return result(id, complete(yield* asTask(invocation)))
    switch (signal._tag) {
      case "InputNeeded":
        return Object.keys(outstanding(invocation)).length === 0
          ? undefined
          : result(id, complete(yield* inputRequired(invocation)))
      case "Escalated":
        return result(id, complete(yield* asTask(invocation)))
      case "Done": {
        const settled = yield* settleExit(signal.exit, "call")
        if (settled._tag === "Silent") return "silent" as const
        return settled._tag === "Value" ? result(id, complete(settled.value)) : failure(id, inThisEra(settled.error))
      }
      default:
        return undefined
    }
  })

  /** Waits with the client for the call's end, as JSON while that is short and silent, as a stream from then on. */
  const follow = Effect.fnUntraced(function* (incoming: ModernIncoming, meta: Meta, invocation: Invocation) {
    const { id } = incoming.request
    const began = yield* Clock.currentTimeMillis
    const mayBeTask = declaresTasks(meta.capabilities) && incoming.request.method === "tools/call"

    /** The next signal; "TooLong" when the call is to become a task, "Later" when `patience` is over. */
    const next = (patience: Duration.DurationInput | undefined) =>
      Effect.gen(function* () {
        const spent = (yield* Clock.currentTimeMillis) - began
        const untilTask = mayBeTask ? Math.max(0, Duration.toMillis(taskAfter) - spent) : Infinity
        const untilLater = patience === undefined ? Infinity : Math.max(0, Duration.toMillis(patience) - spent)
        const limit = Math.min(untilTask, untilLater)
        const ready = invocation.signals.ready
        const arrived = limit === Infinity ? Effect.asSome(ready) : Effect.timeoutOption(ready, limit)
        if (Option.isSome(yield* arrived)) return invocation.signals.peek() ?? ("Later" as const)
        return untilTask <= untilLater ? ("TooLong" as const) : ("Later" as const)
      })

    const stream = (): Reply => {
      let over = false
      const pull: Effect.Effect<StreamEvent, Option.Option<never>> = Effect.gen(function* () {
        for (;;) {
          if (over) return yield* Effect.fail(Option.none())
          const signal = yield* next(undefined)
          if (signal === "Later") continue
          if (signal !== "TooLong") {
            invocation.signals.poll()
            if (signal._tag === "Notification") {
              return { message: { _tag: "Notification", method: signal.method, params: signal.params } }
            }
          }
          const answer = yield* answerTo(id, invocation, signal)
          if (answer === undefined) continue
          over = true
          if (answer !== "silent") return { message: { _tag: "Answer", answer } }
        }
      })
      return {
        _tag: "Stream",
        events: Stream.repeatEffectOption(pull).pipe(
          // Closing the stream is cancelling the request (2026-07-28, cancellation).
          Stream.ensuring(Effect.suspend(() => (over ? Effect.void : invocations.cancel(invocation))))
        )
      }
    }

    const wait: Effect.Effect<Reply> = Effect.gen(function* () {
      for (;;) {
        const signal = yield* next(incoming.acceptsStream ? streamAfter : undefined)
        if (signal === "Later") return stream()
        if (signal !== "TooLong") {
          if (signal._tag === "Notification" && incoming.acceptsStream) return stream()
          invocation.signals.poll()
        }
        const answer = yield* answerTo(id, invocation, signal)
        if (answer === "silent") return accepted
        if (answer !== undefined) return single(answer)
      }
    })
    return yield* Effect.onInterrupt(wait, () => invocations.cancel(invocation))
  })

  const resume = Effect.fnUntraced(function* (principal: Principal, request: Request, wishes: Wishes) {
    const binding = bindingOf(request.method, request.params)
    const id = yield* states.verify(request.params?.["requestState"], principal.id, binding)
    const invocation = yield* invocations.find(id, principal.id)
    if (invocation === undefined || invocation.task !== undefined) return undefined
    if (!(yield* invocations.unpark(invocation, wishes))) {
      return yield* new StateRejected({ reason: "another request goes on with it" })
    }
    const responses = request.params?.["inputResponses"]
    if (isRecord(responses)) yield* invocations.answer(invocation, responses)
    // An answer is missing: ask for it again, rather than wait for what will not come.
    if (Object.keys(outstanding(invocation)).length > 0) invocation.signals.offer({ _tag: "InputNeeded" })
    return invocation
  })

  const invoke = Effect.fnUntraced(function* (incoming: ModernIncoming, meta: Meta) {
    const { principal, request } = incoming
    const wishes = {
      capabilities: meta.capabilities,
      progressToken: meta.progressToken,
      logLevel: () => meta.logLevel
    }
    if (request.params?.["requestState"] !== undefined) {
      const resumed = yield* resume(principal, request, wishes)
      if (resumed !== undefined) return yield* follow(incoming, meta, resumed)
    }
    const caller: Caller = { principal, sid: "-", client: meta.client }
    const run = features.invoke(request.method, request.params, caller)
    if (run === undefined) return yield* new MethodNotImplemented({ method: request.method })
    const invocation = yield* invocations.start(
      {
        owner: principal.id,
        binding: bindingOf(request.method, request.params),
        tasks: request.method === "tools/call",
        ...wishes
      },
      run
    )
    return yield* follow(incoming, meta, invocation)
  })

  const taskOf = Effect.fnUntraced(function* (id: string, owner: PrincipalId) {
    const found = yield* invocations.find(id, owner)
    return found?.task === undefined ? yield* new TaskNotFound() : found
  })

  const needTasks = (meta: Meta): Effect.Effect<void, CapabilityMissing> =>
    declaresTasks(meta.capabilities)
      ? Effect.void
      : new CapabilityMissing({ required: { extensions: { [tasksExtension]: {} } } })

  const tasks = Effect.fnUntraced(function* (
    method: string,
    params: Params | undefined,
    owner: PrincipalId,
    meta: Meta
  ) {
    yield* needTasks(meta)
    switch (method) {
      case "tasks/get":
        return yield* detailed(yield* taskOf((yield* decodeTask(method, params)).taskId, owner))
      case "tasks/cancel":
        yield* invocations.cancel(yield* taskOf((yield* decodeTask(method, params)).taskId, owner))
        return {}
      default: {
        const { inputResponses, taskId } = yield* decodeUpdate(method, params)
        yield* invocations.answer(yield* taskOf(taskId, owner), inputResponses)
        return {}
      }
    }
  })

  /** `subscriptions/listen`: acknowledged first, only what was asked for, a result when the server ends it. */
  const listen = Effect.fnUntraced(function* (incoming: ModernIncoming, meta: Meta) {
    const { id, method, params } = incoming.request
    const { notifications: wanted } = yield* decodeListen(method, params)
    if (wanted.taskIds !== undefined) yield* needTasks(meta)
    if (!incoming.acceptsStream) {
      return yield* new ParamsInvalid({ method, detail: "the answer is a stream; Accept must allow text/event-stream" })
    }
    const uris = new Set(wanted.resourceSubscriptions)
    const taskIds = new Set(wanted.taskIds)
    const tag = { [subscriptionKey]: id }
    const notification = (name: string, rest: Result = {}): StreamEvent => ({
      message: { _tag: "Notification", method: name, params: { ...rest, _meta: tag } }
    })
    const lists = {
      tools: wanted.toolsListChanged,
      prompts: wanted.promptsListChanged,
      resources: wanted.resourcesListChanged
    }
    const events = Stream.unwrapScoped(
      Effect.zipWith(PubSub.subscribe(hub.events), PubSub.subscribe(hub.revocations), (queue, revocations) =>
        // Subscribed before it is acknowledged: nothing that happens from then on is missed.
        Stream.fromQueue(queue).pipe(
          Stream.mapEffect((event) => {
            switch (event._tag) {
              case "List":
                return Effect.succeed(
                  lists[event.kind] === true
                    ? Option.some(notification(`notifications/${event.kind}/list_changed`))
                    : Option.none()
                )
              case "Resource":
                return Effect.succeed(
                  uris.has(event.uri)
                    ? Option.some(notification("notifications/resources/updated", { uri: event.uri }))
                    : Option.none()
                )
              case "Task":
                return taskIds.has(event.invocation.id) && event.invocation.owner === incoming.principal.id
                  ? Effect.map(detailed(event.invocation), (task) =>
                      Option.some(notification("notifications/tasks", task))
                    )
                  : Effect.succeed(Option.none())
            }
          }),
          Stream.filterMap((event: Option.Option<StreamEvent>) => event),
          Stream.prepend(Chunk.of(notification("notifications/subscriptions/acknowledged", { notifications: wanted }))),
          Stream.interruptWhen(hub.stopping),
          Stream.interruptWhen(
            Stream.runDrain(Stream.takeUntil(Stream.fromQueue(revocations), (owner) => owner === incoming.principal.id))
          ),
          Stream.concat(
            Stream.sync((): StreamEvent => ({
              message: { _tag: "Answer", answer: result(id, complete({ _meta: tag })) }
            }))
          )
        )
      )
    )
    return { _tag: "Stream", events } satisfies Reply
  })

  const query = (request: Request, meta: Meta, owner: PrincipalId): Effect.Effect<Result, McpFailure> | undefined => {
    const { method, params } = request
    if (method === "server/discover") {
      return Effect.succeed({
        supportedVersions,
        capabilities: { ...features.capabilities, extensions: { [tasksExtension]: {} } },
        instructions: features.instructions,
        ...cache
      })
    }
    if (method === "tasks/get" || method === "tasks/update" || method === "tasks/cancel") {
      return tasks(method, params, owner, meta)
    }
    const found = features.query(method, params, owner)
    return method === "completion/complete" || found === undefined
      ? found
      : Effect.map(found, (value) => ({ ...value, ...cache }))
  }

  const checked = Effect.fnUntraced(function* (incoming: ModernIncoming) {
    const { headers, request } = incoming
    const meta = yield* decodeMeta(request.params)
    yield* headers === undefined ? checkVersion(meta) : checkHeaders(request.method, request.params, meta, headers)
    yield* checkLogLevel(request.method, request.params)
    const tool = request.params?.["name"]
    if (headers !== undefined && request.method === "tools/call" && typeof tool === "string") {
      const schema = yield* features.inputSchema(tool)
      if (schema !== undefined) yield* checkParamHeaders(schema, request.params?.["arguments"], headers)
    }
    return meta
  })

  return Effect.fnUntraced(function* (incoming: ModernIncoming) {
    const { id, method } = incoming.request
    const served: Effect.Effect<Reply, McpFailure> = Effect.gen(function* () {
      const meta = yield* checked(incoming)
      if (method === "subscriptions/listen") return yield* listen(incoming, meta)
      const answer = query(incoming.request, meta, incoming.principal.id)
      if (answer !== undefined) return single(result(id, complete(yield* answer)))
      const reply = yield* invoke(incoming, meta)
      return method === "resources/read" && reply._tag === "Single" && reply.answer._tag === "Result"
        ? single(result(id, { ...(reply.answer.result as Result), ...cache }))
        : reply
    })
    const settled = yield* settle(served, method)
    switch (settled._tag) {
      case "Value":
        return settled.value
      case "Error":
        return failed(id, inThisEra(settled.error))
      case "Silent":
        return accepted
    }
  })
})
