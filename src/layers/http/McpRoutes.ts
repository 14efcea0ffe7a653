import * as HttpRouter from "@effect/platform/HttpRouter"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as Effect from "effect/Effect"
import type { Principal } from "../../services/Auth.ts"
import { Config } from "../../services/Config.ts"
import type { Answer, Reply } from "../../services/mcp/McpServer.ts"
import { McpServer } from "../../services/mcp/McpServer.ts"
import * as JsonRpc from "../../services/wire/JsonRpc.ts"
import { readJson } from "./body.ts"
import * as Guard from "./guard.ts"
import { toErrorObject } from "./mcpErrors.ts"

const encodeAnswer = (answer: Answer) =>
  answer._tag === "Result"
    ? JsonRpc.success(answer.id, answer.result)
    : JsonRpc.failure(answer.id, toErrorObject(answer.error))

const encodeReply = (reply: Reply) => {
  switch (reply._tag) {
    case "Accepted":
      return Guard.empty(202)
    case "Batch":
      return Guard.json(200, reply.answers.map(encodeAnswer))
    case "Single": {
      if (reply.answer._tag === "Failure") return Guard.failed(reply.answer.error, reply.answer.id)
      const headers = reply.opened === undefined ? {} : { "mcp-session-id": reply.opened }
      return Guard.json(200, encodeAnswer(reply.answer), headers)
    }
  }
}

const methods = ["POST", "DELETE"]

/** MCP's Streamable HTTP (2025 revisions), replies as plain JSON. `/` is what the usage guide's clients connect to. */
export const make = Effect.fn("McpRoutes.make")(function* (guarded: Guard.Guard) {
  const config = yield* Config
  const mcp = yield* McpServer

  const post = Effect.fnUntraced(function* (principal: Principal, request: HttpServerRequest.HttpServerRequest) {
    const { maxBodyBytes } = yield* config.current
    const body = yield* readJson(request, maxBodyBytes)
    const reply = yield* mcp.handle({
      principal,
      sessionId: request.headers["mcp-session-id"],
      protocolVersion: request.headers["mcp-protocol-version"],
      body
    })
    return encodeReply(reply)
  })

  const endpoint = guarded(methods, (principal, request) =>
    request.method === "DELETE"
      ? Effect.as(mcp.close(principal, request.headers["mcp-session-id"]), Guard.empty(204))
      : post(principal, request)
  )
  // The router takes a trailing slash for the same path: a redirect would cost the Authorization header.
  return HttpRouter.empty.pipe(HttpRouter.all("/", endpoint), HttpRouter.all("/mcp", endpoint))
})
