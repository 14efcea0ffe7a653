/**
 * The official conformance suite against the product's server, every requirement of both current revisions, scored or
 * not. Prints the suite's own summary, then `N passed, N failed` (its checks).
 */
import { join } from "node:path"

const root = join(import.meta.dir, "../..")
const node = join(root, "node_modules/node/bin/node")
const suite = join(root, "node_modules/@modelcontextprotocol/conformance/dist/index.js")

const server = Bun.spawn([process.execPath, join(import.meta.dir, "serve.ts")], {
  stdin: "pipe",
  stdout: "pipe",
  stderr: "inherit"
})

const firstLine = async (): Promise<string> => {
  let text = ""
  for await (const chunk of server.stdout.pipeThrough(new TextDecoderStream())) {
    text += chunk
    if (text.includes("\n")) break
  }
  return text.trim()
}

const [url, token] = (await firstLine()).split(" ")
if (url === undefined || token === undefined) throw new Error("the fixture server did not start")

let passed = 0
let failed = 0
for (const revision of ["2025-11-25", "2026-07-28"]) {
  const run = Bun.spawn(
    [node, "--import", join(import.meta.dir, "bearer.mjs"), suite, "server", "--url", url, "--requirements", revision],
    { cwd: root, env: { ...process.env, MCP_TOKEN: token }, stdin: "ignore", stdout: "pipe", stderr: "pipe" }
  )
  const [output, complaint] = await Promise.all([new Response(run.stdout).text(), new Response(run.stderr).text()])
  const code = await run.exited
  const summary = output.slice(Math.max(0, output.indexOf("=== SUMMARY ===")))
  console.log(`== conformance ${revision}\n${summary}`)
  const total = /^Total: (\d+) passed, (\d+) failed$/m.exec(summary)
  const unscored = /scenario\(s\) run, (\d+) failing/.exec(summary)
  passed += Number(total?.[1] ?? 0)
  failed += Number(total?.[2] ?? 0) + Number(unscored?.[1] ?? 0)
  // No total, or a failing exit that the total does not explain, is a failure of its own.
  if (total === null || unscored === null || (code !== 0 && failed === 0)) {
    failed++
    console.log(output.slice(-4000), complaint.slice(-4000))
  }
}
await server.stdin.end()
await server.exited
console.log(`\n${passed} passed, ${failed} failed`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
