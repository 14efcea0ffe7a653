import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import { failure, noStrayErrors, startBridge, until } from "../../support/bridge.ts"
import type { FakeTool } from "../../support/fakeHost.ts"
import { echo, text } from "../../support/fakeHost.ts"
import type { SseEvent, SseStream } from "../../support/sse.ts"
import { openStream } from "../../support/sse.ts"

/** Streams of 2025-11-25 that a client lost, and takes up again by GET with Last-Event-ID. */

noStrayErrors()

/** A running call of `talk`: says what the test tells it to say. */
interface Talk {
  readonly signal: AbortSignal
  readonly say: (line: string) => void
  readonly end: () => void
}

const talks = new Map<string, Talk>()
const talk: FakeTool = { name: "talk", tier: "read", run: async () => text("") }
let late = false
let bridge: TestBridge

beforeAll(async () => {
  bridge = await startBridge({
    tools: () => (late ? [talk, echo] : [talk]),
    host: {
      execute: (_tool, _id, args, signal, onUpdate) =>
        new Promise((resolve, reject) => {
          let output = ""
          talks.set(String(args["as"]), {
            signal,
            say: (line) => {
              output += `${line}\n`
              onUpdate?.([{ type: "text", text: output }])
            },
            end: () => resolve(text("the end"))
          })
          signal.addEventListener("abort", () => reject(new Error("aborted")))
        })
    }
  })
})
afterAll(() => bridge[Symbol.asyncDispose]())

type Session = Readonly<Record<string, string>>

const accept = "application/json, text/event-stream"
const get = (session: Session, lastEventId?: string) =>
  openStream(`${bridge.url}/mcp`, {
    headers: {
      authorization: bridge.good.authorization,
      accept,
      ...session,
      ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId })
    }
  })

/** A call that has said `one`, so that its answer is a stream. */
const begin = async (session: Session, as: string, id: number | string) => {
  const opening = openStream(`${bridge.url}/mcp`, {
    method: "POST",
    headers: { authorization: bridge.good.authorization, accept, ...session },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name: "talk", arguments: { as }, _meta: { progressToken: as } }
    })
  })
  const running = await until(`${as} runs`, () => talks.get(as))
  running.say("one")
  return { stream: await opening, running }
}

const line = (message: Readonly<Record<string, unknown>> | undefined): unknown =>
  message?.["method"] === "notifications/progress"
    ? (message["params"] as Readonly<Record<string, unknown>>)["message"]
    : message === undefined || "method" in message
      ? message?.["method"]
      : ["answer", message["id"]]
const lines = (stream: SseStream) => stream.messages().map(line)
const says = (what: string) => (event: SseEvent) => line(event.message) === `${what}\n`
const answers = (id: unknown) => (event: SseEvent) => event.message !== undefined && event.message["id"] === id

const idOf = ({ id }: SseEvent): string => {
  assert(id !== undefined, "an event without an id")
  return id
}

