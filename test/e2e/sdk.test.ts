import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js"
import { afterEach, assert, beforeAll, describe, it } from "vitest"
import type { Home, RpcOmp } from "../support/omp.ts"
import { freePort, running, uniqueSeconds, until, useLab } from "../support/omp.ts"

const textOf = (result: unknown): string =>
  (result as CallToolResult).content.map((block) => (block.type === "text" ? block.text : "")).join("\n")

describe("the official TypeScript SDK's client", () => {
  const lab = useLab()
  const open: Array<Client> = []
  let home: Home
  let omp: RpcOmp
  let url: string

  beforeAll(async () => {
    // A fixed port: a host that restarts must be found again.
    home = lab.home({ bridge: { port: await freePort() } })
    omp = lab.rpc(home)
    url = await omp.url()
  })
  afterEach(async () => {
    await Promise.all(open.splice(0).map((client) => client.close().catch(() => undefined)))
  })

  const connect = async (): Promise<Client> => {
    const client = new Client({ name: "sdk", version: "1" })
    open.push(client)
    await client.connect(
      new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
        requestInit: { headers: { Authorization: `Bearer ${home.token()}` } }
      })
    )
    return client
  }

  it("connects, and accepts the whole list of tools", async () => {
    const client = await connect()
    assert.strictEqual(client.getServerVersion()?.name, "omp-a2a-bridge")
    const names = (await client.listTools()).tools.map((tool) => tool.name)
    assert.includeMembers(names, ["read", "bash"])
    await client.ping()
  })

  it("reads a file and runs a command", async () => {
    const client = await connect()
    writeFileSync(join(home.work, "f.txt"), "from the sdk\n")
    assert.include(textOf(await client.callTool({ name: "read", arguments: { path: "f.txt" } })), "from the sdk")
    const bash = await client.callTool({ name: "bash", arguments: { command: "echo $((6*7))" } })
    assert.include(textOf(bash), "42")
  })

  it("gets text back as it was, whatever the script", async () => {
    const client = await connect()
    const text = "naïve Straße 漢字 العربية 👩‍👩‍👧 \u{1F600}"
    await client.callTool({ name: "write", arguments: { path: "ü-漢.txt", content: `${text}\n` } })
    const result = await client.callTool({ name: "bash", arguments: { command: "cat 'ü-漢.txt'" } })
    assert.include(textOf(result), text)
  })

  it("sees a failing tool as a result, not as an exception", async () => {
    const client = await connect()
    const result = await client.callTool({ name: "nope", arguments: {} })
    assert.strictEqual(result.isError, true)
  })

  it("cancels a call by its AbortSignal, and the command is gone", async () => {
    const client = await connect()
    const seconds = uniqueSeconds()
    const controller = new AbortController()
    const call = client
      .callTool({ name: "bash", arguments: { command: `/usr/bin/sleep ${seconds}` } }, undefined, {
        signal: controller.signal
      })
      .then(
        () => "answered",
        () => "rejected"
      )
    await until("the command runs", () => running("/usr/bin/sleep", seconds))
    controller.abort()
    assert.strictEqual(await call, "rejected")
    await until("the command is gone", () => !running("/usr/bin/sleep", seconds), 5000)
  })

  it("is told to start anew after the host restarted on its port, and then works with the same token", async () => {
    const client = await connect()
    await client.listTools()
    await omp.stop()
    const whileDown = await client.listTools().then(
      () => "listed",
      () => "failed"
    )
    assert.strictEqual(whileDown, "failed")
    omp = lab.rpc(home)
    assert.strictEqual(await omp.url(), url)
    const stale = await client.listTools().then(
      () => "listed",
      (error: unknown) => String(error)
    )
    assert.match(stale, /404|unknown session|initialize/i)
    assert.include(
      textOf(await (await connect()).callTool({ name: "bash", arguments: { command: "echo back" } })),
      "back"
    )
    assert.strictEqual(await omp.stop(), 0)
  })
})
