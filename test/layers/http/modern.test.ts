import { afterAll, assert, beforeAll, describe, it } from "vitest"
import * as Effect from "effect/Effect"
import type { HttpAnswer, RpcError, TestBridge } from "../../support/bridge.ts"
import { failure, noStrayErrors, resultOf, rpcOf, startBridge, within } from "../../support/bridge.ts"
import { echo } from "../../support/fakeHost.ts"
import type { ModernRequest } from "../../support/modern.ts"
import {
  capabilitiesKey,
  metaOf,
  modern,
  modernVersion,
  subscriptionKey,
  versionKey,
  withMeta
} from "../../support/modern.ts"
import type { PortServer } from "../../support/portServer.ts"
import { startPortServer } from "../../support/portServer.ts"
import { openStream } from "../../support/sse.ts"

/** 2026-07-28 as it goes over HTTP. */

noStrayErrors()

let late = false
let bridge: TestBridge

const start = () =>
  startBridge({
    tools: () =>
      late
        ? [echo, { ...echo, name: "late" }]
        : [
            echo,
            {
              ...echo,
              name: "mirrored",
              schema: { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } }
            }
          ]
  })

beforeAll(async () => {
  bridge = await start()
})
afterAll(() => bridge[Symbol.asyncDispose]())

const send = ({ body, headers }: ModernRequest, more: Readonly<Record<string, string | undefined>> = {}) => {
  const all = Object.entries({ ...headers, ...more }).filter(
    (entry): entry is [string, string] => entry[1] !== undefined
  )
  return bridge.post(body, Object.fromEntries(all))
}
const dataOf = (answer: HttpAnswer): unknown => (rpcOf(answer).error as RpcError & { readonly data?: unknown }).data
const callEcho = modern("tools/call", { name: "echo", arguments: { text: "hi" } }, { id: "the id" })

describe("headers that repeat the body", () => {
  it("are needed where they agree", async () => {
    const { content, isError, resultType } = resultOf(await send(callEcho))
    assert.deepStrictEqual(
      { content, isError, resultType },
      { content: [{ type: "text", text: "hi" }], isError: false, resultType: "complete" }
    )
  })

  it.each<readonly [header: string, value: string | undefined]>([
    ["mcp-protocol-version", undefined],
    ["mcp-protocol-version", "2025-11-25"],
    ["mcp-protocol-version", "2026-07-29"],
    ["mcp-method", undefined],
    ["mcp-method", "tools/list"],
    ["mcp-method", "Tools/Call"],
    ["mcp-name", undefined],
    ["mcp-name", "Echo"],
    ["mcp-name", "=?base64?ZWNobw=?="],
    ["mcp-name", "=?base64?b3RoZXI=?="]
  ])("may differ: %s says %j", async (header, value) => {
    const answer = await send(callEcho, { [header]: value })
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32020, id: "the id" })
    assert.include(rpcOf(answer).error?.message.toLowerCase(), header)
  })

  it("must be plain where they may be encoded", async () => {
    assert.strictEqual((await send(callEcho, { "mcp-name": `=?base64?${btoa("echo")}?=` })).status, 200)
  })

  it("of a tool's own parameters are passed over", async () => {
    const request = modern("tools/call", { name: "mirrored", arguments: { region: "Zürich" } })
    const encoded = `=?base64?${Buffer.from("Zürich").toString("base64")}?=`
    assert.strictEqual((await send(request, { "mcp-param-region": encoded })).status, 200)
    for (const value of [undefined, "Zurich", `=?base64?${btoa("Bern")}?=`]) {
      const answer = await send(request, { "mcp-param-region": value })
      assert.deepStrictEqual(failure(answer), { status: 400, code: -32020, id: 1 }, String(value))
    }
  })
})

