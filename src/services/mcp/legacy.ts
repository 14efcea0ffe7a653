import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import type { Principal } from "../Auth.ts"
import type { Caller } from "../Caller.ts"
import type { ClientCapabilities, LogLevel } from "../Exchange.ts"
import type { Session, SessionNotFound } from "../SessionStore.ts"
import { SessionStore } from "../SessionStore.ts"
import * as JsonRpc from "../wire/JsonRpc.ts"
import { isRecord } from "../wire/JsonRpc.ts"
import * as Wire from "../wire/Mcp.ts"
import type { McpFailure } from "./failures.ts"
import * as Failures from "./failures.ts"
import type { Result } from "./features.ts"
import { decodeParams, Features } from "./features.ts"
import type { Hub } from "./hub.ts"
import type { Invocation } from "./Invocations.ts"
import { Invocations } from "./Invocations.ts"
import { streamAfter } from "./modern.ts"
import { clientName, progressTokenOf } from "./modernRequest.ts"
import type { Answer, OutMessage, Reply, StreamEvent } from "./reply.ts"
import { accepted, failed, failure, result, single } from "./reply.ts"
import { settle, settleExit } from "./settle.ts"
import { parseEventId, StreamLog } from "./StreamLog.ts"
import * as Versions from "./versions.ts"

export interface LegacyIncoming {
  readonly principal: Principal
  /** `Mcp-Session-Id`. */
  readonly sessionId: string | undefined
  /** `MCP-Protocol-Version`. */
  readonly protocolVersion: string | undefined
  /** Whether the client takes a stream for an answer. */
  readonly acceptsStream: boolean
}

/**
 * Legacy clients must not be cancelled by a disconnect (MCP 2025-11-25, transports), yet omp cancels by dropping the
 * connection and nothing else. So a call outlives its connection for this long, in which the client may come back.
 */
export const disconnectGrace = "1 second"
/** The same where the server sent the client away, and told it to come back. */
const detachGrace = "30 seconds"
/** How long a client should wait before it takes up a stream again, in milliseconds. */
const retryMillis = 500
/** Larger batches are refused whole. */
const maxBatch = 100
/** Streams of one session that can be taken up again. */
const maxStreams = 64

/** What a session has beyond what the store knows: it lives as long. */
interface State {
  readonly capabilities: ClientCapabilities
  readonly version: string
  readonly streams: Map<string, { readonly log: StreamLog; readonly invocation: Invocation }>
  /** The stream of GET, from the first GET on. */
  standing: StreamLog | undefined
  /** Our requests that the client has not answered: id -> whose question it is. */
  readonly asked: Map<string, { readonly invocation: Invocation; readonly key: string }>
  readonly calls: Map<Invocation, JsonRpc.RequestId>
  readonly uris: Set<string>
  logLevel: LogLevel
}

const decodeInitialize = decodeParams(Wire.InitializeParams)
const decodeCancelled = decodeParams(Wire.CancelledParams)
const decodeLevel = decodeParams(Wire.SetLevelParams)
const decodeUri = decodeParams(Wire.ReadResourceParams)

