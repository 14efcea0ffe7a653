import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js"
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { McpClient } from "../support/mcpClient.ts"
import { mcpClient } from "../support/mcpClient.ts"
import type { RpcOmp } from "../support/omp.ts"
import { bunBinary, root, until, useLab } from "../support/omp.ts"

type Structure = Record<string, unknown>

const cli = join(root, "bin/pi-a2a.ts")
const fakeAgent = join(root, "test/support/fake-agent.ts")

const gitEnv = {
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_SYSTEM: "/dev/null",
  GIT_AUTHOR_NAME: "test",
  GIT_AUTHOR_EMAIL: "test@example.invalid",
  GIT_COMMITTER_NAME: "test",
  GIT_COMMITTER_EMAIL: "test@example.invalid"
}

const git = (cwd: string, ...args: ReadonlyArray<string>): string => {
  const run = Bun.spawnSync(["git", ...args], { cwd, env: { ...process.env, ...gitEnv } })
  assert.strictEqual(run.exitCode, 0, `git ${args.join(" ")}: ${run.stderr.toString()}`)
  return run.stdout.toString()
}

/** A home, a repository, and Cursor's fake command line. */
const makeLab = () => {
  const dir = mkdtempSync(join(tmpdir(), "pi-a2a-jobs-"))
  const repo = join(dir, "repo")
  mkdirSync(repo)
  git(repo, "init", "-q", "-b", "main")
  writeFileSync(join(repo, "a.txt"), "one\n")
  git(repo, "add", ".")
  git(repo, "commit", "-qm", "first")
  const agent = join(dir, "agent")
  writeFileSync(agent, `#!/bin/sh\nexec ${bunBinary} ${fakeAgent} "$@"\n`)
  chmodSync(agent, 0o755)
  const state = join(dir, "state")
  const env = {
    PATH: process.env["PATH"] ?? "",
    HOME: dir,
    CURSOR_BIN: agent,
    CURSOR_API_KEY: "none",
    ...gitEnv
  }
  /** All of the user's that must stay as it is. */
  const untouched = () =>
    [
      git(repo, "status", "--porcelain=v2", "--untracked-files=all"),
      git(repo, "for-each-ref"),
      git(repo, "rev-parse", "HEAD"),
      git(repo, "worktree", "list", "--porcelain"),
      git(repo, "stash", "list"),
      readFileSync(join(repo, "a.txt"), "utf8"),
      readFileSync(join(repo, ".git/config"), "utf8")
    ].join("\n--\n")
  return { dir, repo, state, env, untouched }
}
type Lab = ReturnType<typeof makeLab>

const structureOf = (result: unknown): Structure => {
  const { content, isError, structuredContent } = result as CallToolResult
  assert.notStrictEqual(isError, true, JSON.stringify(content))
  assert(structuredContent !== undefined)
  return structuredContent
}
const refusalOf = (result: unknown): string => {
  const { content, isError } = result as CallToolResult
  assert.isTrue(isError, JSON.stringify(content))
  return content.map((block) => (block.type === "text" ? block.text : "")).join("")
}

const toolsOver = (client: Client) => {
  const call = (name: string, args: object = {}) => client.callTool({ name, arguments: { ...args } })
  const ask = async (name: string, args: object = {}): Promise<Structure> => structureOf(await call(name, args))
  /** Follows a job as its callers would, each time from where it was, until it is in one of the states. */
  const follow = async (jobId: unknown, ...states: ReadonlyArray<string>) => {
    const events: Array<Structure> = []
    let since = 0
    for (let i = 0; i < 40; i++) {
      const status = await ask("cursor_status", { jobId, since, waitSeconds: 5 })
      events.push(...(status["events"] as ReadonlyArray<Structure>))
      since = Number(status["lastSeq"])
      if (status["more"] === false && states.includes(String(status["state"]))) return { status, events }
    }
    throw new Error(`job ${String(jobId)} never was ${states.join(" or ")}`)
  }
  return { call, ask, follow }
}

const alive = (mark: string): ReadonlyArray<string> =>
  Bun.spawnSync(["pgrep", "-f", mark])
    .stdout.toString()
    .split("\n")
    .filter((line) => line !== "")

