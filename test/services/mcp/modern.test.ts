import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import type { ToolResult } from "../../../src/services/HostTools.ts"
import { ToolFault } from "../../../src/services/HostTools.ts"
import type { Exchange, InputRequest } from "../../../src/services/Exchange.ts"
import { isRecord } from "../../../src/services/wire/JsonRpc.ts"
import type { Connection, Order, World } from "../../support/mcpWorld.ts"
import { inWorld, modernMeta, principal, textOf } from "../../support/mcpWorld.ts"

type Fields = Readonly<Record<string, unknown>>
interface Sent {
  readonly id?: string | number
  readonly meta?: Fields
  readonly capabilities?: Fields
  readonly stream?: boolean
  readonly who?: string
}

const tag = "tag:c:0"
const tasks = { extensions: { "io.modelcontextprotocol/tasks": {} } }
const everything = { elicitation: {}, sampling: {}, roots: {}, ...tasks }
const params = { name: "tool", arguments: { tag } }

/** What a client sends, and what its tool is told. */
const clientOf = (world: World) => {
  const settled = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.zipLeft(effect, world.settle)
  const send = (method: string, body: Fields, { capabilities, id = 1, meta, stream = true, who = "one" }: Sent = {}) =>
    settled(
      world.post(
        who,
        principal(who),
        undefined,
        { jsonrpc: "2.0", id, method, params: { ...body, ...modernMeta(meta, { elicitation: {}, ...capabilities }) } },
        stream
      )
    )
  const ask = (method: string, body: Fields, sent: Sent = {}) =>
    Effect.map(send(method, body, { capabilities: tasks, ...sent }), (connection) => {
      const [message, ...rest] = world.heard(connection)
      assert.deepStrictEqual(rest, [])
      assert(message !== undefined)
      return isRecord(message["result"]) ? message["result"] : { error: message["error"] }
    })
  return {
    send,
    ask,
    call: (more: Sent = {}) => send("tools/call", params, more),
    retry: (state: Fields, inputResponses: Fields | undefined, more: Sent = {}) =>
      send(
        "tools/call",
        { ...params, requestState: state["requestState"], ...(inputResponses === undefined ? {} : { inputResponses }) },
        { id: 2, ...more }
      ),
    task: (taskId: unknown, more: Sent = {}) => ask("tasks/get", { taskId }, more),
    drop: (connection: Connection) => settled(Fiber.interrupt(connection.fiber)),
    order: (...orders: ReadonlyArray<Order>) =>
      settled(
        Effect.suspend(() => {
          const run = world.runs.get(tag)
          assert(run !== undefined)
          return Queue.offerAll(run.orders, orders)
        })
      ),
    /** The result that is the last of what came. */
    resultOn: (connection: Connection): Record<string, unknown> => {
      const result = world.heard(connection).at(-1)?.["result"]
      assert(isRecord(result), JSON.stringify(world.heard(connection)))
      return result
    },
    ended: () => world.runs.get(tag)?.ended
  }
}
type Client = ReturnType<typeof clientOf>

const inClient = (
  use: (client: Client, world: World) => Effect.Effect<void, never, Scope.Scope>,
  tool?: Parameters<typeof inWorld>[1]
) => inWorld((world) => use(clientOf(world), world), tool)

const notificationsOf = (messages: ReadonlyArray<Fields>) =>
  messages.flatMap(({ method, params: given }) => (method === undefined ? [] : [given as Fields]))
const to = (answer: unknown) => ({ q: answer })
const mine = to({ to: tag })

