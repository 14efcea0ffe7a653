/**
 * Tries real MCP clients with the bridge and writes docs/clients.md. Each client is a process of its own, with a bridge of
 * its own over a host that is not omp (in the omp row, omp is the client). What a client says of itself counts only where
 * the host, the bridge's log and the wire agree. Ends with `N passed, N failed`.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { endAll } from "./processes.ts"
import type { Fixture, Run } from "./server.ts"
import { startFixture, token, toolNames } from "./server.ts"
import type { Strict } from "./strict.ts"
import { strictOverOmp } from "./strict.ts"
import values from "./values.json"
import type { Exchange } from "./wire.ts"

const here = fileURLToPath(new URL(".", import.meta.url))
const root = join(here, "../..")
const megabyte = Array.from({ length: values.numbers }, (_, number) => number.toString(16).padStart(8, "0")).join("")
/** A client that has not ended by then is ended, with all that it started. */
const patienceMillis = 60_000

interface ClientSpec {
  readonly name: string
  readonly package: string
  readonly script: string
  readonly args?: ReadonlyArray<string>
  /** The name that it gives itself. */
  readonly clientInfo: string
  /** Another name, under which it looks first. */
  readonly probe?: string
  /** The revision that it is to end up with here. */
  readonly protocol: string
  /** What it asks though it must expect to be refused: method and status. */
  readonly refused?: ReadonlyArray<string>
  /** For the notes. */
  readonly remarks?: ReadonlyArray<string>
}

const clients: ReadonlyArray<ClientSpec> = JSON.parse(readFileSync(join(here, "clients.json"), "utf8"))

interface Manifest {
  readonly version: string
  readonly dependencies?: Readonly<Record<string, string>>
}
const manifest = (folder: string): Manifest | undefined => {
  const file = join(folder, "package.json")
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Manifest) : undefined
}
const pins = manifest(here)?.dependencies ?? {}
/** omp is the project's own; the other clients are installed here. */
const installed = (name: string): string | undefined =>
  manifest(join(name in pins ? here : root, "node_modules", name))?.version
const notInstalled = () => Object.keys(pins).filter((name) => installed(name) !== pins[name])

interface Check {
  readonly outcome: "pass" | "fail" | "n/a"
  readonly note?: string
}
interface Row {
  readonly spec: ClientSpec
  readonly version: string
  /** What the wire showed of it: how it opened, how it cancelled. */
  readonly habits: ReadonlyArray<string>
  readonly checks: ReadonlyMap<string, Check>
  readonly seconds: number
}

const checkNames = ["connect", "list", "call", "unicode", "1 MB", "cancel", "reconnect"]

interface Message {
  readonly id?: unknown
  readonly method?: string
  readonly params?: {
    readonly name?: string
    readonly requestId?: unknown
    readonly protocolVersion?: string
    readonly clientInfo?: { readonly name: string }
    readonly _meta?: Readonly<Record<string, unknown>>
  }
}

/** What the wire saw, read as MCP. */
const readWire = (exchanges: ReadonlyArray<Exchange>) => {
  const sessions = new Map<string, { readonly protocol: string; readonly client: string }>()
  const said = exchanges.map((exchange) => {
    let message: Message = {}
    try {
      message = JSON.parse(exchange.request) as Message
    } catch {
      // GET and DELETE have no body.
    }
    const sid = exchange.responseHeaders["mcp-session-id"]
    const agreed = /"protocolVersion":\s*"([^"]+)"/.exec(exchange.response)?.[1]
    if (message.method === "initialize" && sid !== undefined && agreed !== undefined) {
      sessions.set(sid, { protocol: agreed, client: message.params?.clientInfo?.name ?? "" })
    }
    return { ...exchange, message }
  })
  return said.map((exchange) => {
    const { message, requestHeaders } = exchange
    const meta = (key: string) => message.params?._meta?.[`io.modelcontextprotocol/${key}`]
    const session = sessions.get(requestHeaders["mcp-session-id"] ?? "")
    const info = message.params?.clientInfo ?? (meta("clientInfo") as { readonly name: string } | undefined)
    const version = meta("protocolVersion")
    return {
      ...exchange,
      protocol: typeof version === "string" ? version : (session?.protocol ?? "?"),
      client: info?.name ?? session?.client ?? ""
    }
  })
}
type Said = ReturnType<typeof readWire>[number]

