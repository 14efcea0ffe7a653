/**
 * Tries real MCP clients with the bridge and writes docs/clients.md. Each client is a process of its own, with a bridge of
 * its own over a host that is not omp (but for the omp row, where omp is the client). Ends with `N passed, N failed`.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Main from "../../src/layers/Main.ts"
import type { JsonObject } from "../../src/services/HostTools.ts"
import { fakeHost, text } from "../support/fakeHost.ts"

const here = fileURLToPath(new URL(".", import.meta.url))
const root = join(here, "../..")
const token = "client-matrix-token-0123456789"
/** A client that has not ended by then is ended. */
const patienceMillis = 180_000

interface ClientSpec {
  readonly name: string
  readonly package: string
  readonly script: string
  readonly args?: ReadonlyArray<string>
}

const clients: ReadonlyArray<ClientSpec> = JSON.parse(readFileSync(join(here, "clients.json"), "utf8"))

const versionOf = (name: string): string => {
  const file = [join(here, "node_modules", name), join(root, "node_modules", name)]
    .map((folder) => join(folder, "package.json"))
    .find(existsSync)
  return file === undefined ? "?" : (JSON.parse(readFileSync(file, "utf8")) as { readonly version: string }).version
}

const freshHost = (agentDir: string) => {
  const runs = { started: 0, aborted: 0 }
  const schema = (properties: JsonObject, required: ReadonlyArray<string> = []) => ({
    type: "object",
    properties,
    required
  })
  const host = fakeHost({
    agentDir,
    tools: () => [
      {
        name: "echo",
        description: "Says the text again.",
        tier: "read",
        schema: schema({ text: { type: "string" } }, ["text"]),
        run: async (args) => text(String(args["text"]))
      },
      {
        name: "hold",
        description: "Runs until it is cancelled.",
        tier: "read",
        schema: schema({}),
        run: (_args, signal) =>
          new Promise((_resolve, reject) => {
            runs.started++
            signal.addEventListener("abort", () => {
              runs.aborted++
              reject(new Error("aborted"))
            })
          })
      },
      {
        name: "count",
        description: "How often hold was started and ended.",
        tier: "read",
        schema: schema({}),
        run: async () => text(JSON.stringify(runs))
      },
      {
        name: "big",
        description: "A text of so many characters.",
        tier: "read",
        schema: schema({ bytes: { type: "integer" } }, ["bytes"]),
        run: async (args) => text("0123456789abcdef".repeat(Number(args["bytes"]) / 16))
      }
    ]
  })
  return { host, runs }
}

interface Check {
  readonly outcome: "pass" | "fail" | "n/a"
  readonly note?: string
}
interface Row {
  readonly spec: ClientSpec
  readonly version: string
  readonly era: string
  readonly checks: ReadonlyMap<string, Check>
  readonly seconds: number
}

const checkNames = ["connect", "list", "call", "unicode", "1 MB", "cancel", "reconnect"]

/** Legacy calls are logged under their session, modern ones under none. */
const erasOf = (agentDir: string): string => {
  const log = join(agentDir, "a2a-bridge.log")
  if (!existsSync(log)) return "?"
  const records = readFileSync(log, "utf8").split("\n").filter(Boolean)
  const sids = records.flatMap((line) => {
    const { client, sid } = JSON.parse(line) as { readonly sid: string; readonly client: string }
    return client.startsWith("matrix-harness") ? [] : [sid]
  })
  const eras = new Set(sids.map((sid) => (sid === "-" ? "2026" : "2025")))
  return [...eras].join(" and ")
}

