import { spawn } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { events, modelServer } from "./agents.mjs"
import { run } from "./harness.mjs"

const omp = join(process.env.PROJECT, "node_modules/.bin/omp")
const prefix = "mcp__host_"

await run(async ({ token, url }) => {
  const home = process.env.HOME
  const agent = join(home, ".omp/agent")
  const work = join(home, "work")
  mkdirSync(agent, { recursive: true })
  mkdirSync(work, { recursive: true })
  let wanted
  let offered = []
  let result
  const { port, server } = await modelServer((request, json, response) => {
    if (!request.url.includes("/chat/completions")) {
      response
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ object: "list", data: [{ id: "fake-1" }] }))
      return
    }
    const names = (json.tools ?? []).map((tool) => tool.function.name).filter((name) => name.startsWith(prefix))
    if (names.length > 0) offered = names.map((name) => name.slice(prefix.length))
    // Of this turn: what came before the last word of the user is history.
    const messages = json.messages ?? []
    const turn = messages.slice(messages.findLastIndex(({ role }) => role === "user") + 1)
    const found = turn.findLast(({ role }) => role === "tool")
    if (found !== undefined) result = found.content
    const use = wanted !== undefined && found === undefined && names.length > 0
    const send = events(response)
    const chunk = (delta, reason) =>
      send(undefined, {
        id: "x",
        object: "chat.completion.chunk",
        created: 1,
        model: json.model,
        choices: [{ index: 0, delta, finish_reason: reason ?? null }]
      })
    const call = use && { name: prefix + wanted.name, arguments: JSON.stringify(wanted.args) }
    chunk(
      use
        ? { role: "assistant", tool_calls: [{ index: 0, id: "c1", type: "function", function: call }] }
        : { role: "assistant", content: "done" }
    )
    chunk({}, use ? "tool_calls" : "stop")
    response.write("data: [DONE]\n\n")
    response.end()
  })
  writeFileSync(
    join(agent, "models.yml"),
    JSON.stringify({
      providers: {
        fake: {
          baseUrl: `http://127.0.0.1:${port}/v1`,
          apiKey: "none",
          api: "openai-completions",
          models: [
            {
              id: "fake-1",
              name: "Fake",
              reasoning: false,
              input: ["text"],
              cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
              contextWindow: 4_000_000,
              maxTokens: 4096
            }
          ]
        }
      }
    })
  )
  // Without xd:// devices, the tools stand in the model's own list.
  writeFileSync(join(agent, "config.yml"), JSON.stringify({ setupVersion: 2, tools: { xdev: false } }))
  const headers = { Authorization: `Bearer ${token}` }
  writeFileSync(
    join(agent, "mcp.json"),
    JSON.stringify({ mcpServers: { host: { type: "http", url, headers, timeout: 0 } } })
  )
  const child = spawn(process.env.BUN, [omp, "--mode", "rpc"], {
    cwd: work,
    env: { ...process.env },
    stdio: ["pipe", "pipe", "ignore"]
  })
  const ends = []
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (line.includes('"agent_end"')) ends.shift()?.()
  })
  const send = (message) => child.stdin.write(`${JSON.stringify(message)}\n`)
  const ask = (call, signal) =>
    new Promise((resolve) => {
      wanted = call
      result = undefined
      ends.push(() => resolve(result))
      signal?.addEventListener("abort", () => send({ type: "abort" }))
      send({ type: "prompt", message: "go" })
    })
  // The tools are there once its MCP client has connected, in the background.
  for (let i = 0; i < 20 && offered.length === 0; i++) {
    await ask(undefined)
    await new Promise((resolve) => setTimeout(resolve, 300))
  }
  return {
    list: async () => offered,
    call: async (name, args, signal) => {
      const found = await ask({ name, args }, signal)
      if (found === undefined) throw new Error("the model saw no result")
      return typeof found === "string" ? found : found.map((block) => block.text ?? "").join("")
    },
    close: async () => {
      child.stdin.end()
      server.close()
    },
    megabyte: "cut",
    cut: /\n\[…\d+B elided…\]\n|\n\n\[Showing head and tail [^\]]+\]$/,
    shown: (text) => text.replaceAll("\r\n", "\n").replaceAll(/[^\t\n\P{Cc}]/gu, ""),
    // The turn ends with what its model would see of a call that was given up.
    cancelGivesResult: true,
    notes: {
      unicode: "it shows its model the text without control characters; they had come whole",
      "1 MB": "back alone; it shows its model both ends, which are right",
      cancel: "by aborting the turn"
    }
  }
})