/** Answers that no client should get here, but these: a session that a restart ended, and what a revision has no use for. */
const usual = (spec: ClientSpec, { message, method, response, restarts, status }: Said): boolean =>
  status === undefined ||
  status === 200 ||
  status === 202 ||
  (status === 204 && method === "DELETE") ||
  spec.refused?.includes(`${method} ${status}`) === true ||
  (status === 405 && method !== "POST") ||
  (status === 404 && restarts > 0 && response.includes("-32001")) ||
  (status === 404 && message.method !== undefined && response.includes("-32601"))

const textsIn = (response: string): ReadonlyArray<string> => {
  const bodies = response.startsWith("{")
    ? [response]
    : response.split("\n").flatMap((line) => (line.startsWith("data:") ? [line.slice(5)] : []))
  return bodies.flatMap((body) => {
    try {
      const { result } = JSON.parse(body) as {
        readonly result?: { readonly content?: ReadonlyArray<{ readonly text?: string }> }
      }
      return (result?.content ?? []).flatMap(({ text }) => (text === undefined ? [] : [text]))
    } catch {
      return []
    }
  })
}

interface Evidence {
  readonly spec: ClientSpec
  readonly runs: ReadonlyArray<Run>
  readonly said: ReadonlyArray<Said>
  readonly audit: ReturnType<Fixture["audit"]>
}

/** What must be true on our side of a check that a client calls passed. The first that is not is the answer. */
const objection = (name: string, { audit, runs, said, spec }: Evidence): string | undefined => {
  const calls = said.filter(({ message }) => message.method === "tools/call")
  const ran = (match: (run: Run) => boolean) => runs.some(match)
  const answered = (text: string) =>
    calls.some(
      (call) => call.status === 200 && call.client === spec.clientInfo && textsIn(call.response).includes(text)
    )
  const echoed = (text: string, restarts = 0) =>
    !ran((run) => run.args["text"] === text && run.ended === "result" && run.restarts >= restarts)
      ? `the host never ran echo with this text${restarts > 0 ? " after the restart" : ""}`
      : !answered(text)
        ? `no answer on the wire to ${spec.clientInfo} has this text`
        : undefined
  switch (name) {
    case "connect": {
      const names = [
        ...new Set(said.map(({ client }) => client).filter((client) => client !== "" && client !== spec.probe))
      ]
      const versions = [...new Set(calls.map(({ protocol }) => protocol))]
      const unusual = said.filter((exchange) => !usual(spec, exchange))
      return names.join() !== spec.clientInfo
        ? `it calls itself ${names.join(" and ")}, not ${spec.clientInfo}`
        : versions.join() !== spec.protocol
          ? `its calls were of ${versions.join(" and ")}, not of ${spec.protocol}`
          : unusual[0] !== undefined
            ? `answered with ${unusual[0].status}: ${unusual[0].request.slice(0, 300)} -> ${unusual[0].response.slice(0, 300)}`
            : undefined
    }
    case "list": {
      const listed = said.filter(({ message, status }) => message.method === "tools/list" && status === 200)
      const offered = (response: string) => toolNames.every((tool) => response.includes(`"name":"${tool}"`))
      return listed.some(({ response }) => offered(response)) ? undefined : "no list on the wire has the tools"
    }
    case "call":
      return echoed(values.hello)
    case "unicode":
      return echoed(values.unicode)
    case "1 MB":
      return answered(megabyte) ? undefined : "no answer on the wire has the whole megabyte"
    case "cancel": {
      const held = audit.filter(({ phase, tool }) => phase === "done" && tool === "hold")
      return !ran((run) => run.tool === "hold" && run.ended === "signal" && run.restarts === 0)
        ? "no signal of hold fired before the restart"
        : held.length === 1 && held[0]?.outcome === "cancelled"
          ? undefined
          : `the log says of hold: ${JSON.stringify(held)}`
    }
    default:
      return echoed(values.back, 1)
  }
}

const howCancelled = (said: ReadonlyArray<Said>): string | undefined => {
  const call = said.find(({ message }) => message.method === "tools/call" && message.params?.name === "hold")
  if (call === undefined) return undefined
  const told = said.some(
    ({ message }) => message.method === "notifications/cancelled" && message.params?.requestId === call.message.id
  )
  return told ? "cancels by `notifications/cancelled`" : call.status === undefined ? "cancels by hanging up" : undefined
}