/** What each way in must do: the same, since it is the same core. */
const suite = (name: string, connect: (lab: Lab) => Promise<{ client: Client; end: () => Promise<unknown> }>) =>
  describe(name, () => {
    let lab: Lab
    let client: Client
    let end: () => Promise<unknown>
    let tools: ReturnType<typeof toolsOver>
    let before: string

    beforeAll(async () => {
      lab = makeLab()
      before = lab.untouched()
      ;({ client, end } = await connect(lab))
      tools = toolsOver(client)
    })
    afterAll(async () => {
      await client.close().catch(() => undefined)
      await end()
      rmSync(lab.dir, { recursive: true, force: true })
    })

    it("lists the nine tools, and says how it is", async () => {
      const names = (await client.listTools()).tools.map((tool) => tool.name)
      assert.deepStrictEqual(names, [
        "cursor_run",
        "cursor_status",
        "cursor_reply",
        "cursor_cancel",
        "cursor_list",
        "cursor_diff",
        "bridge_health",
        "bridge_stats",
        "bridge_shutdown"
      ])
      const health = await tools.ask("bridge_health")
      assert.isTrue((health["workers"] as ReadonlyArray<Structure>).find(({ name }) => name === "cursor")?.["ok"])
    })

    it("brings back what a job changed, and leaves the checkout as it was", async () => {
      const run = await tools.ask("cursor_run", { prompt: "[edit:a.txt] [say:done]", tier: "execute" })
      assert.include(["queued", "running"], run["state"])
      const { events, status } = await tools.follow(run["jobId"], "completed", "failed")
      assert.strictEqual(status["state"], "completed", JSON.stringify(status["failure"]))
      assert.deepStrictEqual(
        events.map(({ seq }) => seq),
        [...new Set(events.map(({ seq }) => seq))].toSorted((a, b) => Number(a) - Number(b))
      )
      const diff = await tools.ask("cursor_diff", { jobId: run["jobId"] })
      assert.include(String(diff["patch"]), "a.txt")
      const target = join(lab.dir, `apply-${crypto.randomUUID()}`)
      git(lab.dir, "clone", "-q", lab.repo, target)
      writeFileSync(join(lab.dir, "p.patch"), String(diff["patch"]))
      git(target, "apply", "--binary", join(lab.dir, "p.patch"))
      assert.notStrictEqual(git(target, "status", "--porcelain"), "")
      await until("the checkout is as it was", () => lab.untouched() === before)
    })

    it("fails a consulting job that changed the tree, and keeps what it did on record", async () => {
      const run = await tools.ask("cursor_run", { prompt: "[rogue] [edit:a.txt]", tier: "consult" })
      const { status } = await tools.follow(run["jobId"], "completed", "failed")
      assert.strictEqual((status["failure"] as Structure | undefined)?.["reason"], "tree-changed")
      await until("the checkout is as it was", () => lab.untouched() === before)
    })

    it("asks, and goes on with the answer in the same conversation", async () => {
      const run = await tools.ask("cursor_run", { prompt: "[remember:plum] [ask:which colour?]", tier: "consult" })
      const { status } = await tools.follow(run["jobId"], "input-required", "failed")
      assert.include(String(status["question"]), "which colour?")
      await tools.ask("cursor_reply", { jobId: run["jobId"], prompt: "[recall]" })
      const { status: ended } = await tools.follow(run["jobId"], "completed", "failed")
      assert.strictEqual(ended["state"], "completed", JSON.stringify(ended["failure"]))
      assert.include(String(ended["result"]), "plum")
    })

    it("cancels a job with every process of it", async () => {
      const mark = `sleep-${crypto.randomUUID()}`
      const run = await tools.ask("cursor_run", {
        prompt: `[detached-child] [ignore-sigterm] [say:${mark}] [hang]`,
        tier: "execute"
      })
      await tools.follow(run["jobId"], "running")
      await until("the worker works", () => alive(String(run["jobId"])).length > 0 || alive(fakeAgent).length > 0)
      const cancelled = await tools.ask("cursor_cancel", { jobId: run["jobId"] })
      assert.strictEqual(cancelled["state"], "canceled")
      const { status } = await tools.follow(run["jobId"], "canceled")
      assert.strictEqual(status["state"], "canceled")
      await until("the checkout is as it was", () => lab.untouched() === before)
    })

    it("refuses what is outside, unknown or too much, and says why", async () => {
      const { call } = tools
      assert.match(refusalOf(await call("cursor_run", { prompt: "x", workspace: "/etc" })), /outside every allowed/)
      assert.match(refusalOf(await call("cursor_run", { prompt: "x", workspace: `${lab.repo}/../..` })), /'\.\.'/)
      assert.match(refusalOf(await call("cursor_run", { prompt: "x", worker: "nobody" })), /no worker 'nobody'.*cursor/)
      assert.match(refusalOf(await call("cursor_status", { jobId: crypto.randomUUID() })), /cursor_list/)
      assert.match(refusalOf(await call("cursor_run", { prompt: "x", flags: "--force" })), /flags/)
    })

    it("lists jobs newest first, page by page, and counts them", async () => {
      const first = await tools.ask("cursor_list", { limit: 2 })
      const second = await tools.ask("cursor_list", { limit: 2, cursor: first["next"] })
      const ids = [first, second].flatMap((page) =>
        (page["jobs"] as ReadonlyArray<Structure>).map(({ jobId }) => jobId)
      )
      assert.strictEqual(new Set(ids).size, 4)
      const stats = await tools.ask("bridge_stats")
      assert.isAtLeast(Number((stats["states"] as Structure)["completed"]), 2)
    })

    it("ends when it is told to", async () => {
      assert.deepStrictEqual(await tools.ask("bridge_shutdown", { reason: "the test is over" }), { stopping: true })
      await until("the checkout is as it was", () => lab.untouched() === before)
    })
  })

