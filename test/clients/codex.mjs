import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { events, modelServer, runProgram } from "./agents.mjs"
import { run } from "./harness.mjs"

const codex = join(import.meta.dirname, "node_modules/.bin/codex")

await run(async ({ token, url }) => {
  const home = join(process.env.HOME, "codex")
  const work = join(process.env.HOME, "work")
  mkdirSync(home, { recursive: true })
  mkdirSync(work, { recursive: true })
  let wanted
  let offered = []
  let result
  const { port, server } = await modelServer((request, json, response) => {
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
    const found = (json.input ?? []).findLast(({ type }) => type === "function_call_output")
    if (found !== undefined) result = found.output
    const tool = ours.find(({ name }) => name.endsWith(wanted?.name ?? "\0"))
    const use = tool !== undefined && found === undefined
    const send = events(response)
    const event = (data) => send(data.type, data)
    const item = use
      ? {
          type: "function_call",
          id: "fc1",
          call_id: "c1",
          name: tool.name,
          arguments: JSON.stringify(wanted.args),
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
  const ask = async (call, signal) => {
    wanted = call
    result = undefined
    await runProgram(codex, ["exec", "--skip-git-repo-check", "go"], {
      cwd: work,
      signal,
      env: { ...process.env, CODEX_HOME: home, FAKE_KEY: "none" }
    })
    return result
  }
  await ask(undefined)
  return {
    list: async () => offered,
    call: async (name, args, signal) => {
      const output = await ask({ name, args }, signal)
      if (output === undefined) throw new Error("the model saw no result")
      const text = typeof output === "string" ? output : output.map((block) => block.text ?? "").join("")
      const body = text.replace(/^Wall time: [\d.]+ seconds\nOutput:\n?/, "")
      try {
        const blocks = JSON.parse(body)
        return Array.isArray(blocks) && blocks[0]?.type === "text" ? blocks.map((b) => b.text).join("") : body
      } catch {
        return body
      }
    },
    close: async () => void server.close(),
    megabyte: "cut",
    whyNotMegabyte: "Codex cuts what its model sees; the first and last characters are right",
    cancelNote: "by Ctrl-C",
    freshProcess: true
  }
})
