import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Config from "../src/services/Config.ts"
import { table } from "../src/layers/http/mcpErrors.ts"

const root = join(import.meta.dirname, "..")
const read = (path: string) => readFileSync(join(root, path), "utf8")

/** Those of the bridge stand in the README, those of jobs beside them. */
const settings = () => read("README.md") + read("docs/configuration.md")

describe("what the documents say of the code", () => {
  it("docs/a2a-bridge.schema.json is what the schema generates (bun run schema writes it)", () => {
    assert.deepStrictEqual(
      JSON.parse(read("docs/a2a-bridge.schema.json")),
      JSON.parse(JSON.stringify(Config.jsonSchema()))
    )
  })

  it("docs/protocol.md lists every failure with the status and code that the table has", () => {
    const rows = new Map(
      [...read("docs/protocol.md").matchAll(/^\| `(\w+)` +\| (\d+) +\| (-\d+) +\|/gm)].map((row) => [
        row[1],
        [Number(row[2]), Number(row[3])]
      ])
    )
    for (const [tag, [status, code]] of Object.entries(table))
      assert.deepStrictEqual(rows.get(tag), [status, code], tag)
    assert.strictEqual(rows.size, Object.keys(table).length)
  })

  it("README.md and docs/configuration.md list every environment variable that overrides a field", () => {
    const readme = settings()
    for (const variable of Object.keys(Config.environment)) assert.include(readme, `\`${variable}\``)
  })

  it("README.md and docs/configuration.md list every setting", () => {
    const readme = settings()
    for (const field of Object.keys(Config.ConfigFile.fields)) {
      if (field !== "$schema") assert.match(readme, new RegExp(`\`${field}(\\.\\w+)?\``), field)
    }
  })

  it("src names no host module but in `import type`", () => {
    const glob = new Bun.Glob("src/**/*.ts")
    for (const path of glob.scanSync({ cwd: root })) {
      for (const line of read(path).split("\n")) {
        if (/(from|import\()\s*["']@oh-my-pi\//.test(line)) assert.match(line, /import type/, path)
      }
    }
  })
})