suite("pi-a2a stdio, with the MCP SDK's client", async (lab) => {
  const client = new Client({ name: "e2e-stdio", version: "1" })
  const transport = new StdioClientTransport({
    command: bunBinary,
    args: [cli, "stdio", "--state", lab.state, "--root", lab.repo],
    env: lab.env,
    stderr: "ignore"
  })
  await client.connect(transport as unknown as Parameters<Client["connect"]>[0])
  return { client, end: () => transport.close() }
})

suite("pi-a2a serve, with the MCP SDK's client", async (lab) => {
  const child = Bun.spawn([bunBinary, cli, "serve", "--state", lab.state, "--root", lab.repo], {
    env: lab.env,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit"
  })
  let out = ""
  void (async () => {
    for await (const chunk of child.stdout) out += new TextDecoder().decode(chunk)
  })()
  const url = await until("the URL", () => /serving on (http:\S+)/.exec(out)?.[1], 20_000)
  const settings = JSON.parse(readFileSync(join(lab.state, "a2a-bridge.json"), "utf8")) as { readonly token: string }
  const client = new Client({ name: "e2e-serve", version: "1" })
  const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    requestInit: { headers: { Authorization: `Bearer ${settings.token}` } }
  })
  await client.connect(transport as unknown as Parameters<Client["connect"]>[0])
  return {
    client,
    end: async () => {
      // bridge_shutdown has ended it.
      assert.strictEqual(await child.exited, 0)
      assert.isTrue(existsSync(join(lab.state, "jobs.sqlite")) || existsSync(join(lab.state, "a2a-bridge/jobs.sqlite")))
    }
  }
})

