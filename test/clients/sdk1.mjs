import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import { run, textOf } from "./harness.mjs"

await run(async ({ token, url }) => {
  const client = new Client({ name: "sdk1", version: "1" })
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } })
  )
  return {
    list: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async (name, args, signal) => textOf(await client.callTool({ name, arguments: args }, undefined, { signal })),
    close: () => client.close()
  }
})
