import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import type { Exchange } from "../../../src/services/Exchange.ts"
import type { Connection, Order, World } from "../../support/mcpWorld.ts"
import { inWorld, principal, textOf } from "../../support/mcpWorld.ts"

const who = principal("one")
const tag = "tag:c:0"
const call = (id: string | number, more: object = { _meta: { progressToken: "p" } }) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name: "tool", arguments: { tag }, ...more }
})
const cancel = (requestId: string | number) => ({
  jsonrpc: "2.0",
  method: "notifications/cancelled",
  params: { requestId }
})

const settled =
  (world: World) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.zipLeft(effect, world.settle)

/** A session, what it sends, and what its tool is told. */
const inSession = (world: World, version?: string, capabilities?: Record<string, unknown>) =>
  Effect.map(world.open(who, version, capabilities), (session) => ({
    session,
    post: (body: object, stream?: boolean) => settled(world)(world.post("c", who, session, body, stream)),
    listen: (lastEventId?: string) => settled(world)(world.listen("c", who, session, lastEventId)),
    drop: (connection: Connection) => settled(world)(Fiber.interrupt(connection.fiber)),
    order: (...orders: ReadonlyArray<Order>) =>
      settled(world)(
        Effect.suspend(() => {
          const run = world.runs.get(tag)
          assert(run !== undefined)
          return Queue.offerAll(run.orders, orders)
        })
      )
  }))

const progressOf = (messages: ReadonlyArray<Record<string, unknown>>) =>
  messages
    .filter(({ method, params }) => method === "notifications/progress" && Object.hasOwn(params as object, "message"))
    .map(({ params }) => (params as { progress: number }).progress)

describe("a legacy call whose tool is silent", () => {
  it.effect("[opencode#24965] gives its client no progress for 20 seconds, or some after its end", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { order, post } = yield* inSession(world)
        const connection = yield* post(call(1))
        yield* world.adjust("65 seconds")
        const beats = world.heard(connection).filter(({ method }) => method === "notifications/progress")
        assert.isAtLeast(beats.length, 3)
        yield* order("progress", "finish")
        yield* world.adjust("60 seconds")
        const heard = world.heard(connection)
        assert.deepStrictEqual(progressOf(heard), [1])
        assert.strictEqual(heard.at(-1)?.["id"], 1)
      })
    )
  )
})

describe("a legacy call that was cancelled", () => {
  it.effect("is heard of once more, since its tool says something on its way out", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { order, post } = yield* inSession(world)
        const connection = yield* post(call(1))
        yield* order("progress", "log")
        assert.lengthOf(world.heard(connection), 2)
        yield* post(cancel(1))
        assert.strictEqual(world.runs.get(tag)?.ended, "interrupted")
        assert.lengthOf(world.heard(connection), 2)
        assert.isTrue(connection.over)
      })
    )
  )

  it.effect("is answered, since its tool breaks on its way out", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        const [silent, streaming] = [yield* post(call(1)), yield* post(call(2))]
        yield* world.adjust("3 seconds")
        assert.strictEqual(streaming.reply, "Stream")
        const single = yield* post(call(3))
        for (const id of [1, 2, 3]) yield* post(cancel(id))
        for (const one of [silent, streaming, single]) {
          assert.deepStrictEqual(world.heard(one), [])
          assert.isTrue(one.over)
        }
        assert.strictEqual(single.reply, "Accepted")
      }),
      () => Effect.onInterrupt(Effect.never, () => Effect.dieMessage("broken by the abort"))
    )
  )

  it.effect("keeps its client waiting for as long as its tool takes to end", () => {
    let ended = false
    return inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        const connection = yield* post(call(1))
        yield* post(cancel(1))
        assert.isFalse(ended)
        assert.strictEqual(connection.reply, "Accepted")
        yield* world.adjust("5 seconds")
        assert.isTrue(ended)
        assert.deepStrictEqual(world.heard(connection), [])
      }),
      () =>
        Effect.onInterrupt(Effect.never, () =>
          Effect.zipRight(
            Effect.sleep("5 seconds"),
            Effect.sync(() => {
              ended = true
            })
          )
        )
    )
  })

  it.effect("is told of from its start to one who lost the connection before, and takes it up after", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { drop, listen, order, post } = yield* inSession(world)
        const connection = yield* post(call(1))
        yield* order("progress")
        const { lastEventId } = connection
        yield* drop(connection)
        yield* order("progress", "progress")
        yield* post(cancel(1))
        const again = yield* listen(lastEventId)
        assert.deepStrictEqual(world.heard(again), [])
        assert.isTrue(again.over)
      })
    )
  )
})

