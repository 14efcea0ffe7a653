import { MCPClient } from "@mastra/mcp"
import { run, textOf } from "./harness.mjs"

let made = 0

await run(async ({ token, url }) => {
  const client = new MCPClient({
    id: `matrix-${++made}`,
    servers: { host: { url: new URL(url), requestInit: { headers: { Authorization: `Bearer ${token}` } } } }
  })
  const tools = await client.listTools()
  return {
    list: async () => Object.keys(tools).map((name) => name.replace(/^host_/, "")),
    call: async (name, args, signal) => textOf(await tools[`host_${name}`].execute(args, { abortSignal: signal })),
    close: () => client.disconnect()
  }
})