describe("what every request says", () => {
  it("may be left out", async () => {
    const meta = metaOf(callEcho)
    const without = (key: string) => Object.fromEntries(Object.entries(meta).filter(([name]) => name !== key))
    for (const wrong of [undefined, null, 5, {}, without(versionKey), without(capabilitiesKey)]) {
      const answer = await send(withMeta(callEcho, wrong))
      assert.deepStrictEqual(failure(answer), { status: 400, code: -32602, id: "the id" }, JSON.stringify(wrong))
    }
  })

  it("may name a version that is not spoken, and be told nothing of those that are", async () => {
    for (const version of ["2099-01-01", "2024-11-05", "2025-11-25"]) {
      const request = withMeta(callEcho, { ...metaOf(callEcho), [versionKey]: version })
      const answer = await send(request, { "mcp-protocol-version": version })
      assert.deepStrictEqual(failure(answer), { status: 400, code: -32022, id: "the id" })
      const data = dataOf(answer) as { readonly supported: ReadonlyArray<string>; readonly requested: string }
      assert.strictEqual(data.requested, version)
      assert.include(data.supported, modernVersion)
    }
  })

  it("may name a method that is not there, and be answered with 200", async () => {
    for (const method of ["no/such", "ping", "initialize", "logging/setLevel", "resources/subscribe", "toString"]) {
      const answer = await send(modern(method, {}, { id: "x" }))
      assert.deepStrictEqual(failure(answer), { status: 404, code: -32601, id: "x" }, method)
      assert.notProperty(answer.headers, "mcp-session-id")
    }
  })

  it("may be nested so deep that there is no answer, or that the server ends", async () => {
    const brackets = `${"[".repeat(100_000)}${"]".repeat(100_000)}`
    const deep = JSON.stringify(callEcho.body).replace('"hi"', `"hi","x":${brackets}`)
    const answer = await bridge.post(deep, callEcho.headers)
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null })
    const inTime = JSON.stringify(callEcho.body).replace('"hi"', `"hi","x":${"[".repeat(240)}${"]".repeat(240)}`)
    assert.strictEqual(rpcOf(await bridge.post(inTime, callEcho.headers)).id, "the id")
    assert.strictEqual((await send(callEcho)).status, 200)
  })

  it("may come with a session, which then counts or is minted", async () => {
    const nobody = "00000000-0000-4000-8000-000000000000"
    const answer = await send(callEcho, { "mcp-session-id": nobody })
    assert.strictEqual(answer.status, 200)
    assert.notProperty(answer.headers, "mcp-session-id")
  })

  it("is not asked for by a list that may be kept", async () => {
    for (const method of ["server/discover", "tools/list", "prompts/list", "resources/list"]) {
      const result = resultOf(await send(modern(method)))
      assert.strictEqual(result["resultType"], "complete", method)
      assert.isAtLeast(result["ttlMs"] as number, 0, method)
      assert.strictEqual(result["cacheScope"], "private", method)
    }
  })
})

describe("subscriptions/listen", () => {
  const listen = (notifications: object, id: string, from = bridge) => {
    const { body, headers } = modern("subscriptions/listen", { notifications }, { id })
    return openStream(`${from.url}/mcp`, {
      method: "POST",
      headers: { ...headers, authorization: from.good.authorization },
      body: JSON.stringify(body)
    })
  }
  const methods = (stream: Awaited<ReturnType<typeof listen>>) =>
    stream.messages().map((message) => message["method"] ?? "answer")
  const acknowledged = "notifications/subscriptions/acknowledged"
  const changed = "notifications/tools/list_changed"

  it(
    "tells of what was not asked for, before it acknowledges, or under no subscription",
    { timeout: 15_000 },
    async () => {
      await using asked = await listen({ toolsListChanged: true }, "asked")
      await using other = await listen({ promptsListChanged: true, toolsListChanged: false }, "other")
      await using nothing = await listen({}, "nothing")
      for (const stream of [asked, other, nothing]) {
        await stream.find("the acknowledgement", ({ message }) => message !== undefined)
      }
      late = !late
      const { message } = await asked.find("the change", ({ message }) => message?.["method"] === changed, 6000)
      assert.deepStrictEqual(message, {
        jsonrpc: "2.0",
        method: changed,
        params: { _meta: { [subscriptionKey]: "asked" } }
      })
      assert.deepStrictEqual(methods(asked), [acknowledged, changed])
      for (const [stream, id, notifications] of [
        [other, "other", { promptsListChanged: true, toolsListChanged: false }],
        [nothing, "nothing", {}]
      ] as const) {
        assert.deepStrictEqual(methods(stream), [acknowledged])
        assert.deepStrictEqual(stream.messages()[0]?.["params"], { notifications, _meta: { [subscriptionKey]: id } })
        assert.isTrue(stream.isOpen())
      }
    }
  )

  it("ends without a result when the server ends", { timeout: 15_000 }, async () => {
    const closing = await start()
    await using stream = await listen({ toolsListChanged: true }, "to the end", closing)
    await stream.find("the acknowledgement", ({ message }) => message !== undefined)
    await within("the bridge is closed", 4000, closing.close())
    await stream.ended()
    const last = stream.messages().at(-1)
    assert(last !== undefined)
    assert.strictEqual(last["id"], "to the end")
    const { _meta, resultType } = last["result"] as Readonly<Record<string, unknown>>
    assert.strictEqual(resultType, "complete")
    assert.propertyVal(_meta, subscriptionKey, "to the end")
    await closing[Symbol.asyncDispose]()
  })

  it("gives a client that takes no stream a stream, or no answer", async () => {
    const answer = await send(modern("subscriptions/listen", { notifications: {} }), { accept: "application/json" })
    assert.deepStrictEqual(failure(answer), { status: 200, code: -32602, id: 1 })
  })
})

