import { existsSync } from "node:fs"
import { join } from "node:path"
import { assert, beforeAll, describe, it } from "vitest"
import type { McpClient } from "../support/mcpClient.ts"
import { mcpClient } from "../support/mcpClient.ts"
import type { Home } from "../support/omp.ts"
import { listens, processesOf, running, uniqueSeconds, until, useLab } from "../support/omp.ts"
import type { Terminal } from "../support/tmux.ts"
import { openTerminal } from "../support/tmux.ts"

const listening = /A2A bridge listening on (http:\/\/127\.0\.0\.1:\d+)/

const open = (lab: ReturnType<typeof useLab>, config: Readonly<Record<string, unknown>> = {}) => {
  const home = lab.home({ config, bridge: { approval: { timeoutSeconds: 60 } } })
  const terminal = openTerminal(home)
  lab.onEnd(terminal.close)
  return { home, terminal, url: async () => listening.exec(await terminal.shows(listening, 40_000))?.[1] ?? "" }
}

describe("a real omp in a terminal", () => {
  const lab = useLab()
  let home: Home
  let terminal: Terminal
  let url: string
  let client: McpClient

  beforeAll(async () => {
    const opened = open(lab)
    ;({ home, terminal } = opened)
    url = await opened.url()
    client = await mcpClient(url, home.token(), "colleague")
  })

  it("shows where it listens, with six characters of the token, and keeps a status line", async () => {
    await terminal.shows(new RegExp(`listening on ${url} \\(token ${home.token().slice(0, 6)}\\.\\.\\.\\)`))
    await terminal.shows(/a2a http:\/\/127\.0\.0\.1:\d+ · 1 client · 0 calls/)
  })

  it("draws a remote call and its output in the transcript", async () => {
    const reply = await client.call("bash", { command: "echo drawn-$((20+2))" })
    assert.include(reply.text, "drawn-22")
    await terminal.shows(/echo drawn-\$\(\(20\+2\)\)/)
    await terminal.shows(/drawn-22/)
  })

  it("shows a call that runs in the status line, and its end", async () => {
    const seconds = uniqueSeconds()
    const call = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
    await terminal.shows(/ · 1 call\b/)
    await until("the command runs", () => running("/usr/bin/sleep", seconds))
    await call.drop()
    await terminal.shows(/ · 0 calls/)
    assert.isFalse(running("/usr/bin/sleep", seconds))
  })

  it("answers /a2a with the state of the bridge", async () => {
    await terminal.command("/a2a")
    await terminal.shows(/1 client, 0 calls in flight, 0 unauthorized attempts since start/)
  })

  it("goes on serving after /new", async () => {
    await terminal.command("/new")
    await until("the transcript is empty", () => !terminal.screen().includes("drawn-22"))
    assert.include((await client.call("bash", { command: "echo after-$((1+1))" })).text, "after-2")
    await terminal.shows(/after-2/)
  })

  it("frees the port and leaves no process when the person quits", async () => {
    const seconds = uniqueSeconds()
    const call = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
    await until("the command runs", () => running("/usr/bin/sleep", seconds))
    await terminal.command("/quit")
    await until("the port is closed", async () => !(await listens(Number(new URL(url).port))), 5000)
    await call.settled
    await until("omp has ended", () => !terminal.alive(), 10_000)
    await until(
      () => `every process has ended: ${processesOf(home.dir).join()}`,
      () => !running("/usr/bin/sleep", seconds) && processesOf(home.dir).length === 0,
      5000
    )
    assert.notMatch(home.log(), /unhandled/i)
  })
})

describe("approval in a terminal", () => {
  const lab = useLab()
  let home: Home
  let terminal: Terminal
  let client: McpClient

  beforeAll(async () => {
    const opened = open(lab, { tools: { approvalMode: "always-ask" } })
    ;({ home, terminal } = opened)
    client = await mcpClient(await opened.url(), home.token(), "colleague")
  })

  const gone = (text: RegExp) => until("the dialog is gone", () => !text.test(terminal.screen()))

  it("asks with the command and who wants it, and runs it once approved at the keyboard", async () => {
    const reply = client.call("bash", { command: "touch yes; echo ran-$((40+1))" })
    await terminal.shows(/Remote call from colleague/)
    await terminal.shows(/touch yes/)
    assert.isFalse(existsSync(join(home.work, "yes")))
    terminal.keys("Enter")
    assert.include((await reply).text, "ran-41")
    assert.isTrue(existsSync(join(home.work, "yes")))
    await gone(/Remote call from/)
  })

  it("runs nothing where the person picks Deny", async () => {
    const reply = client.call("bash", { command: "touch no" })
    await terminal.shows(/Remote call from colleague/)
    terminal.keys("Down")
    terminal.keys("Enter")
    const { isError, text } = await reply
    assert.isTrue(isError)
    assert.match(text, /denied/)
    assert.isFalse(existsSync(join(home.work, "no")))
    await gone(/Remote call from/)
  })

  it("takes the dialog off the screen when its client goes away, and the editor works again", async () => {
    const call = client.start("bash", { command: "touch abandoned" })
    await terminal.shows(/touch abandoned/)
    await call.drop()
    await gone(/Remote call from/)
    await terminal.command("/a2a")
    await terminal.shows(/0 calls in flight/)
    assert.isFalse(existsSync(join(home.work, "abandoned")))
  })

  it("quits by Ctrl-C twice though a dialog is open", async () => {
    const call = client.start("bash", { command: "touch unanswered" })
    await terminal.shows(/touch unanswered/)
    await until(
      "omp has ended",
      async () => {
        terminal.keys("C-c")
        await Bun.sleep(100)
        return !terminal.alive()
      },
      20_000
    )
    await call.settled
    assert.isFalse(existsSync(join(home.work, "unanswered")))
    await until(
      () => `every process has ended: ${processesOf(home.dir).join()}`,
      () => processesOf(home.dir).length === 0
    )
  })
})
