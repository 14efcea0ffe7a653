import { existsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, beforeAll, beforeEach, describe, it } from "vitest"
import { fakeModel, stall } from "../support/fakeModel.ts"
import type { McpClient } from "../support/mcpClient.ts"
import { mcpClient } from "../support/mcpClient.ts"
import type { Frame, Home, RpcOmp } from "../support/omp.ts"
import { freePort, listens, until, useLab } from "../support/omp.ts"

const alwaysAsk = { tools: { approvalMode: "always-ask" } }

const elapsed = async <A>(action: () => Promise<A>): Promise<{ readonly value: A; readonly millis: number }> => {
  const start = performance.now()
  return { value: await action(), millis: performance.now() - start }
}

describe("approval in rpc mode, where the program behind stdin answers", () => {
  const lab = useLab()
  let home: Home
  let omp: RpcOmp
  let url: string
  let client: McpClient

  beforeAll(async () => {
    home = lab.home({ config: alwaysAsk, bridge: { approval: { timeoutSeconds: 30 } } })
    omp = lab.rpc(home)
    url = await omp.url()
  })
  beforeEach(async () => {
    client = await mcpClient(url, home.token(), "colleague")
  })

  const touch = (name: string) => ({ command: `touch ${name}; echo made-${name}` })
  const made = (name: string) => existsSync(join(home.work, name))
  const dialog = (after: number, command: string): Promise<Frame> =>
    omp.frame(
      `a dialog about ${command}`,
      (frame) => frame["method"] === "select" && String(frame["title"]).includes(command),
      after
    )
  const answer = (frame: Frame, value: string) => omp.send({ type: "extension_ui_response", id: frame["id"], value })
  const setTimeoutSeconds = async (timeoutSeconds: number) => {
    const seen = omp.notices().length
    home.edit({ approval: { timeoutSeconds } })
    await omp.notice(/in force now: approval/, seen)
  }

  it("asks with the whole command and who wants it, and runs it once approved, not before", async () => {
    const seen = omp.frames().length
    const reply = client.call("bash", touch("approved"))
    const frame = await dialog(seen, "touch approved")
    assert.include(String(frame["title"]), "Remote call from colleague")
    assert.include(String(frame["title"]), "touch approved; echo made-approved")
    assert.deepStrictEqual(frame["options"], ["Approve", "Deny"])
    assert.isFalse(made("approved"))
    answer(frame, "Approve")
    assert.include((await reply).text, "made-approved")
    assert.isTrue(made("approved"))
  })

  it("does not ask a second time for what was approved", async () => {
    const seen = omp.frames().length
    const reply = client.call("bash", touch("once"))
    answer(await dialog(seen, "touch once"), "Approve")
    await reply
    assert.strictEqual(
      omp
        .frames()
        .slice(seen)
        .filter((frame) => frame["method"] === "select").length,
      1
    )
  })

  it("runs nothing where the answer is Deny, and says that it was denied", async () => {
    const seen = omp.frames().length
    const reply = client.call("bash", touch("denied"))
    answer(await dialog(seen, "touch denied"), "Deny")
    const { isError, text } = await reply
    assert.isTrue(isError)
    assert.match(text, /denied/)
    assert.isFalse(made("denied"))
  })

  it.each([
    ["an answer that was not offered", { value: "Whatever" }],
    ["a dismissed dialog", { cancelled: true }]
  ])("runs nothing on %s", async (_what, response) => {
    const seen = omp.frames().length
    const reply = client.call("bash", touch("dismissed"))
    const frame = await dialog(seen, "touch dismissed")
    omp.send({ type: "extension_ui_response", id: frame["id"], ...response })
    assert.isTrue((await reply).isError)
    assert.isFalse(made("dismissed"))
  })

  it("refuses after approval.timeoutSeconds without an answer, and says what to do", async () => {
    await setTimeoutSeconds(1)
    const { millis, value } = await elapsed(() => client.call("bash", touch("late")))
    assert.isTrue(value.isError)
    for (const hint of ["within 1 second", "approval.timeoutSeconds", "tools.approval.bash: allow"]) {
      assert.include(value.text, hint)
    }
    assert.isAbove(millis, 900)
    assert.isBelow(millis, 3000)
    assert.isFalse(made("late"))
    await setTimeoutSeconds(30)
  })

  it("takes the dialog back when the client goes away, and runs nothing on a late Approve", async () => {
    const seen = omp.frames().length
    const call = client.start("bash", touch("abandoned"))
    const frame = await dialog(seen, "touch abandoned")
    await call.drop()
    await omp.frame(
      "the dialog's withdrawal",
      (found) => found["method"] === "cancel" && found["targetId"] === frame["id"],
      seen,
      5000
    )
    answer(frame, "Approve")
    await until("the call's end in the audit log", () =>
      home.audit().some((record) => JSON.stringify(record).includes("abandoned") && record["outcome"] === "cancelled")
    )
    assert.isFalse(made("abandoned"))
  })

  it("does not let a waiting dialog block readers", async () => {
    writeFileSync(join(home.work, "f.txt"), "read without asking\n")
    const seen = omp.frames().length
    const waiting = client.start("bash", touch("waiting"))
    const frame = await dialog(seen, "touch waiting")
    const before = omp.frames().length
    assert.include((await client.call("read", { path: "f.txt" })).text, "read without asking")
    assert.isFalse(
      omp
        .frames()
        .slice(before)
        .some((found) => found["method"] === "select")
    )
    answer(frame, "Deny")
    await waiting.settled
  })

  it("asks for two calls, and gives each its own answer", async () => {
    const seen = omp.frames().length
    const yes = client.call("bash", touch("two-yes"))
    const first = await dialog(seen, "touch two-yes")
    const no = client.call("bash", touch("two-no"))
    answer(first, "Approve")
    answer(await dialog(seen, "touch two-no"), "Deny")
    assert.isFalse((await yes).isError)
    assert.isTrue((await no).isError)
    assert.isTrue(made("two-yes"))
    assert.isFalse(made("two-no"))
  })

  it("refuses bad arguments without asking anybody", async () => {
    const seen = omp.frames().length
    assert.isTrue((await client.call("bash", { cmd: "true" })).isError)
    assert.isFalse(
      omp
        .frames()
        .slice(seen)
        .some((frame) => frame["method"] === "select")
    )
  })
})

