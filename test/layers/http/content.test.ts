import { afterAll, assert, beforeAll, describe, it } from "vitest"
import * as Effect from "effect/Effect"
import type { TestBridge } from "../../support/bridge.ts"
import { callResultOf, failure, noStrayErrors, resultOf, rpcOf, saidBy, startBridge } from "../../support/bridge.ts"
import type { FakeTool } from "../../support/fakeHost.ts"
import { echo, text } from "../../support/fakeHost.ts"
import type { PortServer } from "../../support/portServer.ts"
import { startPortServer } from "../../support/portServer.ts"

/** What tools give back, and what they do in place of that, as it reaches a client. */

noStrayErrors()

const png = "iVBORw0KGgo="
const result = (...content: ReadonlyArray<unknown>) => ({ content, isError: false, backgroundJob: undefined })
const says = (name: string, ...content: ReadonlyArray<unknown>): FakeTool => ({
  name,
  tier: "read",
  run: async () => result(...content)
})

describe("content of omp's tools", () => {
  let bridge: TestBridge
  let session: Record<string, string>
  const circle: Record<string, unknown> = { type: "odd" }
  circle["self"] = circle

  beforeAll(async () => {
    bridge = await startBridge({
      tools: () => [
        echo,
        says("nothing"),
        says("text", { type: "text", text: "a\n\u0000\u2028\ud83d\ude00", extra: 1 }),
        says("image", { type: "image", data: png, mimeType: "image/png", extra: 1 }),
        says(
          "unknown",
          { type: "diff", hunks: [1] },
          { type: "image", data: png },
          { type: "text", text: 5 },
          null,
          7,
          "plain"
        ),
        says("undefined", undefined, { type: "text", text: "after" }),
        says("torn", { type: "text", text: "\udc00a\ud800" }, { type: "odd", text: "\ud800" }),
        says("circle", circle),
        says("bigint", { type: "odd", n: 1n }),
        { name: "fails", tier: "read", run: async () => text("it failed", true) },
        { name: "rejects", tier: "read", run: () => Promise.reject(new Error("no such file")) },
        { name: "rejects-oddly", tier: "read", run: () => Promise.reject(undefined) },
        {
          name: "throws",
          tier: "read",
          run: () => {
            throw new Error("thrown \ud800 at once")
          }
        },
        { name: "shapeless", tier: "read", run: async () => undefined as never },
        { name: "contentless", tier: "read", run: async () => ({ isError: false }) as never }
      ]
    })
    session = await bridge.open()
  })
  afterAll(() => bridge[Symbol.asyncDispose]())

  const contentOf = async (name: string) => callResultOf(await bridge.call(session, name)).content as unknown

  it("loses or invents content", async () => {
    assert.deepStrictEqual(await contentOf("nothing"), [])
    assert.deepStrictEqual(await contentOf("text"), [{ type: "text", text: "a\n\u0000\u2028\ud83d\ude00" }])
    assert.deepStrictEqual(await contentOf("image"), [{ type: "image", data: png, mimeType: "image/png" }])
  })

  it("drops a block that MCP has no form for, or sends it as it is", async () => {
    assert.deepStrictEqual(
      await contentOf("unknown"),
      [
        '{"type":"diff","hunks":[1]}',
        '{"type":"image","data":"iVBORw0KGgo="}',
        '{"type":"text","text":5}',
        "null",
        "7",
        '"plain"'
      ].map((text) => ({ type: "text", text }))
    )
    assert.deepStrictEqual(await contentOf("undefined"), [
      { type: "text", text: "undefined" },
      { type: "text", text: "after" }
    ])
  })

  it("sends a lone surrogate, in any block", async () => {
    const answer = await bridge.call(session, "torn")
    assert.isTrue(answer.text.isWellFormed())
    assert.deepStrictEqual(callResultOf(answer).content, [
      { type: "text", text: "\ufffda\ufffd" },
      // JSON's own escape: text of six characters, and no surrogate.
      { type: "text", text: '{"type":"odd","text":"\\ud800"}' }
    ])
  })

  it.each<readonly [name: string, text: RegExp]>([
    ["fails", /^it failed$/],
    ["rejects", /^no such file$/],
    ["rejects-oddly", /^undefined$/],
    ["throws", /^thrown \ufffd at once$/],
    ["circle", /./],
    ["bigint", /./],
    ["shapeless", /./],
    ["contentless", /./]
  ])("answers %s with anything but a result that says what went wrong", async (name, expected) => {
    const answer = await bridge.call(session, name)
    assert.isTrue(callResultOf(answer).isError)
    assert.match(saidBy(answer), expected)
    assert.strictEqual(saidBy(await bridge.call(session, "echo", { text: "alive" })), "alive")
  })

  it("ends with the tool that threw, for the other calls of the same moment", async () => {
    const names = ["throws", "echo", "rejects", "echo", "circle", "echo"]
    const answers = await Promise.all(names.map((name, id) => bridge.call(session, name, { text: name }, id)))
    for (const [id, answer] of answers.entries()) {
      assert.strictEqual(rpcOf(answer).id, id)
      assert.strictEqual(callResultOf(answer).isError, names[id] !== "echo")
    }
  })
})

