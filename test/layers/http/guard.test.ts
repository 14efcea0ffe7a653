import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import { failure, noStrayErrors, rawRequest, resultOf, rpcOf, startBridge } from "../../support/bridge.ts"

noStrayErrors()

const limit = 1024
let bridge: TestBridge
let session: { readonly "mcp-session-id": string }

beforeAll(async () => {
  bridge = await startBridge({
    config: { maxBodyBytes: limit, allowedOrigins: ["https://app.example"], allowedHosts: ["omp.internal"] }
  })
  session = await bridge.open()
})
afterAll(() => bridge[Symbol.asyncDispose]())

const ping = JSON.stringify({ jsonrpc: "2.0", id: 7, method: "ping" })
const huge = "x".repeat(limit + 1)
const nobody = "00000000-0000-4000-8000-000000000000"
/** Each step mends one thing; whatever is still wrong after it must not be what is answered. */
const none = { authorization: "" }

describe("order of checks", () => {
  it("looks at Origin, method, bearer or body before Host", async () => {
    for (const method of ["OPTIONS", "GET", "POST", "DELETE"]) {
      const headers = { ...none, host: "evil.example", origin: "https://evil.example" }
      const answer = await bridge.raw(method, "/nowhere", headers, method === "POST" ? huge : "")
      assert.deepStrictEqual(failure(answer), { status: 403, code: -32000, id: null })
      assert.include(rpcOf(answer).error?.message, "Host")
    }
  })

  it("looks at method, bearer or body before Origin", async () => {
    for (const method of ["OPTIONS", "GET", "POST", "DELETE"]) {
      const headers = { ...none, origin: "https://evil.example" }
      const answer = await bridge.raw(method, "/nowhere", headers, method === "POST" ? huge : "")
      assert.deepStrictEqual(failure(answer), { status: 403, code: -32000, id: null })
      assert.include(rpcOf(answer).error?.message, "Origin")
    }
  })

  it("asks OPTIONS for a bearer, on any path", async () => {
    for (const path of ["/", "/mcp", "/mcp/", "/nowhere"]) {
      assert.strictEqual((await bridge.raw("OPTIONS", path, none)).status, 204)
    }
  })

  it("looks at path, method, size or JSON before the bearer", async () => {
    for (const path of ["/mcp", "/nowhere"]) {
      for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
        const answer = await bridge.raw(method, path, none, method === "POST" ? huge : "")
        assert.deepStrictEqual(failure(answer), { status: 401, code: -32000, id: null })
      }
    }
  })

  it("looks at size, JSON or session before the method", async () => {
    const answer = await bridge.raw("PUT", "/mcp", { "mcp-session-id": nobody }, huge)
    assert.deepStrictEqual(failure(answer), { status: 405, code: -32000, id: null })
  })

  it("looks at JSON or session before the size", async () => {
    const answer = await bridge.raw("POST", "/mcp", { "mcp-session-id": nobody }, huge)
    assert.deepStrictEqual(failure(answer), { status: 413, code: -32000, id: null })
  })

  it("looks at the session before JSON and envelope", async () => {
    const parse = await bridge.raw("POST", "/mcp", { "mcp-session-id": nobody }, "{")
    assert.deepStrictEqual(failure(parse), { status: 400, code: -32700, id: null })
    const envelope = await bridge.raw("POST", "/mcp", { "mcp-session-id": nobody }, '{"jsonrpc":"1.0","id":7}')
    assert.deepStrictEqual(failure(envelope), { status: 400, code: -32600, id: 7 })
  })

  it("looks at protocol version or method before the session, and at the method before the version", async () => {
    const bad = { "mcp-protocol-version": "1999-01-01" }
    const unknown = JSON.stringify({ jsonrpc: "2.0", id: 7, method: "no/such" })
    const missing = await bridge.raw("POST", "/mcp", bad, unknown)
    assert.deepStrictEqual(failure(missing), { status: 400, code: -32000, id: 7 })
    assert.include(rpcOf(missing).error?.message, "mcp-session-id")
    const foreign = await bridge.raw("POST", "/mcp", { ...bad, "mcp-session-id": nobody }, unknown)
    assert.deepStrictEqual(failure(foreign), { status: 404, code: -32001, id: 7 })
    const version = await bridge.raw("POST", "/mcp", { ...bad, ...session }, unknown)
    assert.deepStrictEqual(failure(version), { status: 400, code: -32000, id: 7 })
    assert.include(rpcOf(version).error?.message, "1999-01-01")
    const method = await bridge.raw("POST", "/mcp", session, unknown)
    assert.deepStrictEqual(failure(method), { status: 200, code: -32601, id: 7 })
  })

  it("waits for the body before it refuses a stranger", async () => {
    await using connection = await bridge.connect()
    const head = rawRequest("POST", "/mcp", { host: bridge.good.host, "content-length": "500" })
    await connection.send(head)
    assert.strictEqual((await connection.next()).status, 401)
  })
})

