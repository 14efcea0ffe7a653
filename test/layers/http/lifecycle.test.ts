import { createServer } from "node:net"
import { networkInterfaces } from "node:os"
import { assert, describe, it } from "vitest"
import * as Main from "../../../src/layers/Main.ts"
import {
  failure,
  makeGate,
  makeHost,
  noStrayErrors,
  rawConnection,
  rawRequest,
  resultOf,
  startBridge,
  until,
  within
} from "../../support/bridge.ts"
import { openStream } from "../../support/sse.ts"

/** How the bridge starts and ends as a whole. */

noStrayErrors()

const occupy = (port = 0, host = "127.0.0.1") =>
  new Promise<{ readonly port: number; readonly close: () => Promise<void> }>((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen({ port, host }, () => {
      const address = server.address()
      resolve({
        port: typeof address === "object" && address !== null ? address.port : 0,
        close: () => new Promise((done) => server.close(() => done()))
      })
    })
  })

const support = new URL("../../support/fakeHost.ts", import.meta.url).pathname
const main = new URL("../../../src/layers/Main.ts", import.meta.url).pathname

/** Starts a bridge in a process of its own, which ends by itself where nothing is left running in it. */
const startAlone = async (agentDir: string) => {
  const script = `
    import * as Main from ${JSON.stringify(main)}
    import { echo, fakeHost } from ${JSON.stringify(support)}
    const host = fakeHost({ agentDir: ${JSON.stringify(agentDir)}, tools: () => [echo] })
    const started = await Main.bridge(host)
    console.log(JSON.stringify([started._tag, started.reason]))`
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "pipe" })
  try {
    const code = await within("nothing keeps the process alive", 10_000, child.exited)
    assert.strictEqual(code, 0, await new Response(child.stderr).text())
    return JSON.parse(await new Response(child.stdout).text()) as readonly [tag: string, reason: string]
  } finally {
    child.kill()
  }
}

const initialize = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {} }
})

describe("close", () => {
  it("keeps the port, a call, or a stream", { timeout: 15_000 }, async () => {
    const gate = makeGate()
    const bridge = await startBridge({ tools: () => [gate.tool] })
    const session = await bridge.open()
    const headers = { authorization: bridge.good.authorization, accept: "text/event-stream", ...session }
    await using standing = await openStream(`${bridge.url}/mcp`, { headers })
    const calls = [1, 2, 3].map((id) =>
      bridge.call(session, "hold", {}, id).then(
        ({ status }) => status,
        () => "gone"
      )
    )
    await until("all run", () => gate.started.length === 3)
    const began = performance.now()
    await within("the bridge is closed", 4000, bridge.close())
    assert.lengthOf(gate.aborted, 3)
    for (const at of gate.aborted) assert.isBelow(at - began, 1500)
    await standing.ended()
    for (const outcome of await within("the calls end", 3000, Promise.all(calls))) {
      assert.notStrictEqual(outcome, 200, "a call that was ended has a result")
    }
    const again = await occupy(bridge.port)
    await again.close()
    await bridge[Symbol.asyncDispose]()
  })

  it("fails when it is called twice, or ends before the first has", async () => {
    const bridge = await startBridge()
    const [first, second] = [bridge.close(), bridge.close()]
    await Promise.all([first, second])
    await bridge.close()
    await (await occupy(bridge.port)).close()
    await bridge[Symbol.asyncDispose]()
  })

  it("waits for a tool that does not care for its signal", { timeout: 15_000 }, async () => {
    let runs = 0
    const bridge = await startBridge({
      tools: () => [
        {
          name: "deaf",
          tier: "read",
          run: () => {
            runs++
            return new Promise(() => undefined)
          }
        }
      ]
    })
    const call = bridge.call(await bridge.open(), "deaf").catch(() => undefined)
    await until("it runs", () => runs === 1)
    await within("the bridge is closed", 4000, bridge.close())
    await within("the call ends", 3000, call)
    await bridge[Symbol.asyncDispose]()
  })

  it("leaves a client waiting that sits on an idle connection", async () => {
    const bridge = await startBridge()
    await using idle = await bridge.connect()
    await idle.send(rawRequest("POST", "/mcp", bridge.good, initialize))
    assert.strictEqual((await idle.next()).status, 200)
    await bridge.close()
    await until("the connection ends", () => idle.closed())
    await bridge[Symbol.asyncDispose]()
  })
})

