import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as HashMap from "effect/HashMap"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as MemoryResults from "../../../src/layers/MemoryResults.ts"
import * as MemorySessionStore from "../../../src/layers/MemorySessionStore.ts"
import { Auth, PrincipalId } from "../../../src/services/Auth.ts"
import type { HostTool } from "../../../src/services/HostTools.ts"
import type { Reply } from "../../../src/services/mcp/McpServer.ts"
import { HostInfo } from "../../../src/services/HostInfo.ts"
import * as Features from "../../../src/services/mcp/features.ts"
import * as Invocations from "../../../src/services/mcp/Invocations.ts"
import * as McpServer from "../../../src/services/mcp/McpServer.ts"
import * as Prompts from "../../../src/services/Prompts.ts"
import * as Resources from "../../../src/services/Resources.ts"
import { SessionStore } from "../../../src/services/SessionStore.ts"
import type { ToolCall } from "../../../src/services/ToolCalls.ts"
import { ToolCalls, ToolNotExposed } from "../../../src/services/ToolCalls.ts"
import * as FakeConfig from "../../support/suites/fakeConfig.ts"
import { forAll, Json, JsonRecord } from "../../support/suites/arbitraries.ts"

const info = { name: "omp-a2a-bridge", title: "omp", version: "1.2.3", instance: "instance-1", instructions: "a host" }
const alice = { id: PrincipalId.make("alice"), name: "owner" }
const bob = { id: PrincipalId.make("bob"), name: "owner" }
const tool: HostTool = {
  name: "a.b",
  wireName: "a_b",
  title: "A B",
  description: "does",
  inputSchema: { type: "object", properties: {} },
  annotations: { readOnlyHint: true },
  active: true,
  own: false
}

/** A server whose tool calls hang under their names until they are interrupted, but for a few that end by themselves. */
const setup = Effect.gen(function* () {
  const running = new Map<string, ToolCall>()
  const interrupted: Array<string> = []
  const logged: Array<{ readonly level: string; readonly fields: string }> = []
  const revoked = yield* Queue.unbounded<PrincipalId>()
  const tools = Layer.mock(ToolCalls, {
    list: Effect.succeed([tool]),
    changes: Stream.never,
    call: (call) => {
      switch (call.name) {
        case "a_b":
          return Effect.succeed({ content: [{ type: "text", text: JSON.stringify(call.args) }], isError: false })
        case "torn":
          return Effect.succeed({ content: [{ type: "text", text: "a\ud800b" }], isError: false })
        case "breaks":
          return Effect.die(new Error("secret detail"))
        case "throws":
          throw new Error("secret detail")
        case "slow":
          return Effect.as(Effect.sleep("25 hours"), {
            content: [{ type: "text", text: "at last" }],
            isError: false
          } as const)
      }
      if (!call.name.startsWith("hang")) return new ToolNotExposed({ tool: call.name })
      return Effect.sync(() => running.set(call.name, call)).pipe(
        Effect.zipRight(Effect.never),
        Effect.onInterrupt(() =>
          Effect.sync(() => {
            running.delete(call.name)
            interrupted.push(call.name)
          })
        )
      )
    }
  })
  const auth = Layer.mock(Auth, {
    revocations: Stream.fromQueue(revoked),
    rejected: Effect.succeed(0),
    rotate: Effect.never
  })
  const logger = Logger.add(
    Logger.make(({ annotations, logLevel, message }) => {
      logged.push({ level: logLevel.label, fields: JSON.stringify([message, [...HashMap.toEntries(annotations)]]) })
    })
  )
  const config = yield* FakeConfig.make()
  const layer = McpServer.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)),
    Layer.provideMerge(
      Layer.mergeAll(
        MemorySessionStore.layer,
        tools,
        auth,
        Prompts.empty,
        Resources.empty,
        MemoryResults.layer,
        Layer.succeed(HostInfo, info)
      )
    ),
    Layer.provideMerge(config.layer),
    Layer.provideMerge(logger)
  )
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer((exit) => Scope.close(scope, exit))
  const context = yield* Scope.extend(Layer.build(layer), scope)
  yield* TestClock.adjust(0)
  const server = Context.get(context, McpServer.McpServer)

  const post = (
    body: unknown,
    sessionId?: string,
    more: { readonly principal?: typeof alice; readonly protocolVersion?: string } = {}
  ) =>
    Effect.provide(
      server.handle({
        principal: more.principal ?? alice,
        sessionId,
        protocolVersion: more.protocolVersion,
        headers: {},
        acceptsStream: false,
        body
      }),
      logger
    )
  const initialize = (protocolVersion = "2025-11-25", principal = alice) =>
    Effect.map(
      post(
        request("init", "initialize", { protocolVersion, capabilities: {}, clientInfo: { name: "c", version: "1" } }),
        undefined,
        { principal }
      ),
      (reply) => {
        assert.strictEqual(reply._tag, "Single")
        const opened = reply._tag === "Single" ? reply.opened : undefined
        assert.isDefined(opened)
        return opened ?? ""
      }
    )
  return {
    server,
    sessions: Context.get(context, SessionStore),
    close: Scope.close(scope, Exit.void),
    running,
    interrupted,
    logged,
    revoked,
    post,
    initialize
  }
})