describe("bearer", () => {
  it.each<readonly [authorization: string]>([
    [""],
    ["Bearer"],
    ["Bearer "],
    ["test-token-0123456789"],
    ["Basic test-token-0123456789"],
    ["Bearer wrong-token-0123456789"],
    ["Bearer test-token-012345678"],
    ["Bearer test-token-01234567890"],
    ["Bearer TEST-TOKEN-0123456789"],
    ["Bearer test-token-0123456789 x"],
    ["Bearer test-token-0123456789,x"],
    ["Bearer test-token-0123456789;"],
    ['Bearer "test-token-0123456789"'],
    ["Bearer test-token-0123456789=="],
    ["Bearer\ttest-token-0123456789"],
    ["Bearertest-token-0123456789"],
    ["Bearer test-token-0123456789, Bearer test-token-0123456789"]
  ])("lets %j in, or words its refusal wrong", async (authorization) => {
    const answer = await bridge.raw("POST", "/mcp", { authorization, ...session }, ping)
    assert.deepStrictEqual(failure(answer), { status: 401, code: -32000, id: null })
    assert.strictEqual(answer.headers["www-authenticate"], "Bearer")
    assert.notInclude(answer.text, bridge.token.slice(0, 6))
  })

  it("refuses a request with no Authorization header otherwise than 401", async () => {
    const answer = await bridge.fetch("/mcp", { method: "POST", body: ping, headers: session })
    assert.deepStrictEqual(failure(answer), { status: 401, code: -32000, id: null })
    assert.strictEqual(answer.headers["www-authenticate"], "Bearer")
  })

  it("lets two Authorization headers in, of which one is good", async () => {
    await using connection = await bridge.connect()
    const twice = rawRequest("POST", "/mcp", { ...bridge.good, Authorization: "Bearer wrong-token-0123456789" }, ping)
    await connection.send(twice)
    assert.isAtLeast((await connection.next()).status, 400)
  })

  it.each<readonly [scheme: string]>([["Bearer "], ["bearer "], ["BEARER "], ["bEaReR    "], ["Bearer          "]])(
    "refuses the right token after %j",
    async (scheme) => {
      const answer = await bridge.raw("POST", "/mcp", { authorization: `${scheme}${bridge.token}`, ...session }, ping)
      assert.strictEqual(answer.status, 200)
    }
  )

  it.each<readonly [method: string, path: string]>([
    ["GET", "/mcp"],
    ["GET", "/"],
    ["HEAD", "/mcp"],
    ["PUT", "/mcp"],
    ["PATCH", "/mcp"],
    ["DELETE", "/mcp"],
    ["DELETE", "/"],
    ["POST", "/mcp/"],
    ["GET", "/nowhere"],
    ["POST", "/nowhere"],
    ["DELETE", "/nowhere"],
    ["GET", "/.well-known/oauth-protected-resource"],
    ["GET", "/favicon.ico"]
  ])("answers %s %s to a stranger", async (method, path) => {
    for (const authorization of ["", "Bearer wrong-token-0123456789"]) {
      const answer = await bridge.raw(method, path, { authorization, ...session }, method === "POST" ? ping : "")
      assert.strictEqual(answer.status, 401)
      assert.strictEqual(answer.headers["www-authenticate"], "Bearer")
      if (method !== "HEAD") assert.deepStrictEqual(failure(answer), { status: 401, code: -32000, id: null })
    }
  })

  it("lets a stranger end a session, open one, or call a tool", async () => {
    const mine = await bridge.open()
    const before = bridge.audit().length
    const wrong = { authorization: "Bearer wrong-token-0123456789" }
    const initialize = JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25" }
    })
    const call = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo" } })
    assert.strictEqual((await bridge.raw("DELETE", "/mcp", { ...mine, ...wrong })).status, 401)
    assert.strictEqual((await bridge.raw("POST", "/mcp", { ...mine, ...wrong }, call)).status, 401)
    for (let n = 0; n < 65; n++) {
      const answer = await bridge.fetch("/mcp", { method: "POST", body: initialize, headers: wrong })
      assert.strictEqual(answer.status, 401)
      assert.isUndefined(answer.headers["mcp-session-id"])
    }
    assert.deepStrictEqual(resultOf(await bridge.rpc("ping", undefined, mine)), {})
    assert.lengthOf(bridge.audit(), before)
  })
})

