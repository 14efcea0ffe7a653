/**
 * What every client is put through. A client's file gives `connect`; this says how it went, a JSON line a check, to the
 * driver (run.ts), which owns the bridge and holds each verdict against what the bridge and the wire saw.
 */
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline"

const { MCP_TOKEN: token, MCP_URL: url } = process.env
const tools = JSON.parse(process.env.TOOLS)
const values = JSON.parse(readFileSync(join(import.meta.dirname, "values.json"), "utf8"))
/** Every place of it is like no other: a piece that is missing or moved shows. */
const megabyte = Array.from({ length: values.numbers }, (_, number) => number.toString(16).padStart(8, "0")).join("")
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

const say = (message) => process.stdout.write(`@@${JSON.stringify(message)}\n`)

/** One question at a time; the driver answers each with a line. */
const ask = async (question) => {
  say({ ask: question })
  return JSON.parse((await lines.next()).value)
}

/** A check takes no longer: well under the driver's limit for the whole client. */
const patience = 30_000

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis))

const within = (millis, what, promise) => {
  let timer
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${millis} ms: ${what}`)), millis)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** A check that a client cannot do, and why. */
class NotApplicable extends Error {}

const attempt = async (name, action) => {
  try {
    const note = await within(patience, name, action())
    say({ check: name, outcome: "pass", ...(typeof note === "string" ? { note } : {}) })
    return true
  } catch (error) {
    if (error instanceof NotApplicable) say({ check: name, outcome: "n/a", note: error.message })
    else say({ check: name, outcome: "fail", note: String(error?.stack ?? error).slice(0, 2000) })
    return false
  }
}

const until = async (what, look) => {
  for (let i = 0; i < 100; i++) {
    if (await look()) return
    await sleep(100)
  }
  throw new Error(`not within 10 s: ${what}`)
}

/** Equal, or an error that shows where they part instead of a megabyte. */
const same = (actual, expected) => {
  assert.equal(typeof actual, "string")
  if (actual === expected) return
  let at = 0
  while (at < expected.length && actual[at] === expected[at]) at++
  const near = (text) => JSON.stringify(text.slice(Math.max(0, at - 10), at + 60))
  assert.fail(`${actual.length} of ${expected.length} characters; from ${at}: ${near(actual)}, not ${near(expected)}`)
}

/** What a client may say when the bridge that it knew is gone. Anything else is no reason to connect anew. */
const lost = /unknown session|\b404\b|ECONNRESET|ECONNREFUSED|other side closed|fetch failed|socket|connection closed/i

/**
 * `connect({url, token})` gives a session:
 * - `list()`: names of the tools; `call(name, args, signal)`: the text of the result; `close()`
 * - `across(first, restart, second)`: texts of two calls of one process, for clients that are a process of their own
 * - `oneShot`: every call is a process
 * - `megabyte`: `"result"` (the client takes no argument of that size) or `"cut"` (it shows its model both ends, and `cut`
 *   between and behind them)
 * - `shown(text)`: what it shows its model of a text, where that is not the text
 * - `whyNotCancel`; `notes`: by check
 */
export const run = async (connect) => {
  let session
  const note = (name) => session.notes?.[name]
  const connected = await attempt("connect", async () => {
    session = await connect({ url, token })
    return note("connect")
  })
  if (!connected) process.exit(1)
  await attempt("list", async () => {
    assert.deepEqual([...(await session.list())].sort(), [...tools].sort())
    return note("list")
  })
  await attempt("call", async () => {
    same(await session.call("echo", { text: values.hello }), values.hello)
    return note("call")
  })
  await attempt("unicode", async () => {
    const expected = session.shown?.(values.unicode) ?? values.unicode
    same(await session.call("echo", { text: values.unicode }), expected)
    return note("unicode")
  })
  await attempt("1 MB", async () => {
    if (session.megabyte === "cut") {
      const parts = (await session.call("big", { numbers: values.numbers })).split(session.cut)
      const [head, tail] = parts
      assert.equal(parts.filter((part) => part !== "").length, 2)
      for (const part of [head, tail]) assert.ok(part.length >= 4000, `${part.length} characters of an end`)
      same(head, megabyte.slice(0, head.length))
      same(tail, megabyte.slice(-tail.length))
    } else if (session.megabyte === "result") {
      same(await session.call("big", { numbers: values.numbers }), megabyte)
    } else {
      same(await session.call("echo", { text: megabyte }), megabyte)
    }
    return note("1 MB")
  })
  await attempt("cancel", async () => {
    if (session.whyNotCancel !== undefined) throw new NotApplicable(session.whyNotCancel)
    const holds = async (ended) =>
      (await ask("runs")).filter((run) => run.tool === "hold" && run.ended === ended).length
    const before = await holds("signal")
    const control = new AbortController()
    const call = session.call("hold", {}, control.signal).then(
      (text) => `a result: ${String(text).slice(0, 100)}`,
      () => "rejected"
    )
    await until("the tool runs", async () => (await holds("no")) === 1)
    control.abort()
    await until(
      "the tool's signal fired",
      async () => (await holds("signal")) === before + 1 && (await holds("no")) === 0
    )
    const end = await within(10_000, "the call's end", call)
    if (session.cancelGivesResult !== true) assert.equal(end, "rejected")
    return note("cancel")
  })
  await attempt("reconnect", async () => {
    if (session.across !== undefined) {
      const [first, second] = await session.across(
        { name: "echo", args: { text: values.hello } },
        () => ask("restart"),
        { name: "echo", args: { text: values.back } }
      )
      same(first, values.hello)
      same(second, values.back)
      return note("reconnect") ?? "one process lives through the restart"
    }
    await ask("restart")
    const again = async () => same(await session.call("echo", { text: values.back }), values.back)
    const expected = (error) => {
      if (!lost.test(`${error?.stack ?? error} ${error?.cause ?? ""}`)) throw error
    }
    try {
      await again()
      return session.oneShot ? "every call connects anew" : "the same client object goes on"
    } catch (error) {
      expected(error)
    }
    try {
      await again()
      return "the same client object fails once, then goes on"
    } catch (error) {
      expected(error)
    }
    await within(5_000, "close", Promise.resolve(session.close())).catch(() => undefined)
    session = await connect({ url, token })
    await again()
    return "the client object stays with its unknown session, tried twice: its user makes another"
  })
  await within(5_000, "close", Promise.resolve(session.close())).catch(() => undefined)
  process.exit(0)
}

export const textOf = (result) => {
  if (result?.isError) throw new Error(`isError: ${JSON.stringify(result.content).slice(0, 300)}`)
  return result.content.map((block) => block.text ?? "").join("")
}