const request = (id: unknown, method: string, params?: unknown) => ({
  jsonrpc: "2.0",
  id,
  method,
  ...(params === undefined ? {} : { params })
})
const call = (id: unknown, name: string, args?: unknown) =>
  request(id, "tools/call", args === undefined ? { name } : { name, arguments: args })
const notification = (method: string, params?: unknown) => ({
  jsonrpc: "2.0",
  method,
  ...(params === undefined ? {} : { params })
})
const cancel = (requestId: unknown) => notification("notifications/cancelled", { requestId })
const settle = TestClock.adjust(0)

const errorOf = (reply: Reply) =>
  reply._tag === "Single" && reply.answer._tag === "Failure" ? reply.answer.error._tag : undefined
const idOf = (reply: Reply) => (reply._tag === "Single" ? reply.answer.id : "no single answer")
const resultOf = (reply: Reply): Record<string, unknown> => {
  assert.strictEqual(reply._tag === "Single" ? reply.answer._tag : reply._tag, "Result")
  return reply._tag === "Single" && reply.answer._tag === "Result"
    ? (reply.answer.result as Record<string, unknown>)
    : {}
}

const Id = FastCheck.oneof(FastCheck.string(), FastCheck.maxSafeInteger())
const Method = FastCheck.oneof(
  FastCheck.constantFrom("ping", "tools/list", "tools/call", "initialize", "notifications/cancelled", "constructor"),
  FastCheck.string()
)
const Params = FastCheck.oneof(
  JsonRecord,
  FastCheck.record(
    { name: FastCheck.constantFrom("a_b", "breaks", "throws", "gone"), arguments: Json },
    { requiredKeys: [] }
  ),
  FastCheck.record({ requestId: FastCheck.oneof(Id, Json) }),
  FastCheck.record({ cursor: Json }),
  FastCheck.record({ protocolVersion: FastCheck.oneof(FastCheck.constant("2025-06-18"), Json), clientInfo: Json })
)
const ValidRequest = FastCheck.record({ jsonrpc: FastCheck.constant("2.0"), id: Id, method: Method, params: Params })
const Message = FastCheck.oneof(
  Json,
  ValidRequest,
  FastCheck.record(
    {
      jsonrpc: FastCheck.oneof(FastCheck.constant("2.0"), Json),
      id: FastCheck.oneof(Id, Json),
      method: FastCheck.oneof(Method, Json),
      params: FastCheck.oneof(Params, Json),
      result: Json,
      error: Json
    },
    { requiredKeys: [] }
  )
)

