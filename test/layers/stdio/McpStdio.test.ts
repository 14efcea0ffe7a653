import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import * as McpStdio from "../../../src/layers/stdio/McpStdio.ts"
import { McpServer } from "../../../src/services/mcp/McpServer.ts"
import type { World } from "../../support/mcpWorld.ts"
import { inWorld, modernMeta } from "../../support/mcpWorld.ts"
import * as FakeConfig from "../../support/suites/fakeConfig.ts"

type Message = Record<string, unknown>

/** A client at the other end of the pipe. */
const connect = Effect.fnUntraced(function* (world: World) {
  const config = yield* FakeConfig.make({ maxBodyBytes: 4096 })
  const bytes = yield* Queue.unbounded<Uint8Array>()
  const lines: Array<string> = []
  const serving = yield* McpStdio.serve({
    input: Stream.fromQueue(bytes),
    write: (line) => Effect.sync(() => void lines.push(line))
  }).pipe(Effect.provideService(McpServer, world.server), Effect.provide(config.layer), Effect.forkScoped)
  const raw = (text: string) => Queue.offer(bytes, new TextEncoder().encode(text)).pipe(Effect.zipRight(world.settle))
  const send = (...messages: ReadonlyArray<unknown>) =>
    raw(messages.map((message) => `${JSON.stringify(message)}\n`).join(""))
  return {
    world,
    serving,
    raw,
    send,
    bytewise: (text: string) =>
      Effect.zipRight(
        Effect.forEach(new TextEncoder().encode(text), (byte) => Queue.offer(bytes, Uint8Array.of(byte))),
        world.settle
      ),
    end: Queue.shutdown(bytes).pipe(Effect.zipRight(world.settle), Effect.zipRight(world.adjust("2 seconds"))),
    messages: (): ReadonlyArray<Message> => lines.map((line) => JSON.parse(line) as Message),
    lines,
    order: (tag: string, order: "progress" | "ask" | "finish") =>
      Effect.suspend(() => {
        const run = world.runs.get(tag)
        assert(run !== undefined, `${tag} does not run`)
        return Effect.zipRight(Queue.offer(run.orders, order), world.settle)
      })
  }
})

const initialize = {
  jsonrpc: "2.0",
  id: 0,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: { elicitation: {} } }
}
const call = (id: unknown, tag: string, more: object = {}) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name: "tool", arguments: { tag }, ...more }
})
const cancelled = (requestId: unknown) => ({
  jsonrpc: "2.0",
  method: "notifications/cancelled",
  params: { requestId }
})

describe("McpStdio, 2025", () => {
  it.effect("wants a session id, answers a notification, or writes more than one line a message", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { lines, messages, send } = yield* connect(world)
        yield* send(initialize, { jsonrpc: "2.0", method: "notifications/initialized" })
        yield* send({ jsonrpc: "2.0", id: "p", method: "ping" })
        const [opened, pong] = messages()
        assert.strictEqual((opened?.["result"] as Message | undefined)?.["protocolVersion"], "2025-11-25")
        assert.deepStrictEqual(pong, { jsonrpc: "2.0", id: "p", result: {} })
        assert.lengthOf(lines, 2)
        for (const line of lines) assert.notInclude(line, "\n")
      })
    )
  )

  it.effect("says progress after the answer, or under no request", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { messages, order, send } = yield* connect(world)
        yield* send(initialize, call(1, "tag:a:1", { _meta: { progressToken: "t" } }))
        yield* order("tag:a:1", "progress")
        yield* order("tag:a:1", "progress")
        yield* order("tag:a:1", "finish")
        assert.deepStrictEqual(
          messages()
            .slice(1)
            .map(({ id, method }) => id ?? method),
          ["notifications/progress", "notifications/progress", 1]
        )
      })
    )
  )

  it.effect("asks nothing, or loses the answer", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { messages, order, send } = yield* connect(world)
        yield* send(initialize, call(1, "tag:a:1"))
        yield* order("tag:a:1", "ask")
        const question = messages().at(-1)
        assert(question !== undefined)
        assert.strictEqual(question["method"], "elicitation/create")
        yield* send({ jsonrpc: "2.0", id: question["id"], result: { to: "tag:a:1" } })
        yield* order("tag:a:1", "finish")
        assert.strictEqual(messages().at(-1)?.["id"], 1)
      })
    )
  )

  it.effect("runs on, or answers, after notifications/cancelled that came in the same write", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { messages, send } = yield* connect(world)
        yield* send(initialize)
        yield* send(call(1, "tag:a:1"), cancelled(1))
        assert.notStrictEqual(world.runs.get("tag:a:1")?.ended, "running")
        assert.lengthOf(messages(), 1)
      })
    )
  )

  it.effect("answers what it cannot read with silence, or stops there", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { messages, raw, send } = yield* connect(world)
        yield* raw("{nope\n\n   \n[]\n")
        yield* raw(`{"jsonrpc":"2.0","id":1,"method":"${"x".repeat(5000)}"}\n`)
        yield* send({ jsonrpc: "2.0", id: 2, method: "tools/list" })
        assert.deepStrictEqual(
          messages().map(({ error, id }) => [id, (error as Message)["code"]]),
          [
            [null, -32700],
            [null, -32000],
            [null, -32600],
            [2, -32000]
          ]
        )
      })
    )
  )

  it.effect("breaks a message that comes in pieces, through the middle of a character too", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { bytewise, messages, order, send } = yield* connect(world)
        yield* send(initialize)
        yield* bytewise(`${JSON.stringify(call("é", "tag:a:1"))}\n`)
        yield* order("tag:a:1", "finish")
        assert.strictEqual(messages().at(-1)?.["id"], "é")
      })
    )
  )
})

describe("McpStdio, 2026-07-28", () => {
  it.effect("wants initialize, or headers", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { messages, send } = yield* connect(world)
        yield* send({ jsonrpc: "2.0", id: 1, method: "server/discover", params: modernMeta() })
        const result = messages()[0]?.["result"] as Message
        assert.include(result["supportedVersions"] as ReadonlyArray<string>, "2026-07-28")
      })
    )
  )

  it.effect("lets notifications/cancelled of this era pass", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { messages, send } = yield* connect(world)
        yield* send(call(7, "tag:a:1", modernMeta()))
        yield* send(call(8, "tag:a:2", modernMeta()))
        assert.strictEqual(world.runs.get("tag:a:1")?.ended, "running")
        yield* send(cancelled(7))
        assert.strictEqual(world.runs.get("tag:a:1")?.ended, "interrupted")
        assert.strictEqual(world.runs.get("tag:a:2")?.ended, "running")
        assert.isEmpty(messages())
      })
    )
  )
})

describe("McpStdio at the end of its input", () => {
  it.effect("goes on, or leaves what was nearly done without an answer", () =>
    inWorld(
      Effect.fnUntraced(function* (world) {
        const { end, messages, send, serving } = yield* connect(world)
        yield* send(initialize, call(1, "tag:a:1"), { jsonrpc: "2.0", id: 2, method: "tools/list" })
        yield* end
        assert.strictEqual((yield* Fiber.await(serving))._tag, "Success")
        assert.includeMembers(
          messages().map(({ id }) => id),
          [0, 2]
        )
      })
    )
  )
})
