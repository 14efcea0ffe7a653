import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { Config } from "../../services/Config.ts"
import { Listening } from "../../services/Listening.ts"
import { internalError } from "../../services/mcp/internalError.ts"
import * as Guard from "./guard.ts"
import { NotFound } from "./httpFailures.ts"
import * as McpRoutes from "./McpRoutes.ts"
import * as OpsRoutes from "./OpsRoutes.ts"

/** The address cannot be listened on (not one of this machine, or not allowed to this user). */
export class ListenFailed extends Schema.TaggedError<ListenFailed>()("ListenFailed", {
  host: Schema.String,
  port: Schema.Number,
  reason: Schema.String
}) {
  override get message(): string {
    return `cannot listen on ${this.host} port ${this.port}: ${this.reason}`
  }
}

/** Seconds without a byte after which a connection is dropped. Lifted for a request once its body has arrived. */
const idleTimeout = 30

/** Never reached: our own limit, in Config, answers before it with a body that a client can read. */
const maxRequestBodySize = 128 * 1024 * 1024

const isPortTaken = (defect: unknown): boolean =>
  typeof defect === "object" && defect !== null && "code" in defect && defect.code === "EADDRINUSE"

/** What listens, on one port: one server an address. */
class Servers extends Context.Tag("pi-a2a-ext/layers/http/Servers")<Servers, ReadonlyArray<HttpServer.HttpServer>>() {}

const bind = (hostname: string, port: number) =>
  Effect.map(Layer.build(BunHttpServer.layerServer({ hostname, port, idleTimeout, maxRequestBodySize })), (context) =>
    Context.get(context, HttpServer.HttpServer)
  )

const portOf = ({ address }: HttpServer.HttpServer): number => (address._tag === "TcpAddress" ? address.port : 0)

/** The other loopback: clients that connect to `localhost` take either. */
const twins: Readonly<Record<string, string>> = { "127.0.0.1": "::1", "::1": "127.0.0.1" }

/**
 * Listens on an address, and on its twin under the same port. Somebody else's server on the twin would get the requests,
 * and the tokens, that are meant for us: a port counts as taken where either is. A machine without the twin has no such
 * trouble.
 */
const bindWithTwin = Effect.fnUntraced(function* (hostname: string, port: number) {
  const scope = yield* Effect.scope
  const attempt = yield* Scope.fork(scope, ExecutionStrategy.sequential)
  const first = yield* Effect.onError(Scope.extend(bind(hostname, port), attempt), (cause) =>
    Scope.close(attempt, Exit.failCause(cause))
  )
  const twin = twins[hostname]
  if (twin === undefined) return [first]
  const second = yield* Effect.exit(Scope.extend(bind(twin, portOf(first)), attempt))
  if (Exit.isSuccess(second)) return [first, second.value]
  if (!isPortTaken(Cause.squash(second.cause))) return [first]
  yield* Scope.close(attempt, second)
  return yield* Effect.failCause(second.cause)
})

/** Free ports tried, where the twin of each is taken. */
const maxAttempts = 8

const authority = (hostname: string, port: number): string =>
  hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`

const listen = Effect.gen(function* () {
  const config = yield* Config
  const { host: configured, port } = yield* config.current
  // A name would be resolved to one of the two, and be the other's twin.
  const host = configured === "localhost" ? "127.0.0.1" : configured
  const free = Effect.retry(Effect.sandbox(bindWithTwin(host, 0)), {
    times: maxAttempts,
    while: (cause) => isPortTaken(Cause.squash(cause))
  }).pipe(Effect.unsandbox)
  const failed = (cause: Cause.Cause<never>) =>
    new ListenFailed({ host, port, reason: String(Cause.squash(cause)).replace(/^Error: /, "") })
  const first = yield* Effect.exit(port === 0 ? free : bindWithTwin(host, port))
  const fallBack = first._tag === "Failure" && port !== 0 && isPortTaken(Cause.squash(first.cause))
  const bound = yield* fallBack ? Effect.exit(free) : Effect.succeed(first)
  if (bound._tag === "Failure") return yield* failed(bound.cause)
  const servers = bound.value
  const actual = servers.map(portOf)[0] ?? port
  return Context.make(Servers, servers).pipe(
    Context.add(Listening, {
      url: `http://${authority(host, actual)}`,
      port: actual,
      taken: fallBack ? port : undefined
    })
  )
})

const everyMethod = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
const routable = new Set([...everyMethod, "OPTIONS"])

/** Anything else: as guarded as what exists, so that strangers cannot tell one from the other. */
const elsewhere = (guarded: Guard.Guard) =>
  guarded(everyMethod, (_principal, request) => new NotFound({ path: request.url.slice(0, 128) }))

const isDecodable = (url: string): boolean => {
  try {
    decodeURI(url)
    return true
  } catch {
    return false
  }
}

const serve = Effect.gen(function* () {
  const guarded = yield* Guard.make
  const mcp = yield* McpRoutes.make(guarded)
  const nowhere = elsewhere(guarded)
  const ops = yield* OpsRoutes.make(guarded)
  const router = HttpRouter.concatAll(mcp, ops).pipe(HttpRouter.all("*", nowhere))
  const app = Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
    // The router knows neither paths that are no UTF-8 nor methods outside its list, and breaks on both.
    routable.has(request.method) && isDecodable(request.url) ? router : nowhere
  )
  const handler = app.pipe(
    Effect.catchAllCause((cause) =>
      // A client that went away is no fault.
      Cause.isInterrupted(cause)
        ? Effect.failCause(cause)
        : Effect.map(internalError(cause, "http"), (error) => Guard.failed(error))
    ),
    // A path is what it is; only the trailing slash is forgiven.
    HttpRouter.withRouterConfig({ caseSensitive: true, ignoreDuplicateSlashes: false, ignoreTrailingSlash: true })
  )
  for (const server of yield* Servers) {
    yield* Effect.provideService(HttpServer.serveEffect(handler), HttpServer.HttpServer, server)
  }
})

/** One port, one router for everything. */
export const layer = Layer.scopedDiscard(serve).pipe(Layer.provideMerge(Layer.scopedContext(listen)))