describe("McpServer.handle", () => {
  it.scoped(
    "dies, hangs or gives no reply for some body",
    () =>
      Effect.gen(function* () {
        const { initialize, post } = yield* setup
        const known = [yield* initialize("2025-03-26"), yield* initialize("2025-06-18"), yield* initialize(), undefined]
        yield* forAll(
          FastCheck.tuple(
            FastCheck.oneof(Message, FastCheck.array(Message, { maxLength: 4 })),
            FastCheck.constantFrom(...known)
          ),
          ([body, sid]) =>
            Effect.map(Effect.exit(post(body, sid)), (exit) => {
              assert.isTrue(Exit.isSuccess(exit), String(exit))
              if (Exit.isSuccess(exit)) assert.include(["Accepted", "Single", "Batch"], exit.value._tag)
            }),
          500
        )
      }),
    30_000
  )

  it.scoped("answers a request under another id, or not at all", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const known = [yield* initialize(), undefined]
      yield* forAll(FastCheck.tuple(ValidRequest, FastCheck.constantFrom(...known)), ([body, sid]) =>
        Effect.map(post(body, sid), (reply) => assert.isTrue(Object.is(idOf(reply), body.id)))
      )
    })
  )

  it.scoped("answers a notification", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const sid = yield* initialize()
      yield* forAll(
        FastCheck.tuple(FastCheck.oneof(Method, FastCheck.constant("notifications/initialized")), Params),
        ([method, params]) =>
          Effect.gen(function* () {
            assert.deepStrictEqual(yield* post(notification(method, params), sid), { _tag: "Accepted" })
            assert.deepStrictEqual(yield* post({ jsonrpc: "2.0", id: 1, result: params }, sid), { _tag: "Accepted" })
          })
      )
    })
  )

  it.effect.each<readonly [asked: string, answered: string]>([
    ["2025-03-26", "2025-03-26"],
    ["2025-06-18", "2025-06-18"],
    ["2025-11-25", "2025-11-25"],
    ["2024-11-05", "2025-11-25"],
    ["2099-01-01", "2025-11-25"],
    ["", "2025-11-25"]
  ])("answers the version %s with another than %s", ([asked, answered]) =>
    Effect.gen(function* () {
      const { post, sessions } = yield* setup
      const reply = yield* post(request(0, "initialize", { protocolVersion: asked }))
      assert.strictEqual(idOf(reply), 0)
      assert.deepStrictEqual(resultOf(reply), {
        protocolVersion: answered,
        capabilities: {
          tools: { listChanged: true },
          prompts: { listChanged: true },
          resources: { listChanged: true, subscribe: true },
          completions: {},
          logging: {},
          experimental: { "pi-a2a-ext/instance": { id: "instance-1" } }
        },
        serverInfo: { name: "omp-a2a-bridge", title: "omp", version: "1.2.3" },
        instructions: "a host"
      })
      const opened = reply._tag === "Single" ? reply.opened : undefined
      assert.strictEqual((yield* sessions.touch(opened ?? "", alice.id)).protocolVersion, answered)
    }).pipe(Effect.scoped)
  )

  it.scoped("opens a session for an initialize that it refuses", () =>
    Effect.gen(function* () {
      const { post, sessions } = yield* setup
      for (const params of [undefined, {}, { protocolVersion: 5 }, { protocolVersion: "2025-11-25", clientInfo: 1 }]) {
        const reply = yield* post(request(1, "initialize", params))
        assert.strictEqual(errorOf(reply), "ParamsInvalid")
        assert.notProperty(reply, "opened")
      }
      assert.strictEqual(yield* sessions.size, 0)
    })
  )

  it.scoped("serves without a session, with an unknown one, or with another principal's", () =>
    Effect.gen(function* () {
      const { initialize, post, running } = yield* setup
      const sid = yield* initialize()
      assert.strictEqual(errorOf(yield* post(request(1, "tools/list"))), "SessionRequired")
      assert.strictEqual(errorOf(yield* post(request(1, "tools/list"), "nonsense")), "SessionNotFound")
      const foreign = yield* post(call(1, "hang"), sid, { principal: bob })
      assert.strictEqual(errorOf(foreign), "SessionNotFound")
      assert.strictEqual(running.size, 0)
    })
  )

  it.scoped("lets an unknown MCP-Protocol-Version pass, or refuses a known one", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const sid = yield* initialize("2025-06-18")
      for (const version of ["2024-11-05", "", "x"]) {
        const reply = yield* post(request(1, "ping"), sid, { protocolVersion: version })
        assert.strictEqual(errorOf(reply), "ProtocolVersionUnsupported")
        assert.strictEqual(idOf(reply), 1)
      }
      for (const version of ["2025-03-26", "2025-06-18", "2025-11-25"]) {
        assert.deepStrictEqual(resultOf(yield* post(request(1, "ping"), sid, { protocolVersion: version })), {})
      }
    })
  )

  it.scoped("does not know its methods, or knows others", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const sid = yield* initialize()
      assert.deepStrictEqual(resultOf(yield* post(request(1, "ping"), sid)), {})
      assert.deepStrictEqual(resultOf(yield* post(request(1, "tools/list"), sid)), {
        tools: [
          {
            name: "a_b",
            title: "A B",
            description: "does",
            inputSchema: { type: "object", properties: {} },
            annotations: { title: "A B", readOnlyHint: true }
          }
        ]
      })
      assert.strictEqual(errorOf(yield* post(request(1, "tools/list", { cursor: "x" }), sid)), "ParamsInvalid")
      for (const method of ["tasks/get", "server/discover", "toString", "", "initialized", "notifications/cancelled"]) {
        assert.strictEqual(errorOf(yield* post(request(1, method), sid)), "MethodNotFound", method)
      }
    })
  )

  it.scoped("answers a tool's refusal or bad arguments as a protocol error, or bad params as none", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const sid = yield* initialize()
      const result = (text: string, isError: boolean) => ({ content: [{ type: "text", text }], isError })
      assert.deepStrictEqual(resultOf(yield* post(call(1, "a_b"), sid)), result("{}", false))
      assert.deepStrictEqual(resultOf(yield* post(call(1, "a_b", { x: 1 }), sid)), result('{"x":1}', false))
      assert.strictEqual(resultOf(yield* post(call(1, "gone"), sid))["isError"], true)
      for (const args of [null, 5, "x", [1]]) {
        assert.strictEqual(resultOf(yield* post(call(1, "a_b", args), sid))["isError"], true, JSON.stringify(args))
      }
      for (const params of [{}, { name: 5 }, { name: null }]) {
        assert.strictEqual(errorOf(yield* post(request(1, "tools/call", params), sid)), "ParamsInvalid")
      }
      assert.strictEqual(errorOf(yield* post(request(1, "tools/call"), sid)), "ParamsInvalid")
      assert.deepStrictEqual(resultOf(yield* post(call(1, "torn"), sid)), result("a\ufffdb", false))
    })
  )

  it.effect.each(["breaks", "throws"])("tells the caller of a fault in a tool that %s, or logs nothing", (name) =>
    Effect.gen(function* () {
      const { initialize, logged, post } = yield* setup
      const sid = yield* initialize()
      const reply = yield* post(call(7, name), sid)
      assert.strictEqual(idOf(reply), 7)
      assert.strictEqual(errorOf(reply), "InternalError")
      const error = reply._tag === "Single" && reply.answer._tag === "Failure" ? reply.answer.error : undefined
      assert.notInclude(JSON.stringify(error), "secret detail")
      const reference = error?._tag === "InternalError" ? error.reference : ""
      assert.isNotEmpty(reference)
      const lines = logged.filter(({ level }) => level === "ERROR")
      assert.lengthOf(lines, 1)
      assert.include(lines[0]?.fields ?? "", reference)
      assert.include(lines[0]?.fields ?? "", "secret detail")
      // And the session goes on.
      assert.deepStrictEqual(resultOf(yield* post(request(8, "ping"), sid)), {})
    }).pipe(Effect.scoped)
  )
})

