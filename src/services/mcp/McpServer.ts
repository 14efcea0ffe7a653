import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as SubscriptionRef from "effect/SubscriptionRef"
import type { Principal, PrincipalId } from "../Auth.ts"
import { Auth } from "../Auth.ts"
import type { ToolResult } from "../HostTools.ts"
import type { Session, SessionId, SessionNotFound } from "../SessionStore.ts"
import { SessionStore } from "../SessionStore.ts"
import { ToolCalls } from "../ToolCalls.ts"
import * as JsonRpc from "../wire/JsonRpc.ts"
import * as Wire from "../wire/Mcp.ts"
import * as Failures from "./failures.ts"
import { internalError } from "./internalError.ts"
import { refusalText } from "./refusals.ts"
import * as Versions from "./versions.ts"

/** One POST, after authentication. */
export interface Incoming {
  readonly principal: Principal
  /** `Mcp-Session-Id`. */
  readonly sessionId: string | undefined
  /** `MCP-Protocol-Version`. */
  readonly protocolVersion: string | undefined
  /** Parsed JSON. */
  readonly body: unknown
}

export type Answer =
  | { readonly _tag: "Result"; readonly id: JsonRpc.RequestId; readonly result: unknown }
  | { readonly _tag: "Failure"; readonly id: JsonRpc.RequestId | null; readonly error: Failures.McpFailure }

export type Reply =
  /** Taken, and nothing to say: a notification, a response, a request that its sender cancelled. */
  | { readonly _tag: "Accepted" }
  | { readonly _tag: "Single"; readonly answer: Answer; readonly opened?: SessionId }
  | { readonly _tag: "Batch"; readonly answers: ReadonlyArray<Answer> }

export interface Activity {
  readonly sessions: number
  readonly calls: number
}

export interface ServerInfo {
  readonly name: string
  readonly title: string
  readonly version: string
  /** Tells this very process from every other bridge, so that a host that connects to itself notices. */
  readonly instance: string
}

/** Key of the `experimental` capability that carries {@link ServerInfo.instance}. */
export const instanceKey = "pi-a2a-ext/instance"

/**
 * Legacy clients must not be cancelled by a disconnect (MCP 2025-11-25, transports), yet omp cancels by dropping the
 * connection and nothing else. So a call outlives its connection by this long; plain JSON replies cannot be resumed,
 * and nobody would ever see the result.
 */
export const disconnectGrace = "1 second"

const unanswered: Answer | undefined = undefined

/** Larger batches are refused whole. */
const maxBatch = 100

/**
 * MCP without a transport: messages of authenticated principals in, answers out. Knows neither HTTP nor status codes.
 */
export class McpServer extends Context.Tag("pi-a2a-ext/services/mcp/McpServer")<
  McpServer,
  {
    /** Never fails: whatever comes in is answered, or rightly is not. An interruption is a client that went away. */
    readonly handle: (incoming: Incoming) => Effect.Effect<Reply>
    /** DELETE of a session: ends it, and its calls. */
    readonly close: (
      principal: Principal,
      sessionId: string | undefined
    ) => Effect.Effect<void, SessionNotFound | Failures.SessionRequired>
    /** Current figures, and every later change. */
    readonly activity: Stream.Stream<Activity>
  }
>() {}

const decodeParams =
  <A, I>(schema: Schema.Schema<A, I>) =>
  (method: string, params: JsonRpc.Params | undefined): Either.Either<A, Failures.ParamsInvalid> =>
    Either.mapLeft(
      Schema.decodeUnknownEither(schema)(params ?? {}),
      (error) =>
        new Failures.ParamsInvalid({
          method,
          detail: ParseResult.ArrayFormatter.formatErrorSync(error)
            .map((issue) => `params.${issue.path.join(".")}: ${issue.message}`)
            .join("; ")
        })
    )
const decodeInitialize = decodeParams(Wire.InitializeParams)
const decodeCall = decodeParams(Wire.CallToolParams)
const decodeCancelled = decodeParams(Wire.CancelledParams)
const decodeList = decodeParams(Wire.ListParams)

type CallFiber = Fiber.RuntimeFiber<ToolResult, SessionNotFound>

interface InFlight {
  readonly sid: SessionId
  readonly owner: PrincipalId
  readonly id: JsonRpc.RequestId
  readonly fiber: CallFiber
}

