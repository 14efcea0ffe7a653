import { readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { assert, describe, expect, it } from "vitest"
import { call, fakeModel, say } from "../support/fakeModel.ts"
import { mcpClient } from "../support/mcpClient.ts"
import type { Home, RpcOmp } from "../support/omp.ts"
import { freePort, listens, processesOf, running, uniqueSeconds, until, useLab } from "../support/omp.ts"

const portOf = (url: string): number => Number(new URL(url).port)

/** A running command, called by a client that stays connected. */
const busy = async (home: Home, url: string) => {
  const client = await mcpClient(url, home.token())
  const seconds = uniqueSeconds()
  const started = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
  await until("the command runs", () => running("/usr/bin/sleep", seconds))
  return { started, runs: () => running("/usr/bin/sleep", seconds) }
}

const worksOn = async (omp: RpcOmp): Promise<void> => {
  const state = await omp.request({ type: "get_state" })
  assert.strictEqual(state["success"], true)
}

/** An extension that notes the events which the bridge must tell apart. */
const probe = (file: string): string => `
import { appendFileSync } from "node:fs"
export default (pi) => {
  for (const event of ["session_start", "session_shutdown"]) {
    pi.on(event, () => appendFileSync(${JSON.stringify(file)}, event + "\\n"))
  }
}
`

/** An extension that notes when it was told of the session. */
const clock = (file: string): string => `
import { writeFileSync } from "node:fs"
export default (pi) => {
  pi.on("session_start", () => writeFileSync(${JSON.stringify(file)}, String(performance.timeOrigin + performance.now())))
}
`

describe("the end of a real omp", () => {
  const lab = useLab()

  it("by closing stdin frees the port, kills what clients run, writes the audit log out and exits 0", async () => {
    const home = lab.home()
    const omp = lab.rpc(home)
    const url = await omp.url()
    const { runs, started } = await busy(home, url)
    assert.strictEqual(await omp.stop(), 0)
    await started.settled
    assert.isFalse(await listens(portOf(url)))
    assert.isFalse(runs())
    assert.deepStrictEqual(processesOf(home.dir), [])
    assert.deepStrictEqual(
      home.audit().map((record) => [record["phase"], record["outcome"]]),
      [
        ["start", undefined],
        ["done", "cancelled"]
      ]
    )
    assert.strictEqual(omp.stderr(), "")
    assert.deepStrictEqual(omp.noise(), [])
    assert.notMatch(home.log(), /unhandled/i)
  })

  it.each(["SIGTERM", "SIGINT", "SIGHUP"] as const)(
    "by %s closes the port within 1.5 s and leaves no process behind",
    async (signal) => {
      const home = lab.home()
      const omp = lab.rpc(home)
      const url = await omp.url()
      const { runs, started } = await busy(home, url)
      omp.kill(signal)
      await until(`the port is closed after ${signal}`, async () => !(await listens(portOf(url))), 1500)
      await omp.exited
      await started.settled
      await until("the command is gone", () => !runs(), 2000)
      assert.deepStrictEqual(processesOf(home.dir), [])
      assert.notMatch(home.log(), /unhandled/i)
    }
  )
})

describe("the start of a real omp", () => {
  const lab = useLab()

  it("on a taken port listens on another one, warns with both, and works", async () => {
    const port = await freePort()
    const squatter = createServer().listen(port, "127.0.0.1")
    lab.onEnd(() => squatter.close())
    const home = lab.home({ bridge: { port } })
    const omp = lab.rpc(home)
    const url = await omp.url()
    assert.notStrictEqual(portOf(url), port)
    const warning = await omp.notice(/in use/)
    assert.include(warning, String(port))
    assert.include(warning, url)
    assert.strictEqual(omp.notices().find(({ text }) => text === warning)?.level, "warning")
    assert.include(await (await mcpClient(url, home.token())).names(), "read")
    await omp.stop()
  })

  it.each([
    ["a field of the wrong type", { port: "eight" }, /port: found "eight", expected an integer/],
    ["an unknown field", { prot: 1 }, /prot: found an unknown field/],
    ["text that is no JSON", "{ port: 1", /JSON/]
  ])("with settings that hold %s says so once, listens nowhere, and omp goes on", async (_what, bridge, named) => {
    const home = lab.home({ bridge })
    const omp = lab.rpc(home)
    const text = await omp.notice(/A2A bridge not started/)
    assert.include(text, home.bridgeFile)
    assert.match(text, named)
    await worksOn(omp)
    assert.match((await omp.slash("/a2a")).text, /not running/)
    const errors = omp.notices().filter(({ level }) => level === "error")
    assert.strictEqual(errors.length, 1)
    assert.notMatch(omp.stdout(), /A2A bridge listening/)
    assert.strictEqual(await omp.stop(), 0)
    assert.strictEqual(omp.stderr(), "")
    assert.notMatch(home.log(), /unhandled/i)
  })

  it("heals settings without a token, and keeps the rest of them", async () => {
    const home = lab.home({ bridge: { deny: ["bash"] } })
    const omp = lab.rpc(home)
    const client = await mcpClient(await omp.url(), home.token())
    const names = await client.names()
    assert.include(names, "read")
    assert.notInclude(names, "bash")
    expect(home.settings()).toMatchObject({ deny: ["bash"], token: expect.stringMatching(/^[\w-]{43}$/) })
    await omp.stop()
  })

  it("does not let the environment's settings into the file", async () => {
    const port = await freePort()
    const home = lab.home()
    const token = "environment-token-0123456789"
    const omp = lab.rpc(home, {
      env: { A2A_BRIDGE_PORT: String(port), A2A_BRIDGE_TOKEN: token, A2A_BRIDGE_DENY: "bash" }
    })
    assert.strictEqual(portOf(await omp.url()), port)
    const client = await mcpClient(`http://127.0.0.1:${port}`, token)
    assert.notInclude(await client.names(), "bash")
    assert.notStrictEqual(home.token(), token)
    assert.match((await omp.slash("/a2a rotate")).text, /A2A_BRIDGE_TOKEN/)
    await omp.stop()
  })
})

describe("the start of a real omp with other extensions", () => {
  const lab = useLab()

  it("does not hold up the session_start of those that come after it", async () => {
    const home = lab.home()
    const times = (name: string) => join(home.dir, name)
    // omp calls its extensions in the order of their names, one after the other.
    for (const name of ["a-before", "z-after"]) {
      writeFileSync(join(home.agent, `extensions/${name}.ts`), clock(times(name)))
    }
    const omp = lab.rpc(home)
    await omp.url()
    const [before, after] = ["a-before", "z-after"].map((name) => Number(readFileSync(times(name), "utf8")))
    assert.isAtLeast(after ?? 0, before ?? 0, "the order of the extensions")
    // Loading Effect inside the handler would take a second and more.
    assert.isBelow((after ?? 0) - (before ?? 0), 300)
    await omp.stop()
  })
})

describe("a real omp that goes on", () => {
  const lab = useLab()

  it("keeps the same port and sessions over /new, and its tools are the new session's", async () => {
    const home = lab.home()
    const omp = lab.rpc(home)
    const url = await omp.url()
    const client = await mcpClient(url, home.token())
    writeFileSync(`${home.work}/f.txt`, "still readable\n")
    const before = await omp.request({ type: "get_state" })
    const response = await omp.request({ type: "new_session" })
    assert.strictEqual(response["success"], true)
    const after = await omp.request({ type: "get_state" })
    assert.notDeepEqual(after["data"], before["data"])
    assert.include((await client.call("read", { path: "f.txt" })).text, "still readable")
    assert.include((await client.call("bash", { command: "echo after-new" })).text, "after-new")
    assert.include((await omp.slash("/a2a")).text, url)
    assert.strictEqual(omp.notices().filter(({ text }) => /A2A bridge listening/.test(text)).length, 2)
    assert.strictEqual(await omp.stop(), 0)
  })

  it("starts once, and goes on, though each subagent brings a session_start and a session_shutdown", async () => {
    const model = fakeModel((request) => {
      if (request.lastRole === "tool") return say("all done")
      return request.last.includes("delegate it")
        ? call("task", { agent: "task", context: "none", tasks: [{ name: "One", task: "Say the word subdone." }] })
        : say("subdone")
    })
    lab.onEnd(model.close)
    const home = lab.home({ model: model.baseUrl })
    const seen = join(home.dir, "probed")
    writeFileSync(join(home.agent, "extensions/probe.ts"), probe(seen))
    const probed = () => readFileSync(seen, "utf8").split("\n")
    const omp = lab.rpc(home)
    const url = await omp.url()
    const client = await mcpClient(url, home.token())
    await omp.request({ type: "prompt", message: "delegate it" })
    // Without this the test would pass on a host whose subagents bring no such events.
    await until("the subagent's session_start", () => probed().filter((line) => line === "session_start").length === 2)
    await omp.frame("the end of the turn", (frame) => frame["type"] === "agent_end")
    await until("a subagent that has spoken", () => model.requests.some(({ last }) => last.includes("subdone")))
    assert.strictEqual(omp.notices().filter(({ text }) => /A2A bridge listening/.test(text)).length, 1)
    assert.include((await client.call("bash", { command: "echo after-subagent" })).text, "after-subagent")
    assert.strictEqual(await omp.stop(), 0)
  })
})