const converse = async (spec: ClientSpec, fixture: Fixture, checks: Map<string, Check>): Promise<string> => {
  const child = Bun.spawn([join(root, "node_modules/.bin/node"), join(here, spec.script), ...(spec.args ?? [])], {
    cwd: here,
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: fixture.dir,
      NO_COLOR: "1",
      MCP_URL: fixture.url,
      MCP_TOKEN: token,
      TOOLS: JSON.stringify(toolNames),
      PROJECT: root,
      BUN: process.execPath
    },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe"
  })
  let late = false
  const timer = setTimeout(() => {
    late = true
    void endAll(fixture.dir, 0)
  }, patienceMillis)
  const errors = new Response(child.stderr).text()
  const decoder = new TextDecoder()
  let buffer = ""
  for await (const chunk of child.stdout) {
    buffer += decoder.decode(chunk, { stream: true })
    for (let at = buffer.indexOf("\n"); at >= 0; at = buffer.indexOf("\n")) {
      const line = buffer.slice(0, at)
      buffer = buffer.slice(at + 1)
      const marked = line.indexOf("@@{")
      if (marked < 0) continue
      const message = JSON.parse(line.slice(marked + 2)) as Check & { readonly check?: string; readonly ask?: string }
      if (message.check !== undefined) checks.set(message.check, message)
      if (message.ask === undefined) continue
      if (message.ask === "restart") await fixture.restart()
      child.stdin.write(
        `${JSON.stringify(message.ask === "runs" ? fixture.runs.map(({ ended, tool }) => ({ ended, tool })) : {})}\n`
      )
      await child.stdin.flush()
    }
  }
  await child.exited
  clearTimeout(timer)
  return `${late ? `ended after ${patienceMillis / 1000} s; ` : ""}${await errors}`
}

const runClient = async (spec: ClientSpec): Promise<Row> => {
  const began = performance.now()
  const fixture = await startFixture()
  const checks = new Map<string, Check>()
  const complaint = await converse(spec, fixture, checks).catch(
    (error: unknown) => `the driver broke off: ${String(error)}`
  )
  // What its own end does not end within a few seconds is a fault of the client, or of how it is driven here.
  const left = await endAll(fixture.dir, 5000)
  await fixture.close()
  const said = readWire(fixture.exchanges())
  const evidence: Evidence = { spec, runs: fixture.runs, said, audit: fixture.audit() }
  for (const name of checkNames) {
    const check = checks.get(name)
    if (check === undefined)
      checks.set(name, { outcome: "fail", note: `never reached; ${complaint.trim().slice(-600)}` })
    if (check?.outcome !== "pass") continue
    const wrong = objection(name, evidence)
    if (wrong !== undefined) checks.set(name, { outcome: "fail", note: `it says that it passed, but ${wrong}` })
  }
  if (left > 0) {
    const note = `${left} of its processes were still there 5 s after its end`
    checks.set("reconnect", { outcome: "fail", note })
  }
  const opening = said[0]?.message.method ?? said[0]?.method ?? "nothing"
  const cancelled = howCancelled(said)
  const row: Row = {
    spec,
    version: installed(spec.package) ?? "?",
    habits: [`opens with \`${opening}\``, ...(cancelled === undefined ? [] : [cancelled])],
    checks,
    seconds: (performance.now() - began) / 1000
  }
  // WIRE names a folder for all that went over the wire.
  if (process.env["WIRE"] !== undefined) {
    writeFileSync(join(process.env["WIRE"], `${spec.name}.json`), JSON.stringify(said, undefined, 2))
  }
  fixture.remove()
  return row
}

const cell = ({ note, outcome }: Check): string =>
  outcome === "n/a" ? `n/a: ${note ?? "?"}` : outcome === "fail" ? "**fail**" : "pass"

