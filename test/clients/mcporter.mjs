import { createRuntime } from "mcporter"
import { run, textOf } from "./harness.mjs"

await run(async ({ token, url }) => {
  const runtime = await createRuntime({
    servers: [
      {
        name: "host",
        command: { kind: "http", url: new URL(url), headers: { Authorization: `Bearer ${token}` } }
      }
    ]
  })
  return {
    list: async () => (await runtime.listTools("host")).map(({ name }) => name),
    call: async (name, args) => textOf(await runtime.callTool("host", name, { args })),
    close: () => runtime.close(),
    whyNotCancel: "its API takes a timeout, no signal"
  }
})
