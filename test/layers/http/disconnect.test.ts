import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TestBridge } from "../../support/bridge.ts"
import {
  makeGate,
  noStrayErrors,
  rawRequest,
  resultOf,
  rpcOf,
  saidBy,
  startBridge,
  until
} from "../../support/bridge.ts"
import { echo } from "../../support/fakeHost.ts"
import { modern } from "../../support/modern.ts"
import { openStream } from "../../support/sse.ts"

/**
 * Clients that go away without a word. Legacy: a second of grace, in which they may come back. Modern: at once, which
 * is before a legacy call that was dropped earlier: the one is the other's clock, however slow the machine.
 */

noStrayErrors()

const gate = makeGate()
const own = makeGate("hold_modern")
let bridge: TestBridge

beforeAll(async () => {
  bridge = await startBridge({ tools: () => [echo, gate.tool, own.tool] })
})
afterAll(() => bridge[Symbol.asyncDispose]())

const callBody = (id: unknown) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name: "hold", arguments: {} }
})

/** Starts a call on a connection of its own, drops that once the tool runs, and says how long the tool went on. */
const dropped = async (headers: Readonly<Record<string, string>>, body: unknown): Promise<number> => {
  const runs = gate.started.length
  const ended = gate.aborted.length
  const connection = await bridge.connect()
  await connection.send(rawRequest("POST", "/mcp", { ...bridge.good, ...headers }, JSON.stringify(body)))
  await until("the tool runs", () => gate.started.length === runs + 1)
  const at = performance.now()
  connection.destroy()
  await until("the tool's signal fires", () => gate.aborted.length === ended + 1, 6000)
  return (gate.aborted.at(-1) ?? 0) - at
}

describe("a dropped connection", () => {
  it("ends a legacy call at once, or never", { timeout: 15_000 }, async () => {
    for (const accept of ["application/json", "application/json, text/event-stream"]) {
      const session = await bridge.open()
      assert.isAtLeast(await dropped({ ...session, accept }, callBody(1)), 900, accept)
      assert.deepStrictEqual(resultOf(await bridge.rpc("ping", {}, session)), {})
    }
  })

  /** Drops a legacy call, then a modern one, and checks that the modern one ends first. */
  const race = async (start: (body: string, headers: Readonly<Record<string, string>>) => Promise<() => void>) => {
    const legacyRuns = gate.started.length
    const legacyEnds = gate.aborted.length
    const modernEnds = own.aborted.length
    const session = await bridge.open()
    const legacy = await bridge.connect()
    await legacy.send(rawRequest("POST", "/mcp", { ...bridge.good, ...session }, JSON.stringify(callBody(1))))
    await until("the legacy tool runs", () => gate.started.length === legacyRuns + 1)
    const { body, headers } = modern("tools/call", { name: "hold_modern", arguments: {} })
    const drop = await start(JSON.stringify(body), headers)
    legacy.destroy()
    drop()
    await until("both signals fire", () => gate.aborted.length > legacyEnds && own.aborted.length > modernEnds, 6000)
    assert.isBelow(own.aborted.at(-1) ?? Infinity, gate.aborted.at(-1) ?? 0)
  }

  it("gives a modern call a grace", () =>
    race(async (body, headers) => {
      const runs = own.started.length
      const connection = await bridge.connect()
      await connection.send(rawRequest("POST", "/mcp", { ...bridge.good, ...headers }, body))
      await until("the modern tool runs", () => own.started.length === runs + 1)
      return connection.destroy
    }))

  it("gives a modern call a grace that had become a stream", { timeout: 15_000 }, () =>
    race(async (body, headers) => {
      const stream = await openStream(`${bridge.url}/mcp`, {
        method: "POST",
        headers: { ...headers, authorization: bridge.good.authorization },
        body
      })
      return stream.drop
    })
  )

  it("ends other calls than its own", async () => {
    const session = await bridge.open()
    const runs = gate.started.length
    const stays = bridge.call(session, "hold", {}, 1)
    await until("the first runs", () => gate.started.length === runs + 1)
    await dropped(session, callBody(2))
    gate.release()
    assert.strictEqual(saidBy(await stays), "released")
  })

  it("is told of in the audit log as anything but a cancelled call", async () => {
    const session = await bridge.open()
    await dropped(session, callBody(1))
    const records = await until("the record is written", () => {
      const own = bridge.audit().filter(({ sid }) => sid === session["mcp-session-id"])
      return own.length > 1 && own
    })
    assert.deepStrictEqual(
      records.map(({ outcome, phase }) => [phase, outcome]),
      [
        ["start", undefined],
        ["done", "cancelled"]
      ]
    )
  })

  it("that is closed on one side only keeps its call for ever", async () => {
    const session = await bridge.open()
    const runs = gate.started.length
    const ended = gate.aborted.length
    await using connection = await bridge.connect()
    await connection.send(rawRequest("POST", "/mcp", { ...bridge.good, ...session }, JSON.stringify(callBody("half"))))
    await until("the tool runs", () => gate.started.length === runs + 1)
    connection.halfClose()
    await until("the tool's signal fires", () => gate.aborted.length === ended + 1)
    assert.deepStrictEqual(resultOf(await bridge.rpc("ping", {}, session)), {})
  })
})

describe("many at a time", () => {
  it("crosses the answers of equal ids in two sessions that share their connections", async () => {
    const sessions = [await bridge.open(), await bridge.open("2025-06-18")]
    const good = (who: number) => ({ ...bridge.good, ...sessions[who] })
    await Promise.all(
      Array.from({ length: 4 }, async (_, pool) => {
        await using connection = await bridge.connect()
        const rounds = Array.from({ length: 12 }, (__, n) => ({ who: n % 2, id: n >> 1 }))
        const word = (who: number, id: number) => `connection ${pool}, session ${who}, id ${id}`
        const requests = rounds.map(({ id, who }) =>
          rawRequest(
            "POST",
            "/mcp",
            good(who),
            JSON.stringify({
              jsonrpc: "2.0",
              id,
              method: "tools/call",
              params: { name: "echo", arguments: { text: word(who, id) } }
            })
          )
        )
        await connection.send(requests.join(""))
        for (const { id, who } of rounds) {
          const answer = await connection.next()
          assert.strictEqual(rpcOf(answer).id, id)
          assert.strictEqual(saidBy(answer), word(who, id))
        }
      })
    )
  })

  it("gives the calls of one session the end of another's, by an id that both use", async () => {
    const [one, two] = [await bridge.open(), await bridge.open()]
    const runs = gate.started.length
    const ended = gate.aborted.length
    const calls = [bridge.call(one, "hold", {}, 7), bridge.call(two, "hold", {}, 7)]
    await until("both run", () => gate.started.length === runs + 2)
    const remove = await bridge.fetch("/mcp", {
      method: "DELETE",
      headers: { authorization: bridge.good.authorization, ...one }
    })
    assert.strictEqual(remove.status, 204)
    await until("the first ends", () => gate.aborted.length === ended + 1)
    gate.release()
    const [first, second] = await Promise.all(calls)
    assert.deepStrictEqual([first?.status, first?.text], [202, ""])
    assert(second !== undefined)
    assert.strictEqual(saidBy(second), "released")
    assert.lengthOf(gate.aborted, ended + 1)
  })
})