describe("a modern request that is sent again with answers", () => {
  it.effect("goes on with the progress token, log level or capabilities of the first", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, order, resultOn, retry }, world) {
        const levelKey = "io.modelcontextprotocol/logLevel"
        const first = yield* call({ meta: { progressToken: "first", [levelKey]: "debug" }, capabilities: tasks })
        yield* order("ask")
        const second = yield* retry(resultOn(first), mine, { meta: { progressToken: "second" } })
        yield* order("progress", "log", "escalate", "finish")
        assert.deepStrictEqual(
          notificationsOf(world.heard(second)).map((one) => one["progressToken"]),
          ["second"]
        )
        assert.deepInclude(resultOn(second), { resultType: "complete", isError: false })
      })
    )
  )

  it.effect("is asked for what it does not declare, although the first request did", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, order, resultOn, send }, world) {
        const first = yield* call()
        yield* order("ask", "ask", "finish")
        const state = resultOn(first)
        const body = { ...params, requestState: state["requestState"], inputResponses: mine }
        const second = yield* world.post("one", principal("one"), undefined, {
          jsonrpc: "2.0",
          id: 2,
          method: "tools/call",
          params: { ...body, ...modernMeta({}, {}) }
        })
        yield* world.settle
        assert.deepInclude(resultOn(second), { resultType: "complete" })
        assert.isFunction(send)
      })
    )
  )

  it.effect("has less than ten minutes from when it was last asked", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, ended, order, resultOn, retry }, world) {
        const first = yield* call()
        yield* order("ask")
        yield* world.adjust("9 minutes")
        const second = yield* retry(resultOn(first), undefined)
        assert.deepInclude(resultOn(second), { resultType: "input_required" })
        yield* world.adjust("9 minutes")
        assert.strictEqual(ended(), "running")
        const third = yield* retry(resultOn(second), mine, { id: 3 })
        yield* order("finish")
        assert.deepInclude(resultOn(third), { resultType: "complete", isError: false })
        assert.isFalse(world.runs.get(tag)?.again)
      })
    )
  )

  it.effect("lives on, ten minutes after nobody came back for it", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, ended, order, resultOn, retry }, world) {
        const first = yield* call()
        yield* order("ask")
        yield* world.adjust("599 seconds")
        assert.strictEqual(ended(), "running")
        yield* world.adjust("1 seconds")
        assert.strictEqual(ended(), "interrupted")
        yield* world.adjust(1)
        assert.deepStrictEqual(world.heard(yield* retry(resultOn(first), mine)), [{ id: 2, error: "StateRejected" }])
        assert.isFalse(world.runs.get(tag)?.again)
      })
    )
  )

  it.effect("dies with the time that its question had, although it was answered", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, ended, order, resultOn, retry }, world) {
        const first = yield* call()
        yield* order("ask")
        yield* world.adjust("9 minutes")
        const second = yield* retry(resultOn(first), mine)
        yield* world.adjust("1 hours")
        assert.strictEqual(ended(), "running")
        yield* order("finish")
        assert.deepInclude(resultOn(second), { resultType: "complete" })
      })
    )
  )

  it.effect("twice at once leaves one of the two without an answer", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, order, resultOn, retry }, world) {
        const first = yield* call()
        yield* order("ask")
        const state = resultOn(first)
        const [second, third] = [yield* retry(state, mine), yield* retry(state, mine, { id: 3 })]
        assert.deepStrictEqual(world.heard(third), [{ id: 3, error: "StateRejected" }])
        yield* order("finish")
        assert.deepInclude(resultOn(second), { resultType: "complete", isError: false })
      })
    )
  )

  it.effect("is not asked again for the answer that is missing, or is asked for the one that it gave", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, resultOn, retry }) {
        const first = yield* call()
        assert.deepStrictEqual(Object.keys(resultOn(first)["inputRequests"] as Fields), ["a", "b"])
        const second = yield* retry(resultOn(first), { a: 1, unknown: 5, __proto__: 7 })
        assert.deepStrictEqual(Object.keys(resultOn(second)["inputRequests"] as Fields), ["b"])
        const third = yield* retry(resultOn(second), { a: "too late", b: 2 }, { id: 3 })
        assert.deepInclude(resultOn(third), { content: [{ type: "text", text: '{"a":1,"b":2}' }] })
      }),
      (exchange) => {
        const question: InputRequest = {
          method: "elicitation/create",
          params: { mode: "form", message: "?", requestedSchema: {} }
        }
        return exchange.ask({ a: question, b: question }).pipe(
          Effect.map((answers) => textOf(JSON.stringify(answers))),
          Effect.catchTag("AskFailed", ({ reason }) => new ToolFault({ detail: reason }))
        )
      }
    )
  )

  it.effect("goes on with another's call, with other arguments, or with a state that was changed", () =>
    inClient(
      Effect.fnUntraced(function* ({ ask, call, ended, order, resultOn }) {
        const state = resultOn(yield* Effect.tap(call(), () => order("ask")))["requestState"]
        const other = { ...params, arguments: { tag, more: 1 } }
        for (const [body, who] of [
          [{ ...params, requestState: state }, "two"],
          [{ ...other, requestState: state }, "one"],
          [{ ...params, requestState: `${String(state)}x` }, "one"],
          [{ ...params, requestState: "" }, "one"],
          [{ ...params, requestState: null }, "one"],
          [{ ...params, requestState: { a: 1 } }, "one"]
        ] as const) {
          assert.deepStrictEqual(yield* ask("tools/call", { ...body, inputResponses: mine }, { who }), {
            error: "StateRejected"
          })
        }
        assert.deepStrictEqual(yield* ask("prompts/get", { ...params, requestState: state }), {
          error: "StateRejected"
        })
        assert.strictEqual(ended(), "running")
      })
    )
  )
})