describe("a legacy stream that is taken up again", () => {
  it.effect("has events twice, leaves some out, or ends without the answer", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { drop, listen, order, post } = yield* inSession(world)
        const first = yield* post(call(1))
        yield* order("progress", "progress")
        yield* drop(first)
        yield* order("progress")
        const second = yield* listen(first.lastEventId)
        yield* order("progress")
        // From before what it has seen last.
        const third = yield* listen(first.lastEventId)
        assert.isTrue(second.over)
        yield* order("progress", "finish")
        assert.deepStrictEqual(progressOf(world.heard(first)), [1, 2])
        assert.deepStrictEqual(progressOf(world.heard(second)), [3, 4])
        assert.deepStrictEqual(progressOf(world.heard(third)), [3, 4, 5])
        assert.deepStrictEqual(world.heard(third).at(-1)?.["id"], 1)
        // And for one who lost the very end.
        const fourth = yield* listen(second.lastEventId)
        assert.deepStrictEqual(progressOf(world.heard(fourth)), [5])
        assert.deepStrictEqual(world.heard(fourth).at(-1)?.["id"], 1)
        assert.isTrue(fourth.over)
      })
    )
  )
})

describe("an event id that was never given out", () => {
  it.effect("keeps its client waiting for what has long been said", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { drop, listen, order, post } = yield* inSession(world)
        const first = yield* post(call(1))
        yield* order("progress")
        const [stream] = String(first.lastEventId).split("_")
        // That of a stream of calls is for its own events alone: this is the standing stream.
        const ahead = yield* listen(`${stream}_99`)
        assert.isFalse(first.over)
        yield* order("finish")
        assert.strictEqual(world.heard(first).at(-1)?.["id"], 1)
        yield* settled(world)(world.changeList)
        assert.lengthOf(world.heard(ahead), 1)
        // The same, of the standing stream.
        const [standing] = String(ahead.lastEventId).split("_")
        yield* drop(ahead)
        const again = yield* listen(`${standing}_99`)
        yield* settled(world)(world.changeList)
        assert.lengthOf(world.heard(again), 1)
      })
    )
  )
})

const says = (say: (exchange: Exchange) => void) => (exchange: Exchange) =>
  Effect.sync(() => {
    say(exchange)
    return textOf("done")
  })

describe("legacy progress", () => {
  it.effect("goes to a client that asked for none, or takes no stream", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        for (const connection of [yield* post(call(1, {})), yield* post(call(2), false)]) {
          assert.strictEqual(connection.reply, "Single")
          assert.lengthOf(world.heard(connection), 1)
        }
      }),
      says((exchange) => exchange.progress({ progress: 1 }))
    )
  )

  it.effect("stands still or goes back, or has a token that another call gave", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        for (const token of [1, "1", "x"]) {
          const messages = world.heard(yield* post(call(1, { _meta: { progressToken: token } })))
          assert.deepStrictEqual(
            messages.filter(({ method }) => method !== undefined),
            [1, 2, 5.5].map((progress) => ({
              method: "notifications/progress",
              params: { progressToken: token, progress, total: 9, message: "m" }
            }))
          )
        }
      }),
      says((exchange) => {
        for (const progress of [1, 2, 2, 1.5, NaN, 5.5, 5.5, -1])
          exchange.progress({ progress, total: 9, message: "m" })
      })
    )
  )
})