describe("a real omp with a folder allowed", () => {
  const omps = useLab()
  let lab: Lab
  let omp: RpcOmp
  let client: McpClient
  let before: string

  beforeAll(async () => {
    lab = makeLab()
    omps.onEnd(() => rmSync(lab.dir, { recursive: true, force: true }))
    before = lab.untouched()
    const home = omps.home({ bridge: { workspaceRoots: [lab.repo], cursorBin: lab.env.CURSOR_BIN } })
    omp = omps.rpc(home, { env: { CURSOR_API_KEY: "none" } })
    client = await mcpClient(await omp.url(), home.token())
  })

  it("has the nine tools among its own, once each, and runs a job for a remote client", async () => {
    // omp takes tools that come late one after the other.
    const names = await until("all nine", async () => {
      const now = await client.names()
      return now.filter((name) => /^(cursor|bridge)_/.test(name)).length >= 9 ? now : undefined
    })
    assert.includeMembers([...names], ["cursor_run", "cursor_diff", "bridge_shutdown", "read", "bash"])
    assert.strictEqual(new Set(names).size, names.length)
    const run = await client.call("cursor_run", { prompt: "[edit:a.txt]", tier: "execute" })
    assert.isFalse(run.isError, run.text)
    const { jobId } = JSON.parse(run.text) as { readonly jobId: string }
    const ended = await until("the job's end", async () => {
      const status = JSON.parse((await client.call("cursor_status", { jobId, waitSeconds: 2 })).text) as Structure
      return ["completed", "failed"].includes(String(status["state"])) ? status : undefined
    })
    assert.strictEqual(ended["state"], "completed", JSON.stringify(ended["failure"]))
    assert.include((await client.call("cursor_diff", { jobId })).text, "a.txt")
    await until("the checkout is as it was", () => lab.untouched() === before)
  })

  it("leaves a second omp its own tools, and says why it has no jobs", async () => {
    const second = omps.rpc(omp.home, { env: { CURSOR_API_KEY: "none" } })
    assert.match(await second.notice(/no job tools here/), /no job tools here: \S+/)
    const other = await mcpClient(await second.url(), omp.home.token())
    const names = await other.names()
    assert.includeMembers([...names], ["read", "bash"])
    assert.notInclude(names, "cursor_run")
  })

  it("has no such tools where no folder is allowed", async () => {
    const home = omps.home()
    const other = await mcpClient(await omps.rpc(home).url(), home.token())
    assert.notInclude(await other.names(), "cursor_run")
  })
})

describe("a bridge that is killed while jobs run", () => {
  it("loses no job, leaves no process and no worktree, and says what became of them", async () => {
    const lab = makeLab()
    const before = lab.untouched()
    const start = async () => {
      const client = new Client({ name: "e2e-kill", version: "1" })
      const transport = new StdioClientTransport({
        command: bunBinary,
        args: [cli, "stdio", "--state", lab.state, "--root", lab.repo],
        env: lab.env,
        stderr: "ignore"
      })
      await client.connect(transport as unknown as Parameters<Client["connect"]>[0])
      return { client, tools: toolsOver(client), pid: transport.pid ?? 0 }
    }
    const first = await start()
    const running = await Promise.all(
      ["[edit:a.txt] [detached-child] [hang]", "[ignore-sigterm] [hang]", "[ask:which?]"].map((prompt) =>
        first.tools.ask("cursor_run", { prompt, tier: "execute" })
      )
    )
    await first.tools.follow(running[0]?.["jobId"], "running")
    await first.tools.follow(running[2]?.["jobId"], "input-required")
    const marked = () =>
      running.flatMap(({ jobId }) =>
        Bun.spawnSync(["sh", "-c", `grep -lsa 'PI_A2A_JOB=${String(jobId)}' /proc/[0-9]*/environ`])
          .stdout.toString()
          .split("\n")
          .filter((line) => line !== "")
      )
    await until("the workers work", () => marked().length > 0)
    process.kill(first.pid, "SIGKILL")
    const second = await start()
    const states = await Promise.all(
      running.map(async ({ jobId }) => (await second.tools.ask("cursor_status", { jobId }))["state"])
    )
    assert.deepStrictEqual(states, ["orphaned", "orphaned", "input-required"])
    await until("no process of theirs is left", () => marked().length === 0)
    await second.tools.ask("cursor_reply", { jobId: running[2]?.["jobId"], prompt: "that one" })
    const { status } = await second.tools.follow(running[2]?.["jobId"], "completed", "failed")
    assert.strictEqual(status["state"], "completed", JSON.stringify(status["failure"]))
    await until("the worktrees are gone", () => lab.untouched() === before)
    await second.client.close()
    rmSync(lab.dir, { recursive: true, force: true })
  })
})