describe("a modern call whose connection closes", () => {
  it.effect("runs on, as JSON or as a stream, or is heard of after", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, drop, ended, order }, world) {
        for (const before of [[], ["progress"]] as const) {
          const connection = yield* call({ meta: { progressToken: 1 } })
          yield* order(...before)
          yield* drop(connection)
          assert.strictEqual(ended(), "interrupted")
          assert.lengthOf(world.heard(connection), before.length)
        }
      })
    )
  )

  it.effect("takes its task with it", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, drop, ended, order, resultOn, task }) {
        const connection = yield* call({ capabilities: tasks })
        yield* order("escalate")
        const { taskId } = resultOn(connection)
        yield* drop(connection)
        assert.strictEqual(ended(), "running")
        yield* order("finish")
        assert.deepInclude(yield* task(taskId), { status: "completed" })
      })
    )
  )
})

describe("modern progress and log messages", () => {
  const levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] as const
  const speak = (exchange: Exchange) =>
    Effect.sync(() => {
      exchange.progress({ progress: 1 })
      for (const level of levels) exchange.log({ level, data: level })
      return textOf("done")
    })

  it.effect("come unasked, below the level asked for, or to one who takes no stream", () =>
    inClient(
      Effect.fnUntraced(function* ({ call }, world) {
        const heard = (sent: Sent) =>
          Effect.map(call(sent), (connection) =>
            notificationsOf(world.heard(connection)).map((one) => one["level"] ?? one["progressToken"])
          )
        const level = (name: string) => ({ "io.modelcontextprotocol/logLevel": name })
        assert.deepStrictEqual(yield* heard({}), [])
        assert.deepStrictEqual(yield* heard({ meta: { progressToken: 7 } }), [7])
        for (const [at, name] of levels.entries()) {
          assert.deepStrictEqual(yield* heard({ meta: level(name) }), levels.slice(at))
        }
        assert.deepStrictEqual(yield* heard({ meta: { progressToken: 7, ...level("debug") }, stream: false }), [])
      }),
      speak
    )
  )

  it.effect("are taken for something else where the level does not exist", () =>
    inClient(
      Effect.fnUntraced(function* ({ ask }) {
        for (const name of ["INFO", "trace", "", 3, null]) {
          const meta = { "io.modelcontextprotocol/logLevel": name }
          assert.deepStrictEqual(yield* ask("tools/call", params, { meta }), { error: "ParamsInvalid" }, String(name))
        }
      }),
      speak
    )
  )
})

describe("a question to a modern client", () => {
  it.effect.each<
    readonly [method: InputRequest["method"], mode: string | undefined, capabilities: Fields, ok: boolean]
  >([
    ["elicitation/create", "form", { elicitation: {} }, true],
    ["elicitation/create", undefined, { elicitation: {} }, true],
    ["elicitation/create", "url", { elicitation: {} }, false],
    ["elicitation/create", "url", { elicitation: { url: {} } }, true],
    ["elicitation/create", "form", { elicitation: { url: {} } }, false],
    ["elicitation/create", "url", { elicitation: { form: {}, url: {} } }, true],
    ["elicitation/create", "form", { elicitation: undefined }, false],
    ["elicitation/create", "form", { elicitation: true }, false],
    ["sampling/createMessage", undefined, { sampling: {} }, true],
    ["sampling/createMessage", undefined, {}, false],
    ["roots/list", undefined, { roots: {} }, true],
    ["roots/list", undefined, { sampling: {} }, false]
  ])("%s (%s) goes to one that declares %j against what it declares: %s", ([method, mode, capabilities, ok]) =>
    inClient(
      Effect.fnUntraced(function* ({ call, resultOn }, world) {
        const connection = yield* call({ capabilities })
        if (ok) assert.deepInclude(resultOn(connection), { resultType: "input_required" })
        else assert.deepStrictEqual(world.heard(connection), [{ id: 1, error: "CapabilityMissing" }])
      }),
      (exchange) =>
        exchange.ask({ q: { method, params: mode === undefined ? {} : { mode } } }).pipe(
          Effect.as(textOf("done")),
          Effect.catchTag("AskFailed", ({ reason }) => new ToolFault({ detail: reason }))
        )
    )
  )
})