describe("legacy log messages", () => {
  const levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] as const
  const everyLevel = says((exchange) => {
    for (const level of levels) exchange.log({ level, logger: "l", data: level })
  })
  const setLevel = (level: unknown) => ({ jsonrpc: "2.0", id: "l", method: "logging/setLevel", params: { level } })
  const heardLevels = (messages: ReadonlyArray<Record<string, unknown>>) =>
    messages
      .filter(({ method }) => method === "notifications/message")
      .map(({ params }) => (params as { level: string }).level)

  it.effect("are those below the level that the session set, or another session's", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const [mine, other] = [yield* inSession(world), yield* inSession(world)]
        for (const [at, level] of levels.entries()) {
          assert.deepStrictEqual(world.heard(yield* mine.post(setLevel(level))), [{ id: "l", result: {} }])
          yield* other.post(setLevel("alert"))
          assert.deepStrictEqual(heardLevels(world.heard(yield* mine.post(call(1)))), levels.slice(at))
          assert.deepStrictEqual(heardLevels(world.heard(yield* other.post(call(1)))), ["alert", "emergency"])
        }
      }),
      everyLevel
    )
  )

  it.effect("can be set to a level that does not exist", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        yield* post(setLevel("error"))
        for (const level of ["ERROR", "trace", "", 3, null, undefined]) {
          assert.deepStrictEqual(world.heard(yield* post(setLevel(level))), [{ id: "l", error: "ParamsInvalid" }])
        }
        assert.deepStrictEqual(heardLevels(world.heard(yield* post(call(1)))), levels.slice(4))
      }),
      everyLevel
    )
  )
})

describe("a question to a legacy client", () => {
  const ask = (params: Record<string, unknown>) => (exchange: Exchange) =>
    exchange.ask({ q: { method: "elicitation/create", params } }).pipe(
      Effect.map((answers) => textOf(JSON.stringify(answers))),
      Effect.catchTag("AskFailed", ({ reason }) => Effect.succeed(textOf(`failed: ${reason}`)))
    )
  const form = { mode: "form", message: "?", requestedSchema: { type: "object", properties: {} } }
  const url = { mode: "url", message: "?", url: "https://example.com", elicitationId: "e" }
  const { mode: _, ...noMode } = form

  it.effect.each<readonly [capabilities: Record<string, unknown>, params: Record<string, unknown>, asked: boolean]>([
    [{}, form, false],
    [{ elicitation: {} }, form, true],
    [{ elicitation: {} }, noMode, true],
    [{ elicitation: {} }, url, false],
    [{ elicitation: { form: {} } }, form, true],
    [{ elicitation: { form: {} } }, url, false],
    [{ elicitation: { url: {} } }, url, true],
    [{ elicitation: { url: {} } }, form, false],
    [{ elicitation: { url: {} } }, noMode, false],
    [{ elicitation: { form: {}, url: {} } }, url, true],
    [{ elicitation: { form: {}, url: {} } }, form, true],
    [{ sampling: {}, roots: {} }, form, false]
  ])("that declares %j is asked %j against what it declared: %s", ([capabilities, params, asked]) =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world, "2025-11-25", capabilities)
        const connection = yield* post(call(1))
        const [message] = world.heard(connection)
        if (asked) {
          assert.strictEqual(message?.["method"], "elicitation/create")
          assert.deepStrictEqual(message?.["params"], params)
          assert.isFalse(connection.over)
        } else {
          assert.deepInclude(message?.["result"], { isError: true })
          assert.include(JSON.stringify(message?.["result"]), "elicitation")
        }
      }),
      ask(params)
    )
  )

  it.effect("is lost where the client takes no stream, and its call hangs", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        const connection = yield* post(call(1), false)
        assert.strictEqual(connection.reply, "Single")
        assert.include(JSON.stringify(world.heard(connection)), "failed: ")
      }),
      ask(form)
    )
  )

  it.effect("hangs when the client answers with an error, or takes an answer to another question", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        const connection = yield* post(call(1))
        const id = world.heard(connection)[0]?.["id"]
        for (const other of ["nope", 1, `${String(id)} `]) yield* post({ jsonrpc: "2.0", id: other, result: { x: 1 } })
        assert.lengthOf(world.heard(connection), 1)
        yield* post({ jsonrpc: "2.0", id, error: { code: -1, message: "will not" } })
        assert.include(
          JSON.stringify(world.heard(connection)[1]),
          "failed: the client answered with an error: will not"
        )
        // An answer that comes late, or twice, is nobody's.
        yield* post({ jsonrpc: "2.0", id, result: {} })
        assert.lengthOf(world.heard(connection), 2)
      }),
      ask(form)
    )
  )
})

