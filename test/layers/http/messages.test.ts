import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import { asRpc, failure, noStrayErrors, resultOf, rpcOf, startBridge } from "../../support/bridge.ts"

/** JSON-RPC as it goes over HTTP: envelopes, ids, batches, the opening of a session. */

noStrayErrors()

let bridge: TestBridge
beforeAll(async () => {
  bridge = await startBridge()
})
afterAll(() => bridge[Symbol.asyncDispose]())

const revisions = ["2025-03-26", "2025-06-18", "2025-11-25"] as const

describe("initialize", () => {
  it.each(revisions)("negotiates %s otherwise than to itself", async (protocolVersion) => {
    const answer = await bridge.rpc("initialize", { protocolVersion, capabilities: {} })
    assert.strictEqual(resultOf(answer)["protocolVersion"], protocolVersion)
    assert.match(answer.headers["mcp-session-id"] ?? "", /^[\x21-\x7e]{16,}$/)
  })

  it.each(["2024-11-05", "2099-01-01", ""])("refuses %j in place of offering the latest", async (protocolVersion) => {
    const answer = await bridge.rpc("initialize", { protocolVersion, capabilities: {} })
    assert.strictEqual(resultOf(answer)["protocolVersion"], "2025-11-25")
  })

  it("gives out a session with a refused initialize", async () => {
    for (const params of [undefined, {}, { protocolVersion: 5 }, { protocolVersion: "2025-11-25", clientInfo: 1 }]) {
      const answer = await bridge.rpc("initialize", params)
      assert.deepStrictEqual(failure(answer), { status: 200, code: -32602, id: 1 })
      assert.notProperty(answer.headers, "mcp-session-id")
    }
  })

  it("repeats a session id", async () => {
    const sessions = await Promise.all(Array.from({ length: 16 }, () => bridge.open()))
    assert.strictEqual(new Set(sessions.map((session) => session["mcp-session-id"])).size, 16)
  })
})

describe("an id", () => {
  it.each([
    "0",
    "-1",
    "9007199254740991",
    "-9007199254740991",
    '"7"',
    '""',
    '"é \\"quoted\\" 😀"',
    JSON.stringify("x".repeat(4096))
  ])("comes back otherwise than as %s, in a result or in an error", async (id) => {
    const session = await bridge.open()
    for (const [method, rest] of [
      ["ping", '"result":{}'],
      ["no/such", '"error":{"code":-32601,']
    ] as const) {
      const { text } = await bridge.post(`{"jsonrpc":"2.0","id":${id},"method":"${method}"}`, session)
      const start = `{"jsonrpc":"2.0","id":${id},`
      assert.strictEqual(text.slice(0, start.length + rest.length), start + rest)
    }
  })

  it.each(["1.5", "9007199254740993", "-9007199254740993", "1e300", "null", "true", "{}", "[1]"])(
    "is %s, and is answered under that id or with a result",
    async (id) => {
      const session = await bridge.open()
      for (const method of ["ping", "initialize", "tools/call"]) {
        const answer = await bridge.post(`{"jsonrpc":"2.0","id":${id},"method":"${method}"}`, session)
        assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null }, method)
      }
    }
  )
})

describe("notifications and responses", () => {
  it("have an answer", async () => {
    const session = await bridge.open()
    for (const message of [
      { jsonrpc: "2.0", method: "notifications/initialized" },
      { jsonrpc: "2.0", method: "notifications/no-such", params: {} },
      { jsonrpc: "2.0", method: "tools/call", params: { name: "echo" } },
      { jsonrpc: "2.0", id: 1, result: {} },
      { jsonrpc: "2.0", id: "never-asked", error: { code: -1, message: "no" } }
    ]) {
      const { status, text } = await bridge.post(message, session)
      assert.deepStrictEqual({ status, text }, { status: 202, text: "" }, JSON.stringify(message))
    }
    assert.isEmpty(bridge.audit(), "a notification ran a tool")
  })

  it("are taken without a session", async () => {
    const answer = await bridge.post({ jsonrpc: "2.0", method: "notifications/initialized" })
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32000, id: null })
  })
})

describe("batches", () => {
  const ping = (id: number | string) => ({ jsonrpc: "2.0", id, method: "ping" })
  const note = { jsonrpc: "2.0", method: "notifications/initialized" }

  it("of 2025-03-26 are answered out of order, with a notification, or all for one that is malformed", async () => {
    const session = await bridge.open("2025-03-26")
    const call = (id: number, text: string) => ({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name: "echo", arguments: { text } }
    })
    const batch = [ping("a"), note, call(2, "two"), 5, { jsonrpc: "2.0", id: 4, method: "no/such" }, call(5, "five")]
    const answer = await bridge.post(batch, session)
    assert.strictEqual(answer.status, 200)
    const said = (text: string) => ({ content: [{ type: "text", text }], isError: false })
    assert.deepStrictEqual(
      (JSON.parse(answer.text) as ReadonlyArray<unknown>)
        .map(asRpc)
        .map(({ error, id, result }) => [id, error?.code ?? result]),
      [
        ["a", {}],
        [2, said("two")],
        [null, -32600],
        [4, -32601],
        [5, said("five")]
      ]
    )
  })

  it("of one are answered without an array, and of notifications alone with a body", async () => {
    const session = await bridge.open("2025-03-26")
    assert.strictEqual((await bridge.post([ping(1)], session)).text, '[{"jsonrpc":"2.0","id":1,"result":{}}]')
    const { status, text } = await bridge.post([note, note], session)
    assert.deepStrictEqual({ status, text }, { status: 202, text: "" })
  })

  it("are empty, or of more than a hundred, and served", async () => {
    const session = await bridge.open("2025-03-26")
    for (const length of [0, 101]) {
      const answer = await bridge.post(
        Array.from({ length }, (_, id) => ping(id)),
        session
      )
      assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null })
    }
    const whole = await bridge.post(
      Array.from({ length: 100 }, (_, id) => ping(id)),
      session
    )
    assert.lengthOf(JSON.parse(whole.text) as ReadonlyArray<unknown>, 100)
  })

  it("open a session", async () => {
    const initialize = {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-03-26", capabilities: {} }
    }
    const answer = await bridge.post([initialize])
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32000, id: null })
    assert.notProperty(answer.headers, "mcp-session-id")
  })

  it.each(["2025-06-18", "2025-11-25"])("are served in a session of %s, which has none", async (version) => {
    const session = await bridge.open(version)
    for (const body of [[ping(1)], [note], []]) {
      const answer = await bridge.post(body, session)
      assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null })
      assert.include(rpcOf(answer).error?.message, version)
    }
  })
})
