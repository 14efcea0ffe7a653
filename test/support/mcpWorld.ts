import { assert } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as MemoryResults from "../../src/layers/MemoryResults.ts"
import * as MemorySessionStore from "../../src/layers/MemorySessionStore.ts"
import type { Principal } from "../../src/services/Auth.ts"
import { Auth, PrincipalId } from "../../src/services/Auth.ts"
import { HostInfo } from "../../src/services/HostInfo.ts"
import type { JsonObject, ToolResult } from "../../src/services/HostTools.ts"
import * as Features from "../../src/services/mcp/features.ts"
import * as Invocations from "../../src/services/mcp/Invocations.ts"
import * as McpServer from "../../src/services/mcp/McpServer.ts"
import * as Prompts from "../../src/services/Prompts.ts"
import * as Resources from "../../src/services/Resources.ts"
import type { ToolCall } from "../../src/services/ToolCalls.ts"
import { ToolCalls } from "../../src/services/ToolCalls.ts"
import { isRecord } from "../../src/services/wire/JsonRpc.ts"
import * as FakeConfig from "./suites/fakeConfig.ts"

/** What a test tells a running tool to do. */
export type Order = "progress" | "again" | "ask" | "finish"

/** A call as the tool sees it. `tag` is in everything that it says. */
export interface Run {
  readonly tag: string
  readonly orders: Queue.Queue<Order>
  ended: "running" | "finished" | "interrupted"
}

/** Something that reached a client, and on which of its connections. */
export interface Seen {
  readonly connection: number
  readonly eventId: string | undefined
  readonly message: Record<string, unknown>
}

export interface Connection {
  readonly number: number
  readonly fiber: Fiber.RuntimeFiber<void>
  /** The last event that came on it. */
  lastEventId: string | undefined
  over: boolean
}

export const principal = (name: string): Principal => ({ id: PrincipalId.make(name), name })

export const modernVersion = "2026-07-28"
const prefix = "io.modelcontextprotocol/"
export const modernMeta = (more: JsonObject = {}, capabilities: JsonObject = {}) => ({
  _meta: {
    [`${prefix}protocolVersion`]: modernVersion,
    [`${prefix}clientCapabilities`]: capabilities,
    [`${prefix}clientInfo`]: { name: "modern", version: "1" },
    ...more
  }
})

const textOf = (text: string): ToolResult => ({ content: [{ type: "text", text }], isError: false })

const encode = (message: McpServer.OutMessage): Record<string, unknown> => {
  switch (message._tag) {
    case "Answer":
      return message.answer._tag === "Result"
        ? { id: message.answer.id, result: message.answer.result }
        : { id: message.answer.id, error: message.answer.error._tag }
    case "Request":
      return { id: message.id, method: message.method, params: message.params }
    case "Notification":
      return { method: message.method, params: message.params }
  }
}