describe("input_required", () => {
  let server: PortServer
  let asked = 0

  beforeAll(async () => {
    const question = {
      name: {
        method: "elicitation/create" as const,
        params: { mode: "form", message: "Who?", requestedSchema: { type: "object", properties: {} } }
      }
    }
    server = await startPortServer({
      greet: {
        run: (args, exchange) =>
          Effect.map(
            Effect.suspend(() => {
              asked++
              return exchange.ask(question)
            }),
            (answers) => ({
              content: [{ type: "text", text: `${String(args["word"])} ${JSON.stringify(answers["name"])}` }],
              isError: false
            })
          )
      },
      part: { run: () => Effect.succeed({ content: [], isError: false }) }
    })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const capabilities = { elicitation: { form: {} } }
  const answered = { action: "accept", content: { name: "Eve" } }
  const greet = (more: object = {}, word = "hello", name = "greet") =>
    modern("tools/call", { name, arguments: { word }, ...more }, { capabilities, id: crypto.randomUUID() })
  const post = ({ body, headers }: ModernRequest, as?: string) => server.post(body, headers, as)
  const ask = async (as?: string) => {
    const result = resultOf(await post(greet(), as))
    assert.strictEqual(result["resultType"], "input_required")
    assert.deepStrictEqual(Object.keys(result["inputRequests"] as object), ["name"])
    return String(result["requestState"])
  }
  const reply = (requestState: unknown) => ({ requestState, inputResponses: { name: answered } })
  const textOf = (answer: HttpAnswer) =>
    (resultOf(answer)["content"] as ReadonlyArray<{ readonly text: string }>).map(({ text }) => text).join("")
  const refused = async (request: ModernRequest, as?: string) => {
    const answer = await post(request, as)
    assert.deepStrictEqual(failure(answer), { status: 200, code: -32602, id: request.body.id })
    assert.match(rpcOf(answer).error?.message ?? "", /^requestState rejected: /)
    return answer
  }

  it("starts the call again for the answer, or loses the answer", async () => {
    const before = asked
    assert.strictEqual(
      textOf(await post(greet(reply(await ask())))),
      'hello {"action":"accept","content":{"name":"Eve"}}'
    )
    assert.strictEqual(asked, before + 1)
  })

  it("waits for an answer that the client left out, rather than ask again", async () => {
    const state = await ask()
    for (const inputResponses of [{}, { other: answered }]) {
      const again = resultOf(await post(greet({ requestState: state, inputResponses })))
      assert.strictEqual(again["resultType"], "input_required")
      assert.deepStrictEqual(Object.keys(again["inputRequests"] as object), ["name"])
    }
    assert.include(textOf(await post(greet(reply(state)))), "Eve")
  })

  it("takes a state that was changed", async () => {
    const state = await ask()
    const [call = "", expires = "", mac = ""] = state.split(".")
    const flipped = mac.startsWith("A") ? `B${mac.slice(1)}` : `A${mac.slice(1)}`
    for (const wrong of [
      [call, expires, flipped],
      [call, String(Number(expires) + 1), mac],
      [crypto.randomUUID(), expires, mac],
      [call, expires],
      [call, expires, ""],
      [call, expires, mac, "x"]
    ]) {
      await refused(greet(reply(wrong.join("."))))
    }
    for (const wrong of ["", "x", 5, null, {}, [state]]) await refused(greet(reply(wrong)))
    assert.include(textOf(await post(greet(reply(state)))), "Eve", "the good one died with the bad ones")
  })

  it("takes a state of another client, another request, or another server", async () => {
    const state = await ask("alice")
    await refused(greet(reply(state)), "bob")
    await refused(greet(reply(state), "goodbye"), "alice")
    await refused(greet(reply(state), "hello", "part"), "alice")
    await using other = await startPortServer({
      greet: { run: () => Effect.succeed({ content: [], isError: false }) }
    })
    const { body, headers } = greet(reply(state))
    assert.deepStrictEqual(failure(await other.post(body, headers)), { status: 200, code: -32602, id: body.id })
    assert.include(textOf(await post(greet(reply(state)), "alice")), "Eve")
  })

  it("takes a state after its time", async () => {
    const state = await ask()
    server.forward(9 * 60_000)
    assert.strictEqual(resultOf(await post(greet({ requestState: state })))["resultType"], "input_required")
    server.forward(61_000)
    assert.include((await refused(greet(reply(state)))).text, "its time is over")
  })

  it("asks a client that declared no such capability", async () => {
    const answer = await post(modern("tools/call", { name: "greet", arguments: { word: "x" } }))
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32021, id: 1 })
    assert.deepStrictEqual(dataOf(answer), { requiredCapabilities: { elicitation: {} } })
  })
})