describe("a port that is taken", () => {
  it("keeps the bridge from starting, or is passed over in silence", async () => {
    const other = await occupy()
    try {
      await using bridge = await startBridge({ config: { port: other.port } })
      assert.notStrictEqual(bridge.port, other.port)
      assert.strictEqual((await bridge.rpc("ping", {}, await bridge.open())).status, 200)
      const warning = bridge.host.notices.find(({ level }) => level === "warning")
      assert.include(warning?.text, String(other.port))
      assert.include(warning?.text, bridge.url)
    } finally {
      await other.close()
    }
  })

  it("is warned of when it is free", async () => {
    const { close, port } = await occupy()
    await close()
    await using bridge = await startBridge({ config: { port } })
    assert.strictEqual(bridge.port, port)
    assert.deepStrictEqual(
      bridge.host.notices.filter(({ level }) => level !== "info"),
      []
    )
  })
})

describe("an address that cannot be had", () => {
  // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
  it.each(["192.0.2.1", "no-such-host.invalid"])("lets the bridge start (%s)", { timeout: 15_000 }, async (address) => {
    const { host, remove } = makeHost({ config: { host: address } })
    try {
      const started = await within("an end", 10_000, Main.bridge(host))
      if (started._tag === "Started") await started.bridge.close()
      assert(started._tag === "Failed", "it started")
      assert.match(started.reason, new RegExp(`^cannot listen on ${address.replaceAll(".", "\\.")} port 0: .+`))
      assert.isEmpty(host.notices.filter(({ text }) => text.includes("listening")))
      assert.isUndefined(host.statuses.at(-1))
    } finally {
      remove()
    }
  })

  it("leaves something running", { timeout: 15_000 }, async () => {
    const { agentDir, remove } = makeHost({ config: { host: "192.0.2.1" } })
    try {
      const [tag, reason] = await startAlone(agentDir)
      assert.strictEqual(tag, "Failed")
      assert.match(reason, /^cannot listen on 192\.0\.2\.1 /)
    } finally {
      remove()
    }
  })

  it("hides that it is the settings that cannot be used", async () => {
    const { host, remove } = makeHost({ config: { port: 70_000 } })
    try {
      const started = await Main.bridge(host)
      if (started._tag === "Started") await started.bridge.close()
      assert(started._tag === "Failed", "it started")
      assert.match(started.reason, /port: found 70000, expected an integer from 0 to 65535/)
    } finally {
      remove()
    }
  })
})

describe("a bind to every address", () => {
  const outside = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ family, internal }) => family === "IPv4" && !internal)?.address

  it("refuses clients that name it by an address or by a name, or says nothing of the danger", async () => {
    await using bridge = await startBridge({ config: { host: "0.0.0.0", allowedHosts: ["omp.internal"] } })
    for (const address of ["127.0.0.1", ...(outside === undefined ? [] : [outside])]) {
      for (const host of [`${address}:${bridge.port}`, "omp.internal", "other.internal"]) {
        await using connection = await rawConnection(bridge.port, address)
        await connection.send(rawRequest("POST", "/mcp", { ...bridge.good, host }, initialize))
        assert.property(resultOf(await connection.next()), "protocolVersion", `${host} at ${address}`)
      }
    }
    const warning = bridge.host.notices.find(({ level }) => level === "warning")
    assert.include(warning?.text, "0.0.0.0")
  })

  it("serves a web page of this machine that it cannot know to be the bridge's own", async () => {
    await using bridge = await startBridge({ config: { host: "0.0.0.0" } })
    const send = (origin: string) => bridge.raw("POST", "/mcp", { origin }, initialize)
    assert.deepStrictEqual(failure(await send("http://localhost:5173")), { status: 403, code: -32000, id: null })
    assert.strictEqual((await send(`http://${bridge.good.host}`)).status, 200)
  })
})