/** The real protocol core over tools that do as they are told, with everything that leaves it on record. */
export const makeWorld = Effect.gen(function* () {
  const runs = new Map<string, Run>()
  const revoked = yield* Queue.unbounded<PrincipalId>()
  const tool = (call: ToolCall): Effect.Effect<ToolResult> =>
    Effect.gen(function* () {
      const tag = String(call.args["tag"])
      const run: Run = { tag, orders: yield* Queue.unbounded<Order>(), ended: "running" }
      runs.set(tag, run)
      let progress = 0
      const obey: Effect.Effect<ToolResult> = Effect.flatMap(Queue.take(run.orders), (order) => {
        switch (order) {
          case "progress":
            call.exchange.progress({ progress: ++progress, message: `${tag} #${progress}` })
            return obey
          case "again":
            // A tool that says the same twice, or goes back.
            call.exchange.progress({ progress, message: `${tag} #${progress}` })
            return obey
          case "ask":
            return call.exchange
              .ask({
                [tag]: { method: "elicitation/create", params: { mode: "form", message: tag, requestedSchema: {} } }
              })
              .pipe(
                Effect.tap((answers) =>
                  Effect.sync(() => assert.strictEqual(JSON.stringify(answers[tag]), JSON.stringify({ to: tag })))
                ),
                Effect.ignore,
                Effect.zipRight(obey)
              )
          case "finish":
            run.ended = "finished"
            return Effect.succeed(textOf(tag))
        }
      })
      return yield* Effect.onInterrupt(obey, () =>
        Effect.sync(() => {
          run.ended = "interrupted"
        })
      )
    })
  const config = yield* FakeConfig.make({
    rateLimit: { requestsPerSecond: 0, burst: 1, concurrentCalls: 1000 }
  })
  const layer = McpServer.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)),
    Layer.provideMerge(
      Layer.mergeAll(
        MemorySessionStore.layer,
        Layer.mock(ToolCalls, { list: Effect.succeed([]), changes: Stream.never, call: tool }),
        Layer.mock(Auth, {
          revocations: Stream.fromQueue(revoked),
          rejected: Effect.succeed(0),
          rotate: Effect.never
        }),
        Prompts.empty,
        Resources.empty,
        MemoryResults.layer,
        Layer.succeed(HostInfo, { name: "w", title: "w", version: "1", instance: "i", instructions: "" })
      )
    ),
    Layer.provideMerge(config.layer)
  )
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const server = Context.get(yield* Scope.extend(Layer.build(layer), scope), McpServer.McpServer)
  const seen = new Map<string, Array<Seen>>()
  let connections = 0

  /** Sends on a connection of its own and notes under `client` all that comes back. */
  const connect = (
    client: string,
    reply: Effect.Effect<McpServer.Reply>
  ): Effect.Effect<Connection, never, Scope.Scope> =>
    Effect.gen(function* () {
      const number = ++connections
      const list = seen.get(client) ?? []
      seen.set(client, list)
      const state = { lastEventId: undefined as string | undefined, over: false }
      const note = (message: Record<string, unknown>, eventId?: string) =>
        void list.push({ connection: number, eventId, message })
      const reading = Effect.flatMap(reply, (answer) => {
        switch (answer._tag) {
          case "Accepted":
            return Effect.void
          case "Single":
            return Effect.sync(() => note(encode({ _tag: "Answer", answer: answer.answer })))
          case "Batch":
            return Effect.sync(() => answer.answers.forEach((one) => note(encode({ _tag: "Answer", answer: one }))))
          case "Stream":
            return Stream.runForEach(answer.events, (event) =>
              Effect.sync(() => {
                if (event.id !== undefined) state.lastEventId = event.id
                if (event.message !== undefined) note(encode(event.message), event.id)
              })
            )
        }
      }).pipe(
        Effect.ensuring(
          Effect.sync(() => {
            state.over = true
          })
        )
      )
      const fiber = yield* Effect.forkScoped(reading)
      return {
        number,
        fiber,
        get lastEventId() {
          return state.lastEventId
        },
        get over() {
          return state.over
        }
      } as Connection
    })

  const incoming = (who: Principal, sessionId: string | undefined) => ({
    principal: who,
    sessionId,
    protocolVersion: undefined,
    headers: undefined,
    acceptsStream: true
  })

  return {
    server,
    runs,
    seen,
    revoke: (who: Principal) => Queue.offer(revoked, who.id),
    shutdown: Scope.close(scope, Exit.void),
    post: (client: string, who: Principal, sessionId: string | undefined, body: unknown) =>
      connect(client, server.handle({ ...incoming(who, sessionId), body })),
    listen: (client: string, who: Principal, sessionId: string, lastEventId: string | undefined) =>
      connect(client, server.listen(incoming(who, sessionId), lastEventId)),
    open: (who: Principal) =>
      Effect.map(
        server.handle({
          ...incoming(who, undefined),
          body: {
            jsonrpc: "2.0",
            id: "open",
            method: "initialize",
            params: { protocolVersion: "2025-11-25", capabilities: { elicitation: {} } }
          }
        }),
        (reply) => {
          assert(reply._tag === "Single" && reply.opened !== undefined)
          return reply.opened
        }
      ),
    close: (who: Principal, sessionId: string) => Effect.ignore(server.close(who, sessionId)),
    /** Lets everything happen that needs no time. */
    settle: TestClock.adjust(0)
  }
})
export type World = Effect.Effect.Success<typeof makeWorld>

/** Whose a message is, and what it says: `undefined` for one that no tool is behind. */
export const tagOf = (message: Record<string, unknown>): string | undefined => {
  const found = /tag:[a-z]+:\d+/.exec(JSON.stringify([message["params"], message["result"]]))
  return found?.[0]
}

export const isAnswer = ({ message }: Seen): boolean => !("method" in message)
export const isQuestion = ({ message }: Seen): boolean => "method" in message && "id" in message
export const isProgress = ({ message }: Seen): boolean => message["method"] === "notifications/progress"
export const isInputRequired = ({ message }: Seen): boolean =>
  isRecord(message["result"]) && message["result"]["resultType"] === "input_required"
