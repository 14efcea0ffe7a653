import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { events, modelServer, once, runProgram } from "./agents.mjs"
import { run, textOf } from "./harness.mjs"

const claude = join(import.meta.dirname, "node_modules/.bin/claude")
const prefix = "mcp__host__"

/** Text of a result, as the model sees it or as it is told where to find it. */
const seen = ({ content, is_error: isError }) => {
  const text = typeof content === "string" ? content : content.map((block) => block.text ?? "").join("")
  if (isError) throw new Error(text)
  const saved = /^<persisted-output>[\s\S]*saved to: (\S+\.json)/.exec(text)?.[1]
  return saved === undefined ? text : textOf({ content: JSON.parse(readFileSync(saved, "utf8")) })
}

await run(async ({ token, url }) => {
  const home = process.env.HOME
  const work = join(home, "work")
  mkdirSync(work, { recursive: true })
  const config = join(home, "mcp.json")
  writeFileSync(
    config,
    JSON.stringify({ mcpServers: { host: { type: "http", url, headers: { Authorization: `Bearer ${token}` } } } })
  )
  let wanted = []
  let between
  let offered = []
  let results = []
  const { port, server } = await modelServer(async (request, json, response) => {
    if (request.method !== "POST" || !request.url.includes("/messages") || request.url.includes("count_tokens")) {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ input_tokens: 10 }))
      return
    }
    const names = (json.tools ?? []).map(({ name }) => name).filter((name) => name.startsWith(prefix))
    if (names.length > 0) offered = names.map((name) => name.slice(prefix.length))
    const blocks = (json.messages ?? []).flatMap(({ content }) => (Array.isArray(content) ? content : []))
    const found = blocks.filter(({ type }) => type === "tool_result")
    if (found.length > results.length) results = found
    const next = names.length > 0 ? wanted[found.length] : undefined
    const use = next !== undefined
    if (use && found.length > 0) await between?.()
    const block = use
      ? { type: "tool_use", id: `toolu_${found.length + 1}`, name: prefix + next.name, input: next.args }
      : { type: "text", text: "done" }
    const usage = { input_tokens: 1, output_tokens: 1 }
    const reason = use ? "tool_use" : "end_turn"
    if (!json.stream) {
      const message = { id: "m", type: "message", role: "assistant", model: json.model, content: [block] }
      response
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ ...message, stop_reason: reason, usage }))
      return
    }
    const send = events(response)
    const event = (type, data) => send(type, { type, ...data })
    const message = { id: "m", type: "message", role: "assistant", model: json.model, content: [], usage }
    event("message_start", { message: { ...message, stop_reason: null } })
    const start = use ? { ...block, input: {} } : { type: "text", text: "" }
    const delta = use
      ? { type: "input_json_delta", partial_json: JSON.stringify(block.input) }
      : { type: "text_delta", text: block.text }
    event("content_block_start", { index: 0, content_block: start })
    event("content_block_delta", { index: 0, delta })
    event("content_block_stop", { index: 0 })
    event("message_delta", { delta: { stop_reason: reason }, usage: { output_tokens: 1 } })
    event("message_stop", {})
    response.end()
  })
  /** One process, in which the model makes these calls one after another. */
  const ask = async (calls, signal, pause) => {
    wanted = calls
    between = once(pause)
    results = []
    await runProgram(
      claude,
      ["-p", "go", "--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__host", "--max-turns", "4"],
      {
        cwd: work,
        signal,
        env: {
          ...process.env,
          ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}`,
          ANTHROPIC_API_KEY: "none",
          CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
          DISABLE_AUTOUPDATER: "1",
          DISABLE_TELEMETRY: "1",
          ENABLE_TOOL_SEARCH: "false",
          MAX_MCP_OUTPUT_TOKENS: "2000000",
          IS_SANDBOX: "1"
        }
      }
    )
    if (results.length < calls.length) throw new Error(`the model saw ${results.length} of ${calls.length} results`)
    return results.map(seen)
  }
  await ask([])
  return {
    list: async () => offered,
    call: async (name, args, signal) => (await ask([{ name, args }], signal))[0],
    across: (first, restart, second) => ask([first, second], undefined, restart),
    close: async () => void server.close(),
    notes: {
      "1 MB": "it saves the result to a file and shows its model the beginning; the file is right",
      cancel: "by Ctrl-C"
    }
  }
})
