import { createServer } from "node:net"
import { assert, describe, it } from "vitest"
import * as Main from "../../../src/layers/Main.ts"
import { makeHost, noStrayErrors, resultOf, startBridge } from "../../support/bridge.ts"

noStrayErrors()

const listenOn = (host: string, port: number) =>
  new Promise<{ readonly port: number; readonly close: () => Promise<void> }>((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen({ host, port, ipv6Only: true }, () => {
      const address = server.address()
      resolve({
        port: typeof address === "object" && address !== null ? address.port : 0,
        close: () => new Promise((done) => server.close(() => done()))
      })
    })
  })

const hasIPv6 = await listenOn("::1", 0).then(
  async ({ close }) => {
    await close()
    return true
  },
  () => false
)

const initialize = (url: string, authorization: string) =>
  fetch(`${url}/mcp`, {
    method: "POST",
    headers: { authorization, "content-type": "application/json" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {} }
    })
  })

describe.runIf(hasIPv6)("both loopbacks [firecrawl-mcp#251]", () => {
  it("leaves a client that takes localhost for ::1 without an answer", async () => {
    await using bridge = await startBridge()
    for (const name of ["127.0.0.1", "[::1]", "localhost"]) {
      const response = await initialize(`http://${name}:${bridge.port}`, bridge.good.authorization)
      assert.strictEqual(response.status, 200, name)
    }
  })

  it("keeps two lists of sessions, one an address", async () => {
    await using bridge = await startBridge()
    const session = await bridge.open()
    const response = await fetch(`http://[::1]:${bridge.port}/mcp`, {
      method: "POST",
      headers: { authorization: bridge.good.authorization, ...session },
      body: JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/list" })
    })
    const answer = {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      text: await response.text()
    }
    assert.property(resultOf(answer), "tools")
  })

  it("shares a port with somebody else's server on the other address", async () => {
    const other = await listenOn("::1", 0)
    const { host, remove } = makeHost({ config: { port: other.port } })
    const started = await Main.bridge(host)
    try {
      assert(started._tag === "Started")
      assert.notStrictEqual(Number(new URL(started.bridge.url).port), other.port)
      assert.match(host.notices.map(({ text }) => text).join("\n"), new RegExp(`${other.port}`))
    } finally {
      if (started._tag === "Started") await started.bridge.close()
      await other.close()
      remove()
    }
  })

  it("frees only one of the two when it closes", async () => {
    const bridge = await startBridge()
    const { port } = bridge
    await bridge[Symbol.asyncDispose]()
    for (const host of ["127.0.0.1", "::1"]) await (await listenOn(host, port)).close()
  })

  it("listens on ::1 alone when that is configured", async () => {
    await using bridge = await startBridge({ config: { host: "::1" } })
    for (const name of ["127.0.0.1", "[::1]"]) {
      const response = await initialize(`http://${name}:${bridge.port}`, bridge.good.authorization)
      assert.strictEqual(response.status, 200, name)
    }
  })

  it("takes localhost for an address of its own, and its own twin for somebody else's", async () => {
    await using bridge = await startBridge({ config: { host: "localhost" } })
    for (const name of ["127.0.0.1", "[::1]"]) {
      const response = await initialize(`http://${name}:${bridge.port}`, bridge.good.authorization)
      assert.strictEqual(response.status, 200, name)
    }
  })
})
