import * as HttpRouter from "@effect/platform/HttpRouter"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Principal } from "../../services/Auth.ts"
import { Config } from "../../services/Config.ts"
import { encodeAnswer, encodeMessage } from "../../services/mcp/encode.ts"
import type { Reply, StreamEvent } from "../../services/mcp/McpServer.ts"
import { McpServer } from "../../services/mcp/McpServer.ts"
import { isModern } from "../../services/mcp/versions.ts"
import { liftIdleTimeout, readJson } from "./body.ts"
import * as Guard from "./guard.ts"
import { MethodNotAllowed } from "./httpFailures.ts"
import * as Sse from "./sse.ts"

const encodeEvent = ({ id, message, retry }: StreamEvent): Sse.ServerSentEvent => ({
  data: message === undefined ? "" : JSON.stringify(encodeMessage(message)),
  ...(id === undefined ? {} : { id }),
  ...(retry === undefined ? {} : { retry })
})

const encodeReply = (reply: Reply) => {
  switch (reply._tag) {
    case "Accepted":
      return Guard.empty(202)
    case "Batch":
      return Guard.json(200, reply.answers.map(encodeAnswer))
    case "Stream":
      return Sse.response(Stream.map(reply.events, encodeEvent))
    case "Single": {
      if (reply.answer._tag === "Failure") return Guard.failed(reply.answer.error, reply.answer.id)
      const headers = reply.opened === undefined ? {} : { "mcp-session-id": reply.opened }
      return Guard.json(200, encodeAnswer(reply.answer), headers)
    }
  }
}

const methods = ["GET", "POST", "DELETE"]

/** `Accept` never refuses anything; it only says whether a long reply may come as a stream. */
const acceptsStream = (request: HttpServerRequest.HttpServerRequest): boolean =>
  request.headers["accept"]?.toLowerCase().includes("text/event-stream") ?? false

/** MCP's Streamable HTTP, every revision. `/` is what the usage guide's clients connect to. */
export const make = Effect.fn("McpRoutes.make")(function* (guarded: Guard.Guard) {
  const config = yield* Config
  const mcp = yield* McpServer

  const incomingOf = (principal: Principal, request: HttpServerRequest.HttpServerRequest) => ({
    principal,
    sessionId: request.headers["mcp-session-id"],
    protocolVersion: request.headers["mcp-protocol-version"],
    headers: request.headers,
    acceptsStream: acceptsStream(request)
  })

  const post = Effect.fnUntraced(function* (principal: Principal, request: HttpServerRequest.HttpServerRequest) {
    const { maxBodyBytes } = yield* config.current
    const body = yield* readJson(request, maxBodyBytes)
    return encodeReply(yield* mcp.handle({ ...incomingOf(principal, request), body }))
  })

  /** GET and DELETE belong to sessions, which 2026-07-28 has not. */
  const sessionOnly = (request: HttpServerRequest.HttpServerRequest) =>
    isModern(request.headers["mcp-protocol-version"] ?? "")
      ? new MethodNotAllowed({ method: request.method, allow: ["POST", "OPTIONS"] })
      : Effect.void

  const get = Effect.fnUntraced(function* (principal: Principal, request: HttpServerRequest.HttpServerRequest) {
    yield* sessionOnly(request)
    liftIdleTimeout(request)
    return encodeReply(yield* mcp.listen(incomingOf(principal, request), request.headers["last-event-id"]))
  })

  const close = Effect.fnUntraced(function* (principal: Principal, request: HttpServerRequest.HttpServerRequest) {
    yield* sessionOnly(request)
    yield* mcp.close(principal, request.headers["mcp-session-id"])
    return Guard.empty(204)
  })

  const endpoint = guarded(methods, (principal, request) => {
    switch (request.method) {
      case "GET":
        return get(principal, request)
      case "DELETE":
        return close(principal, request)
      default:
        return post(principal, request)
    }
  })
  // The router takes a trailing slash for the same path: a redirect would cost the Authorization header.
  return HttpRouter.empty.pipe(HttpRouter.all("/", endpoint), HttpRouter.all("/mcp", endpoint))
})
