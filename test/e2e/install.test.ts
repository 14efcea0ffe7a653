import { cpSync, existsSync, lstatSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "vitest"
import { mcpClient } from "../support/mcpClient.ts"
import type { Home, RpcOmp } from "../support/omp.ts"
import { root, useLab } from "../support/omp.ts"

const listening = (omp: RpcOmp) => omp.notices().filter(({ text }) => /A2A bridge listening/.test(text))

/** What a user has after cloning and `bun install`: the published files, and the dependencies. */
const checkout = (home: Home): string => {
  const target = join(home.dir, "checkout")
  for (const name of ["extensions", "src", "package.json"]) {
    cpSync(join(root, name), join(target, name), { recursive: true })
  }
  symlinkSync(join(root, "node_modules"), join(target, "node_modules"))
  return target
}

describe("omp install", () => {
  const lab = useLab()

  it("of a checkout gives a bridge that serves, and linking it besides does not give a second one", async () => {
    const home = lab.home({ link: false })
    const path = checkout(home)
    const install = lab.omp(home, { args: ["install", path] })
    install.closeStdin()
    assert.strictEqual(await install.exited, 0, install.stderr())
    const installed = join(home.dir, ".omp/plugins/node_modules/pi-a2a-ext")
    assert.isTrue(existsSync(installed), install.stdout())
    assert.isTrue(lstatSync(installed).isSymbolicLink())

    const serves = async () => {
      const omp = lab.rpc(home)
      const url = await omp.url()
      const client = await mcpClient(url, home.token())
      writeFileSync(join(home.work, "f.txt"), "served when installed\n")
      assert.include((await client.call("read", { path: "f.txt" })).text, "served when installed")
      assert.include((await omp.slash("/a2a")).text, url)
      assert.strictEqual(listening(omp).length, 2)
      assert.strictEqual(await omp.stop(), 0)
      assert.strictEqual(omp.stderr(), "")
      assert.notMatch(home.log(), /unhandled/i)
    }
    await serves()
    symlinkSync(join(path, "extensions/a2a-bridge.ts"), join(home.agent, "extensions/a2a-bridge.ts"))
    await serves()
  })

  it("works from a path that holds spaces and letters that a URL escapes", async () => {
    const home = lab.home({ link: false })
    const odd = join(home.dir, "my päth #1 100%")
    cpSync(checkout(home), odd, { recursive: true, verbatimSymlinks: true })
    symlinkSync(join(odd, "extensions/a2a-bridge.ts"), join(home.agent, "extensions/a2a-bridge.ts"))
    const omp = lab.rpc(home)
    assert.include(await (await mcpClient(await omp.url(), home.token())).names(), "read")
    assert.strictEqual(await omp.stop(), 0)
  })
})
