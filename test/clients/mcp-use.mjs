import { MCPClient } from "mcp-use"
import { run, textOf } from "./harness.mjs"

await run(async ({ token, url }) => {
  const client = MCPClient.fromDict({ mcpServers: { host: { url, headers: { Authorization: `Bearer ${token}` } } } })
  const session = await client.createSession("host")
  return {
    list: async () => (await session.listTools()).map(({ name }) => name),
    call: async (name, args, signal) => textOf(await session.callTool(name, args, { signal })),
    close: () => client.closeAllSessions()
  }
})