describe("Host", () => {
  it.each<readonly [host: string]>([
    ["localhost"],
    ["LOCALHOST:1"],
    ["localhost:65535"],
    ["127.0.0.1"],
    ["127.0.0.1:1"],
    ["127.9.9.9"],
    ["[::1]"],
    ["[::1]:8080"],
    ["omp.internal"],
    ["OMP.internal:444"]
  ])("refuses %s on a loopback bind", async (host) => {
    assert.strictEqual((await bridge.raw("POST", "/mcp", { host, ...session }, ping)).status, 200)
  })

  it.each<readonly [host: string]>([
    ["evil.example"],
    ["evil.example:80"],
    ["localhost.evil.example"],
    ["127.0.0.1.evil.example"],
    ["127.0.0.1.nip.io"],
    ["omp.internal.evil.example"],
    ["evil-omp.internal"],
    ["10.0.0.1"],
    ["0.0.0.0"],
    ["[::2]"],
    ["localhost:80:80"],
    [""]
  ])("takes %j for this machine", async (host) => {
    const answer = await bridge.raw("POST", "/mcp", { host, ...session }, ping)
    assert.strictEqual(answer.status, 403, answer.text)
    assert.deepStrictEqual(failure(answer), { status: 403, code: -32000, id: null })
  })

  it("serves a request of HTTP/1.1 that names no host", async () => {
    await using connection = await bridge.connect()
    await connection.send(rawRequest("POST", "/mcp", { authorization: bridge.good.authorization, ...session }, ping))
    const { status } = await connection.next()
    assert.include([400, 403], status)
  })

  it("takes the host of an absolute request line for the Host header", async () => {
    await using connection = await bridge.connect()
    const url = `http://127.0.0.1:${bridge.port}/mcp`
    await connection.send(rawRequest("POST", url, { ...bridge.good, host: "evil.example", ...session }, ping))
    assert.include([400, 403, 404], (await connection.next()).status)
  })
})

describe("Origin", () => {
  it.each<readonly [origin: string]>([
    ["http://localhost"],
    ["http://localhost:5173"],
    ["https://localhost:5173"],
    ["http://127.0.0.1:6274"],
    ["http://[::1]:6274"],
    ["https://app.example"]
  ])("refuses %s, or serves it without CORS headers", async (origin) => {
    const answer = await bridge.raw("POST", "/mcp", { origin, ...session }, ping)
    assert.strictEqual(answer.status, 200)
    assert.strictEqual(answer.headers["access-control-allow-origin"], origin)
    assert.match(answer.headers["access-control-expose-headers"] ?? "", /\bMcp-Session-Id\b/i)
    assert.match(answer.headers["vary"] ?? "", /\borigin\b/i)
  })

  it.each<readonly [origin: string]>([
    ["null"],
    [""],
    ["https://evil.example"],
    ["http://localhost.evil.example"],
    ["http://evil.example:80"],
    ["https://app.example.evil.example"],
    ["https://app.example:444"],
    ["http://app.example"],
    ["https://omp.internal"],
    ["http://localhost@evil.example"],
    ["http://localhost/../evil"],
    ["chrome-extension://abcdef"],
    ["file://"]
  ])("lets a page of %j in", async (origin) => {
    for (const method of ["POST", "OPTIONS", "DELETE"]) {
      const answer = await bridge.raw(method, "/mcp", { origin, ...session }, method === "POST" ? ping : "")
      assert.deepStrictEqual(failure(answer), { status: 403, code: -32000, id: null })
      assert.isUndefined(answer.headers["access-control-allow-origin"])
    }
    assert.deepStrictEqual(resultOf(await bridge.rpc("ping", undefined, session)), {})
  })

  it("keeps the reason of a refusal from an allowed page", async () => {
    const origin = "http://localhost:5173"
    for (const answer of [
      await bridge.raw("POST", "/mcp", { origin, ...none }, ping),
      await bridge.raw("POST", "/mcp", { origin }, huge),
      await bridge.raw("POST", "/mcp", { origin, "mcp-session-id": nobody }, ping),
      await bridge.raw("GET", "/mcp", { origin })
    ]) {
      assert.isAtLeast(answer.status, 400)
      assert.strictEqual(answer.headers["access-control-allow-origin"], origin)
    }
  })

  it("allows credentials or every origin", async () => {
    const answer = await bridge.raw("POST", "/mcp", { origin: "http://localhost:1", ...session }, ping)
    assert.isUndefined(answer.headers["access-control-allow-credentials"])
    const plain = await bridge.raw("POST", "/mcp", session, ping)
    assert.isUndefined(plain.headers["access-control-allow-origin"])
  })
})

