import { assert } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as Duration from "effect/Duration"
import * as MemoryResults from "../../src/layers/MemoryResults.ts"
import * as MemorySessionStore from "../../src/layers/MemorySessionStore.ts"
import type { Principal } from "../../src/services/Auth.ts"
import { Auth, PrincipalId } from "../../src/services/Auth.ts"
import type { Exchange } from "../../src/services/Exchange.ts"
import { HostInfo } from "../../src/services/HostInfo.ts"
import { Approvals } from "../../src/services/Approvals.ts"
import { Audit } from "../../src/services/Audit.ts"
import type { ExecuteOptions, HostTool, JsonObject, ToolResult } from "../../src/services/HostTools.ts"
import { HostTools } from "../../src/services/HostTools.ts"
import * as Features from "../../src/services/mcp/features.ts"
import * as Invocations from "../../src/services/mcp/Invocations.ts"
import * as McpServer from "../../src/services/mcp/McpServer.ts"
import * as Prompts from "../../src/services/Prompts.ts"
import * as Resources from "../../src/services/Resources.ts"
import * as ToolCalls from "../../src/services/ToolCalls.ts"
import { isRecord } from "../../src/services/wire/JsonRpc.ts"
import * as HandClock from "./handClock.ts"
import * as FakeConfig from "./suites/fakeConfig.ts"

/** What a test tells a running tool to do. When it is interrupted it speaks once more, unasked. */
export type Order = "progress" | "again" | "log" | "ask" | "detach" | "escalate" | "finish"