const document = (rows: ReadonlyArray<Row>, strict: ReadonlyArray<Strict>): string => {
  const head = ["client", "version", "calls itself", "protocol", ...checkNames]
  const line = (cells: ReadonlyArray<string>) => `| ${cells.join(" | ")} |`
  const notes = rows.map(({ checks, habits, spec }) => {
    const said = checkNames.flatMap((name) => {
      const check = checks.get(name)
      // Of a failure, the run's output tells; what is written here is to be the same in every run.
      return check?.note === undefined || check.outcome !== "pass" ? [] : [`${name}: ${check.note}`]
    })
    return `- **${spec.name}** ${[...habits, ...said, ...(spec.remarks ?? [])].join("; ")}.`
  })
  return [
    "# Clients",
    "",
    "Made by `bun run test:clients`, which installs these clients and tries each with a bridge of its own. A check passes where",
    "the client, the host behind the bridge, the bridge's log and the bytes on the wire agree.",
    "",
    "- connect: under the name and the protocol revision of the table, and with no answer but those expected",
    "- list: the host's tools, each once",
    "- call: one with a short text",
    "- unicode: emoji, CJK, right to left, combining and control characters, there and back",
    "- 1 MB: a text of that size, there and back; where the notes say so, back alone or as far as the client shows it",
    "- cancel: a running call, whose tool is told and ends",
    "- reconnect: a call after the bridge was started again on its port",
    "",
    line(head),
    line(head.map(() => "---")),
    ...rows.map(({ checks, spec, version }) =>
      line([
        spec.name,
        version,
        spec.clientInfo,
        spec.protocol,
        ...checkNames.map((name) => cell(checks.get(name) ?? { outcome: "fail" }))
      ])
    ),
    "",
    "## Notes",
    "",
    ...notes,
    "",
    "## Schemas of a real omp",
    "",
    "The Inspector's `--strict`, which looks for what other clients might not take, over the tools of a headless omp:",
    "",
    ...strict.map(({ era, note, outcome }) => `- ${era}: ${outcome === "fail" ? "**fail**" : `pass, ${note}`}`),
    ""
  ].join("\n")
}

const finish = (passed: number, failed: number): never => {
  console.log(`\n${passed} passed, ${failed} failed`)
  return process.exit(failed === 0 && passed > 0 ? 0 : 1)
}

if (notInstalled().length > 0) {
  const install = Bun.spawnSync([process.execPath, "install", "--frozen-lockfile", "--cwd", here], {
    stdout: "ignore",
    stderr: "inherit"
  })
  const wrong = notInstalled().map((name) => `${name}: ${installed(name) ?? "nothing"} instead of ${pins[name]}`)
  if (install.exitCode !== 0 || wrong.length > 0) {
    console.log(`not what package.json says: ${wrong.join(", ")}`)
    finish(0, 1)
  }
}

const marks = { pass: "✓", "n/a": "-", fail: "✗" }
const only = process.argv.slice(2)
const chosen = clients.filter(({ name }) => only.length === 0 || only.some((word) => name.includes(word)))
const waiting = [...chosen]
const rows: Array<Row> = []
const work = async (): Promise<void> => {
  for (let spec = waiting.shift(); spec !== undefined; spec = waiting.shift()) {
    const row = await runClient(spec).catch((error: unknown): Row => {
      // A fault of the driver is that row's failure, not the end of the run.
      const note = `the driver broke off: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`
      const checks = new Map(checkNames.map((name) => [name, { outcome: "fail", note } as const]))
      return { spec, version: installed(spec.package) ?? "?", habits: [], checks, seconds: 0 }
    })
    rows.push(row)
    console.log(`${spec.name} ${row.version}, ${row.seconds.toFixed(1)} s: ${row.habits.join(", ")}`)
    for (const name of checkNames) {
      const { note, outcome } = row.checks.get(name) ?? { outcome: "fail" }
      console.log(`  ${marks[outcome]} ${name}${note === undefined ? "" : `: ${note}`}`)
    }
  }
}
await Promise.all([work(), work()])
const strict = only.length === 0 || only.includes("strict") ? await strictOverOmp(root, here) : []
for (const { era, note, outcome } of strict) console.log(`${marks[outcome]} --strict over omp, ${era}: ${note}`)

rows.sort((a, b) => clients.indexOf(a.spec) - clients.indexOf(b.spec))
if (only.length === 0) {
  const file = join(root, "docs/clients.md")
  writeFileSync(file, document(rows, strict))
  Bun.spawnSync([process.execPath, join(root, "node_modules/.bin/oxfmt"), file])
}
const outcomes = [...rows.flatMap(({ checks }) => [...checks.values()]), ...strict].map(({ outcome }) => outcome)
finish(outcomes.filter((outcome) => outcome === "pass").length, outcomes.filter((outcome) => outcome === "fail").length)
