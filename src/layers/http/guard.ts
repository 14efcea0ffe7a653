import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Effect from "effect/Effect"
import type { Principal } from "../../services/Auth.ts"
import type { Unauthorized } from "../../services/Auth.ts"
import { Auth } from "../../services/Auth.ts"
import { Config } from "../../services/Config.ts"
import { hostAllowed, originAllowed } from "../../services/originRules.ts"
import * as JsonRpc from "../../services/wire/JsonRpc.ts"
import { HostRejected, MethodNotAllowed, OriginRejected } from "./httpFailures.ts"
import type { Failure } from "./mcpErrors.ts"
import { statusOf, toErrorObject } from "./mcpErrors.ts"

type Request = HttpServerRequest.HttpServerRequest
type Response = HttpServerResponse.HttpServerResponse

const always = { "cache-control": "no-store", "x-content-type-options": "nosniff" }

const exposedHeaders = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
const requestHeaders =
  "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, Mcp-Method, Mcp-Name"

/** Those, and each `Mcp-Param-*` that is asked for: their names are the tools' own (2026-07-28, custom headers). */
const allowedHeaders = (asked: string | undefined): string =>
  [requestHeaders, ...(asked?.match(/\bmcp-param-[a-z0-9-]{1,128}(?=\s*(,|$))/gi) ?? [])].join(", ")

export const json = (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Response =>
  HttpServerResponse.text(JSON.stringify(body), {
    status,
    contentType: "application/json",
    headers: { ...always, ...headers }
  })

export const empty = (status: number, headers: Readonly<Record<string, string>> = {}): Response =>
  HttpServerResponse.empty({ status, headers: { ...always, ...headers } })

const failureHeaders = (failure: Failure): Readonly<Record<string, string>> => {
  switch (failure._tag) {
    case "Unauthorized":
      return { "www-authenticate": "Bearer" }
    case "MethodNotAllowed":
      return { allow: failure.allow.join(", ") }
    case "SessionLimitReached":
    case "TooManyCalls":
      return { "retry-after": "1" }
    case "RateLimited":
      return { "retry-after": String(failure.retryAfter) }
    default:
      return {}
  }
}

/** A failure of the whole request, as a JSON-RPC body under its status. */
export const failed = (failure: Failure, id: JsonRpc.RequestId | null = null): Response =>
  json(statusOf(failure), JsonRpc.failure(id, toErrorObject(failure)), failureHeaders(failure))

/** How a route knows who calls, before anything else of the request counts. */
export type Credentials = (request: Request) => Effect.Effect<Principal, Unauthorized>

const withCors = (response: Response, origin: string | undefined): Response =>
  origin === undefined
    ? response
    : HttpServerResponse.setHeaders(response, {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": exposedHeaders,
        vary: "Origin"
      })

/**
 * What stands before every route, in this order: Host, Origin, OPTIONS, bearer, method. Nothing of the request's body
 * is read, and no state is changed, before the bearer is known to be good.
 */
export const make = Effect.gen(function* () {
  const config = yield* Config
  const auth = yield* Auth

  const bearer: Credentials = (request) => auth.authenticate(request.headers["authorization"])

  return (
    allow: ReadonlyArray<string>,
    handler: (principal: Principal, request: Request) => Effect.Effect<Response, Failure>,
    credentials: Credentials = bearer
  ) =>
    Effect.gen(function* () {
      const request = yield* HttpServerRequest.HttpServerRequest
      const settings = yield* config.current
      const { host, origin } = request.headers
      if (!hostAllowed(settings, host)) return failed(new HostRejected())
      if (!originAllowed(settings, origin, host)) return failed(new OriginRejected())
      const allowed = [...allow, "OPTIONS"]
      if (request.method === "OPTIONS") {
        const preflight = {
          allow: allowed.join(", "),
          "access-control-allow-methods": allowed.join(", "),
          "access-control-allow-headers": allowedHeaders(request.headers["access-control-request-headers"]),
          "access-control-max-age": "600"
        }
        return withCors(empty(204, preflight), origin)
      }
      const response = yield* credentials(request).pipe(
        Effect.flatMap((principal) =>
          allow.includes(request.method)
            ? handler(principal, request)
            : new MethodNotAllowed({ method: request.method, allow: allowed })
        ),
        Effect.catchAll((failure) => Effect.succeed(failed(failure)))
      )
      return withCors(response, origin)
    })
})

export type Guard = Effect.Effect.Success<typeof make>
