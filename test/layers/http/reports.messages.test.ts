import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import { callResultOf, failure, noStrayErrors, resultOf, rpcOf, saidBy, startBridge } from "../../support/bridge.ts"
import type { FakeTool } from "../../support/fakeHost.ts"
import { text } from "../../support/fakeHost.ts"

/** What users of other servers and clients reported about messages and schemas: one test a report, named by it. */

noStrayErrors()

const tool = (name: string, more: Partial<FakeTool> = {}): FakeTool => ({
  name,
  tier: "read",
  run: async (args) => text(JSON.stringify(args)),
  ...more
})

let bridge: TestBridge
let session: Record<string, string>

beforeAll(async () => {
  bridge = await startBridge({
    config: { maxBodyBytes: 64 * 1024 },
    tools: () => [
      tool("args"),
      tool("mcp.server/tool name", { run: async () => text("aliased") }),
      tool("x".repeat(80), { run: async () => text("long") }),
      tool("union", {
        schema: {
          $schema: "http://json-schema.org/draft-07/schema#",
          oneOf: [
            { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
            { type: "object", properties: { b: { $ref: "https://example.invalid/schema.json" } }, required: ["b"] }
          ]
        }
      }),
      tool("fails", {
        run: async () => ({ ...text("it went wrong", true), details: { exitCode: 3, wallTimeMs: 5 } })
      }),
      tool("bash", {
        run: async () => ({ ...text("exit 3", true), details: { exitCode: 3, wallTimeMs: 5 } })
      }),
      tool("surrogate", { run: async () => text("before \ud800 after") })
    ]
  })
  session = await bridge.open()
})
afterAll(() => bridge[Symbol.asyncDispose]())

interface Listed {
  readonly name: string
  readonly inputSchema: Record<string, unknown>
  readonly outputSchema?: Record<string, unknown>
}
const listed = async () =>
  (resultOf(await bridge.rpc("tools/list", {}, session)) as { readonly tools: ReadonlyArray<Listed> }).tools

describe("reports about messages", () => {
  it("[RivalSearchMCP#5] takes id: null for a request's id, or for a notification", async () => {
    const answer = await bridge.post({ jsonrpc: "2.0", id: null, method: "ping" }, session)
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null })
  })

  it("[mempalace#2232] gives no answer to a method, params or arguments of the wrong type", async () => {
    const messages = [
      { jsonrpc: "2.0", id: 1, method: 5 },
      { jsonrpc: "2.0", id: 1, method: null },
      { jsonrpc: "2.0", id: 1, method: "tools/call", params: "x" },
      { jsonrpc: "2.0", id: 1, method: "tools/call", params: [1] },
      { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: 5 } },
      { jsonrpc: "2.0", id: 1, method: "tools/call" }
    ]
    for (const message of messages) {
      const answer = await bridge.post(message, session)
      assert.include([-32600, -32602], rpcOf(answer).error?.code, JSON.stringify(message))
    }
    const answer = await bridge.call(session, "args", 5)
    assert.isTrue(callResultOf(answer).isError)
    assert.include(saidBy(answer), "'arguments'")
  })

  it("[apify-mcp-server#1360] fails a call that leaves arguments out", async () => {
    assert.strictEqual(saidBy(await bridge.rpc("tools/call", { name: "args" }, session)), "{}")
  })

  it("[keeperhub#2108] answers arguments: null or [] with a protocol error, or runs the tool with them", async () => {
    for (const args of [null, [], [1], "x", true]) {
      const result = callResultOf(await bridge.rpc("tools/call", { name: "args", arguments: args }, session))
      assert.isTrue(result.isError, JSON.stringify(args))
      assert.include(result.content[0]?.text, "JSON object")
    }
  })

  it("[claude-code#78762] rounds an integer above 2^53 in silence", async () => {
    const call = (n: string) =>
      bridge.post(
        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"args","arguments":{"n":${n}}}}`,
        session
      )
    const refused = await call("9007199254740993")
    assert.deepStrictEqual(failure(refused), { status: 400, code: -32600, id: null })
    assert.include(rpcOf(refused).error?.message, "9007199254740993")
    assert.strictEqual(saidBy(await call("9007199254740991")), '{"n":9007199254740991}')
    assert.strictEqual(saidBy(await call('"9007199254740993"')), '{"n":"9007199254740993"}')
  })

  it("[hive-mind#1204] passes a lone surrogate on, which breaks the model API behind the client", async () => {
    const answer = await bridge.call(session, "surrogate")
    assert.strictEqual(saidBy(answer), "before \ufffd after")
    assert.isTrue(answer.text.isWellFormed())
  })

  it("[repomix#833] sends structuredContent with isError", async () => {
    for (const name of ["fails", "bash"]) {
      const result = resultOf(await bridge.call(session, name))
      assert.isTrue(result["isError"])
      assert.notProperty(result, "structuredContent")
    }
    // What is known of the run goes where no client looks for the result.
    const { _meta } = resultOf(await bridge.call(session, "bash"))
    assert.deepStrictEqual(_meta, { "pi-a2a-ext/details": { exitCode: 3, wallTimeMs: 5 } })
  })

  it("[supergateway#163] answers a body that is too large with HTML, or with nothing", async () => {
    const large = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "x".repeat(70_000) })
    for (const headers of [{}, { "transfer-encoding": "chunked" }]) {
      const body = "transfer-encoding" in headers ? `${large.length.toString(16)}\r\n${large}\r\n0\r\n\r\n` : large
      const answer = await bridge.raw("POST", "/mcp", { ...session, ...headers }, body)
      assert.deepStrictEqual(failure(answer), { status: 413, code: -32000, id: null })
      assert.include(rpcOf(answer).error?.message, "maxBodyBytes")
    }
  })

  it("[differential probe] answers id 1.5 with an empty 200, or an id above 2^53 with its neighbour", async () => {
    for (const id of ["1.5", "9007199254740993", "-9007199254740993", "true", "{}", "[]"]) {
      const answer = await bridge.post(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`, session)
      assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null }, id)
    }
    for (const id of ["9007199254740991", "-9007199254740991", "0", '"9007199254740993"', '""']) {
      const answer = await bridge.post(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`, session)
      assert.strictEqual(answer.text, `{"jsonrpc":"2.0","id":${id},"result":{}}`)
    }
  })

  it("[differential probe] lets any Origin or Host in by default", async () => {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" })
    for (const headers of [{ origin: "https://evil.example" }, { origin: "null" }, { host: "evil.example" }]) {
      assert.strictEqual((await bridge.raw("POST", "/mcp", { ...session, ...headers }, body)).status, 403)
    }
  })

  it("[differential probe] takes a cursor that was never given out", async () => {
    for (const method of ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]) {
      for (const cursor of ["", "x", "MTAw", 5, null, btoa(`${method}:7`)]) {
        const answer = await bridge.rpc(method, { cursor }, session)
        assert.deepStrictEqual(failure(answer), { status: 200, code: -32602, id: 1 }, `${method} ${String(cursor)}`)
      }
    }
  })
})

describe("reports about tools and their schemas", () => {
  it("[claude-code#90549] says a $schema that clients refuse", async () => {
    for (const { inputSchema } of await listed()) assert.notProperty(inputSchema, "$schema")
  })

  it("[mcpx#28, ripwire#48] has a combinator at the root of a schema, or an output schema that is no object", async () => {
    const tools = await listed()
    for (const { inputSchema, name, outputSchema } of tools) {
      assert.strictEqual(inputSchema["type"], "object", name)
      for (const key of ["oneOf", "anyOf", "allOf"]) assert.notProperty(inputSchema, key, name)
      if (outputSchema !== undefined) assert.strictEqual(outputSchema["type"], "object", name)
    }
    const union = tools.find(({ name }) => name === "union")?.inputSchema
    assert.sameMembers(Object.keys((union?.["properties"] ?? {}) as object), ["a", "b"])
    assert.notInclude(JSON.stringify(union), "https://")
  })

  it("[codex#8174, copilot-cli#1879] gives a tool a name that model APIs answer with 400", async () => {
    const names = (await listed()).map(({ name }) => name)
    for (const name of names) assert.match(name, /^[A-Za-z0-9_-]{1,64}$/)
    const alias = names.find((name) => name.startsWith("mcp_server"))
    const long = names.find((name) => name.startsWith("xxx"))
    assert(alias !== undefined && long !== undefined)
    assert.strictEqual(saidBy(await bridge.call(session, alias)), "aliased")
    assert.strictEqual(saidBy(await bridge.call(session, long)), "long")
  })
})
