/**
 * The whole check, as CI runs it: types, lint and format, unit and property tests, the real omp end to end, and the
 * official conformance suite.
 * Ends with `N passed, N failed` from the runners' own counts.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const root = join(import.meta.dir, "..")
const scratch = mkdtempSync(join(tmpdir(), "pi-a2a-test-"))

interface Report {
  readonly numPassedTests: number
  readonly numFailedTests: number
  readonly numTotalTests: number
  readonly success: boolean
}

const run = async (title: string, command: ReadonlyArray<string>): Promise<boolean> => {
  console.log(`\n== ${title}`)
  const child = Bun.spawn([...command], { cwd: root, stdin: "ignore", stdout: "inherit", stderr: "inherit" })
  return (await child.exited) === 0
}

const check = async (title: string, command: ReadonlyArray<string>) => {
  const ok = await run(title, command)
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1 }
}

const suite = async (project: string) => {
  const file = join(scratch, `${project}.json`)
  const ok = await run(project, [
    process.execPath,
    "--bun",
    join(root, "node_modules/.bin/vitest"),
    "run",
    "--project",
    project,
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${file}`
  ])
  try {
    const report = JSON.parse(readFileSync(file, "utf8")) as Report
    // A file that cannot be loaded fails the run without a failed test to its name.
    const failed = ok ? report.numFailedTests : Math.max(1, report.numFailedTests)
    return { passed: report.numPassedTests, failed }
  } catch {
    return { passed: 0, failed: 1 }
  }
}

/** A script that ends with its own `N passed, N failed`. */
const counted = async (title: string, script: string) => {
  console.log(`\n== ${title}`)
  const child = Bun.spawn([process.execPath, join(root, script)], {
    cwd: root,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit"
  })
  const output = await new Response(child.stdout).text()
  process.stdout.write(output)
  const counts = /^(\d+) passed, (\d+) failed$/m.exec(output)
  const ok = (await child.exited) === 0
  const failed = Number(counts?.[2] ?? 0)
  return { passed: Number(counts?.[1] ?? 0), failed: ok && counts !== null ? failed : Math.max(1, failed) }
}

const only = process.argv.slice(2)
const wanted = (name: string) => only.length === 0 || only.includes(name)
const counts = []
if (wanted("typecheck")) counts.push(await check("typecheck", [process.execPath, "run", "typecheck"]))
if (wanted("lint")) counts.push(await check("lint", [process.execPath, "run", "lint"]))
if (wanted("unit")) counts.push(await suite("unit"))
if (wanted("e2e")) counts.push(await suite("e2e"))
if (wanted("conformance")) counts.push(await counted("conformance", "test/conformance/run.ts"))
rmSync(scratch, { recursive: true, force: true })

const passed = counts.reduce((sum, count) => sum + count.passed, 0)
const failed = counts.reduce((sum, count) => sum + count.failed, 0)
console.log(`\n${passed} passed, ${failed} failed`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
