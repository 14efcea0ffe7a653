import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { mcpClient } from "../support/mcpClient.ts"
import { bunBinary, processesOf, root, until } from "../support/omp.ts"

/** The README's main job, as its first command starts it. */
describe("pi-a2a host", () => {
  const folder = mkdtempSync(join(tmpdir(), "pi-a2a-host-"))
  const work = join(folder, "work")
  const state = join(folder, "state")
  let child: Bun.Subprocess<"ignore", "pipe", "pipe">
  let printed = ""
  let complained = ""

  const follow = async (stream: ReadableStream<Uint8Array>, put: (text: string) => void) => {
    const decoder = new TextDecoder()
    for await (const chunk of stream) put(decoder.decode(chunk, { stream: true }))
  }

  beforeAll(async () => {
    mkdirSync(work)
    writeFileSync(join(work, "note.txt"), "written before the host started\n")
    const { A2A_BRIDGE_CONFIG: _config, A2A_BRIDGE_TOKEN: _token, ...env } = process.env
    child = Bun.spawn([bunBinary, join(root, "bin/pi-a2a.ts"), "host", "--state", state, "--cwd", work], {
      env: { ...env, HOME: folder },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe"
    })
    void follow(child.stdout, (text) => (printed += text))
    void follow(child.stderr, (text) => (complained += text))
    await until("the lines for clients", () => printed.includes("\nSID=") && printed.endsWith("\n"))
  })
  afterAll(async () => {
    child.kill("SIGINT")
    await child.exited
    rmSync(folder, { recursive: true, force: true })
  })

  it("prints no URL or token with which a client can read a file and run a command", async () => {
    const url = /listening on (http:\/\/127\.0\.0\.1:\d+)/.exec(printed)?.[1]
    const token = /A2A token: (\S+)/.exec(printed)?.[1]
    assert.isDefined(url, printed + complained)
    assert.isDefined(token)
    const client = await mcpClient(url ?? "", token ?? "")
    assert.include((await client.call("read", { path: "note.txt" })).text, "written before the host started")
    assert.include((await client.call("bash", { command: "pwd" })).text, work)
  })

  it("prints a curl line that does not work as it stands", async () => {
    const line = /^SID=.*$/m.exec(printed)?.[0] ?? ""
    const shell = Bun.spawn(["bash", "-c", line], { stdout: "pipe", stderr: "ignore", stdin: "ignore" })
    assert.include(await new Response(shell.stdout).text(), '"name":"bash"')
  })

  it("keeps its files outside its own folder, or open to others", () => {
    const config = join(state, "agent/a2a-bridge.json")
    assert.strictEqual(statSync(config).mode & 0o777, 0o600)
    assert.isString(JSON.parse(readFileSync(config, "utf8")).token)
  })

  it("does not end cleanly on Ctrl-C, or leaves its omp behind", async () => {
    child.kill("SIGINT")
    assert.strictEqual(await child.exited, 0, complained)
    assert.deepStrictEqual(processesOf(folder), [])
  })
})
