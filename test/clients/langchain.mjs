import { MultiServerMCPClient } from "@langchain/mcp-adapters"
import { run } from "./harness.mjs"

await run(async ({ token, url }) => {
  const client = new MultiServerMCPClient({
    mcpServers: { host: { transport: "http", url, headers: { Authorization: `Bearer ${token}` } } }
  })
  const tools = await client.getTools()
  const byName = (name) => tools.find((tool) => tool.name === name)
  return {
    list: async () => tools.map(({ name }) => name),
    call: async (name, args, signal) => {
      const result = await byName(name).invoke(args, { signal })
      return typeof result === "string" ? result : result.map((block) => block.text ?? "").join("")
    },
    close: () => client.close()
  }
})
