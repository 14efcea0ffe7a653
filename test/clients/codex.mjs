import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { events, modelServer, once, runProgram } from "./agents.mjs"
import { run } from "./harness.mjs"

const codex = join(import.meta.dirname, "node_modules/.bin/codex")

/** Text of a result, as the model sees it. */
const seen = ({ output }) => {
  const text = typeof output === "string" ? output : output.map((block) => block.text ?? "").join("")
  const body = text.replace(/^Wall time: [\d.]+ seconds\nOutput:\n?/, "")
  try {
    const blocks = JSON.parse(body)
    return Array.isArray(blocks) && blocks[0]?.type === "text" ? blocks.map((block) => block.text).join("") : body
  } catch {
    return body
  }
}

await run(async ({ token, url }) => {
  const home = join(process.env.HOME, "codex")
  const work = join(process.env.HOME, "work")
  mkdirSync(home, { recursive: true })
  mkdirSync(work, { recursive: true })
  let wanted = []
  let between
  let offered = []
  let results = []
  const { port, server } = await modelServer(async (request, json, response) => {
    if (!request.url.includes("/responses")) {
      response
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ object: "list", data: [], models: [] }))
      return
    }
    const tools = []
    const walk = (tool, namespace) => {
      if (Array.isArray(tool.tools)) for (const inner of tool.tools) walk(inner, tool.name)
      else tools.push({ name: tool.name ?? "", namespace })
    }
    for (const tool of json.tools ?? []) walk(tool)
    const ours = tools.filter(({ name, namespace }) => (namespace ?? name).includes("matrixhost"))
    if (ours.length > 0) offered = ours.map(({ name }) => name.replace(/^.*matrixhost_*/, ""))
    const found = (json.input ?? []).filter(({ type }) => type === "function_call_output")
    if (found.length > results.length) results = found
    const next = wanted[found.length]
    const tool = ours.find(({ name }) => name.endsWith(next?.name ?? "\0"))
    const use = tool !== undefined
    if (use && found.length > 0) await between?.()
    const send = events(response)
    const event = (data) => send(data.type, data)
    const item = use
      ? {
          type: "function_call",
          id: `fc${found.length}`,
          call_id: `c${found.length}`,
          name: tool.name,
          arguments: JSON.stringify(next.args),
          ...(tool.namespace === undefined ? {} : { namespace: tool.namespace })
        }
      : { type: "message", id: "m1", role: "assistant", content: [{ type: "output_text", text: "done" }] }
    event({ type: "response.created", response: { id: "r1" } })
    event({ type: "response.output_item.added", output_index: 0, item })
    event({ type: "response.output_item.done", output_index: 0, item })
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 }
    event({ type: "response.completed", response: { id: "r1", output: [item], usage } })
    response.end()
  })
  writeFileSync(
    join(home, "config.toml"),
    `model = "fake"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.fake]
name = "fake"
base_url = "http://127.0.0.1:${port}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
[mcp_servers.matrixhost]
url = ${JSON.stringify(url)}
http_headers = { Authorization = "Bearer ${token}" }
default_tools_approval_mode = "approve"
[analytics]
enabled = false
`
  )
  /** One process, in which the model makes these calls one after another. */
  const ask = async (calls, signal, pause) => {
    wanted = calls
    between = once(pause)
    results = []
    await runProgram(codex, ["exec", "--skip-git-repo-check", "go"], {
      cwd: work,
      signal,
      env: { ...process.env, CODEX_HOME: home, FAKE_KEY: "none" }
    })
    if (results.length < calls.length) throw new Error(`the model saw ${results.length} of ${calls.length} results`)
    return results.map(seen)
  }
  await ask([])
  return {
    list: async () => offered,
    call: async (name, args, signal) => (await ask([{ name, args }], signal))[0],
    across: (first, restart, second) => ask([first, second], undefined, restart),
    close: async () => void server.close(),
    megabyte: "cut",
    cut: /…\d+ (?:tokens|chars) truncated…/,
    notes: { "1 MB": "back alone; it cuts what its model sees, and both ends are right", cancel: "by Ctrl-C" }
  }
})
