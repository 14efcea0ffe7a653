import { MCPServerStreamableHttp } from "@openai/agents"
import { run } from "./harness.mjs"

await run(async ({ token, url }) => {
  const server = new MCPServerStreamableHttp({
    name: "host",
    url,
    requestInit: { headers: { Authorization: `Bearer ${token}` } }
  })
  await server.connect()
  return {
    list: async () => (await server.listTools()).map(({ name }) => name),
    call: async (name, args, signal) =>
      (await server.callTool(name, args, null, { signal })).map((block) => block.text ?? "").join(""),
    close: () => server.close()
  }
})
