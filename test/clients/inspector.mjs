import { spawn } from "node:child_process"
import { join } from "node:path"
import { run, textOf } from "./harness.mjs"

const era = process.argv[2]
const cli = join(import.meta.dirname, "node_modules/.bin/mcp-inspector")

await run(async ({ token, url }) => {
  const bearer = `Authorization: Bearer ${token}`
  const inspect = (args, signal) =>
    new Promise((resolve, reject) => {
      const child = spawn(
        process.execPath,
        [cli, "--cli", url, "--transport", "http", "--protocol-era", era, "--header", bearer, ...args],
        { env: { ...process.env }, stdio: ["ignore", "pipe", "pipe"] }
      )
      let out = ""
      let errors = ""
      child.stdout.on("data", (chunk) => (out += chunk))
      child.stderr.on("data", (chunk) => (errors += chunk))
      // Its only way to cancel: Ctrl-C, or the end of the process.
      signal?.addEventListener("abort", () => child.kill("SIGINT"))
      child.on("close", (code) => {
        if (code !== 0) return reject(new Error(`code ${code}: ${errors}${out}`.slice(0, 1500)))
        try {
          resolve(JSON.parse(out))
        } catch {
          reject(new Error(`no JSON: ${out.slice(0, 300)}`))
        }
      })
    })
  await inspect(["--method", "tools/list", "--strict"])
  return {
    list: async () => (await inspect(["--method", "tools/list", "--strict"])).tools.map(({ name }) => name),
    call: async (name, args, signal) =>
      textOf(
        await inspect(["--method", "tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(args)], signal)
      ),
    close: async () => undefined,
    megabyte: "result",
    oneShot: true,
    notes: { "1 MB": "back alone: a command line takes no argument of that size", cancel: "by Ctrl-C" }
  }
})