const make = (info: ServerInfo) =>
  Effect.gen(function* () {
    const sessions = yield* SessionStore
    const auth = yield* Auth
    const tools = yield* ToolCalls
    const scope = yield* Effect.scope
    const activity = yield* SubscriptionRef.make<Activity>({ sessions: 0, calls: 0 })

    // One entry a running tools/call. Small: as many as there are calls in flight.
    const calls = new Set<InFlight>()
    const report = Effect.flatMap(sessions.size, (size) =>
      SubscriptionRef.set(activity, { sessions: size, calls: calls.size })
    )
    const interruptWhere = (predicate: (call: InFlight) => boolean) =>
      Effect.forEach([...calls].filter(predicate), (call) => Fiber.interruptFork(call.fiber), { discard: true })

    // All at once: closing the scope alone would end one call after the other.
    yield* Effect.addFinalizer(() => interruptWhere(() => true))
    yield* auth.revocations.pipe(
      Stream.runForEach((owner) =>
        Effect.zipRight(
          interruptWhere((call) => call.owner === owner),
          sessions.closeOwner(owner)
        )
      ),
      Effect.forkScoped
    )
    yield* sessions.closed.pipe(
      Stream.runForEach((sid) =>
        Effect.zipRight(
          interruptWhere((call) => call.sid === sid),
          report
        )
      ),
      Effect.forkScoped
    )

    const initialize = Effect.fnUntraced(function* (principal: Principal, params: JsonRpc.Params | undefined) {
      const { clientInfo, protocolVersion } = yield* decodeInitialize("initialize", params)
      const negotiated = Versions.negotiate(protocolVersion)
      const client = [clientInfo?.name ?? "unknown", clientInfo?.version].filter((part) => part !== undefined).join("/")
      const session = yield* sessions.open({
        owner: principal.id,
        protocolVersion: negotiated,
        client: client.toWellFormed().slice(0, 128)
      })
      yield* report
      return {
        opened: session.id,
        result: {
          protocolVersion: negotiated,
          capabilities: { tools: {}, experimental: { [instanceKey]: { id: info.instance } } },
          serverInfo: { name: info.name, title: info.title, version: info.version }
        }
      }
    })

    const callTool = Effect.fnUntraced(function* (principal: Principal, session: Session, request: JsonRpc.Request) {
      const params = yield* decodeCall(request.method, request.params)
      const args = params.arguments === undefined ? {} : params.arguments
      if (!JsonRpc.isRecord(args)) {
        return Wire.encodeToolResult(
          Wire.textResult(`'arguments' of ${params.name} must be a JSON object, or be left out`, true)
        )
      }
      const run = tools
        .call({
          callId: crypto.randomUUID(),
          principal,
          sid: session.id,
          client: session.client,
          name: params.name,
          args
        })
        .pipe(Effect.catchAll((refusal) => Effect.succeed(Wire.textResult(refusalText(refusal), true))))
      // Its own fiber: the call outlives the connection that asked for it, but never the server.
      const fiber = yield* sessions
        .use(session.id, principal.id)
        .pipe(Effect.zipRight(run), Effect.scoped, Effect.forkIn(scope))
      const entry: InFlight = { sid: session.id, owner: principal.id, id: request.id, fiber }
      calls.add(entry)
      fiber.addObserver(() => {
        calls.delete(entry)
      })
      yield* report
      const exit = yield* Fiber.await(fiber).pipe(
        Effect.onInterrupt(() =>
          Effect.sleep(disconnectGrace).pipe(
            Effect.zipRight(Fiber.interrupt(fiber)),
            Effect.zipRight(report),
            // Interruption handlers run uninterruptible, and what they fork with them: a shutdown need not wait.
            Effect.interruptible,
            Effect.forkIn(scope)
          )
        )
      )
      yield* report
      return Wire.encodeToolResult(yield* exit)
    })

    const dispatch = (principal: Principal, session: Session, request: JsonRpc.Request) =>
      Effect.gen(function* () {
        switch (request.method) {
          case "ping":
            return {}
          case "tools/list": {
            const { cursor } = yield* decodeList(request.method, request.params)
            if (cursor !== undefined) {
              return yield* new Failures.ParamsInvalid({
                method: request.method,
                detail: "params.cursor: not a cursor that this server gave out (the list comes in one page)"
              })
            }
            return { tools: (yield* tools.list).map(Wire.encodeTool) }
          }
          case "tools/call":
            return yield* callTool(principal, session, request)
          default:
            return yield* new Failures.MethodNotFound({ method: request.method })
        }
      })

    const cancelled = (session: Session, params: JsonRpc.Params | undefined) =>
      Either.match(decodeCancelled("notifications/cancelled", params), {
        // A malformed notification has nobody to be told.
        onLeft: () => Effect.void,
        onRight: ({ requestId }) => interruptWhere((call) => call.sid === session.id && call.id === requestId)
      })

    /** `undefined` where the request was cancelled, and so gets no answer. */
    const settle = <E extends Failures.McpFailure, R>(
      request: JsonRpc.Request,
      effect: Effect.Effect<unknown, E, R>
    ): Effect.Effect<Answer | undefined, never, R> =>
      effect.pipe(
        Effect.map((result): Answer => ({ _tag: "Result", id: request.id, result })),
        Effect.catchAll((error) => Effect.succeed<Answer>({ _tag: "Failure", id: request.id, error })),
        Effect.catchAllCause((cause) =>
          Cause.isInterruptedOnly(cause)
            ? Effect.succeed(unanswered)
            : Effect.map(internalError(cause, request.method), (error): Answer => ({
                _tag: "Failure",
                id: request.id,
                error
              }))
        )
      )

    const one = Effect.fnUntraced(function* (principal: Principal, session: Session, message: JsonRpc.Message) {
      switch (message._tag) {
        case "Malformed": {
          const answer: Answer = {
            _tag: "Failure",
            id: message.id,
            error: new Failures.NotAMessage({ reason: message.reason })
          }
          return answer
        }
        case "Response":
          return undefined
        case "Notification":
          if (message.method === "notifications/cancelled") yield* cancelled(session, message.params)
          return undefined
        case "Request":
          return yield* settle(message, dispatch(principal, session, message))
      }
    })

    const failed = (id: JsonRpc.RequestId | null, error: Failures.McpFailure): Reply => ({
      _tag: "Single",
      answer: { _tag: "Failure", id, error }
    })

    const sessionOf = Effect.fnUntraced(function* (incoming: Incoming) {
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
      return session
    })

    const batch = Effect.fnUntraced(function* (incoming: Incoming, messages: ReadonlyArray<unknown>) {
      const found = yield* Effect.either(sessionOf(incoming))
      if (Either.isLeft(found)) return failed(null, found.left)
      const session = found.right
      if (!Versions.hasBatches(session.protocolVersion)) {
        return failed(null, new Failures.BatchNotSupported({ protocolVersion: session.protocolVersion }))
      }
      if (messages.length === 0) return failed(null, new Failures.NotAMessage({ reason: "a batch must not be empty" }))
      if (messages.length > maxBatch) {
        return failed(null, new Failures.NotAMessage({ reason: `a batch holds at most ${maxBatch} messages` }))
      }
      const answers = yield* Effect.forEach(
        messages,
        (message) => one(incoming.principal, session, JsonRpc.classify(message)),
        { concurrency: "unbounded" }
      )
      const said = answers.filter((answer) => answer !== undefined)
      const reply: Reply = said.length === 0 ? { _tag: "Accepted" } : { _tag: "Batch", answers: said }
      return reply
    })

    const single = Effect.fnUntraced(function* (incoming: Incoming) {
      const message = JsonRpc.classify(incoming.body)
      if (message._tag === "Malformed") {
        return failed(message.id, new Failures.NotAMessage({ reason: message.reason }))
      }
      if (message._tag === "Request" && message.method === "initialize") {
        let opened: SessionId | undefined
        const answer = yield* settle(
          message,
          Effect.map(initialize(incoming.principal, message.params), (done) => {
            opened = done.opened
            return done.result
          })
        )
        const reply: Reply =
          answer === undefined
            ? { _tag: "Accepted" }
            : { _tag: "Single", answer, ...(opened === undefined ? {} : { opened }) }
        return reply
      }
      const found = yield* Effect.either(sessionOf(incoming))
      if (Either.isLeft(found)) return failed(message._tag === "Notification" ? null : message.id, found.left)
      const answer = yield* one(incoming.principal, found.right, message)
      const reply: Reply = answer === undefined ? { _tag: "Accepted" } : { _tag: "Single", answer }
      return reply
    })

    return McpServer.of({
      handle: (incoming) => (Array.isArray(incoming.body) ? batch(incoming, incoming.body) : single(incoming)),
      close: Effect.fnUntraced(function* (principal, sessionId) {
        if (sessionId === undefined) return yield* new Failures.SessionRequired()
        yield* sessions.close(sessionId, principal.id)
        yield* report
      }),
      activity: Stream.changesWith(activity.changes, (a, b) => a.sessions === b.sessions && a.calls === b.calls)
    })
  })

export const layer = (info: ServerInfo) => Layer.scoped(McpServer, make(info))