describe("a fault of the host", () => {
  it("reaches the client, takes the server along, or leaves no trace", async () => {
    let broken = false
    await using bridge = await startBridge({
      tools: () => {
        if (broken) throw new Error("secret detail")
        return [echo]
      }
    })
    const session = await bridge.open()
    broken = true
    for (const [method, params] of [
      ["tools/list", {}],
      ["tools/call", { name: "echo" }]
    ] as const) {
      const answer = await bridge.rpc(method, params, session)
      assert.deepStrictEqual(failure(answer), { status: 500, code: -32603, id: 1 })
      assert.notInclude(answer.text, "secret")
      const reference = /\(([0-9a-f]{8})\)/.exec(rpcOf(answer).error?.message ?? "")?.[1]
      assert(reference !== undefined, answer.text)
      const entry = bridge.host.logs.map((log) => JSON.stringify(log)).find((log) => log.includes(reference))
      assert.include(entry, "secret detail")
    }
    broken = false
    assert.strictEqual(saidBy(await bridge.call(session, "echo", { text: "alive" })), "alive")
  })
})

describe("tools by their port", () => {
  let server: PortServer
  let session: Record<string, string>

  beforeAll(async () => {
    const structured = { answer: 42 }
    const content = [{ type: "text" as const, text: JSON.stringify(structured) }]
    server = await startPortServer({
      fine: { run: () => Effect.succeed({ content, structuredContent: structured, isError: false }) },
      failed: { run: () => Effect.succeed({ content, structuredContent: structured, isError: true }) },
      dies: { run: () => Effect.die(new Error("secret detail")) },
      throws: {
        run: () => {
          throw new Error("secret detail")
        }
      },
      ends: { run: () => Effect.interrupt }
    })
    const opened = await server.post({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {} }
    })
    session = { "mcp-session-id": opened.headers["mcp-session-id"] ?? "" }
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const call = (name: string, id: number | string = 1) =>
    server.post({ jsonrpc: "2.0", id, method: "tools/call", params: { name } }, session)

  it("loses structured content, or sends it with an error", async () => {
    assert.deepStrictEqual(resultOf(await call("fine"))["structuredContent"], { answer: 42 })
    const failed = resultOf(await call("failed"))
    assert.deepStrictEqual(failed, { content: [{ type: "text", text: '{"answer":42}' }], isError: true })
  })

  it.each(["dies", "throws"])("tells a client why it %s, or tells the log nothing", async (name) => {
    const logged = server.logs.length
    const answer = await call(name, "the id")
    assert.deepStrictEqual(failure(answer), { status: 500, code: -32603, id: "the id" })
    assert.notInclude(answer.text, "secret")
    const reference = /\(([0-9a-f]{8})\)/.exec(rpcOf(answer).error?.message ?? "")?.[1]
    assert(reference !== undefined, answer.text)
    const entries = server.logs.slice(logged)
    assert.lengthOf(entries, 1)
    assert.include(entries[0], reference)
    assert.include(entries[0], "secret detail")
    assert.isFalse(resultOf(await call("fine"))["isError"])
  })

  it("hangs where a tool interrupts itself", async () => {
    const { status, text } = await call("ends")
    assert.deepStrictEqual({ status, text }, { status: 202, text: "" })
    assert.isFalse(resultOf(await call("fine"))["isError"])
  })
})