describe("a stream that was lost", () => {
  it("comes back with a hole, twice, out of order, or without its answer", async () => {
    const session = await bridge.open()
    const { running, stream } = await begin(session, "whole", "call")
    running.say("two")
    running.say("three")
    await stream.find("three", says("three"))
    // The client got three, and kept no more than the id of two.
    const two = idOf(await stream.find("two", says("two")))
    stream.drop()
    running.say("four")
    await using rest = await get(session, two)
    await rest.find("four", says("four"))
    running.say("five")
    running.end()
    await rest.find("the answer", answers("call"))
    await rest.ended()
    assert.deepStrictEqual(lines(rest), ["three\n", "four\n", "five\n", ["answer", "call"]])
    const ids = [...stream.events, ...rest.events].flatMap(({ id, message }) =>
      id === undefined || message === undefined ? [] : [id]
    )
    assert.strictEqual(new Set(ids).size, 6, "one event has two ids, or two events have one")
  })

  it("ends its call when the client comes back in time", { timeout: 15_000 }, async () => {
    const session = await bridge.open()
    const { running, stream } = await begin(session, "kept", 1)
    const one = idOf(await stream.find("one", says("one")))
    stream.drop()
    const dropped = performance.now()
    await using rest = await get(session, one)
    await until("the grace is over", () => performance.now() - dropped > 1300, 5000)
    assert.isFalse(running.signal.aborted)
    running.end()
    await rest.find("the answer", answers(1))
  })

  it("can be had again after its end, whole and any number of times", async () => {
    const session = await bridge.open()
    const { running, stream } = await begin(session, "over", 1)
    const priming = idOf(await stream.find("the priming event", ({ id }) => id !== undefined))
    running.say("two")
    running.end()
    await stream.find("the answer", answers(1))
    await stream.ended()
    for (let time = 0; time < 2; time++) {
      await using again = await get(session, priming)
      await again.ended()
      assert.deepStrictEqual(lines(again), ["one\n", "two\n", ["answer", 1]])
    }
    await using nothing = await get(session, idOf(await stream.find("the answer", answers(1))))
    await nothing.ended()
    assert.isEmpty(nothing.messages())
  })

  it("goes on at two connections, or at the old one of the two", async () => {
    const session = await bridge.open()
    const { running, stream } = await begin(session, "moved", 1)
    const one = idOf(await stream.find("one", says("one")))
    await using second = await get(session, one)
    await stream.ended()
    running.say("two")
    await second.find("two", says("two"))
    assert.deepStrictEqual(lines(stream), ["one\n"])
    running.end()
    await second.find("the answer", answers(1))
    assert.deepStrictEqual(lines(second), ["two\n", ["answer", 1]])
    assert.isFalse(running.signal.aborted)
  })

  it("is given to another session, or to the same one after its end", async () => {
    const owner = await bridge.open()
    const stranger = await bridge.open()
    const { running, stream } = await begin(owner, "secret", 1)
    const one = idOf(await stream.find("one", says("one")))
    running.say("two")
    await using foreign = await get(stranger, one)
    await foreign.find("a priming event of its own", ({ id }) => id !== undefined)
    assert.isTrue(stream.isOpen(), "a stranger took the owner's stream away")
    running.end()
    await stream.find("the answer", answers(1))
    assert.isEmpty(foreign.messages())
    assert.isTrue(foreign.events.every(({ id }) => id === undefined || !id.startsWith(one.slice(0, 36))))

    const headers = { authorization: bridge.good.authorization, ...owner }
    assert.strictEqual((await bridge.fetch("/mcp", { method: "DELETE", headers })).status, 204)
    const gone = await bridge.raw("GET", "/mcp", { ...owner, accept, "last-event-id": one })
    assert.deepStrictEqual(failure(gone), { status: 404, code: -32001, id: null })
  })

  it("has ids and a priming event in a revision that knows no resumption by polling", async () => {
    const session = await bridge.open("2025-06-18")
    const { running, stream } = await begin(session, "old", 1)
    running.end()
    await stream.find("the answer", answers(1))
    assert.isEmpty(stream.events.filter(({ comment, message }) => comment === undefined && message === undefined))
    assert.isEmpty(stream.events.filter(({ retry }) => retry !== undefined))
  })
})

describe("the standing stream", () => {
  it("has two readers, or loses what came between the first and the second", { timeout: 20_000 }, async () => {
    const session = await bridge.open()
    await using first = await get(session)
    const priming = await first.find("its priming event", ({ id }) => id !== undefined)
    assert.isDefined(priming.retry)
    first.drop()
    late = !late
    // Nobody reads when the list changes; whoever comes back with the last id hears of it, once.
    await using witness = await get(await bridge.open())
    await witness.find("the priming event", ({ id }) => id !== undefined)
    await witness.find("the change", ({ message }) => line(message) === "notifications/tools/list_changed", 6000)
    await using second = await get(session, idOf(priming))
    const change = await second.find(
      "the change",
      ({ message }) => line(message) === "notifications/tools/list_changed"
    )
    await using third = await get(session, idOf(change))
    await second.ended()
    await third.find("the priming event", ({ id }) => id !== undefined)
    assert.isTrue(third.isOpen())
    assert.deepStrictEqual([second.messages().length, third.messages().length], [1, 0])
  })

  it("carries what belongs to a call", async () => {
    const session = await bridge.open()
    await using standing = await get(session)
    const { running, stream } = await begin(session, "apart", 1)
    running.say("two")
    running.end()
    await stream.find("the answer", answers(1))
    assert.isTrue(standing.isOpen())
    assert.isEmpty(standing.messages())
  })
})