/** The 2025 revisions: `initialize`, sessions, requests of the server on streams that can be taken up again. */
export const make = Effect.fn("legacy.make")(function* (hub: Hub) {
  const sessions = yield* SessionStore
  const features = yield* Features
  const invocations = yield* Invocations
  const scope = yield* Effect.scope
  const states = new Map<string, State>()

  yield* sessions.closed.pipe(
    Stream.runForEach((sid) =>
      Effect.suspend(() => {
        const state = states.get(sid)
        states.delete(sid)
        state?.standing?.end()
        for (const { log } of state?.streams.values() ?? []) log.end()
        return invocations.cancelWhere((one) => one.sid === sid)
      })
    ),
    Effect.forkScoped
  )

  const notify = (message: OutMessage, wanted: (state: State) => boolean) => {
    for (const state of states.values()) if (wanted(state)) state.standing?.append(message)
  }
  yield* Stream.fromPubSub(hub.events).pipe(
    Stream.runForEach((event) =>
      Effect.sync(() => {
        if (event._tag === "List") {
          notify({ _tag: "Notification", method: `notifications/${event.kind}/list_changed` }, () => true)
        } else if (event._tag === "Resource") {
          const { uri } = event
          notify({ _tag: "Notification", method: "notifications/resources/updated", params: { uri } }, (state) =>
            state.uris.has(uri)
          )
        }
      })
    ),
    Effect.forkScoped
  )
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      for (const state of states.values()) {
        state.standing?.end()
        for (const { log } of state.streams.values()) log.end()
      }
    })
  )

  const initialize = Effect.fnUntraced(function* (principal: Principal, params: JsonRpc.Params | undefined) {
    const { capabilities, clientInfo, protocolVersion } = yield* decodeInitialize("initialize", params)
    const negotiated = Versions.negotiate(protocolVersion)
    const session = yield* sessions.open({
      owner: principal.id,
      protocolVersion: negotiated,
      client: clientName(clientInfo)
    })
    states.set(session.id, {
      capabilities: capabilities ?? {},
      version: negotiated,
      streams: new Map(),
      standing: undefined,
      asked: new Map(),
      calls: new Map(),
      uris: new Set(),
      logLevel: "info"
    })
    return {
      opened: session.id,
      result: {
        protocolVersion: negotiated,
        capabilities: features.capabilities,
        serverInfo: features.serverInfo,
        instructions: features.instructions
      }
    }
  })

  /** Asks what a call wants to know, as requests on its stream. */
  const ask = (state: State, invocation: Invocation, log: StreamLog) => {
    const known = new Set(
      [...state.asked.values()].filter((one) => one.invocation === invocation).map(({ key }) => key)
    )
    for (const [key, { request }] of invocation.pending) {
      if (known.has(key)) continue
      const id = crypto.randomUUID()
      state.asked.set(id, { invocation, key })
      log.append({ _tag: "Request", id, method: request.method, params: request.params })
    }
  }

  const answerOf = (
    state: State,
    id: JsonRpc.RequestId,
    exit: Exit.Exit<Result, McpFailure>
  ): Effect.Effect<Answer | undefined> =>
    Effect.map(settleExit(exit, "call"), (settled) => {
      switch (settled._tag) {
        case "Silent":
          return undefined
        case "Value":
          return result(id, Versions.hasResourceLinks(state.version) ? settled.value : Wire.linksAsText(settled.value))
        case "Error":
          // These revisions have no such error; a tool's result can say it to the model.
          return settled.error._tag === "CapabilityMissing"
            ? result(
                id,
                Wire.encodeToolResult(
                  Wire.textResult(
                    `this needs a client that declares ${Object.keys(settled.error.required).join(", ")}`,
                    true
                  )
                )
              )
            : failure(id, settled.error)
      }
    })

  /** Writes what a call says into its stream, whether somebody reads it or not. */
  const pump = (state: State, invocation: Invocation, id: JsonRpc.RequestId, log: StreamLog): Effect.Effect<void> =>
    Effect.flatMap(invocation.signals.take, (signal) => {
      switch (signal._tag) {
        case "Notification":
          log.append({ _tag: "Notification", method: signal.method, params: signal.params })
          break
        case "InputNeeded":
          ask(state, invocation, log)
          break
        case "Detached":
          if (Versions.hasPolling(state.version)) log.detach()
          break
        case "Done":
          return Effect.map(answerOf(state, id, signal.exit), (answer) => {
            if (answer !== undefined) log.append({ _tag: "Answer", answer })
            // Cancelled: what was said before is not told either to one who comes back for it.
            else log.forget()
            log.end()
          })
      }
      return pump(state, invocation, id, log)
    })

  const keepStream = (state: State, invocation: Invocation, log: StreamLog) => {
    for (const [id, old] of state.streams) {
      if (state.streams.size < maxStreams) break
      if (old.log.ended) state.streams.delete(id)
    }
    state.streams.set(log.id, { log, invocation })
  }

  /** A reader went away from a call's stream: unless somebody comes for it in time, nobody wants the call any more. */
  const afterGrace = (invocation: Invocation, log: StreamLog) =>
    Effect.suspend(() => {
      // Another reader took its place, before the old connection was seen to be gone.
      if (log.isRead) return Effect.void
      const readers = log.readersSoFar
      return Effect.sleep(log.detached ? detachGrace : disconnectGrace).pipe(
        Effect.zipRight(
          Effect.suspend(() => (log.ended || log.readersSoFar > readers ? Effect.void : invocations.cancel(invocation)))
        ),
        // Finalizers run uninterruptible, and what they fork with them: a shutdown need not wait.
        Effect.interruptible,
        Effect.forkIn(scope)
      )
    })

  const priming = (state: State, id: string): Stream.Stream<StreamEvent> =>
    Versions.hasPolling(state.version) ? Stream.make({ id, retry: retryMillis }) : Stream.empty

  /** A call's stream from an event on. Whoever ends it, the client has its time to come back. */
  const readCall = (state: State, invocation: Invocation, log: StreamLog, from: number): Stream.Stream<StreamEvent> =>
    priming(state, log.eventId(from)).pipe(
      Stream.concat(log.read(from)),
      Stream.ensuring(Effect.suspend(() => (log.ended ? Effect.void : afterGrace(invocation, log))))
    )

  const streamOf = (state: State, invocation: Invocation, id: JsonRpc.RequestId) =>
    Effect.gen(function* () {
      const log = new StreamLog(crypto.randomUUID())
      keepStream(state, invocation, log)
      yield* Effect.forkIn(pump(state, invocation, id, log), scope)
      const reply: Reply = {
        _tag: "Stream",
        events: readCall(state, invocation, log, 0),
        goesOn: () => !log.ended
      }
      return reply
    })

  const follow = Effect.fnUntraced(function* (
    state: State,
    invocation: Invocation,
    id: JsonRpc.RequestId,
    acceptsStream: boolean
  ) {
    const wait: Effect.Effect<Reply> = Effect.gen(function* () {
      for (;;) {
        const { ready } = invocation.signals
        const arrived = yield* acceptsStream ? Effect.timeoutOption(ready, streamAfter) : Effect.asSome(ready)
        const signal = Option.isSome(arrived) ? invocation.signals.peek() : undefined
        if (signal === undefined) {
          if (Option.isSome(arrived)) continue
          return yield* streamOf(state, invocation, id)
        }
        if (signal._tag === "Done") {
          invocation.signals.poll()
          const answer = yield* answerOf(state, id, signal.exit)
          return answer === undefined ? accepted : single(answer)
        }
        if (acceptsStream && signal._tag !== "Escalated") return yield* streamOf(state, invocation, id)
        invocation.signals.poll()
        if (signal._tag === "InputNeeded") {
          yield* invocations.refuse(invocation, "the client takes no stream, on which it could be asked")
        }
      }
    })
    return yield* Effect.onInterrupt(wait, () =>
      Effect.sleep(disconnectGrace).pipe(
        Effect.zipRight(invocations.cancel(invocation)),
        Effect.interruptible,
        Effect.forkIn(scope)
      )
    )
  })

  const invoke = Effect.fnUntraced(function* (
    principal: Principal,
    session: Session,
    state: State,
    request: JsonRpc.Request,
    acceptsStream: boolean
  ) {
    const caller: Caller = { principal, sid: session.id, client: session.client }
    const run = features.invoke(request.method, request.params, caller)
    if (run === undefined) return yield* new Failures.MethodNotFound({ method: request.method })
    const invocation = yield* invocations.start(
      {
        owner: principal.id,
        sid: session.id,
        binding: "",
        capabilities: state.capabilities,
        tasks: false,
        progressToken: progressTokenOf(request.params),
        logLevel: () => state.logLevel
      },
      // In use until the call has ended: neither idle time nor a crowd of others ends its session under it.
      (exchange) => Effect.scoped(Effect.zipRight(sessions.use(session.id, principal.id), run(exchange)))
    )
    state.calls.set(invocation, request.id)
    invocation.fiber.addObserver(() => {
      state.calls.delete(invocation)
      for (const [id, one] of state.asked) if (one.invocation === invocation) state.asked.delete(id)
    })
    return yield* follow(state, invocation, request.id, acceptsStream)
  })

  const query = (
    principal: Principal,
    state: State,
    request: JsonRpc.Request
  ): Effect.Effect<Result, McpFailure> | undefined => {
    const { method, params } = request
    switch (method) {
      case "ping":
        return Effect.succeed({})
      case "logging/setLevel":
        return Effect.map(decodeLevel(method, params), ({ level }) => {
          state.logLevel = level
          return {}
        })
      case "resources/subscribe":
      case "resources/unsubscribe":
        return Effect.map(decodeUri(method, params), ({ uri }) => {
          if (method === "resources/subscribe") state.uris.add(uri)
          else state.uris.delete(uri)
          return {}
        })
      default:
        return features.query(method, params, principal.id)
    }
  }

  const serve = Effect.fnUntraced(function* (
    incoming: LegacyIncoming,
    session: Session,
    state: State,
    request: JsonRpc.Request
  ) {
    const found = query(incoming.principal, state, request)
    const served: Effect.Effect<Reply, McpFailure> =
      found === undefined
        ? invoke(incoming.principal, session, state, request, incoming.acceptsStream)
        : Effect.map(found, (value) => single(result(request.id, value)))
    const settled = yield* settle(served, request.method)
    switch (settled._tag) {
      case "Value":
        return settled.value
      case "Error":
        return failed(request.id, settled.error)
      case "Silent":
        return accepted
    }
  })

  const answered = (state: State, message: JsonRpc.Response) =>
    Effect.suspend(() => {
      const waiting = state.asked.get(String(message.id))
      if (waiting === undefined) return Effect.void
      state.asked.delete(String(message.id))
      if (message.error === undefined) return invocations.answer(waiting.invocation, { [waiting.key]: message.result })
      const text = isRecord(message.error) ? message.error["message"] : undefined
      const reason = `the client answered with an error: ${typeof text === "string" ? text : "no reason given"}`
      return invocations.refuse(waiting.invocation, reason, [waiting.key])
    })

  const cancelled = (state: State, params: JsonRpc.Params | undefined) =>
    Either.match(decodeCancelled("notifications/cancelled", params), {
      // A malformed notification has nobody to be told.
      onLeft: () => Effect.void,
      onRight: ({ requestId }) =>
        Effect.forEach(
          [...state.calls].filter(([, id]) => id === requestId),
          ([invocation]) => invocations.cancel(invocation),
          { discard: true }
        )
    })

  const one = Effect.fnUntraced(function* (
    incoming: LegacyIncoming,
    session: Session,
    state: State,
    message: JsonRpc.Message
  ) {
    switch (message._tag) {
      case "Malformed":
        return failed(message.id, new Failures.NotAMessage({ reason: message.reason }))
      case "Response":
        yield* answered(state, message)
        return accepted
      case "Notification":
        if (message.method === "notifications/cancelled") yield* cancelled(state, message.params)
        return accepted
      case "Request":
        return yield* serve(incoming, session, state, message)
    }
  })

  const find = Effect.fnUntraced(function* (incoming: LegacyIncoming) {
    if (incoming.sessionId === undefined) return yield* new Failures.SessionRequired()
    const session = yield* sessions.touch(incoming.sessionId, incoming.principal.id)
    // MCP 2025-06-18 on: an unsupported version is refused. One that is supported but not the session's own is let
    // pass, since the session rules; clients of 2025-03-26 send none.
    if (incoming.protocolVersion !== undefined && !Versions.isLegacy(incoming.protocolVersion)) {
      return yield* new Failures.ProtocolVersionUnsupported({
        requested: incoming.protocolVersion,
        supported: Versions.legacyVersions
      })
    }
    const state = states.get(session.id)
    if (state === undefined) return yield* Effect.dieMessage(`session ${session.id} has no state`)
    return { session, state }
  })

  const within = Effect.fnUntraced(function* (
    incoming: LegacyIncoming,
    id: JsonRpc.RequestId | null,
    use: (session: Session, state: State) => Effect.Effect<Reply>
  ) {
    const found = yield* settle(find(incoming), "session")
    switch (found._tag) {
      case "Value":
        return yield* use(found.value.session, found.value.state)
      case "Error":
        return failed(id, found.error)
      case "Silent":
        return accepted
    }
  })

  const batch = (incoming: LegacyIncoming, messages: ReadonlyArray<unknown>) =>
    within(
      incoming,
      null,
      Effect.fnUntraced(function* (session, state) {
        const refuse = (reason: string) => failed(null, new Failures.NotAMessage({ reason }))
        if (!Versions.hasBatches(session.protocolVersion)) {
          return failed(null, new Failures.BatchNotSupported({ protocolVersion: session.protocolVersion }))
        }
        if (messages.length === 0) return refuse("a batch must not be empty")
        if (messages.length > maxBatch) return refuse(`a batch holds at most ${maxBatch} messages`)
        const whole = { ...incoming, acceptsStream: false }
        const replies = yield* Effect.forEach(
          messages,
          (message) => one(whole, session, state, JsonRpc.classify(message)),
          { concurrency: "unbounded" }
        )
        const answers = replies.flatMap((reply) => (reply._tag === "Single" ? [reply.answer] : []))
        return answers.length === 0 ? accepted : { _tag: "Batch" as const, answers }
      })
    )

  const open = Effect.fnUntraced(function* (incoming: LegacyIncoming, request: JsonRpc.Request) {
    const settled = yield* settle(initialize(incoming.principal, request.params), "initialize")
    switch (settled._tag) {
      case "Value": {
        const reply: Reply = {
          _tag: "Single",
          answer: result(request.id, settled.value.result),
          opened: settled.value.opened
        }
        return reply
      }
      case "Error":
        return failed(request.id, settled.error)
      case "Silent":
        return accepted
    }
  })

  const post = (incoming: LegacyIncoming, body: unknown): Effect.Effect<Reply> => {
    if (Array.isArray(body)) return batch(incoming, body)
    const message = JsonRpc.classify(body)
    if (message._tag === "Malformed") {
      return Effect.succeed(failed(message.id, new Failures.NotAMessage({ reason: message.reason })))
    }
    if (message._tag === "Request" && message.method === "initialize") return open(incoming, message)
    return within(incoming, message._tag === "Notification" ? null : message.id, (session, state) =>
      one(incoming, session, state, message)
    )
  }

  /** The events of a stream for as long as the session lives, which they keep from falling idle. */
  const alive = (session: Session, events: Stream.Stream<StreamEvent>, goesOn = () => false): Reply => ({
    _tag: "Stream",
    goesOn,
    events: Stream.merge(
      events,
      Stream.drain(
        Stream.repeatEffectWithSchedule(
          Effect.ignore(sessions.touch(session.id, session.owner)),
          Schedule.spaced(Duration.minutes(1))
        )
      ),
      { haltStrategy: "left" }
    )
  })

  /** GET: the session's standing stream, or with `Last-Event-ID` the rest of the one that it names. */
  const get = (incoming: LegacyIncoming, lastEventId: string | undefined): Effect.Effect<Reply> =>
    within(incoming, null, (session, state) =>
      Effect.sync(() => {
        const from = lastEventId === undefined ? undefined : parseEventId(lastEventId)
        const found = from === undefined ? undefined : state.streams.get(from.stream)
        if (from !== undefined && found !== undefined && from.at <= found.log.position) {
          return alive(session, readCall(state, found.invocation, found.log, from.at), () => !found.log.ended)
        }
        const standing = (state.standing ??= new StreamLog(crypto.randomUUID()))
        const at = from?.stream === standing.id ? Math.min(from.at, standing.position) : standing.position
        return alive(session, Stream.concat(priming(state, standing.eventId(at)), standing.read(at)))
      })
    )

  const close = Effect.fnUntraced(function* (principal: Principal, sessionId: string | undefined) {
    if (sessionId === undefined) return yield* new Failures.SessionRequired()
    const done: Effect.Effect<void, SessionNotFound> = sessions.close(sessionId, principal.id)
    return yield* done
  })

  return { post, get, close }
})
