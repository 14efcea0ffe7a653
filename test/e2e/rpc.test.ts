import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import Ajv2020 from "ajv/dist/2020.js"
import { assert, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { McpClient } from "../support/mcpClient.ts"
import { initializeMessage, mcpClient, post } from "../support/mcpClient.ts"
import type { Home, RpcOmp } from "../support/omp.ts"
import { running, uniqueSeconds, until, useLab } from "../support/omp.ts"

const combinators = ["oneOf", "anyOf", "allOf", "not", "if", "$ref"]

describe("a real omp in rpc mode, with the extension linked", () => {
  const lab = useLab()
  let home: Home
  let omp: RpcOmp
  let url: string
  let client: McpClient

  const bearer = () => ({ authorization: `Bearer ${home.token()}` })
  const inSession = (sid: string) => ({ ...bearer(), "mcp-session-id": sid })
  const list = { jsonrpc: "2.0", id: 1, method: "tools/list" }

  beforeAll(async () => {
    home = lab.home()
    omp = lab.rpc(home)
    url = await omp.url()
  })
  // One a test: rotation and DELETE end sessions, and a failure must not take the next test with it.
  beforeEach(async () => {
    client = await mcpClient(url, home.token())
  })

  describe("start", () => {
    it("says where it listens, on loopback, and shows six characters of the token and no more", async () => {
      const text = await omp.notice(/A2A bridge listening/)
      const token = home.token()
      expect(text).toMatch(/^A2A bridge listening on http:\/\/127\.0\.0\.1:\d+ \(token .{6}\.\.\.\)$/)
      expect(text).toContain(`(token ${token.slice(0, 6)}...)`)
      assert.notInclude(omp.stdout(), token)
    })

    it("writes settings that nobody else may read", () => {
      assert.strictEqual(statSync(home.bridgeFile).mode & 0o777, 0o600)
      expect(home.token()).toMatch(/^[A-Za-z0-9_-]{43}$/)
    })

    it("keeps a status line that follows clients and calls", async () => {
      const status = (pattern: RegExp) =>
        omp.frame(
          `a status like ${pattern}`,
          (frame) => frame["statusKey"] === "a2a-bridge" && pattern.test(String(frame["statusText"]))
        )
      assert.include(String((await status(/[1-9]\d* clients? · 0 calls/))["statusText"]), url)
      const call = client.start("bash", { command: `/usr/bin/sleep ${uniqueSeconds()}` })
      await status(/ · 1 call$/)
      const seen = omp.frames().length
      await call.drop()
      await omp.frame("a status without calls", (frame) => String(frame["statusText"]).endsWith(" · 0 calls"), seen)
    })
  })

  describe("tools/list", () => {
    it("offers the host's own tools", async () => {
      expect(await client.names()).toEqual(
        expect.arrayContaining(["read", "bash", "edit", "write", "grep", "glob", "task", "todo"])
      )
    })

    it("gives every tool a schema that JSON Schema 2020-12 compiles and that model APIs accept at its root", async () => {
      for (const tool of await client.list()) {
        assert.strictEqual(tool.inputSchema["type"], "object", tool.name)
        for (const combinator of combinators) assert.notProperty(tool.inputSchema, combinator, tool.name)
        assert.doesNotThrow(() => new Ajv2020({ strict: false }).compile(tool.inputSchema), tool.name)
      }
    })

    it("gives every tool a title, a description, annotations and a name that model APIs accept", async () => {
      for (const tool of await client.list()) {
        assert.isNotEmpty(tool.title, tool.name)
        assert.isNotEmpty(tool.description, tool.name)
        assert.isBoolean(tool.annotations?.["readOnlyHint"], tool.name)
        assert.match(tool.name, /^[A-Za-z0-9_-]{1,64}$/)
      }
    })

    it("tells readers from tools that can break things", async () => {
      const tools = await client.list()
      const hints = (name: string) => tools.find((tool) => tool.name === name)?.annotations
      assert.strictEqual(hints("read")?.["readOnlyHint"], true)
      assert.strictEqual(hints("bash")?.["readOnlyHint"], false)
      assert.strictEqual(hints("bash")?.["destructiveHint"], true)
      assert.strictEqual(hints("write")?.["readOnlyHint"], false)
    })
  })

  describe("tools/call", () => {
    it("reads a real file of the host's folder", async () => {
      writeFileSync(join(home.work, "greeting.txt"), "grüße aus der datei\n")
      const reply = await client.call("read", { path: "greeting.txt" })
      assert.isFalse(reply.isError, reply.text)
      assert.include(reply.text, "grüße aus der datei")
    })

    it("runs a real command in the host's folder", async () => {
      const reply = await client.call("bash", { command: "pwd; echo from-$((40+2))" })
      assert.isFalse(reply.isError, reply.text)
      assert.include(reply.text, home.work)
      assert.include(reply.text, "from-42")
    })

    it("writes a real file", async () => {
      const reply = await client.call("write", { path: "made.txt", content: "made remotely\n" })
      assert.isFalse(reply.isError, reply.text)
      assert.strictEqual(readFileSync(join(home.work, "made.txt"), "utf8"), "made remotely\n")
    })

    it("marks a command that fails as an error, with its output", async () => {
      const reply = await client.call("bash", { command: "echo before-the-end; exit 3" })
      assert.isTrue(reply.isError)
      assert.include(reply.text, "before-the-end")
    })

    it("explains a missing file instead of breaking the protocol", async () => {
      const reply = await client.call("read", { path: "no-such-file.txt" })
      assert.isTrue(reply.isError)
      assert.include(reply.text, "no-such-file.txt")
    })

    it("runs nothing on bad arguments, and names what is wrong with them", async () => {
      const marker = join(home.work, "ran-on-bad-arguments")
      const reply = await client.call("bash", { cmd: `touch ${marker}` })
      assert.isTrue(reply.isError)
      assert.match(reply.text, /command/)
      assert.notMatch(reply.text, /undefined is not|TypeError|\bat .*:\d+:\d+/)
      assert.isFalse(existsSync(marker))
    })

    it("refuses arguments that are no object without running anything", async () => {
      const reply = await client.call("bash", ["touch x"])
      assert.isTrue(reply.isError)
      assert.match(reply.text, /object/)
    })

    it("runs calls of one client side by side", async () => {
      // Each waits for the other: one at a time would never end.
      const [a, b] = ["meet-a", "meet-b"]
      const wait = (mine: string, other: string) =>
        `touch ${mine}; for i in $(seq 200); do [ -e ${other} ] && echo met && exit; sleep 0.05; done; exit 1`
      const replies = await Promise.all([
        client.call("bash", { command: wait(a, b) }),
        client.call("bash", { command: wait(b, a) })
      ])
      for (const reply of replies) assert.include(reply.text, "met")
    })
  })

  describe("what is not exposed", () => {
    it("answers an unknown tool and a denied one alike, so that nobody can probe", async () => {
      const seen = omp.notices().length
      home.edit({ deny: ["glo*"] })
      await omp.notice(/settings changed.*deny/, seen)
      const denied = await client.call("glob", { pattern: "*" })
      const unknown = await client.call("globe", { pattern: "*" })
      assert.isTrue(denied.isError)
      assert.include(denied.text, "not exposed")
      assert.strictEqual(denied.text.replace("'glob'", "_"), unknown.text.replace("'globe'", "_"))
      assert.strictEqual(denied.isError, unknown.isError)
      home.edit({ deny: [] })
      await omp.notice(/settings changed.*deny/, seen + 1)
    })

    it.each(["xd://bash", "Bash", "bash ", "functions.bash", "mcp__bash"])(
      "knows a tool by its listed name only: %j runs nothing",
      async (name) => {
        const marker = join(home.work, "ran-by-alias")
        const reply = await client.call(name, { command: `touch ${marker}` })
        assert.isTrue(reply.isError)
        assert.include(reply.text, "not exposed")
        assert.isFalse(existsSync(marker))
      }
    )
  })

  describe("the host's xd:// devices, a second way to its tools", () => {
    const deny = async (names: ReadonlyArray<string>) => {
      const seen = omp.notices().length
      home.edit({ deny: names })
      await omp.notice(/in force now: deny/, seen)
    }

    it("do not run a denied tool for a remote caller", async () => {
      await deny(["bash", "lsp"])
      const marker = join(home.work, "ran-through-xd")
      const replies = [
        await client.call("write", { path: "xd://bash", content: JSON.stringify({ command: `touch ${marker}` }) }),
        await client.call("write", { path: "xd://lsp", content: '{"action":"status"}' }),
        await client.call("read", { path: "xd://lsp" })
      ]
      await deny([])
      assert.isFalse(existsSync(marker))
      for (const reply of replies) assert.isTrue(reply.isError, reply.text)
    })

    it("do not tell a remote caller of a denied tool", async () => {
      await deny(["lsp"])
      const reply = await client.call("read", { path: "xd://" })
      await deny([])
      assert.notInclude(reply.text, "xd://lsp")
    })
  })

  describe("the door", () => {
    it.each([
      ["no token", {}],
      ["another token", { authorization: "Bearer 0123456789abcdef0123456789abcdef" }],
      ["another scheme", { authorization: "Basic Zm9vOmJhcg==" }]
    ])("answers 401 to a request with %s, in JSON-RPC and with a challenge", async (_what, headers) => {
      for (const message of [initializeMessage(), { ...list }]) {
        const reply = await post(url, message, { headers })
        assert.strictEqual(reply.status, 401)
        assert.strictEqual(reply.headers.get("www-authenticate"), "Bearer")
        assert.strictEqual(reply.body.jsonrpc, "2.0")
        assert.isNumber(reply.body.error.code)
        assert.isNull(reply.headers.get("mcp-session-id"))
      }
    })

    it("answers 400 without a session and 404 for an unknown one, so that clients know to initialize", async () => {
      assert.strictEqual((await post(url, list, { headers: bearer() })).status, 400)
      assert.strictEqual((await post(url, list, { headers: inSession(crypto.randomUUID()) })).status, 404)
    })

    it("answers 404 for a session that its client closed", async () => {
      const other = await mcpClient(url, home.token())
      const closed = await fetch(`${url}/mcp`, { method: "DELETE", headers: inSession(other.sid) })
      assert.isTrue(closed.ok)
      assert.strictEqual((await other.send(list)).status, 404)
      assert.strictEqual((await client.send(list)).status, 200)
    })

    it.each([
      ["a web page's origin", { origin: "https://evil.example" }],
      ["another host name", { host: "evil.example" }]
    ])("answers 403 to %s even with the token", async (_what, headers) => {
      const reply = await post(url, initializeMessage(), { headers: { ...bearer(), ...headers } })
      assert.strictEqual(reply.status, 403)
    })
  })

  describe("settings", () => {
    it("takes an edit of deny into force without a restart, and says so", async () => {
      const seen = omp.notices().length
      home.edit({ deny: ["bash"] })
      await omp.notice(/settings changed; in force now: deny/, seen)
      assert.notInclude(await client.names(), "bash")
      assert.include((await client.call("bash", { command: "true" })).text, "not exposed")
      home.edit({ deny: [] })
      await omp.notice(/settings changed; in force now: deny/, seen + 1)
      assert.include(await client.names(), "bash")
    })

    it.each([
      ["a field of the wrong type", (text: string) => text.replace(/"deny": \[\]/, '"deny": 7'), /deny: found 7/],
      ["an unknown field", (text: string) => text.replace("{", '{ "dney": [],'), /dney/],
      ["text that is no JSON", (text: string) => text.slice(0, -5), /JSON/]
    ])("reports an edit with %s, and goes on with the settings it had", async (_what, spoil, named) => {
      const good = readFileSync(home.bridgeFile, "utf8")
      const seen = omp.notices().length
      writeFileSync(home.bridgeFile, spoil(good))
      const text = await omp.notice(/settings not changed/, seen)
      assert.include(text, home.bridgeFile)
      assert.match(text, named)
      assert.include(await client.names(), "bash")
      writeFileSync(home.bridgeFile, good)
    })
  })

  describe("/a2a", () => {
    it("shows where it listens and who is there, but not the token", async () => {
      const { level, text } = await omp.slash("/a2a")
      assert.strictEqual(level, "info")
      assert.include(text, `A2A bridge listening on ${url}`)
      assert.match(text, /[1-9]\d* clients?, 0 calls in flight/)
      assert.include(text, home.bridgeFile)
      assert.notInclude(text, home.token())
    })

    it("token shows the whole token", async () => {
      assert.include((await omp.slash("/a2a token")).text, home.token())
    })

    it("connect shows lines for each client that carry the address and the token", async () => {
      const { text } = await omp.slash("/a2a connect")
      for (const name of ["omp", "Claude Code", "Codex", "Cursor", "curl"]) assert.include(text, name)
      assert.include(text, `${url}/mcp`)
      assert.include(text, home.token())
    })

    it("connect curl shows a line that works as it stands", async () => {
      const { text } = await omp.slash("/a2a connect curl")
      const script = text.slice(text.indexOf("SID="))
      const child = Bun.spawn(["bash", "-c", script], { env: { ...home.env }, stdout: "pipe", stderr: "pipe" })
      const output = await new Response(child.stdout).text()
      assert.include(output, '"tools"')
    })

    it("answers an unknown subcommand or client with those that exist", async () => {
      assert.match((await omp.slash("/a2a frobnicate")).text, /no command 'frobnicate'.*rotate/)
      assert.match((await omp.slash("/a2a connect emacs")).text, /no client 'emacs'.*codex/)
    })

    it("rotate kills the old token and its sessions at once, and the new token works", async () => {
      const before = { token: home.token(), client: await mcpClient(url, home.token()) }
      const answer = await omp.slash("/a2a rotate", /A2A token rotated/)
      assert.include(answer.text, `${home.token().slice(0, 6)}...`)
      assert.notInclude(answer.text, home.token())
      const after = home.token()
      assert.notStrictEqual(after, before.token)
      assert.strictEqual((await before.client.send(list)).status, 401)
      const stolen = { authorization: `Bearer ${after}`, "mcp-session-id": before.client.sid }
      assert.strictEqual((await post(url, list, { headers: stolen })).status, 404)
      assert.strictEqual(statSync(home.bridgeFile).mode & 0o777, 0o600)
      assert.include(await (await mcpClient(url, after)).names(), "read")
    })

    it("rotate ends a call that runs under the old token", async () => {
      const seconds = uniqueSeconds()
      const call = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
      await until("the command runs", () => running("/usr/bin/sleep", seconds))
      await omp.slash("/a2a rotate", /A2A token rotated/)
      await until("the command is gone", () => !running("/usr/bin/sleep", seconds), 5000)
      await call.settled
    })
  })

  describe("cancellation", () => {
    const sleeping = async () => {
      const seconds = uniqueSeconds()
      const call = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
      await until("the command runs", () => running("/usr/bin/sleep", seconds))
      return { call, gone: () => until("the command is gone", () => !running("/usr/bin/sleep", seconds), 5000) }
    }

    it("kills the command of a client that dropped its connection within 5 seconds", async () => {
      const { call, gone } = await sleeping()
      await call.drop()
      await gone()
    })

    it("kills the command of a call that its client cancelled within 5 seconds", async () => {
      const { call, gone } = await sleeping()
      const cancelled = { method: "notifications/cancelled", params: { requestId: call.id, reason: "test" } }
      assert.strictEqual((await client.send({ jsonrpc: "2.0", ...cancelled })).status, 202)
      await gone()
      await call.settled
    })

    it("kills the commands of a session that its client closed", async () => {
      const { call, gone } = await sleeping()
      await fetch(`${url}/mcp`, { method: "DELETE", headers: inSession(client.sid) })
      await gone()
      await call.settled
    })

    it("leaves another session's call with the same request id alone", async () => {
      const other = await mcpClient(url, home.token(), "other")
      const { call, gone } = await sleeping()
      await other.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: call.id } })
      assert.include((await client.call("bash", { command: "echo still-here" })).text, "still-here")
      const status = await omp.slash("/a2a")
      assert.include(status.text, "1 call in flight")
      await call.drop()
      await gone()
    })
  })

  describe("the audit log", () => {
    it("holds a start and a done of each call, under its session, readable by nobody else", async () => {
      const audited = await mcpClient(url, home.token(), "auditor")
      await audited.call("bash", { command: "echo audited" })
      await audited.call("nope")
      const mine = await until("four records", () => {
        const records = home.audit().filter((record) => record["sid"] === audited.sid)
        return records.length >= 4 ? records : undefined
      })
      assert.deepStrictEqual(
        mine.map((record) => [record["phase"], record["tool"], record["outcome"]]),
        [
          ["start", "bash", undefined],
          ["done", "bash", "ran"],
          ["start", "nope", undefined],
          ["done", "nope", "refused"]
        ]
      )
      assert.strictEqual(mine[0]?.["id"], mine[1]?.["id"])
      assert.match(String(mine[0]?.["client"]), /auditor/)
      assert.strictEqual(statSync(join(home.agent, "a2a-bridge.log")).mode & 0o777, 0o600)
    })

    it("has an end for every start, whatever happened to the call", async () => {
      const open = () => {
        const records = home.audit()
        const ids = (phase: string) =>
          records.filter((record) => record["phase"] === phase).map((record) => record["id"])
        const done = new Set(ids("done"))
        return ids("start").filter((id) => !done.has(id))
      }
      await until(
        () => `no open call: ${open().join()}`,
        () => open().length === 0,
        5000
      )
      const outcomes = new Set(home.audit().map((record) => record["outcome"]))
      for (const outcome of ["ran", "refused", "cancelled"]) assert.isTrue(outcomes.has(outcome), outcome)
    })

    it("never holds a token", () => {
      assert.notInclude(readFileSync(join(home.agent, "a2a-bridge.log"), "utf8"), home.token())
    })
  })

  it("leaves stdout to the protocol and stderr empty, and logs nothing unhandled, all this time", async () => {
    assert.deepStrictEqual(omp.noise(), [])
    assert.strictEqual(omp.stderr(), "")
    assert.strictEqual(omp.exitCode(), undefined)
    assert.notMatch(home.log(), /unhandled/i)
    assert.notInclude(home.log(), home.token())
  })
})
