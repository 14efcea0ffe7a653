import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"

const root = join(import.meta.dirname, "..")
const json = (path: string) =>
  JSON.parse(readFileSync(join(root, path), "utf8")) as {
    readonly version: string
    readonly dependencies: Readonly<Record<string, string>>
    readonly devDependencies: Readonly<Record<string, string>>
  }
const { dependencies, devDependencies } = json("package.json")
const pins = Object.entries({ ...dependencies, ...devDependencies })
const host = pins.filter(([name]) => name.startsWith("@oh-my-pi/"))
const effect = pins.filter(([name]) => name === "effect" || name.startsWith("@effect/"))

describe("the installed versions", () => {
  it("the host's packages are no longer pinned, so that nothing would be checked", () => {
    assert.include(
      host.map(([name]) => name),
      "@oh-my-pi/pi-coding-agent"
    )
    assert.include(
      effect.map(([name]) => name),
      "effect"
    )
    for (const [name] of host) assert.property(devDependencies, name)
  })

  it("the host's packages come from different releases", () => {
    assert.strictEqual(new Set(host.map(([, pin]) => pin)).size, 1)
  })

  it.each([...host, ...effect])("%s is not pinned, or installed in another version than its pin", (name, pin) => {
    assert.match(pin, /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/)
    assert.strictEqual(json(`node_modules/${name}/package.json`).version, pin)
  })
})