describe("OPTIONS", () => {
  it.each<readonly [path: string]>([["/"], ["/mcp"], ["/mcp/"]])(
    "keeps a page from reading the answers of %s",
    async (path) => {
      const origin = "http://localhost:5173"
      const preflight = {
        ...none,
        origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,mcp-session-id,mcp-protocol-version"
      }
      const { headers, status, text } = await bridge.raw("OPTIONS", path, preflight)
      assert.deepStrictEqual({ status, text }, { status: 204, text: "" })
      const words = (name: string) => (headers[name] ?? "").toLowerCase().split(/\s*,\s*/)
      assert.sameMembers(words("allow"), ["get", "post", "delete", "options"])
      assert.strictEqual(headers["access-control-allow-origin"], origin)
      assert.includeMembers(words("access-control-allow-methods"), ["post", "delete"])
      assert.includeMembers(words("access-control-allow-headers"), [
        "authorization",
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name"
      ])
      assert.includeMembers(words("access-control-expose-headers"), ["mcp-session-id"])
    }
  )
})

describe("paths and methods", () => {
  it.each<readonly [path: string]>([["/"], ["/mcp"], ["/mcp/"], ["/mcp?x=1"], ["/?x=1"]])(
    "redirects or refuses %s",
    async (path) => {
      assert.strictEqual((await bridge.raw("POST", path, session, ping)).status, 200)
    }
  )

  it.each<readonly [method: string, path: string]>([
    ["POST", "/nowhere"],
    ["GET", "/nowhere"],
    ["DELETE", "/nowhere"],
    ["PUT", "/mcp/more"],
    ["POST", "/mcp//"],
    ["POST", "/MCP"],
    ["POST", "//mcp"],
    ["GET", "/%"],
    ["GET", "/%00"],
    ["GET", "/%c0%ae%c0%ae/x"],
    ["GET", "/mcp/%"],
    ["GET", "/sse"],
    ["GET", `/${"a".repeat(4000)}`]
  ])("answers %s %s otherwise than 404 in JSON-RPC", async (method, path) => {
    const answer = await bridge.raw(method, path, session, method === "POST" ? ping : "")
    assert.deepStrictEqual(failure(answer), { status: 404, code: -32000, id: null })
  })

  it.each<readonly [method: string]>([["PUT"], ["PATCH"], ["HEAD"]])(
    "serves %s, or refuses it without saying what it serves",
    async (method) => {
      for (const path of ["/", "/mcp", "/mcp/"]) {
        const answer = await bridge.raw(method, path, { accept: "text/event-stream", ...session })
        assert.strictEqual(answer.status, 405)
        const allow = (answer.headers["allow"] ?? "").split(", ")
        assert.sameMembers(allow, ["GET", "POST", "DELETE", "OPTIONS"])
        if (method !== "HEAD") assert.deepStrictEqual(failure(answer), { status: 405, code: -32000, id: null })
      }
    }
  )

  it.each<readonly [method: string]>([["GET"], ["DELETE"]])(
    "serves %s to a client of 2026-07-28, which has no sessions",
    async (method) => {
      const answer = await bridge.raw(method, "/mcp", { ...session, "mcp-protocol-version": "2026-07-28" })
      assert.deepStrictEqual(failure(answer), { status: 405, code: -32000, id: null })
      assert.sameMembers((answer.headers["allow"] ?? "").split(", "), ["POST", "OPTIONS"])
    }
  )

  it.each<readonly [method: string]>([["TRACE"], ["PROPFIND"], ["QUERY"]])(
    "calls the method %s a fault of its own, or answers it to a stranger",
    async (method) => {
      const logged = bridge.host.logs.length
      for (const path of ["/mcp", "/nowhere"]) {
        const stranger = await bridge.raw(method, path, none)
        assert.include([400, 401, 405, 501], stranger.status)
        const known = await bridge.raw(method, path)
        assert.include([400, 404, 405, 501], known.status)
      }
      assert.deepStrictEqual(bridge.host.logs.slice(logged), [])
    }
  )

  it("lets a browser keep or sniff an answer", async () => {
    for (const answer of [await bridge.raw("POST", "/mcp", session, ping), await bridge.raw("GET", "/mcp", none)]) {
      assert.strictEqual(answer.headers["cache-control"], "no-store")
      assert.strictEqual(answer.headers["x-content-type-options"], "nosniff")
    }
  })
})
