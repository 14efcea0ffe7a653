import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Stream from "effect/Stream"
import type { Principal, PrincipalId } from "../Auth.ts"
import { Auth } from "../Auth.ts"
import { Config } from "../Config.ts"
import type { SessionNotFound } from "../SessionStore.ts"
import { SessionStore } from "../SessionStore.ts"
import { classify } from "../wire/JsonRpc.ts"
import type { SessionRequired } from "./failures.ts"
import { RateLimited } from "./failures.ts"
import { Features } from "./features.ts"
import type { ServerEvent } from "./hub.ts"
import { Invocations } from "./Invocations.ts"
import * as Legacy from "./legacy.ts"
import * as Modern from "./modern.ts"
import type { Headers } from "./modernRequest.ts"
import { isModernRequest } from "./modernRequest.ts"
import * as Rate from "./rate.ts"
import type { Reply } from "./reply.ts"
import { accepted, failed } from "./reply.ts"
import * as RequestState from "./requestState.ts"

export { disconnectGrace } from "./legacy.ts"
export type { Answer, OutMessage, Reply, StreamEvent } from "./reply.ts"

/** One message or batch, after authentication. */
export interface Incoming extends Legacy.LegacyIncoming {
  /** By lower-case name; left out by a transport without headers. */
  readonly headers: Headers | undefined
  /** Parsed JSON. */
  readonly body: unknown
}

export interface Activity {
  readonly sessions: number
  readonly calls: number
}

/**
 * MCP without a transport: messages of authenticated principals in, replies out, each request by the rules of its own
 * era. Knows neither HTTP nor status codes.
 */
export class McpServer extends Context.Tag("pi-a2a-ext/services/mcp/McpServer")<
  McpServer,
  {
    /** Never fails: whatever comes in is answered, or rightly is not. An interruption is a client that went away. */
    readonly handle: (incoming: Incoming) => Effect.Effect<Reply>
    /** The standing stream of a legacy session, or the rest of one that the client lost. */
    readonly listen: (incoming: Legacy.LegacyIncoming, lastEventId: string | undefined) => Effect.Effect<Reply>
    /** DELETE of a legacy session: ends it, and its calls. */
    readonly close: (
      principal: Principal,
      sessionId: string | undefined
    ) => Effect.Effect<void, SessionNotFound | SessionRequired>
    /** Current figures, and every later change. */
    readonly activity: Stream.Stream<Activity>
  }
>() {}

const make = Effect.gen(function* () {
  const auth = yield* Auth
  const config = yield* Config
  const features = yield* Features
  const invocations = yield* Invocations
  const sessions = yield* SessionStore
  const events = yield* PubSub.sliding<ServerEvent>(1024)
  const stopping = yield* Deferred.make<void>()
  const sessionTicks = yield* PubSub.sliding<void>(1)
  const revocations = yield* PubSub.unbounded<PrincipalId>()
  const hub = { events, revocations, stopping: Deferred.await(stopping) }

  const legacy = yield* Legacy.make(hub)
  const modern = yield* Modern.make(hub)
  const rate = Rate.make()

  const feed = <A>(stream: Stream.Stream<A>, toEvent: (value: A) => ServerEvent) =>
    stream.pipe(
      Stream.runForEach((value) => PubSub.publish(events, toEvent(value))),
      Effect.forkScoped
    )
  yield* feed(features.listChanged, (kind) => ({ _tag: "List", kind }))
  yield* feed(features.resourceUpdated, (uri) => ({ _tag: "Resource", uri }))
  yield* feed(invocations.taskChanges, (invocation) => ({ _tag: "Task", invocation }))
  yield* auth.revocations.pipe(
    Stream.runForEach((owner) =>
      Effect.all(
        [
          invocations.cancelWhere((one) => one.owner === owner),
          sessions.closeOwner(owner),
          PubSub.publish(revocations, owner)
        ],
        { discard: true }
      )
    ),
    Effect.forkScoped
  )
  yield* sessions.closed.pipe(
    Stream.runForEach(() => PubSub.publish(sessionTicks, undefined)),
    Effect.forkScoped
  )
  yield* Effect.addFinalizer(() => Deferred.succeed(stopping, undefined))

  const figures = Effect.map(Effect.all([sessions.size, invocations.running]), ([size, calls]) => ({
    sessions: size,
    calls
  }))

  const route = (incoming: Incoming): Effect.Effect<Reply> => {
    const { body, headers } = incoming
    if (!Array.isArray(body)) {
      const message = classify(body)
      const params = "params" in message ? message.params : undefined
      if (message._tag === "Request" && isModernRequest(params, headers)) {
        return modern({
          principal: incoming.principal,
          request: message,
          headers,
          acceptsStream: incoming.acceptsStream
        })
      }
      // This era has no notification that a client could send over HTTP; it is taken all the same.
      if (message._tag === "Notification" && isModernRequest(params, headers)) return Effect.succeed(accepted)
    }
    return legacy.post(incoming, body)
  }

  return McpServer.of({
    handle: Effect.fnUntraced(function* (incoming) {
      const { rateLimit } = yield* config.current
      const wait = yield* rate.admit(incoming.principal.id, rateLimit)
      if (wait > 0) {
        const message = classify(incoming.body)
        return failed("id" in message ? message.id : null, new RateLimited({ retryAfter: wait }))
      }
      const reply = yield* route(incoming)
      if (reply._tag === "Single" && reply.opened !== undefined) yield* PubSub.publish(sessionTicks, undefined)
      return reply
    }),
    listen: legacy.get,
    close: legacy.close,
    activity: Stream.merge(invocations.ticks, Stream.fromPubSub(sessionTicks)).pipe(
      Stream.mapEffect(() => figures),
      Stream.merge(Stream.fromEffect(figures)),
      Stream.changesWith((a, b) => a.sessions === b.sessions && a.calls === b.calls)
    )
  })
})

/** Needs what is called (Features) and who may call; keeps running calls and signed states to itself. */
export const layer = Layer.scoped(McpServer, make).pipe(Layer.provide(RequestState.layer))