describe("a legacy call that its server sends away", () => {
  it.effect("keeps the connection, or ends before its client had its 30 seconds to come back", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { listen, order, post } = yield* inSession(world)
        const first = yield* post(call(1))
        yield* order("progress", "detach")
        assert.isTrue(first.over)
        yield* order("progress")
        yield* world.adjust("29 seconds")
        const second = yield* listen(first.lastEventId)
        yield* order("detach")
        assert.isTrue(second.over)
        yield* world.adjust("29 seconds")
        assert.strictEqual(world.runs.get(tag)?.ended, "running")
        yield* world.adjust("1 seconds")
        assert.strictEqual(world.runs.get(tag)?.ended, "interrupted")
        assert.deepStrictEqual([...progressOf(world.heard(first)), ...progressOf(world.heard(second))], [1, 2])
      })
    )
  )

  it.effect("keeps the connection when that is the first that it hears", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { listen, order, post } = yield* inSession(world)
        const first = yield* post(call(1))
        yield* order("detach")
        assert.isTrue(first.over)
        assert.isDefined(first.lastEventId)
        yield* world.adjust("29 seconds")
        const second = yield* listen(first.lastEventId)
        yield* order("finish")
        assert.strictEqual(world.heard(second).find((message) => Object.hasOwn(message, "id"))?.["id"], 1)
      })
    )
  )

  it.effect("loses its client where that knows nothing of coming back", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { order, post } = yield* inSession(world, "2025-06-18")
        const connection = yield* post(call(1))
        yield* order("progress", "detach", "progress", "finish")
        assert.deepStrictEqual(progressOf(world.heard(connection)), [1, 2])
        assert.strictEqual(world.heard(connection).at(-1)?.["id"], 1)
      })
    )
  )
})

describe("list changes", () => {
  it.effect("go to a session that has no standing stream, or come twice", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const [mine, other] = [yield* inSession(world), yield* inSession(world)]
        const connection = yield* mine.listen()
        const busy = yield* other.post(call(1))
        yield* settled(world)(world.changeList)
        yield* other.order("finish")
        const changed = { method: "notifications/prompts/list_changed", params: undefined }
        assert.deepStrictEqual(world.heard(connection), [changed])
        assert.lengthOf(world.heard(busy), 1)
        // A second stream takes the place of the first, and what it missed comes with its last event id.
        const second = yield* mine.listen()
        assert.isTrue(connection.over)
        yield* settled(world)(world.changeList)
        yield* mine.drop(second)
        yield* settled(world)(world.changeList)
        assert.lengthOf(world.heard(connection), 1)
        assert.lengthOf(world.heard(second), 1)
        assert.lengthOf(world.heard(yield* mine.listen(second.lastEventId)), 1)
      })
    )
  )
})

describe("escalate, for a client of an era without the tasks extension", () => {
  it.effect.each([true, false])("makes a task, or goes on without where the tool needs one: %s", (required) =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { post } = yield* inSession(world)
        const [message] = world.heard(yield* post(call(1)))
        assert.deepInclude(message?.["result"], { isError: required })
        if (required) assert.include(JSON.stringify(message), "extensions")
      }),
      (exchange) => Effect.as(exchange.escalate(required), textOf("done"))
    )
  )
})
