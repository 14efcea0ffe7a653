import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Config } from "../../services/Config.ts"
import { Listening } from "../../services/Listening.ts"
import { internalError } from "../../services/mcp/internalError.ts"
import * as Guard from "./guard.ts"
import { NotFound } from "./httpFailures.ts"
import * as McpRoutes from "./McpRoutes.ts"

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

const bind = (hostname: string, port: number) =>
  Layer.build(BunHttpServer.layerServer({ hostname, port, idleTimeout, maxRequestBodySize }))

const authority = (hostname: string, port: number): string =>
  hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`

const listen = Effect.gen(function* () {
  const config = yield* Config
  const { host, port } = yield* config.current
  const failed = (cause: Cause.Cause<never>) =>
    new ListenFailed({ host, port, reason: String(Cause.squash(cause)).replace(/^Error: /, "") })
  const first = yield* Effect.exit(bind(host, port))
  const fallBack = first._tag === "Failure" && port !== 0 && isPortTaken(Cause.squash(first.cause))
  const bound = yield* fallBack ? Effect.exit(bind(host, 0)) : Effect.succeed(first)
  if (bound._tag === "Failure") return yield* failed(bound.cause)
  const { address } = Context.get(bound.value, HttpServer.HttpServer)
  const actual = address._tag === "TcpAddress" ? address.port : port
  return Context.add(bound.value, Listening, {
    url: `http://${authority(host, actual)}`,
    port: actual,
    taken: fallBack ? port : undefined
  })
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
  const router = HttpRouter.all(mcp, "*", nowhere)
  const app = Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
    // The router knows neither paths that are no UTF-8 nor methods outside its list, and breaks on both.
    routable.has(request.method) && isDecodable(request.url) ? router : nowhere
  )
  yield* HttpServer.serveEffect(
    app.pipe(
      Effect.catchAllCause((cause) =>
        // A client that went away is no fault.
        Cause.isInterrupted(cause)
          ? Effect.failCause(cause)
          : Effect.map(internalError(cause, "http"), (error) => Guard.failed(error))
      ),
      // A path is what it is; only the trailing slash is forgiven.
      HttpRouter.withRouterConfig({ caseSensitive: true, ignoreDuplicateSlashes: false, ignoreTrailingSlash: true })
    )
  )
})

/** One port, one router for everything. */
export const layer = Layer.scopedDiscard(serve).pipe(Layer.provideMerge(Layer.scopedContext(listen)))