/** A call as the tool sees it. `tag` is in everything that it says. */
export interface Run {
  readonly tag: string
  readonly orders: Queue.Queue<Order>
  ended: "running" | "finished" | "interrupted"
  /** Begun anew, or side by side. */
  readonly again: boolean
  /** Progress so far: 1, 2, 3... */
  steps: number
  /** How often it had its client sent away. */
  detached: number
  /** Questions that got somebody else's answer. */
  misled: number
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
  /** How the reply came, once it has. */
  readonly reply: McpServer.Reply["_tag"] | undefined
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

export const textOf = (text: string): ToolResult => ({ content: [{ type: "text", text }], isError: false })

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

const theTool: HostTool = {
  name: "tool",
  wireName: "tool",
  title: "Tool",
  description: "does as it is told",
  inputSchema: { type: "object", properties: { tag: { type: "string" } } },
  annotations: {},
  active: true,
  own: false
}

export type Tool = (
  exchange: Exchange,
  args: JsonObject,
  options: ExecuteOptions
) => ReturnType<Context.Tag.Service<HostTools>["execute"]>

/** The same for every call of every client: only what it is about tells one question from another. */
export const questionKey = "q"

/**
 * Signatures of states are made on other threads, of which no clock of a test knows: without a count of those under way
 * it would depend on luck whether a world has settled.
 */
const watchSignatures = Effect.acquireRelease(
  Effect.sync(() => {
    const { subtle } = crypto
    const own = { sign: subtle.sign, verify: subtle.verify }
    const pending = new Set<Promise<unknown>>()
    const watched =
      <A extends Array<never>, B>(made: (...args: A) => Promise<B>) =>
      (...args: A): Promise<B> => {
        const promise = made.apply(subtle, args)
        pending.add(promise)
        return promise.finally(() => pending.delete(promise))
      }
    Object.assign(subtle, { sign: watched(own.sign), verify: watched(own.verify) })
    return { own, pending }
  }),
  ({ own }) => Effect.sync(() => Object.assign(crypto.subtle, own))
)

/** The real protocol core over tools that do as they are told, with everything that leaves it on record. */
const makeWorld = Effect.fnUntraced(function* (hand: HandClock.HandClock, tool: Tool | undefined) {
  const runs = new Map<string, Run>()
  const { pending } = yield* watchSignatures
  const revoked = yield* Queue.unbounded<PrincipalId>()
  const listTicks = yield* Queue.unbounded<void>()
  const execute = (args: JsonObject, { exchange }: ExecuteOptions): Effect.Effect<ToolResult> =>
    Effect.gen(function* () {
      const tag = String(args["tag"])
      const orders = yield* Queue.unbounded<Order>()
      const run: Run = { tag, orders, ended: "running", again: runs.has(tag), steps: 0, detached: 0, misled: 0 }
      runs.set(tag, run)
      const speak = () => exchange.progress({ progress: ++run.steps, message: `${tag} #${run.steps}` })
      const log = () => exchange.log({ level: "error", data: tag })
      const ask = exchange
        .ask({
          [questionKey]: { method: "elicitation/create", params: { mode: "form", message: tag, requestedSchema: {} } }
        })
        .pipe(
          Effect.tap((answers) =>
            Effect.sync(() => {
              if (JSON.stringify(answers[questionKey]) !== JSON.stringify({ to: tag })) run.misled++
            })
          ),
          Effect.ignore
        )
      const obey: Effect.Effect<ToolResult> = Effect.flatMap(Queue.take(run.orders), (order) => {
        switch (order) {
          case "progress":
            speak()
            return obey
          case "again":
            // A tool that says the same twice, or goes back.
            if (run.steps > 0) exchange.progress({ progress: run.steps, message: `${tag} #${run.steps}` })
            return obey
          case "log":
            log()
            return obey
          case "ask":
            return Effect.zipRight(ask, obey)
          case "detach":
            run.detached++
            return Effect.zipRight(exchange.detach, obey)
          case "escalate":
            return Effect.zipRight(Effect.ignore(exchange.escalate(false)), obey)
          case "finish":
            run.ended = "finished"
            return Effect.succeed(textOf(tag))
        }
      })
      return yield* Effect.onInterrupt(obey, () =>
        Effect.sync(() => {
          run.ended = "interrupted"
          speak()
          log()
        })
      )
    })
  const config = yield* FakeConfig.make({
    rateLimit: { requestsPerSecond: 0, burst: 1, concurrentCalls: 1000 }
  })
  const tools = ToolCalls.layer.pipe(
    Layer.provide(
      Layer.mergeAll(
        Layer.succeed(HostTools, {
          catalog: Effect.succeed([theTool]),
          changes: Stream.never,
          validate: (_tool, args) => Effect.succeed(args),
          policy: () => Effect.succeed({ _tag: "Allow" }),
          execute: (_tool, args, options) =>
            tool === undefined ? execute(args, options) : tool(options.exchange, args, options)
        }),
        Layer.mock(Approvals, {}),
        Layer.succeed(Audit, { start: () => Effect.succeed(() => Effect.void), flush: Effect.void })
      )
    )
  )
  const layer = McpServer.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)),
    Layer.provideMerge(
      Layer.mergeAll(
        MemorySessionStore.layer,
        tools,
        Layer.mock(Auth, {
          revocations: Stream.fromQueue(revoked),
          rejected: Effect.succeed(0),
          rotate: Effect.never
        }),
        Layer.effect(
          Prompts.Prompts,
          Effect.map(Prompts.Prompts, (none) => ({ ...none, changes: Stream.fromQueue(listTicks) }))
        ).pipe(Layer.provide(Prompts.empty)),
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
      const state = {
        reply: undefined as McpServer.Reply["_tag"] | undefined,
        lastEventId: undefined as string | undefined,
        over: false
      }
      const note = (message: Record<string, unknown>, eventId?: string) =>
        void list.push({ connection: number, eventId, message })
      const reading = Effect.flatMap(reply, (answer) => {
        state.reply = answer._tag
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
        get reply() {
          return state.reply
        },
        get lastEventId() {
          return state.lastEventId
        },
        get over() {
          return state.over
        }
      } as Connection
    })

  const incoming = (who: Principal, sessionId: string | undefined, acceptsStream = true) => ({
    principal: who,
    sessionId,
    protocolVersion: undefined,
    headers: undefined,
    acceptsStream
  })

  const settle: Effect.Effect<void> = Effect.flatMap(hand.settle, () =>
    pending.size === 0
      ? Effect.void
      : Effect.zipRight(
          Effect.promise(() => Promise.allSettled(pending)),
          settle
        )
  )
  const adjust = (duration: Duration.DurationInput) =>
    Effect.zipRight(settle, Effect.zipRight(hand.adjust(duration), settle))

  return {
    server,
    runs,
    seen,
    /** What came on a connection. */
    heard: ({ number }: Connection): ReadonlyArray<Record<string, unknown>> =>
      [...seen.values()].flat().flatMap((one) => (one.connection === number ? [one.message] : [])),
    revoke: (who: Principal) => Queue.offer(revoked, who.id),
    shutdown: Scope.close(scope, Exit.void),
    /** What a change of a list at the host does. */
    changeList: Queue.offer(listTicks, undefined),
    post: (client: string, who: Principal, sessionId: string | undefined, body: unknown, acceptsStream = true) =>
      connect(client, server.handle({ ...incoming(who, sessionId, acceptsStream), body })),
    listen: (client: string, who: Principal, sessionId: string, lastEventId: string | undefined) =>
      connect(client, server.listen(incoming(who, sessionId), lastEventId)),
    open: (who: Principal, protocolVersion = "2025-11-25", capabilities: JsonObject = { elicitation: {} }) =>
      Effect.map(
        server.handle({
          ...incoming(who, undefined),
          body: {
            jsonrpc: "2.0",
            id: "open",
            method: "initialize",
            params: { protocolVersion, capabilities }
          }
        }),
        (reply) => {
          assert(reply._tag === "Single" && reply.opened !== undefined)
          return reply.opened
        }
      ),
    close: (who: Principal, sessionId: string) => Effect.ignore(server.close(who, sessionId)),
    /** Lets everything happen that needs no time. */
    settle,
    /** Moves the time on. */
    adjust
  }
})
export type World = Effect.Effect.Success<ReturnType<typeof makeWorld>>

/** A fresh world with a clock of its own, and with a tool of its own where that has to do more than obey. */
export const inWorld = <A, E>(
  use: (world: World) => Effect.Effect<A, E, Scope.Scope>,
  tool?: Tool
): Effect.Effect<A, E> =>
  Effect.suspend(() => {
    const hand = HandClock.make()
    return Effect.flatMap(makeWorld(hand, tool), use).pipe(Effect.scoped, Effect.withClock(hand.clock))
  })

/** Whose a message is, and what it says: `undefined` for one that no tool is behind. */
export const tagOf = (message: Record<string, unknown>): string | undefined => {
  const found = /tag:[a-z]+:\d+/.exec(JSON.stringify([message["params"], message["result"]]))
  return found?.[0]
}

export const resultOf = ({ message }: Seen): Record<string, unknown> =>
  isRecord(message["result"]) ? message["result"] : {}
export const isAnswer = ({ message }: Seen): boolean => !("method" in message)
export const isQuestion = ({ message }: Seen): boolean => "method" in message && "id" in message
/** Progress that no tool is behind. */
export const isSignOfLife = (seen: Seen): boolean =>
  isProgress(seen) && !Object.hasOwn(seen.message["params"] as object, "message")
export const isProgress = ({ message }: Seen): boolean => message["method"] === "notifications/progress"
export const isInputRequired = (seen: Seen): boolean => resultOf(seen)["resultType"] === "input_required"
