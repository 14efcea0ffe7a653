import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as Runtime from "effect/Runtime"
import * as Stream from "effect/Stream"
import type { Principal } from "../../services/Auth.ts"
import { PrincipalId } from "../../services/Auth.ts"
import { Config } from "../../services/Config.ts"
import { encodeAnswer, encodeMessage } from "../../services/mcp/encode.ts"
import { NotAMessage } from "../../services/mcp/failures.ts"
import { McpServer } from "../../services/mcp/McpServer.ts"
import { isModernRequest } from "../../services/mcp/modernRequest.ts"
import { parseJson } from "../../services/mcp/parseJson.ts"
import type { Reply } from "../../services/mcp/reply.ts"
import { failed } from "../../services/mcp/reply.ts"
import { classify } from "../../services/wire/JsonRpc.ts"

/** The two ends of the pipe. */
export interface StdioOptions {
  readonly input: Stream.Stream<Uint8Array, unknown>
  /** Writes one line, without its end. Lines come out whole and in order. */
  readonly write: (line: string) => Effect.Effect<void>
}

/** Whoever started this process runs it as the same user: there is nobody to tell apart. */
const parent: Principal = { id: PrincipalId.make("stdio"), name: "owner" }

/** How long what is being answered may take once stdin has ended. */
const lastWords = "1 second"

/**
 * MCP over stdio: one message a line (2025-11-25 and 2026-07-28, transports, stdio). Ends when stdin does. One client, so
 * one legacy session, whose id never shows; requests of 2026-07-28 may come between its own.
 */
export const serve = Effect.fn("McpStdio.serve")(function* ({ input, write }: StdioOptions) {
  const mcp = yield* McpServer
  const config = yield* Config
  const fork = Runtime.runFork(yield* Effect.runtime<never>())
  /** Requests of the modern era that are being answered: their client cancels them by their id. */
  const modern = new Map<string | number, Fiber.RuntimeFiber<void>>()
  const running = new Set<Fiber.RuntimeFiber<void>>()
  let sessionId: string | undefined

  const incoming = (id: string | undefined) => ({
    principal: parent,
    sessionId: id,
    protocolVersion: undefined,
    headers: undefined,
    acceptsStream: true
  })
  const send = (value: unknown) => write(JSON.stringify(value))

  const start = (effect: Effect.Effect<void>): Fiber.RuntimeFiber<void> => {
    const fiber = fork(effect)
    running.add(fiber)
    fiber.addObserver(() => running.delete(fiber))
    return fiber
  }

  /** All of a stream's messages. Where the server ends it before its answer, the rest is fetched as a client would. */
  const drain = (reply: Extract<Reply, { _tag: "Stream" }>): Effect.Effect<void> =>
    Effect.suspend(() => {
      let last: string | undefined
      return Stream.runForEach(reply.events, ({ id, message }) => {
        last = id ?? last
        if (message === undefined) return Effect.void
        return send(encodeMessage(message))
      }).pipe(
        Effect.zipRight(
          Effect.suspend(() =>
            last === undefined || sessionId === undefined || reply.goesOn?.() !== true
              ? Effect.void
              : Effect.flatMap(mcp.listen(incoming(sessionId), last), (rest) =>
                  rest._tag === "Stream" ? drain(rest) : Effect.void
                )
          )
        )
      )
    })

  /** What the server says outside of any request. */
  const listen = (id: string) =>
    Effect.flatMap(mcp.listen(incoming(id), undefined), (reply) =>
      reply._tag === "Stream"
        ? Stream.runForEach(reply.events, ({ message }) =>
            message === undefined ? Effect.void : send(encodeMessage(message))
          )
        : Effect.void
    )

  const answer = (reply: Reply): Effect.Effect<void> => {
    switch (reply._tag) {
      case "Accepted":
        return Effect.void
      case "Batch":
        return send(reply.answers.map(encodeAnswer))
      case "Stream":
        return drain(reply)
      case "Single":
        return Effect.suspend(() => {
          if (reply.opened !== undefined) {
            sessionId = reply.opened
            fork(listen(reply.opened))
          }
          return send(encodeAnswer(reply.answer))
        })
    }
  }

  const receive = Effect.fnUntraced(function* (line: string) {
    const { maxBodyBytes } = yield* config.current
    if (Buffer.byteLength(line) > maxBodyBytes) {
      const reason = `a message holds at most ${maxBodyBytes} bytes (maxBodyBytes)`
      return yield* answer(failed(null, new NotAMessage({ reason })))
    }
    const parsed = parseJson(line)
    if (Either.isLeft(parsed)) return yield* answer(failed(null, parsed.left))
    const body = parsed.right
    const message = Array.isArray(body) ? undefined : classify(body)
    if (message?._tag === "Notification" && message.method === "notifications/cancelled") {
      const id = message.params?.["requestId"]
      const fiber = typeof id === "string" || typeof id === "number" ? modern.get(id) : undefined
      if (fiber !== undefined) return yield* Fiber.interruptFork(fiber)
    }
    const fiber = start(Effect.flatMap(mcp.handle({ ...incoming(sessionId), body }), answer))
    if (message?._tag === "Request" && isModernRequest(message.params, undefined)) {
      modern.set(message.id, fiber)
      fiber.addObserver(() => {
        if (modern.get(message.id) === fiber) modern.delete(message.id)
      })
    }
  })

  yield* input.pipe(
    Stream.decodeText(),
    Stream.splitLines,
    Stream.filter((line) => line.trim() !== ""),
    Stream.runForEach(receive),
    // A pipe that breaks is a pipe that ended.
    Effect.ignore
  )
  yield* Effect.forEach([...running], Fiber.await, { concurrency: "unbounded", discard: true }).pipe(
    Effect.timeoutOption(lastWords)
  )
})
