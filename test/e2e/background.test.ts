import { assert, beforeAll, describe, it } from "vitest"
import type { FakeModel } from "../support/fakeModel.ts"
import { call, fakeModel, say } from "../support/fakeModel.ts"
import type { McpClient } from "../support/mcpClient.ts"
import { mcpClient } from "../support/mcpClient.ts"
import type { Home, RpcOmp } from "../support/omp.ts"
import { running, uniqueSeconds, until, useLab } from "../support/omp.ts"

describe("a command that the host moves to the background", () => {
  const lab = useLab()
  let home: Home
  let omp: RpcOmp
  let model: FakeModel
  let client: McpClient

  beforeAll(async () => {
    model = fakeModel(({ last }) =>
      last.includes("run your own") ? call("bash", { command: "sleep 1; echo own-$(echo end)" }) : say("seen")
    )
    lab.onEnd(model.close)
    home = lab.home({ model: model.baseUrl, config: { bash: { autoBackground: { enabled: true, thresholdMs: 300 } } } })
    omp = lab.rpc(home)
    client = await mcpClient(await omp.url(), home.token())
  })

  it("still gives its whole output to the caller, and does not wake the host's model", async () => {
    const command = `echo first-from-a-client; sleep 2; echo last-from-a-client`
    const reply = await client.call("bash", { command })
    assert.isFalse(reply.isError, reply.text)
    assert.include(reply.text, "first-from-a-client")
    assert.include(reply.text, "last-from-a-client")
    assert.notMatch(reply.text, /Backgrounded as job/)
    assert.strictEqual(model.requests.length, 0)
  })

  it("wakes the host's model where that started it itself, and only then", async () => {
    await omp.request({ type: "prompt", message: "run your own" })
    const woken = await until("the model is woken", () => model.requests.find(({ last }) => /own-end/.test(last)))
    // Or the tests here would pass on a host that moves nothing to the background.
    assert.isTrue(model.requests.some(({ last, lastRole }) => lastRole === "tool" && /background/i.test(last)))
    assert.isAbove(model.requests.indexOf(woken), 1)
    for (const request of model.requests) assert.notInclude(JSON.stringify(request.messages), "from-a-client")
  })

  it("is still an error where it fails", async () => {
    const reply = await client.call("bash", { command: "echo before-failing; sleep 1; exit 7" })
    assert.include(reply.text, "before-failing")
    assert.isTrue(reply.isError, reply.text)
  })

  it("is killed when its client goes away after it was moved", async () => {
    const seconds = uniqueSeconds()
    const started = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
    await until("the command runs", () => running("/usr/bin/sleep", seconds))
    // The next command's own way through the background takes longer than the first one's into it.
    await client.call("bash", { command: "sleep 1; echo later" })
    assert.isTrue(running("/usr/bin/sleep", seconds))
    await started.drop()
    await until("the command is gone", () => !running("/usr/bin/sleep", seconds), 5000)
  })

  it("is killed when the host stops", async () => {
    const seconds = uniqueSeconds()
    const started = client.start("bash", { command: `/usr/bin/sleep ${seconds}` })
    await until("the command runs", () => running("/usr/bin/sleep", seconds))
    await client.call("bash", { command: "sleep 1; echo later" })
    assert.strictEqual(await omp.stop(), 0)
    await started.settled
    await until("the command is gone", () => !running("/usr/bin/sleep", seconds), 2000)
    assert.strictEqual(omp.stderr(), "")
  })
})