describe("McpServer batches", () => {
  it.effect.each(["2025-06-18", "2025-11-25"])("are taken in a session of %s, or run in part", (version) =>
    Effect.gen(function* () {
      const { initialize, post, running } = yield* setup
      const sid = yield* initialize(version)
      const reply = yield* post([call(1, "hang"), request(2, "ping")], sid)
      assert.strictEqual(errorOf(reply), "BatchNotSupported")
      assert.isNull(idOf(reply))
      assert.strictEqual(running.size, 0)
    }).pipe(Effect.scoped)
  )

  it.scoped("of 2025-03-26 lose an answer, or answer what is none of their requests", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const sid = yield* initialize("2025-03-26")
      const reply = yield* post(
        [
          request(1, "ping"),
          notification("notifications/initialized"),
          5,
          request("two", "nope"),
          { jsonrpc: "2.0", id: 3, result: {} },
          call(4, "breaks"),
          request(5, "initialize", { protocolVersion: "2025-03-26" })
        ],
        sid
      )
      assert.strictEqual(reply._tag, "Batch")
      if (reply._tag !== "Batch") return
      assert.deepStrictEqual(
        reply.answers.map((answer) => [answer.id, answer._tag === "Result" ? "Result" : answer.error._tag]),
        [
          [1, "Result"],
          [null, "NotAMessage"],
          ["two", "MethodNotFound"],
          [4, "InternalError"],
          [5, "MethodNotFound"]
        ]
      )
    })
  )

  it.scoped("that are empty, too long, or of notifications only, are answered wrongly", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const sid = yield* initialize("2025-03-26")
      assert.strictEqual(errorOf(yield* post([], sid)), "NotAMessage")
      assert.strictEqual(
        errorOf(
          yield* post(
            Array.from({ length: 101 }, () => request(1, "ping")),
            sid
          )
        ),
        "NotAMessage"
      )
      assert.strictEqual(
        (yield* post(
          Array.from({ length: 100 }, () => request(1, "ping")),
          sid
        ))._tag,
        "Batch"
      )
      assert.deepStrictEqual(yield* post([notification("a"), notification("b")], sid), { _tag: "Accepted" })
      assert.strictEqual(errorOf(yield* post([request(1, "ping")])), "SessionRequired")
    })
  )
})

