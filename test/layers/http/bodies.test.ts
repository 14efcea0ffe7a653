import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import { failure, noStrayErrors, rawRequest, resultOf, rpcOf, saidBy, startBridge } from "../../support/bridge.ts"

/** Bytes on their way to being a message: how many, in what pieces, nested how deep. */

noStrayErrors()

const maxBodyBytes = 300_000
let bridge: TestBridge
let session: { readonly "mcp-session-id": string }

beforeAll(async () => {
  bridge = await startBridge({ config: { maxBodyBytes } })
  session = await bridge.open()
})
afterAll(() => bridge[Symbol.asyncDispose]())

const ping = (id: number | string) => JSON.stringify({ jsonrpc: "2.0", id, method: "ping" })
/** A good request of exactly so many bytes. */
const sized = (bytes: number) => ping(1).padEnd(bytes, " ")

const chunked = (body: string, size: number): string => {
  const pieces: Array<string> = []
  for (let at = 0; at < body.length; at += size) {
    const piece = body.slice(at, at + size)
    pieces.push(`${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)
  }
  return `${pieces.join("")}0\r\n\r\n`
}

const alive = async () => assert.deepStrictEqual(resultOf(await bridge.rpc("ping", undefined, session)), {})

describe("size", () => {
  const ways: ReadonlyArray<readonly [way: string, send: (body: string) => ReturnType<TestBridge["raw"]>]> = [
    ["content-length", (body) => bridge.raw("POST", "/mcp", session, body)],
    [
      "chunks",
      (body) => bridge.raw("POST", "/mcp", { ...session, "transfer-encoding": "chunked" }, chunked(body, 64 * 1024 - 1))
    ]
  ]

  it.each(ways)("refuses a body of exactly the limit (%s)", async (_way, send) => {
    assert.deepStrictEqual(resultOf(await send(sized(maxBodyBytes))), {})
  })

  it.each(ways)("takes one byte more, or refuses it without JSON-RPC (%s)", async (_way, send) => {
    const answer = await send(sized(maxBodyBytes + 1))
    assert.deepStrictEqual(failure(answer), { status: 413, code: -32000, id: null })
    assert.include(rpcOf(answer).error?.message, String(maxBodyBytes))
    await alive()
  })

  it("counts characters, not bytes", async () => {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping", params: { x: "é".repeat(maxBodyBytes / 2) } })
    assert.isBelow(body.length, maxBodyBytes)
    assert.strictEqual((await bridge.post(body, session)).status, 413)
  })

  it("waits for a body that it will not take", async () => {
    await using connection = await bridge.connect()
    await connection.send(
      rawRequest("POST", "/mcp", { ...bridge.good, ...session, "content-length": String(maxBodyBytes + 1) })
    )
    assert.strictEqual((await connection.next()).status, 413)
  })
})

describe("pieces", () => {
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: "é",
    method: "tools/call",
    params: { name: "echo", arguments: { text: "ü😀" } }
  })

  it("needs a body in one packet, or breaks characters at the seams of packets", async () => {
    await using connection = await bridge.connect()
    for (const byte of Buffer.from(rawRequest("POST", "/mcp", { ...bridge.good, ...session }, body))) {
      await connection.send(Uint8Array.of(byte))
    }
    const answer = await connection.next()
    assert.strictEqual(saidBy(answer), "ü😀")
    assert.strictEqual(rpcOf(answer).id, "é")
  })

  it("breaks characters at the seams of chunks", async () => {
    const bytes = Buffer.from(body)
    const chunks = [...bytes].map((byte) => Buffer.concat([Buffer.from("1\r\n"), Buffer.of(byte), Buffer.from("\r\n")]))
    const head = rawRequest("POST", "/mcp", { ...bridge.good, ...session, "transfer-encoding": "chunked" })
    await using connection = await bridge.connect()
    await connection.send(Buffer.concat([Buffer.from(head), ...chunks, Buffer.from("0\r\n\r\n")]))
    assert.strictEqual(saidBy(await connection.next()), "ü😀")
  })

  it("answers pipelined requests out of order, or mixes them up", async () => {
    await using connection = await bridge.connect()
    const ids = Array.from({ length: 20 }, (_, n) => `request ${n}`)
    const good = { ...bridge.good, ...session }
    await connection.send(ids.map((id) => rawRequest("POST", "/mcp", good, ping(id))).join(""))
    for (const id of ids) assert.strictEqual(rpcOf(await connection.next()).id, id)
  })

  it("loses the requests after one that is refused on the same connection", async () => {
    await using connection = await bridge.connect()
    const good = { ...bridge.good, ...session }
    await connection.send(
      rawRequest("POST", "/mcp", good, "{") +
        rawRequest("POST", "/mcp", { ...good, authorization: "Bearer wrong-token-0123456789" }, ping(2)) +
        rawRequest("POST", "/mcp", good, ping(3))
    )
    assert.deepStrictEqual(failure(await connection.next()), { status: 400, code: -32700, id: null })
    assert.deepStrictEqual(failure(await connection.next()), { status: 401, code: -32000, id: null })
    assert.strictEqual(rpcOf(await connection.next()).id, 3)
  })

  it("breaks on a client that goes away inside its body", async () => {
    const logged = bridge.host.logs.length
    for (const framing of [{ "content-length": "500" }, { "transfer-encoding": "chunked" }]) {
      const connection = await bridge.connect()
      await connection.send(rawRequest("POST", "/mcp", { ...bridge.good, ...session, ...framing }))
      await connection.send("content-length" in framing ? "{" : "5\r\n{")
      await connection[Symbol.asyncDispose]()
    }
    await alive()
    assert.deepStrictEqual(bridge.host.logs.slice(logged), [])
  })
})

describe("nesting", () => {
  const depth = 100_000
  const nested: ReadonlyArray<readonly [what: string, body: string, ...codes: ReadonlyArray<number>]> = [
    ["as a message", `${"[".repeat(depth)}${"]".repeat(depth)}`, -32600],
    ["as params", `{"jsonrpc":"2.0","id":1,"method":"ping","params":${"[".repeat(depth)}${"]".repeat(depth)}}`, -32600],
    ["and never closed", "[".repeat(depth), -32600],
    ["of objects that never close", '{"a":'.repeat(depth / 2), -32600]
  ]

  it.each(nested)("crashes on a hundred thousand brackets %s", async (_what, body, ...codes) => {
    const answer = await bridge.post(body, session)
    assert.strictEqual(answer.status, 400)
    assert.include(codes, rpcOf(answer).error?.code)
    await alive()
  })

  it("crashes on a tool's arguments as deep as they come", async () => {
    const body =
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"said","x":' +
      `${"[".repeat(depth)}${"]".repeat(depth)}}}}`
    const answer = await bridge.post(body, session)
    assert.deepStrictEqual(failure(answer), { status: 400, code: -32600, id: null })
    assert.include(rpcOf(answer).error?.message, "256 levels")
    await alive()
  })
})

describe("what is no JSON", () => {
  it.each(["", " ", "{", "nul", "{'a':1}", '{"a":1,}', "\ufeff{}x", "NaN", "--", '"\\ud800'])(
    "takes %j for a message",
    async (body) => {
      assert.deepStrictEqual(failure(await bridge.post(body, session)), { status: 400, code: -32700, id: null })
    }
  )

  it.each(["0", "null", "true", '"x"', "{}", '{"jsonrpc":"2.0"}', '{"id":1,"method":"ping"}'])(
    "takes the JSON %s for a message",
    async (body) => {
      const { code, status } = failure(await bridge.post(body, session))
      assert.deepStrictEqual({ code, status }, { status: 400, code: -32600 })
    }
  )
})
