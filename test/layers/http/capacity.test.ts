import { assert, describe, it } from "vitest"
import { failure, makeGate, noStrayErrors, resultOf, rpcOf, saidBy, startBridge, until } from "../../support/bridge.ts"

/** 64 sessions, and what happens at the 65th. */

noStrayErrors()

const capacity = 64
const initialize = { protocolVersion: "2025-11-25", capabilities: {} }

describe("sessions without a place", () => {
  it(
    "end a session with a call in flight, or are refused without a word on when to come back",
    { timeout: 20_000 },
    async () => {
      const gate = makeGate()
      await using bridge = await startBridge({ tools: () => [gate.tool] })
      const sessions = await Promise.all(Array.from({ length: capacity }, () => bridge.open()))
      const calls = sessions.map((session, id) => bridge.call(session, "hold", {}, id))
      await until("all run", () => gate.started.length === capacity, 10_000)
      const refused = await bridge.rpc("initialize", initialize)
      assert.deepStrictEqual(failure(refused), { status: 503, code: -32000, id: 1 })
      assert.strictEqual(refused.headers["retry-after"], "1")
      assert.notProperty(refused.headers, "mcp-session-id")
      assert.include(rpcOf(refused).error?.message, String(capacity))
      assert.isEmpty(gate.aborted)
      // The refusal is of a place alone: whoever has one is served.
      assert.deepStrictEqual(resultOf(await bridge.rpc("ping", {}, sessions[0])), {})

      gate.releaseOne()
      await Promise.race(calls)
      const opened = await until("a place is free", async () => {
        const answer = await bridge.rpc("initialize", initialize)
        return answer.status === 200 && answer
      })
      assert.isString(opened.headers["mcp-session-id"])
      gate.release()
      for (const [id, answer] of (await Promise.all(calls)).entries()) {
        assert.strictEqual(rpcOf(answer).id, id)
        assert.strictEqual(saidBy(answer), "released")
      }
    }
  )

  it("take the place of another than the least recently used", async () => {
    await using bridge = await startBridge()
    const alive = async (session: Readonly<Record<string, string>>) =>
      (await bridge.rpc("ping", {}, session)).status === 200
    const sessions: Array<Readonly<Record<string, string>>> = []
    for (let i = 0; i < capacity; i++) {
      const began = performance.now()
      sessions.push(await bridge.open())
      // Sessions of one millisecond are equally old.
      if (i < 3) await until("the next millisecond", () => performance.now() - began > 2)
    }
    const [first = {}, second = {}, third = {}] = sessions
    assert.isTrue(await alive(first))
    await bridge.open()
    assert.isFalse(await alive(second), "the least recently used stayed")
    assert.isTrue(await alive(first), "one that was used just now went")
    await bridge.open()
    assert.isFalse(await alive(third))
    assert.isTrue(await alive(first))
  })

  it("are counted with those that DELETE has ended", async () => {
    await using bridge = await startBridge()
    const first = await bridge.open()
    const authorization = bridge.good.authorization
    for (let i = 0; i < capacity + 1; i++) {
      const headers = { authorization, ...(await bridge.open()) }
      assert.strictEqual((await bridge.fetch("/mcp", { method: "DELETE", headers })).status, 204)
    }
    assert.deepStrictEqual(resultOf(await bridge.rpc("ping", {}, first)), {})
  })
})
