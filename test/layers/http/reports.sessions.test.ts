import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import {
  callResultOf,
  failure,
  makeGate,
  noStrayErrors,
  resultOf,
  rpcOf,
  saidBy,
  startBridge,
  until
} from "../../support/bridge.ts"
import { echo, text } from "../../support/fakeHost.ts"
import { openStream } from "../../support/sse.ts"

/** What users of other servers and clients reported about sessions: one test a report, named by it. */

noStrayErrors()

const gate = makeGate()
let bridge: TestBridge

beforeAll(async () => {
  bridge = await startBridge({ tools: () => [echo, gate.tool] })
})
afterAll(() => bridge[Symbol.asyncDispose]())

const nobody = { "mcp-session-id": "00000000-0000-4000-8000-000000000000" }
const listen = (session: Record<string, string>) =>
  openStream(`${bridge.url}/mcp`, {
    headers: { authorization: bridge.good.authorization, accept: "text/event-stream", ...session }
  })

describe("reports about sessions", () => {
  it("[affine-mcp-server#301, OmniRoute#5191] mixes an unknown session (404) up with a missing id (400)", async () => {
    for (const session of [nobody, { "mcp-session-id": "not-a-uuid" }]) {
      assert.deepStrictEqual(failure(await bridge.rpc("ping", {}, session)), { status: 404, code: -32001, id: 1 })
    }
    assert.deepStrictEqual(failure(await bridge.rpc("ping")), { status: 400, code: -32000, id: 1 })
  })

  it("[neotoma#1923] answers a session of before a restart with anything but 404", async () => {
    const before = await startBridge()
    const session = await before.open()
    const { port } = before
    await before[Symbol.asyncDispose]()
    await using after = await startBridge({ config: { port } })
    assert.strictEqual(after.port, port)
    assert.deepStrictEqual(failure(await after.rpc("tools/list", {}, session)), { status: 404, code: -32001, id: 1 })
    const get = await after.raw("GET", "/mcp", { ...session, accept: "text/event-stream" })
    assert.deepStrictEqual(failure(get), { status: 404, code: -32001, id: null })
  })

  it("[rust-sdk#559] takes an unknown session for a missing bearer (401), on any method", async () => {
    for (const method of ["POST", "GET", "DELETE"]) {
      const body = method === "POST" ? JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }) : ""
      assert.strictEqual((await bridge.raw(method, "/mcp", nobody, body)).status, 404, method)
    }
  })

  it("[auto-mobile#1942, LibreChat#14816] refuses a second GET, or leaves the first open beside it", async () => {
    const session = await bridge.open()
    await using first = await listen(session)
    await first.find("the first stream's priming event", ({ id }) => id !== undefined)
    await using second = await listen(session)
    assert.strictEqual(second.response.status, 200)
    await first.ended()
    await second.find("the second stream's priming event", ({ id }) => id !== undefined)
    assert.isTrue(second.isOpen())
  })

  it("[executor#1684, auggie#162] fills up with clients that never send DELETE", async () => {
    await using crowded = await startBridge()
    const first = await crowded.open()
    for (let i = 0; i < 64; i++) await crowded.open()
    assert.strictEqual((await crowded.rpc("ping", {}, first)).status, 404)
    assert.strictEqual((await crowded.rpc("ping", {}, await crowded.open())).status, 200)
  })

  it("[qmd#734, python-sdk#2455] ends a session with a call in flight to make room", async () => {
    const own = makeGate()
    await using crowded = await startBridge({ tools: () => [own.tool] })
    const busy = await crowded.open()
    const call = crowded.call(busy, "hold")
    await until("the call runs", () => own.started.length === 1)
    for (let i = 0; i < 70; i++) await crowded.open()
    assert.strictEqual((await crowded.rpc("ping", {}, busy)).status, 200)
    own.release()
    assert.strictEqual(saidBy(await call), "released")
  })

  it("[typescript-sdk#742, GHSA-345p-7cg4-v4c7] gives one client's answer to another that uses the same id", async () => {
    const clients = await Promise.all(Array.from({ length: 8 }, () => bridge.open()))
    const rounds = clients.flatMap((session, who) =>
      Array.from({ length: 5 }, async (_, round) => {
        const word = `client ${who}, round ${round}`
        assert.strictEqual(saidBy(await bridge.call(session, "echo", { text: word }, 1)), word)
      })
    )
    await Promise.all(rounds)
  })

  it("[mcp-ts-core#311] does not abort the tool on a notifications/cancelled that comes on its own POST", async () => {
    const session = await bridge.open()
    const runs = gate.started.length
    const ended = gate.aborted.length
    const call = bridge.call(session, "hold", {}, "to-cancel")
    await until("the call runs", () => gate.started.length === runs + 1)
    const other = await bridge.open()
    const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "to-cancel" } }
    assert.strictEqual((await bridge.post(cancel, other)).status, 202)
    assert.lengthOf(gate.aborted, ended, "another session's cancel ended the call")
    assert.strictEqual((await bridge.post(cancel, session)).status, 202)
    const answer = await call
    assert.deepStrictEqual([answer.status, answer.text], [202, ""])
    assert.lengthOf(gate.aborted, ended + 1)
  })

  it("[analytics-mcp#22] redirects /mcp/, which loses the Authorization header, or does not serve it", async () => {
    for (const path of ["/mcp", "/mcp/", "/"]) {
      const answer = await bridge.raw("POST", path, {}, JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }))
      assert.strictEqual(answer.status, 400, path)
      assert.strictEqual(rpcOf(answer).error?.code, -32000)
    }
  })

  it("[UCAgent#127] answers Accept: */* or none with 406", async () => {
    const session = await bridge.open()
    for (const headers of [{}, { accept: "*/*" }, { accept: "text/html" }]) {
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" })
      assert.property(resultOf(await bridge.raw("POST", "/mcp", { ...session, ...headers }, body)), "tools")
    }
  })

  it("[csharp-sdk#1765] answers server/discover in a legacy session with anything but -32601", async () => {
    const session = await bridge.open()
    assert.deepStrictEqual(failure(await bridge.rpc("server/discover", {}, session)), {
      status: 200,
      code: -32601,
      id: 1
    })
  })

  it("[netdata#22258] asks OPTIONS for a bearer, or hides the Mcp-* headers from web pages", async () => {
    const answer = await bridge.raw("OPTIONS", "/mcp", {
      authorization: "",
      origin: "http://localhost:5173",
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization, mcp-session-id, mcp-param-region, x-other"
    })
    assert.strictEqual(answer.status, 204)
    const allowed = (answer.headers["access-control-allow-headers"] ?? "").toLowerCase()
    for (const name of ["authorization", "mcp-session-id", "mcp-protocol-version", "last-event-id", "mcp-method"]) {
      assert.include(allowed, name)
    }
    assert.include(allowed, "mcp-param-region")
    assert.notInclude(allowed, "x-other")
    const exposed = (answer.headers["access-control-expose-headers"] ?? "").toLowerCase()
    for (const name of ["mcp-session-id", "mcp-protocol-version"]) assert.include(exposed, name)
  })

  it("[python-sdk#3493] says listChanged of a list whose changes it never tells", async () => {
    let late = false
    let prompts = false
    await using changing = await startBridge({
      tools: () =>
        late ? [echo, { ...echo, name: "read" }, { ...echo, name: "late" }] : [echo, { ...echo, name: "read" }],
      host: {
        prompts: () =>
          prompts ? [{ name: "fix", description: "Fixes", argumentHint: undefined, handle: undefined }] : []
      }
    })
    const opened = await changing.rpc("initialize", { protocolVersion: "2025-11-25", capabilities: {} })
    const { capabilities } = resultOf(opened) as { readonly capabilities: Record<string, { listChanged?: boolean }> }
    assert.deepStrictEqual(
      Object.entries(capabilities)
        .flatMap(([name, { listChanged }]) => (listChanged === true ? [name] : []))
        .sort(),
      ["prompts", "resources", "tools"]
    )
    const session = { "mcp-session-id": opened.headers["mcp-session-id"] ?? "" }
    await using stream = await openStream(`${changing.url}/mcp`, {
      headers: { authorization: changing.good.authorization, ...session }
    })
    await stream.find("the priming event", ({ id }) => id !== undefined)
    late = true
    await stream.find("tools", ({ message }) => message?.["method"] === "notifications/tools/list_changed", 6000)
    prompts = true
    await stream.find("prompts", ({ message }) => message?.["method"] === "notifications/prompts/list_changed", 6000)
    assert.lengthOf(stream.messages(), 2)
  })

  it("[agentconnect#1831] leaves readOnlyHint out, without which Codex denies a tool that only reads", async () => {
    await using readers = await startBridge({
      tools: () => [
        { ...echo, name: "read", tier: "read" },
        { name: "bash", tier: "exec", run: async () => text("") }
      ]
    })
    const { tools } = resultOf(await readers.rpc("tools/list", {}, await readers.open())) as {
      readonly tools: ReadonlyArray<{ readonly name: string; readonly annotations: Record<string, unknown> }>
    }
    assert.deepStrictEqual(
      tools.map(({ annotations, name }) => [name, annotations["readOnlyHint"]]),
      [
        ["read", true],
        ["bash", false]
      ]
    )
    assert.isFalse(callResultOf(await readers.call(await readers.open(), "read", { text: "x" })).isError)
  })
})
