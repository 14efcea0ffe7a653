import { createMCPClient } from "@ai-sdk/mcp"
import { run, textOf } from "./harness.mjs"

await run(async ({ token, url }) => {
  const client = await createMCPClient({
    transport: { type: "http", url, headers: { Authorization: `Bearer ${token}` } }
  })
  const tools = await client.tools()
  return {
    list: async () => Object.keys(tools),
    call: async (name, args, signal) =>
      textOf(await tools[name].execute(args, { messages: [], toolCallId: "1", abortSignal: signal })),
    close: () => client.close()
  }
})
