import { existsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, beforeAll, describe, it } from "vitest"
import type { FakeModel } from "../support/fakeModel.ts"
import { call, fakeModel, say } from "../support/fakeModel.ts"
import type { McpClient } from "../support/mcpClient.ts"
import { mcpClient } from "../support/mcpClient.ts"
import type { Home, RpcOmp } from "../support/omp.ts"
import { freePort, running, uniqueSeconds, until, useLab } from "../support/omp.ts"
import type { Terminal } from "../support/tmux.ts"
import { openTerminal } from "../support/tmux.ts"

/** `use <tool> <json>` in the last user message makes the model call that tool once. */
const obedient = () =>
  fakeModel(({ last, lastRole }) => {
    const asked = lastRole === "user" ? /use (\S+) (\{.*\})/s.exec(last) : null
    return asked?.[1] === undefined || asked[2] === undefined ? say("done") : call(asked[1], JSON.parse(asked[2]))
  })

describe("a second real omp as the client", () => {
  const lab = useLab()
  let home: Home
  let host: RpcOmp
  let peer: RpcOmp
  let model: FakeModel

  beforeAll(async () => {
    home = lab.home({ bridge: { port: await freePort() } })
    host = lab.rpc(home)
    const url = await host.url()
    model = obedient()
    lab.onEnd(model.close)
    const server = { type: "http", url: `${url}/mcp`, headers: { Authorization: `Bearer ${home.token()}` }, timeout: 0 }
    // Without xd:// devices, the tools stand in the model's own list.
    const config = { tools: { xdev: false } }
    peer = lab.rpc(lab.home({ link: false, config, model: model.baseUrl, mcpServers: { host: server } }))
    await until("the peer's session at the host", async () => /^1 client,/m.test((await host.slash("/a2a")).text))
  })

  /** Runs a turn of the peer in which its model calls the tool, and gives what came back to that model. */
  const use = async (tool: string, args: unknown): Promise<string> => {
    const before = model.requests.length
    const frames = peer.frames().length
    await peer.request({ type: "prompt", message: `use ${tool} ${JSON.stringify(args)}` })
    await peer.frame("the end of the turn", (frame) => frame["type"] === "agent_end", frames)
    const answer = model.requests.slice(before).find(({ lastRole }) => lastRole === "tool")
    return answer?.last ?? ""
  }

  it("offers the host's tools to its model and reads a file that only the host has", async () => {
    writeFileSync(join(home.work, "secret.txt"), "only on the host 4711\n")
    assert.include(await use("mcp__host_read", { path: "secret.txt" }), "only on the host 4711")
    assert.includeMembers([...(model.requests[0]?.tools ?? [])], ["mcp__host_read", "mcp__host_bash", "read"])
  })

  it("runs a command in the host's folder, not in its own", async () => {
    const output = await use("mcp__host_bash", { command: "pwd" })
    assert.include(output, home.work)
    assert.notInclude(output, peer.home.dir)
  })

  it("is told what is wrong with its arguments", async () => {
    assert.match(await use("mcp__host_bash", { command: 7, timeout: "soon" }), /timeout|command/)
    assert.isFalse(existsSync(join(home.work, "7")))
  })

  it("cancels the host's command when its own turn is aborted", async () => {
    const seconds = uniqueSeconds()
    const turn = { command: `/usr/bin/sleep ${seconds}` }
    await peer.request({ type: "prompt", message: `use mcp__host_bash ${JSON.stringify(turn)}` })
    await until("the command runs", () => running("/usr/bin/sleep", seconds))
    await peer.request({ type: "abort" })
    await until("the command is gone", () => !running("/usr/bin/sleep", seconds), 5000)
  })

  it("goes on by itself after the host restarted on its port", async () => {
    // A new process has none of the sessions: the peer must notice and open another one.
    assert.strictEqual(await host.stop(), 0)
    host = lab.rpc(home)
    await host.url()
    assert.include(await use("mcp__host_bash", { command: "echo found-again" }), "found-again")
    assert.strictEqual(await peer.stop(), 0)
    assert.strictEqual(await host.stop(), 0)
  })
})

describe("a host that is its own client", () => {
  const lab = useLab()
  let home: Home
  let terminal: Terminal
  let client: McpClient

  beforeAll(async () => {
    const port = await freePort()
    const token = "token-of-the-host-itself-0123456789"
    const at = (host: string) => ({
      type: "http",
      url: `http://${host}:${port}/mcp`,
      headers: { Authorization: `Bearer ${token}` },
      timeout: 0
    })
    home = lab.home({ bridge: { port, token }, mcpServers: { self: at("127.0.0.1"), alias: at("localhost") } })
    terminal = openTerminal(home)
    lab.onEnd(terminal.close)
    await terminal.shows(/A2A bridge listening/, 40_000)
    client = await mcpClient(`http://127.0.0.1:${port}`, token)
    // omp connects its servers before extensions start: at first the bridge was not there. Only a terminal can retry.
    for (const server of ["self", "alias"]) {
      await terminal.command(`/mcp reconnect ${server}`)
      await terminal.shows(new RegExp(`Reconnected to "${server}"\\s+Tools: [1-9]`))
    }
    await terminal.shows(/· 3 clients ·/)
  })

  it("does not offer its own tools a second time under mcp__self_*", async () => {
    const names = await client.names()
    assert.include(names, "read")
    assert.deepStrictEqual(
      names.filter((name) => name.startsWith("mcp__")),
      []
    )
    assert.include((await client.call("mcp__self_bash", { command: "touch looped" })).text, "not exposed")
  })

  it("does not let a client reach its own tools a second time through the host's xd:// devices", async () => {
    const written = await client.call("write", { path: "xd://mcp__self_bash", content: '{"command":"touch looped"}' })
    assert.isFalse(existsSync(join(home.work, "looped")), written.text)
    assert.notInclude((await client.call("read", { path: "xd://" })).text, "mcp__self_")
  })
})