describe("escalate", () => {
  it.effect.each<readonly [declared: boolean, required: boolean, outcome: string]>([
    [true, true, "task"],
    [true, false, "task"],
    [false, false, "complete"],
    [false, true, "CapabilityMissing"]
  ])("of a client that declares tasks (%s), needed (%s), does not lead to %s", ([declared, required, outcome]) =>
    inClient(
      Effect.fnUntraced(function* ({ call }, world) {
        const [message] = world.heard(yield* call({ capabilities: declared ? tasks : {} }))
        const result = isRecord(message?.["result"]) ? message["result"] : {}
        assert.strictEqual(message?.["error"] ?? result["resultType"], outcome)
      }),
      (exchange) => Effect.as(exchange.escalate(required), textOf("done"))
    )
  )
})

describe("a task", () => {
  const start = Effect.fnUntraced(function* ({ call, order, resultOn }: Client) {
    const connection = yield* call({ capabilities: everything, meta: { progressToken: 1 } })
    yield* order("escalate")
    const created = resultOn(connection)
    assert.isTrue(connection.over)
    return created
  })

  it.effect("is made before 5 seconds, never, or for a client that did not declare them", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, resultOn }, world) {
        const [json, streaming, without] = [
          yield* call({ capabilities: tasks, stream: false }),
          yield* call({ capabilities: tasks }),
          yield* call()
        ]
        yield* world.adjust(4999)
        assert.isFalse(json.over || streaming.over)
        yield* world.adjust(1)
        for (const connection of [json, streaming]) {
          const { taskId, ...created } = resultOn(connection)
          assert.match(String(taskId), /^[0-9a-f-]{36}$/)
          assert.deepInclude(created, {
            resultType: "task",
            status: "working",
            ttlMs: 86_400_000,
            createdAt: "1970-01-01T00:00:05.000Z",
            lastUpdatedAt: "1970-01-01T00:00:05.000Z"
          })
        }
        yield* world.adjust("1 hours")
        assert.isFalse(without.over)
      })
    )
  )

  it.effect("goes through its states otherwise than it should, or does not say when", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const { ask, order, task } = client
        const { taskId } = yield* start(client)
        const states: Array<unknown> = []
        const look = Effect.map(task(taskId), (state) => {
          states.push([state["status"], state["lastUpdatedAt"], state["createdAt"], state["resultType"]])
          return state
        })
        yield* world.adjust("1 seconds")
        yield* look
        yield* order("ask", "progress", "log")
        const asking = yield* look
        assert.deepStrictEqual(Object.keys(asking["inputRequests"] as Fields), ["q"])
        yield* world.adjust("1 seconds")
        // Unknown keys are nobody's.
        assert.deepInclude(yield* ask("tasks/update", { taskId, inputResponses: { x: 1 } }), { resultType: "complete" })
        assert.strictEqual((yield* task(taskId))["status"], "input_required")
        yield* ask("tasks/update", { taskId, inputResponses: mine })
        yield* look
        // A second question has a key of its own.
        yield* order("ask")
        const [second] = Object.keys((yield* task(taskId))["inputRequests"] as Fields)
        assert.notStrictEqual(second, "q")
        yield* ask("tasks/update", { taskId, inputResponses: mine })
        assert.strictEqual((yield* task(taskId))["status"], "input_required")
        yield* ask("tasks/update", { taskId, inputResponses: { [second ?? ""]: { to: tag } } })
        assert.strictEqual(world.runs.get(tag)?.misled, 0)
        yield* world.adjust("1 seconds")
        yield* order("finish")
        const done = yield* look
        assert.deepStrictEqual(done["result"], { content: [{ type: "text", text: tag }], isError: false })
        const at = (second_: number) => `1970-01-01T00:00:0${second_}.000Z`
        assert.deepStrictEqual(states, [
          ["working", at(0), at(0), "complete"],
          ["input_required", at(1), at(0), "complete"],
          ["working", at(2), at(0), "complete"],
          ["completed", at(3), at(0), "complete"]
        ])
      })
    )
  )

  it.effect("is another's to see, answer or cancel, or everybody's without the extension", () =>
    inClient(
      Effect.fnUntraced(function* (client) {
        const { ask, ended, order } = client
        const { taskId } = yield* start(client)
        yield* order("ask")
        for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
          const body = { taskId, inputResponses: mine }
          assert.deepStrictEqual(yield* ask(method, body, { who: "two" }), { error: "TaskNotFound" })
          assert.deepStrictEqual(yield* ask(method, { ...body, taskId: "nope" }), { error: "TaskNotFound" })
          assert.deepStrictEqual(yield* ask(method, body, { capabilities: {} }), { error: "CapabilityMissing" })
          assert.deepStrictEqual(yield* ask(method, { inputResponses: mine }), { error: "ParamsInvalid" })
        }
        assert.strictEqual(ended(), "running")
        assert.strictEqual((yield* client.task(taskId))["status"], "input_required")
      })
    )
  )

  it.effect("runs on when it is cancelled, or is something else than cancelled from then on", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const { ask, ended, task } = client
        const { taskId } = yield* start(client)
        yield* world.adjust("1 seconds")
        const { resultType: _, _meta: __, ...rest } = yield* ask("tasks/cancel", { taskId })
        assert.deepStrictEqual(rest, {})
        assert.strictEqual(ended(), "interrupted")
        assert.deepInclude(yield* task(taskId), { status: "cancelled", lastUpdatedAt: "1970-01-01T00:00:01.000Z" })
        // Once more changes nothing.
        yield* ask("tasks/cancel", { taskId })
        assert.deepInclude(yield* task(taskId), { status: "cancelled" })
      })
    )
  )

  it.effect.each(["ends well", "breaks"])("was cancelled, and is not any more when its tool %s all the same", (way) =>
    inClient(
      Effect.fnUntraced(function* ({ ask, call, resultOn, task }, world) {
        const connection = yield* call({ capabilities: tasks })
        yield* world.adjust("5 seconds")
        const { taskId } = resultOn(connection)
        yield* ask("tasks/cancel", { taskId })
        assert.strictEqual((yield* task(taskId))["status"], "cancelled")
        yield* world.adjust("1 minutes")
        assert.strictEqual((yield* task(taskId))["status"], "cancelled")
      }),
      () =>
        Effect.uninterruptible(
          Effect.zipRight(
            Effect.sleep("30 seconds"),
            way === "breaks" ? Effect.dieMessage("broken by the abort") : Effect.succeed(textOf("done"))
          )
        )
    )
  )

  it.effect("that is over is cancelled after all", () =>
    inClient(
      Effect.fnUntraced(function* (client) {
        const { ask, order, task } = client
        const { taskId } = yield* start(client)
        yield* order("finish")
        yield* ask("tasks/cancel", { taskId })
        assert.deepInclude(yield* task(taskId), { status: "completed" })
      })
    )
  )

  it.effect("that failed says nothing of why", () =>
    inClient(
      Effect.fnUntraced(function* ({ call, resultOn, task }, world) {
        const connection = yield* call({ capabilities: tasks })
        yield* world.adjust("6 seconds")
        assert.deepInclude(yield* task(resultOn(connection)["taskId"]), {
          status: "failed",
          statusMessage: "out of order",
          error: { code: -32603, message: "out of order" }
        })
      }),
      () => Effect.zipRight(Effect.sleep("6 seconds"), new ToolFault({ detail: "out of order" }))
    )
  )

  it.effect("is gone before 24 hours, or there after, and its tool with it", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const { ended, task } = client
        const { taskId } = yield* start(client)
        yield* world.adjust(86_400_000 - 1)
        assert.strictEqual((yield* task(taskId))["status"], "working")
        yield* world.adjust(1)
        assert.deepStrictEqual(yield* task(taskId), { error: "TaskNotFound" })
        assert.strictEqual(ended(), "interrupted")
      })
    )
  )

  it.effect("beyond the 256th takes the place of one that runs, or of another's", () => {
    const ends = new Map<unknown, () => void>()
    return inClient(
      Effect.fnUntraced(function* ({ resultOn, send, task }) {
        const begin = (n: number, who = "one") =>
          Effect.map(
            send("tools/call", { name: "tool", arguments: { n: `${who}${n}` } }, { capabilities: tasks, who }),
            (connection) => String(resultOn(connection)["taskId"])
          )
        const foreign = yield* begin(0, "two")
        ends.get("two0")?.()
        const ids: Array<string> = []
        for (let n = 0; n < 256; n++) ids.push(yield* begin(n))
        for (const n of [7, 3]) ends.get(`one${n}`)?.()
        const status = (id: string | undefined, who?: string) =>
          Effect.map(task(id, who === undefined ? {} : { who }), (state) => state["status"] ?? state["error"])
        ids.push(yield* begin(256), yield* begin(257))
        assert.strictEqual(yield* status(ids[3]), "TaskNotFound")
        assert.strictEqual(yield* status(ids[7]), "TaskNotFound")
        for (const n of [0, 1, 8, 255, 256, 257]) assert.strictEqual(yield* status(ids[n]), "working", String(n))
        assert.strictEqual(yield* status(foreign, "two"), "completed")
      }),
      (exchange, args) =>
        Effect.zipRight(
          Effect.ignore(exchange.escalate(true)),
          Effect.async<ToolResult>((resume) => void ends.set(args["n"], () => resume(Effect.succeed(textOf("done")))))
        )
    )
  })
})

