import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import {
  callResultOf,
  failure,
  makeGate,
  noStrayErrors,
  resultOf,
  rpcOf,
  startBridge,
  until
} from "../../support/bridge.ts"
import { echo, text } from "../../support/fakeHost.ts"

noStrayErrors()

const maxResultBytes = 16 * 1024
const gate = makeGate()
let bridge: TestBridge

beforeAll(async () => {
  bridge = await startBridge({
    config: { rateLimit: { concurrentCalls: 2 }, maxResultBytes },
    tools: () => [echo, gate.tool, { ...echo, name: "long", run: async () => text("é".repeat(maxResultBytes)) }]
  })
})
afterAll(() => bridge[Symbol.asyncDispose]())

describe("calls at a time", () => {
  it("runs more than the limit, tells a client nothing of when to come back, or counts ended ones", async () => {
    const session = await bridge.open()
    const other = await bridge.open()
    const running = [bridge.call(session, "hold", {}, 1), bridge.call(other, "hold", {}, 2)]
    await until("both run", () => gate.started.length === 2)
    const refused = await bridge.call(session, "echo", { text: "x" }, 3)
    assert.deepStrictEqual(failure(refused), { status: 429, code: -32000, id: 3 })
    assert.strictEqual(refused.headers["retry-after"], "1")
    assert.match(rpcOf(refused).error?.message ?? "", /2 calls .*rateLimit\.concurrentCalls/)
    assert.property(resultOf(await bridge.rpc("tools/list", {}, session)), "tools")
    gate.release()
    await Promise.all(running)
    assert.isFalse(callResultOf(await bridge.call(session, "echo", { text: "x" }, 4)).isError)
  })
})

describe("results that are too large", () => {
  const call = async (version: string) => {
    const session = await bridge.open(version)
    return { session, result: callResultOf(await bridge.call(session, "long")) }
  }

  it("sends the whole, or a link that leads nowhere", async () => {
    const { result, session } = await call("2025-11-25")
    const [preview, link] = result.content as ReadonlyArray<Record<string, unknown>>
    assert.include(String(preview?.["text"]), String(link?.["uri"]))
    assert(link !== undefined)
    assert.strictEqual(link["type"], "resource_link")
    const read = resultOf(await bridge.rpc("resources/read", { uri: link["uri"] }, session))
    const [contents] = read["contents"] as ReadonlyArray<{ readonly text: string }>
    assert.strictEqual(contents?.text, "é".repeat(maxResultBytes))
    const { resources } = resultOf(await bridge.rpc("resources/list", {}, session)) as {
      readonly resources: ReadonlyArray<{ readonly uri: string; readonly size: number }>
    }
    assert.strictEqual(resources.find(({ uri }) => uri === link["uri"])?.size, 2 * maxResultBytes)
    const { resourceTemplates } = resultOf(await bridge.rpc("resources/templates/list", {}, session)) as {
      readonly resourceTemplates: ReadonlyArray<{ readonly uriTemplate: string }>
    }
    assert.include(
      resourceTemplates.map(({ uriTemplate }) => uriTemplate),
      "result://{id}{?offset,length}"
    )
  })

  it("sends a resource_link to a client of a revision that has none", async () => {
    const { result } = await call("2025-03-26")
    assert.deepStrictEqual(
      result.content.map(({ type }) => type),
      ["text", "text"]
    )
    assert.match(result.content[1]?.text ?? "", /^long result: result:\/\//)
  })
})