describe("the host's own policies", () => {
  const lab = useLab()

  it("deny is enforced for remote calls even under yolo, with the policy's text, and nothing runs", async () => {
    const home = lab.home({ config: { tools: { approvalMode: "yolo", approval: { bash: "deny", read: "prompt" } } } })
    const omp = lab.rpc(home)
    const client = await mcpClient(await omp.url(), home.token())
    const denied = await client.call("bash", { command: "touch never" })
    assert.isTrue(denied.isError)
    assert.match(denied.text, /bash/)
    assert.match(denied.text, /blocked|denied|policy/i)
    // omp's second way to a tool.
    await client.call("write", { path: "xd://bash", content: '{"command":"touch never"}' })
    assert.isFalse(existsSync(join(home.work, "never")))
    // The other way round: a reader that the user wants to see.
    const seen = omp.frames().length
    const reading = client.start("read", { path: "." })
    await omp.frame("a dialog about read", (frame) => frame["method"] === "select", seen)
    await reading.drop()
    await omp.stop()
  })
})

describe.each([
  ["print", ["-p"]],
  ["json", ["-p", "--mode", "json"]]
])("approval in %s mode, where nobody can be asked", (_mode, args) => {
  const lab = useLab()

  it("refuses a call that needs a person at once and says so; readers work", async () => {
    const model = fakeModel(() => stall)
    lab.onEnd(model.close)
    const port = await freePort()
    const home = lab.home({
      config: alwaysAsk,
      model: model.baseUrl,
      bridge: { port, token: "print-mode-token-0123456789" }
    })
    writeFileSync(join(home.work, "f.txt"), "readable in print mode\n")
    const omp = lab.omp(home, { args: [...args, "wait for ever"], stdin: "ignore" })
    await until(
      () => `a bridge on ${port}; ${omp.stderr()} ${omp.stdout()}`,
      () => listens(port)
    )
    const client = await mcpClient(`http://127.0.0.1:${port}`, home.token())
    const { millis, value } = await elapsed(() => client.call("bash", { command: "touch never" }))
    assert.isTrue(value.isError)
    assert.match(value.text, /nobody to ask/)
    assert.isBelow(millis, 2000)
    assert.isFalse(existsSync(join(home.work, "never")))
    assert.include((await client.call("read", { path: "f.txt" })).text, "readable in print mode")
    assert.notInclude(omp.stdout(), "A2A")
    assert.strictEqual(omp.exitCode(), undefined)
    omp.kill("SIGTERM")
    await omp.exited
    assert.isFalse(await listens(port))
  })
})