describe("subscriptions/listen", () => {
  const listen = ({ send }: Client, notifications: Fields, more: Sent = {}) =>
    send("subscriptions/listen", { notifications }, { id: "s", capabilities: tasks, ...more })
  const methods = (messages: ReadonlyArray<Fields>) => messages.map(({ method }) => method)
  const acknowledged = "notifications/subscriptions/acknowledged"

  it.effect("tells of what was not asked for, does not acknowledge first, or does not say whose it is", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const changed = yield* listen(client, { promptsListChanged: true })
        const others = [
          yield* listen(client, {}),
          yield* listen(client, { toolsListChanged: true, resourcesListChanged: true, promptsListChanged: false })
        ]
        yield* world.changeList
        yield* world.settle
        assert.deepStrictEqual(methods(world.heard(changed)), [acknowledged, "notifications/prompts/list_changed"])
        for (const { params: given } of world.heard(changed)) {
          assert.deepInclude(given as Fields, { _meta: { "io.modelcontextprotocol/subscriptionId": "s" } })
        }
        for (const other of others) assert.deepStrictEqual(methods(world.heard(other)), [acknowledged])
      })
    )
  )

  it.effect("tells of another's task, of one that was not named, or of less than its changes", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const connection = yield* client.call({ capabilities: everything })
        yield* client.order("escalate")
        const { taskId } = client.resultOn(connection)
        const own = yield* listen(client, { taskIds: [taskId] })
        const silent = [
          yield* listen(client, { taskIds: [] }),
          yield* listen(client, {}),
          yield* listen(client, { taskIds: [taskId] }, { who: "two" })
        ]
        yield* client.order("ask", "progress")
        yield* client.ask("tasks/update", { taskId, inputResponses: mine })
        yield* client.order("progress", "log", "finish")
        const states = notificationsOf(world.heard(own)).map((one) => one["status"])
        assert.deepStrictEqual(states, [undefined, "input_required", "working", "completed"])
        for (const other of silent) assert.deepStrictEqual(methods(world.heard(other)), [acknowledged])
        assert.deepStrictEqual(
          yield* client.ask("subscriptions/listen", { notifications: { taskIds: [] } }, { capabilities: {} }),
          { error: "CapabilityMissing" }
        )
      })
    )
  )

  it.effect("outlives the token that it was opened with, or ends with another's", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const [gone, stays] = [
          yield* listen(client, { promptsListChanged: true }),
          yield* listen(client, { promptsListChanged: true }, { who: "two" })
        ]
        yield* world.revoke(principal("one"))
        yield* world.settle
        assert.isTrue(gone.over)
        assert.isFalse(stays.over)
        yield* world.changeList
        yield* world.settle
        assert.notInclude(methods(world.heard(gone)), "notifications/prompts/list_changed")
        assert.include(methods(world.heard(stays)), "notifications/prompts/list_changed")
      })
    )
  )

  it.effect("breaks off at the shutdown without a result", () =>
    inClient(
      Effect.fnUntraced(function* (client, world) {
        const connection = yield* listen(client, {})
        yield* world.shutdown
        yield* world.settle
        assert.isTrue(connection.over)
        assert.deepInclude(client.resultOn(connection), { resultType: "complete" })
      })
    )
  )
})
