import { createRequire } from "node:module"
import { join } from "node:path"
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js"
import { run, textOf } from "./harness.mjs"

const folder = join(import.meta.dirname, "node_modules/mcp-remote")
const { bin } = createRequire(import.meta.url)(join(folder, "package.json"))

await run(async ({ token, url }) => {
  const client = new Client({ name: "mcp-remote-matrix", version: "1" })
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: [join(folder, bin["mcp-remote"]), url, "--allow-http", "--header", `Authorization:Bearer ${token}`],
      env: { ...process.env, MCP_REMOTE_CONFIG_DIR: join(process.env.HOME, ".mcp-auth") },
      stderr: "ignore"
    })
  )
  return {
    list: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async (name, args, signal) => textOf(await client.callTool({ name, arguments: args }, undefined, { signal })),
    close: () => client.close()
  }
})