describe("McpServer cancellation", () => {
  it.scoped("interrupts another call than the one named, or answers it", () =>
    Effect.gen(function* () {
      const { initialize, interrupted, post, running } = yield* setup
      const [one, two] = [yield* initialize(), yield* initialize()]
      const named = yield* Effect.fork(post(call(1, "hang-one-1"), one))
      yield* Effect.fork(post(call("1", "hang-one-string"), one))
      yield* Effect.fork(post(call(2, "hang-one-2"), one))
      const crossed = yield* Effect.fork(post(call(1, "hang-two-1"), two))
      yield* settle
      assert.strictEqual(running.size, 4)

      assert.deepStrictEqual(yield* post(cancel(1), one), { _tag: "Accepted" })
      yield* settle
      assert.deepStrictEqual(interrupted, ["hang-one-1"])
      assert.deepStrictEqual(yield* Fiber.join(named), { _tag: "Accepted" })

      for (const id of [99, "2", null, 1.5, {}]) {
        assert.deepStrictEqual(yield* post(cancel(id), one), { _tag: "Accepted" })
      }
      // Another principal cannot reach into a session, whatever it names.
      yield* post(cancel(1), two, { principal: bob })
      yield* settle
      assert.deepStrictEqual(interrupted, ["hang-one-1"])
      yield* post(cancel(1), two)
      yield* settle
      assert.deepStrictEqual(interrupted, ["hang-one-1", "hang-two-1"])
      assert.deepStrictEqual(yield* Fiber.join(crossed), { _tag: "Accepted" })
      assert.sameMembers([...running.keys()], ["hang-one-string", "hang-one-2"])
    })
  )

  it.scoped("crosses the answers of equal ids in two sessions", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const [one, two] = [yield* initialize(), yield* initialize("2025-06-18", bob)]
      const Calls = FastCheck.array(FastCheck.record({ second: FastCheck.boolean(), value: FastCheck.integer() }), {
        maxLength: 8
      })
      yield* forAll(FastCheck.tuple(Id, Calls), ([id, calls]) =>
        Effect.gen(function* () {
          const replies = yield* Effect.forEach(
            calls,
            ({ second, value }) =>
              post(call(id, "a_b", { value }), second ? two : one, { principal: second ? bob : alice }),
            { concurrency: "unbounded" }
          )
          for (const [n, reply] of replies.entries()) {
            assert.isTrue(Object.is(idOf(reply), id))
            assert.include(JSON.stringify(resultOf(reply)), `{\\"value\\":${calls[n]?.value}}`)
          }
        })
      )
    })
  )

  it.scoped("ends a call with its connection at once, or never", () =>
    Effect.gen(function* () {
      const { initialize, interrupted, post, running } = yield* setup
      const sid = yield* initialize()
      const client = yield* Effect.fork(post(call(1, "hang"), sid))
      yield* Effect.fork(post(call(2, "hang-on"), sid))
      yield* settle
      // The interruption itself does not wait for the second.
      yield* Fiber.interrupt(client)
      yield* TestClock.adjust("999 millis")
      assert.isTrue(running.has("hang"))
      assert.deepStrictEqual(interrupted, [])
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(interrupted, ["hang"])
      yield* TestClock.adjust("1 minute")
      assert.isTrue(running.has("hang-on"))
    })
  )

  it.scoped("leaves the calls of a batch running whose client went away", () =>
    Effect.gen(function* () {
      const { initialize, interrupted, post, running } = yield* setup
      const sid = yield* initialize("2025-03-26")
      const client = yield* Effect.fork(post([call(1, "hang-1"), call(2, "hang-2")], sid))
      yield* settle
      assert.strictEqual(running.size, 2)
      yield* Fiber.interrupt(client)
      yield* TestClock.adjust("1 second")
      assert.sameMembers(interrupted, ["hang-1", "hang-2"])
    })
  )

  it.scoped("lets a call survive its session, or ends those of another", () =>
    Effect.gen(function* () {
      const { initialize, interrupted, post, server } = yield* setup
      const [one, two] = [yield* initialize(), yield* initialize()]
      const ended = yield* Effect.fork(post(call(1, "hang-one"), one))
      yield* Effect.fork(post(call(1, "hang-two"), two))
      yield* settle
      assert.strictEqual((yield* Effect.flip(server.close(bob, one)))._tag, "SessionNotFound")
      assert.strictEqual((yield* Effect.flip(server.close(alice, undefined)))._tag, "SessionRequired")
      yield* server.close(alice, one)
      yield* settle
      assert.deepStrictEqual(interrupted, ["hang-one"])
      assert.deepStrictEqual(yield* Fiber.join(ended), { _tag: "Accepted" })
      assert.strictEqual(errorOf(yield* post(request(1, "ping"), one)), "SessionNotFound")
      assert.deepStrictEqual(resultOf(yield* post(request(1, "ping"), two)), {})
    })
  )

  it.scoped("lets a call or session survive its principal, or ends those of another", () =>
    Effect.gen(function* () {
      const { initialize, interrupted, post, revoked } = yield* setup
      const [one, two] = [yield* initialize(), yield* initialize("2025-11-25", bob)]
      yield* Effect.fork(post(call(1, "hang-alice"), one))
      yield* Effect.fork(post(call(1, "hang-bob"), two, { principal: bob }))
      yield* settle
      yield* Queue.offer(revoked, alice.id)
      yield* settle
      assert.deepStrictEqual(interrupted, ["hang-alice"])
      assert.strictEqual(errorOf(yield* post(request(1, "ping"), one)), "SessionNotFound")
      assert.deepStrictEqual(resultOf(yield* post(request(1, "ping"), two, { principal: bob })), {})
    })
  )

  it.scoped("leaves a call running at the shutdown", () =>
    Effect.gen(function* () {
      const { close, initialize, interrupted, post } = yield* setup
      const sid = yield* initialize()
      yield* Effect.fork(post(call(1, "hang-1"), sid))
      const gone = yield* Effect.fork(post(call(2, "hang-2"), sid))
      yield* settle
      yield* Fiber.interrupt(gone)
      // Nobody advances the clock: the grace of a lost connection does not hold up a shutdown.
      yield* close
      assert.sameMembers(interrupted, ["hang-1", "hang-2"])
    })
  )

  it.scoped("lets a session expire under its call", () =>
    Effect.gen(function* () {
      const { initialize, post } = yield* setup
      const [sid, idle] = [yield* initialize(), yield* initialize()]
      const slow = yield* Effect.fork(post(call(1, "slow"), sid))
      yield* settle
      yield* TestClock.adjust("25 hours")
      assert.include(JSON.stringify(resultOf(yield* Fiber.join(slow))), "at last")
      assert.deepStrictEqual(resultOf(yield* post(request(2, "ping"), sid)), {})
      assert.strictEqual(errorOf(yield* post(request(2, "ping"), idle)), "SessionNotFound")
    })
  )
})