const runClient = async (spec: ClientSpec): Promise<Row> => {
  const began = performance.now()
  const agentDir = mkdtempSync(join(tmpdir(), "pi-a2a-client-"))
  const settings = join(agentDir, "a2a-bridge.json")
  const configure = (port: number) =>
    writeFileSync(settings, JSON.stringify({ token, port, maxBodyBytes: 4 * 1024 * 1024 }), { mode: 0o600 })
  const start = async () => {
    const started = await Main.bridge(freshHost(agentDir).host)
    if (started._tag === "Failed") throw new Error(started.reason)
    return started.bridge
  }
  configure(0)
  let bridge = await start()
  configure(Number(new URL(bridge.url).port))
  const url = `${bridge.url}/mcp`
  const child = Bun.spawn([join(root, "node_modules/.bin/node"), join(here, spec.script), ...(spec.args ?? [])], {
    cwd: here,
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: agentDir,
      NO_COLOR: "1",
      MCP_URL: url,
      MCP_TOKEN: token,
      PROJECT: root,
      BUN: process.execPath
    },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe"
  })
  const timer = setTimeout(() => child.kill("SIGKILL"), patienceMillis)
  const errors = new Response(child.stderr).text()
  const checks = new Map<string, Check>()
  let buffer = ""
  for await (const chunk of child.stdout) {
    buffer += new TextDecoder().decode(chunk)
    for (let at = buffer.indexOf("\n"); at >= 0; at = buffer.indexOf("\n")) {
      const line = buffer.slice(0, at)
      buffer = buffer.slice(at + 1)
      const marked = line.indexOf("@@{")
      if (marked < 0) continue
      const message = JSON.parse(line.slice(marked + 2)) as Check & {
        readonly check?: string
        readonly restart?: boolean
      }
      if (message.restart === true) {
        await bridge.close()
        bridge = await start()
        if (`${bridge.url}/mcp` !== url) throw new Error("the bridge came back on another port")
        child.stdin.write("restarted\n")
        await child.stdin.flush()
      } else if (message.check !== undefined) {
        checks.set(message.check, message)
      }
    }
  }
  await child.exited
  clearTimeout(timer)
  const stderr = await errors
  for (const name of checkNames) {
    if (!checks.has(name)) checks.set(name, { outcome: "fail", note: `never reached; ${stderr.trim().slice(-300)}` })
  }
  const era = erasOf(agentDir)
  await bridge.close()
  rmSync(agentDir, { recursive: true, force: true })
  return { spec, version: versionOf(spec.package), era, checks, seconds: (performance.now() - began) / 1000 }
}

const cell = ({ outcome }: Check): string => ({ pass: "yes", "n/a": "n/a", fail: "**no**" })[outcome]

const table = (rows: ReadonlyArray<Row>): string => {
  const head = ["client", "version", "era", ...checkNames]
  const lines = rows.map(({ checks, era, spec, version }) => [
    spec.name,
    version,
    era,
    ...checkNames.map((name) => cell(checks.get(name) ?? { outcome: "fail" }))
  ])
  const notes = rows.flatMap(({ checks, spec }) =>
    [...checks].flatMap(([name, { note, outcome }]) =>
      note === undefined || outcome === "fail" ? [] : [`- ${spec.name}, ${name}: ${note}`]
    )
  )
  return [
    "# Clients",
    "",
    "Made by `bun run test:clients`, which installs these clients and tries each with the bridge: connect, list the tools,",
    "call one, send and get back text of many scripts, send and get back 1 MB, cancel a call so that the tool's signal fires,",
    "go on after a restart of the bridge. The era is that in which the calls came: 2025 (sessions) or 2026 (2026-07-28).",
    "",
    `| ${head.join(" | ")} |`,
    `| ${head.map(() => "---").join(" | ")} |`,
    ...lines.map((line) => `| ${line.join(" | ")} |`),
    "",
    "## Notes",
    "",
    ...notes,
    ""
  ].join("\n")
}

const only = process.argv.slice(2)
const chosen = clients.filter(({ name }) => only.length === 0 || only.some((word) => name.includes(word)))

if (!existsSync(join(here, "node_modules"))) {
  const install = Bun.spawnSync([process.execPath, "install", "--frozen-lockfile"], {
    cwd: here,
    stdout: "ignore",
    stderr: "inherit"
  })
  if (install.exitCode !== 0) {
    console.log("0 passed, 1 failed")
    process.exit(1)
  }
}

const rows: Array<Row> = []
const waiting = [...chosen]
const work = async (): Promise<void> => {
  for (let spec = waiting.shift(); spec !== undefined; spec = waiting.shift()) {
    const row = await runClient(spec)
    rows.push(row)
    console.log(`${row.spec.name} ${row.version} (${row.era}), ${row.seconds.toFixed(1)} s`)
    for (const [name, { note, outcome }] of row.checks) {
      console.log(
        `  ${outcome === "pass" ? "✓" : outcome === "n/a" ? "-" : "✗"} ${name}${note === undefined ? "" : `: ${note}`}`
      )
    }
  }
}
await Promise.all([work(), work()])

const order = new Map(clients.map(({ name }, at) => [name, at]))
rows.sort((a, b) => (order.get(a.spec.name) ?? 0) - (order.get(b.spec.name) ?? 0))
if (only.length === 0) {
  writeFileSync(join(root, "docs/clients.md"), table(rows))
  Bun.spawnSync([process.execPath, join(root, "node_modules/.bin/oxfmt"), join(root, "docs/clients.md")])
}

const outcomes = rows.flatMap(({ checks }) => [...checks.values()].map(({ outcome }) => outcome))
const passed = outcomes.filter((outcome) => outcome === "pass").length
const failed = outcomes.filter((outcome) => outcome === "fail").length
console.log(`\n${passed} passed, ${failed} failed`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
