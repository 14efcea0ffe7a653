/**
 * What every client is put through. A client's file gives `connect`; this says how it went, a JSON line a check, to the
 * driver (run.ts), which owns the bridge and looks at it from the other side.
 */
import assert from "node:assert/strict"
import { createInterface } from "node:readline"

const { MCP_TOKEN: token, MCP_URL: url } = process.env
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

const say = (message) => process.stdout.write(`@@${JSON.stringify(message)}\n`)

export const unicode = "naïve Straße 漢字かな 한글 العربية עברית 👩‍👩‍👧‍👦 e\u0301 \u{1F600} \u2028 \ufffd tab\tend"
const megabyte = "0123456789abcdef".repeat(65_536)

export const tools = ["echo", "hold", "count", "big"]

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis))

const within = (millis, what, promise) =>
  Promise.race([
    promise,
    sleep(millis).then(() => {
      throw new Error(`not within ${millis} ms: ${what}`)
    })
  ])

/** A check that a client cannot do, and why. */
export class NotApplicable extends Error {}

const attempt = async (name, action) => {
  try {
    const note = await within(60_000, name, action())
    say({ check: name, outcome: "pass", ...(typeof note === "string" ? { note } : {}) })
    return true
  } catch (error) {
    if (error instanceof NotApplicable) say({ check: name, outcome: "n/a", note: error.message })
    else say({ check: name, outcome: "fail", note: String(error?.stack ?? error).slice(0, 2000) })
    return false
  }
}

/** How often the tool was started and ended: asked without the client, which may take its time. */
const counts = async () => {
  const prefix = "io.modelcontextprotocol/"
  const response = await fetch(url, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "count"
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: {
        name: "count",
        arguments: {},
        _meta: {
          [`${prefix}protocolVersion`]: "2026-07-28",
          [`${prefix}clientCapabilities`]: {},
          [`${prefix}clientInfo`]: { name: "matrix-harness", version: "1" }
        }
      }
    })
  })
  return JSON.parse(textOf((await response.json()).result))
}

const until = async (what, look) => {
  for (let i = 0; i < 100; i++) {
    if (await look()) return
    await sleep(100)
  }
  throw new Error(`not within 10 s: ${what}`)
}

/**
 * `connect({url, token})` gives `{ list, call, close, canCancel, reconnects }`: names of the tools, the text of a call's
 * result. `canCancel: false` and `maxText` say what the client has no way to do, with `why`.
 */
export const run = async (connect) => {
  let session
  const connected = await attempt("connect", async () => {
    session = await connect({ url, token })
  })
  if (!connected) process.exit(1)
  await attempt("list", async () => {
    const names = await session.list()
    assert.deepEqual([...names].sort(), [...tools].sort())
  })
  await attempt("call", async () => {
    assert.equal(await session.call("echo", { text: "hello" }), "hello")
  })
  await attempt("unicode", async () => {
    assert.equal(await session.call("echo", { text: unicode }), unicode)
  })
  await attempt("1 MB", async () => {
    if (session.megabyte === false) throw new NotApplicable(session.whyNotMegabyte)
    if (session.megabyte === "cut") {
      const text = await session.call("big", { bytes: megabyte.length })
      assert.ok(text.startsWith(megabyte.slice(0, 4000)))
      assert.ok(text.includes(megabyte.slice(-2000)))
      assert.ok(text.length < megabyte.length)
      return session.whyNotMegabyte
    }
    if (session.megabyte === "result") {
      const text = await session.call("big", { bytes: megabyte.length })
      assert.equal(text.length, megabyte.length)
      assert.equal(text, megabyte)
      return session.whyNotMegabyte
    }
    const text = await session.call("echo", { text: megabyte })
    assert.equal(text.length, megabyte.length)
    assert.equal(text, megabyte)
    return session.megabyteNote
  })
  await attempt("cancel", async () => {
    if (session.canCancel === false) throw new NotApplicable(session.whyNotCancel)
    const before = await counts()
    const control = new AbortController()
    const call = session.call("hold", {}, control.signal).then(
      () => "ended by itself",
      () => "rejected"
    )
    await until("the tool runs", async () => (await counts()).started > before.started)
    control.abort()
    await until("the tool's signal fired", async () => (await counts()).aborted > before.aborted)
    if (session.rejectsOnCancel !== false) assert.equal(await within(10_000, "the call's end", call), "rejected")
    return session.cancelNote
  })
  await attempt("reconnect", async () => {
    say({ restart: true })
    await lines.next()
    const again = async () => assert.equal(await session.call("echo", { text: "back" }), "back")
    const tries = async () => {
      try {
        await again()
        return ""
      } catch {
        // A connection that was kept open died with the old bridge: the next attempt makes one.
        await again()
        return ", at the second try"
      }
    }
    try {
      const how = await within(20_000, "the call after the restart", tries())
      return session.freshProcess ? "each call connects anew" : `same client object${how}`
    } catch (first) {
      await within(5_000, "close", Promise.resolve(session.close())).catch(() => undefined)
      session = await connect({ url, token })
      await again()
      return `needs a new connection (${String(first?.message ?? first).slice(0, 120)})`
    }
  })
  await within(5_000, "close", Promise.resolve(session.close())).catch(() => undefined)
  process.exit(0)
}

export const textOf = (result) => {
  if (result?.isError) throw new Error(`isError: ${JSON.stringify(result.content).slice(0, 300)}`)
  return result.content.map((block) => block.text ?? "").join("")
}
