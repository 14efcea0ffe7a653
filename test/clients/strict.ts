import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { endAll } from "./processes.ts"

export interface Strict {
  readonly era: string
  readonly outcome: "pass" | "fail"
  readonly note: string
}

const eras = ["legacy", "modern"]
const patienceMillis = 60_000

/**
 * The Inspector's `--strict` looks at schemas, and those of the fixture say little: here it looks at those of a real omp,
 * headless, as `bun start` runs it. A list without its tools, or a portability error, is a failure.
 */
export const strictOverOmp = async (root: string, here: string): Promise<ReadonlyArray<Strict>> => {
  const home = mkdtempSync(join(tmpdir(), "pi-a2a-strict-"))
  const env = { PATH: process.env["PATH"] ?? "", HOME: home, NO_COLOR: "1" }
  const work = join(home, "work")
  const said = join(home, "said")
  mkdirSync(work)
  Bun.spawn([process.execPath, join(root, "bin/pi-a2a.ts"), "host", "--state", join(home, "state")], {
    cwd: work,
    env,
    stdin: "ignore",
    stdout: Bun.file(said),
    stderr: Bun.file(join(home, "errors"))
  })
  try {
    const deadline = performance.now() + patienceMillis
    let address: RegExpExecArray | null = null
    while (address === null) {
      if (performance.now() > deadline)
        throw new Error(`omp did not start: ${readFileSync(join(home, "errors"), "utf8")}`)
      await Bun.sleep(100)
      address = /"url": "([^"]+)"[\s\S]*"Authorization": "([^"]+)"/.exec(
        existsSync(said) ? readFileSync(said, "utf8") : ""
      )
    }
    const [, url = "", authorization = ""] = address
    const out: Array<Strict> = []
    for (const era of eras) {
      const inspector = Bun.spawn(
        [
          join(root, "node_modules/.bin/node"),
          join(here, "node_modules/.bin/mcp-inspector"),
          "--cli",
          url,
          "--transport",
          "http",
          "--protocol-era",
          era,
          "--header",
          `Authorization: ${authorization}`,
          "--method",
          "tools/list",
          "--strict"
        ],
        { cwd: work, env, stdin: "ignore", stdout: "pipe", stderr: "pipe", timeout: patienceMillis }
      )
      const [listed, report] = await Promise.all([
        new Response(inspector.stdout).text(),
        new Response(inspector.stderr).text()
      ])
      const code = await inspector.exited
      const names: ReadonlyArray<string> =
        code === 0 ? JSON.parse(listed).tools.map((tool: { name: string }) => tool.name) : []
      const whole = ["bash", "edit", "read", "write"].every((name) => names.includes(name))
      const findings = /^\d+ errors?, \d+ warnings? across.*$/m.exec(report)?.[0] ?? "no findings."
      const where = [...report.matchAll(/^(?:Error|Warning): (.+)\n\s+Path: (.+)$/gm)].map(
        ([, tool, path]) => `${tool}, ${path}`
      )
      out.push({
        era,
        outcome: code === 0 && whole ? "pass" : "fail",
        note:
          code === 0
            ? `${names.length} tools, ${findings.slice(0, -1)}${where.length === 0 ? "" : ` (${where.join("; ")})`}`
            : `exit code ${code}: ${report.slice(0, 600)}`
      })
    }
    return out
  } catch (error) {
    return [{ era: "-", outcome: "fail", note: String(error) }]
  } finally {
    await endAll(home, 0)
    rmSync(home, { recursive: true, force: true })
  }
}
