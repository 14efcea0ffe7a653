import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client"
import { run, textOf } from "./harness.mjs"

const mode = process.argv[2]

await run(async ({ token, url }) => {
  const client = new Client(
    { name: "client2", version: "1" },
    { versionNegotiation: { mode: mode === "modern" ? { pin: "2026-07-28" } : mode } }
  )
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } })
  )
  return {
    list: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async (name, args, signal) => textOf(await client.callTool({ name, arguments: args }, { signal })),
    close: () => client.close()
  }
})