describe("McpServer.activity", () => {
  it.scoped("miscounts sessions or calls", () =>
    Effect.gen(function* () {
      const { initialize, post, server } = yield* setup
      const seen: Array<McpServer.Activity> = []
      yield* server.activity.pipe(
        Stream.runForEach((activity) => Effect.sync(() => void seen.push(activity))),
        Effect.forkScoped
      )
      yield* settle
      assert.deepStrictEqual(seen.at(-1), { sessions: 0, calls: 0 })
      const sid = yield* initialize()
      yield* settle
      assert.deepStrictEqual(seen.at(-1), { sessions: 1, calls: 0 })
      yield* Effect.fork(post(call(1, "hang"), sid))
      yield* settle
      assert.deepStrictEqual(seen.at(-1), { sessions: 1, calls: 1 })
      yield* post(cancel(1), sid)
      yield* settle
      assert.deepStrictEqual(seen.at(-1), { sessions: 1, calls: 0 })
      yield* server.close(alice, sid)
      yield* settle
      assert.deepStrictEqual(seen.at(-1), { sessions: 0, calls: 0 })
    })
  )

  it.scoped("goes on counting a call whose client went away", () =>
    Effect.gen(function* () {
      const { initialize, post, server } = yield* setup
      const sid = yield* initialize()
      const client = yield* Effect.fork(post(call(1, "hang"), sid))
      yield* settle
      yield* Fiber.interrupt(client)
      yield* TestClock.adjust("2 seconds")
      const now = yield* Deferred.make<McpServer.Activity>()
      yield* server.activity.pipe(
        Stream.take(1),
        Stream.runForEach((activity) => Deferred.succeed(now, activity))
      )
      assert.deepStrictEqual(yield* Deferred.await(now), { sessions: 1, calls: 0 })
    })
  )
})
