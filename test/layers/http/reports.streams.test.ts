import { afterAll, assert, beforeAll, describe, it } from "vitest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as TestContext from "effect/TestContext"
import * as Sse from "../../../src/layers/http/sse.ts"
import type { TestBridge } from "../../support/bridge.ts"
import { failure, makeGate, noStrayErrors, startBridge, until } from "../../support/bridge.ts"
import type { FakeTool } from "../../support/fakeHost.ts"
import { text } from "../../support/fakeHost.ts"
import { openStream } from "../../support/sse.ts"

/** What users of other servers and clients reported about streams: one test a report, named by it. */

noStrayErrors()

const gate = makeGate()
/** Reports `count` pieces of output, then waits for the gate. */
const talker = makeGate("talk")
let bridge: TestBridge

beforeAll(async () => {
  const talk: FakeTool = talker.tool
  bridge = await startBridge({
    tools: () => [gate.tool, talk],
    host: {
      execute: async (tool, _id, args, signal, onUpdate) => {
        if (tool.name !== "talk") return gate.tool.run(args, signal)
        let output = ""
        for (let i = 1; i <= 3; i++) {
          output += `line ${i}\n`
          onUpdate?.([{ type: "text", text: output }])
        }
        await talk.run(args, signal)
        onUpdate?.([{ type: "text", text: `${output}last\n` }])
        return text("done")
      }
    }
  })
})
afterAll(() => bridge[Symbol.asyncDispose]())

const accept = "application/json, text/event-stream"
const get = (session: Record<string, string>, more: Record<string, string> = {}) =>
  openStream(`${bridge.url}/mcp`, {
    headers: { authorization: bridge.good.authorization, accept, ...session, ...more }
  })
const call = (session: Record<string, string>, name: string, id: number | string, progressToken?: string) =>
  openStream(`${bridge.url}/mcp`, {
    method: "POST",
    headers: { authorization: bridge.good.authorization, accept, ...session },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name, arguments: {}, ...(progressToken === undefined ? {} : { _meta: { progressToken } }) }
    })
  })

/** The chunks of an SSE response, as the clock of the test moves. */
const chunksAfter = (events: Stream.Stream<Sse.ServerSentEvent>, ...steps: ReadonlyArray<`${number} seconds`>) =>
  Effect.gen(function* () {
    const { body } = HttpServerResponse.setStatus(Sse.response(events), 200)
    assert(body._tag === "Stream")
    const queue = yield* Queue.unbounded<string>()
    const reading = yield* Effect.fork(
      Stream.runForEach(body.stream, (bytes) => Queue.offer(queue, new TextDecoder().decode(bytes)))
    )
    yield* TestClock.adjust(0)
    const seen: Array<ReadonlyArray<string>> = [Chunk.toReadonlyArray(yield* Queue.takeAll(queue))]
    for (const step of steps) {
      yield* TestClock.adjust(step)
      seen.push(Chunk.toReadonlyArray(yield* Queue.takeAll(queue)))
    }
    yield* Fiber.interrupt(reading)
    return seen
  }).pipe(Effect.provide(TestContext.TestContext), Effect.runPromise)

describe("reports about streams", () => {
  it("[withings-mcp#22, mcp-sap-docs#75] sends less than a comment every 15 seconds on a silent stream", async () => {
    const seen = await chunksAfter(Stream.never, "14 seconds", "1 seconds", "15 seconds", "30 seconds")
    assert.deepStrictEqual(
      seen.map((chunks) => chunks.length),
      [1, 0, 1, 1, 2]
    )
    for (const chunk of seen.flat()) assert.match(chunk, /^: .*\n\n$/)
  })

  it("[opencode#24965] lets a call's stream fall silent for 20 seconds or more, although events come now and then", async () => {
    const events = Stream.repeatEffect(
      Effect.as(Effect.sleep("70 seconds"), { data: '{"jsonrpc":"2.0","method":"notifications/progress"}' })
    )
    const seen = await chunksAfter(events, ...Array.from({ length: 10 }, () => "15 seconds" as const))
    for (const chunks of seen) assert.isNotEmpty(chunks)
  })

  it(
    "[withings-mcp#22] loses a silent GET stream to the server's idle timeout of 10 seconds",
    { timeout: 20_000 },
    async () => {
      const session = await bridge.open()
      await using stream = await get(session)
      await stream.find("the priming event", ({ id }) => id !== undefined)
      const began = performance.now()
      await until("11 seconds have passed", () => performance.now() - began > 11_000, 15_000)
      assert.isTrue(stream.isOpen())
      assert.strictEqual((await bridge.rpc("ping", {}, session)).status, 200)
    }
  )

  it("[mcp_dart#126, mcp_dart#137] replays another stream, of the same session or of another's", async () => {
    const session = await bridge.open()
    const stranger = await bridge.open()
    const runs = talker.started.length
    await using first = await call(session, "talk", 1, "one")
    await using second = await call(session, "talk", 2, "two")
    await until("both run", () => talker.started.length === runs + 2)
    const isLast = (token: string) => (event: { readonly message?: Record<string, unknown> }) =>
      JSON.stringify(event.message ?? {}).includes(`"${token}"`) && JSON.stringify(event.message).includes("line 3")
    const { id } = await first.find("progress of the first", isLast("one"))
    await second.find("progress of the second", isLast("two"))
    assert(id !== undefined)
    first.drop()
    // Of another session: that one's own standing stream, empty, and no word of the first's.
    await using foreign = await get(stranger, { "last-event-id": id })
    await using resumed = await get(session, { "last-event-id": id })
    talker.release()
    const answer = await resumed.find("the answer", ({ message }) => message?.["id"] === 1)
    assert.property(answer.message, "result")
    assert.deepStrictEqual(
      resumed
        .messages()
        .map((message) => message["id"] ?? (message["params"] as Record<string, unknown>)["progressToken"]),
      ["one", 1],
      "the rest of that very stream, each event once, in order"
    )
    await second.find("the other call's answer, on its own stream", ({ message }) => message?.["id"] === 2)
    assert.isEmpty(foreign.messages())
  })

  it("[fx#302] ends a stream without saying when to come back", async () => {
    const session = await bridge.open()
    await using stream = await get(session)
    const primed = await stream.find("the priming event", ({ id }) => id !== undefined)
    assert(primed.retry !== undefined)
    assert.isAtLeast(primed.retry, 100)
    const runs = gate.started.length
    await using running = await call(session, "hold", 1, "token")
    await until("the call runs", () => gate.started.length === runs + 1)
    gate.release()
    await running.find("an answer", ({ message }) => message?.["id"] === 1)
    assert.isDefined((await running.find("its priming event", ({ id }) => id !== undefined)).retry)
  })

  it("[mcp_dart#126] takes an event id that it never gave out for one of its own, or for a fault", async () => {
    const session = await bridge.open()
    for (const id of ["", "nonsense", "00000000-0000-4000-8000-000000000000_3", "1"]) {
      await using stream = await get(session, { "last-event-id": id })
      await stream.find("a fresh priming event", (event) => event.id !== undefined)
      assert.isEmpty(stream.messages())
    }
    assert.deepStrictEqual(
      failure(await bridge.raw("GET", "/mcp", { accept: "text/event-stream", "last-event-id": "1" })),
      { status: 400, code: -32000, id: null }
    )
  })
})
