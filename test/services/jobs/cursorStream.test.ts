import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import type { Heard } from "../../../src/services/jobs/cursorStream.ts"
import { hear, silence, warningsOf } from "../../../src/services/jobs/cursorStream.ts"
import type { WorkerEvent } from "../../../src/services/jobs/Job.ts"

const listen = (lines: ReadonlyArray<unknown>) => {
  let heard: Heard = silence
  const events: Array<WorkerEvent> = []
  for (const line of lines) {
    const [after, said] = hear(heard, typeof line === "string" ? line : JSON.stringify(line))
    heard = after
    events.push(...said)
  }
  return { heard, events }
}

const message = (text: string) => ({ role: "assistant", content: [{ type: "text", text }] })
const delta = (text: string) => ({ type: "assistant", message: message(text), timestamp_ms: 1 })
const whole = (text: string) => ({ type: "assistant", message: message(text), timestamp_ms: 1, model_call_id: "m" })
const final = (text: string) => ({ type: "assistant", message: message(text) })
const call = (id: string, subtype: "started" | "completed", tool: Record<string, unknown>) => ({
  type: "tool_call",
  subtype,
  call_id: `${id}\nfc_${id}`,
  tool_call: { ...tool, toolCallId: id, startedAtMs: 1 }
})
const result = (more: Record<string, unknown> = {}) => ({
  type: "result",
  subtype: "success",
  is_error: false,
  ...more
})
const said = (events: ReadonlyArray<WorkerEvent>): string =>
  events.map((event) => (event._tag === "Text" ? event.text : "")).join("")

/** Lines that are events of no kind that is known, or no events. */
const Noise = Schema.Literal(
  "",
  "   ",
  "not json",
  "{",
  "42",
  "null",
  "[]",
  "{}",
  '{"type":7}',
  '{"type":"retry","subtype":"starting"}',
  '{"type":"interaction_query"}',
  '{"type":"assistant"}',
  '{"type":"assistant","message":{"content":[null,7,{"type":"image"}]}}',
  '{"type":"tool_call","subtype":"started"}',
  '{"type":"tool_call","subtype":"progress","call_id":"x","tool_call":null}',
  '{"type":"thinking","subtype":"completed"}',
  '{"type":"user","message":{}}'
)
const Piece = Schema.NonEmptyString
const Segment = Schema.NonEmptyArray(Piece)

describe("hear", () => {
  it.prop(
    "says every text once, though each message is repeated whole after its pieces, and noise comes between",
    [Schema.Array(Segment), Segment, Schema.Array(Noise)],
    ([segments, last, noise]) => {
      const lines = [
        ...segments.flatMap((pieces, index) => [
          ...pieces.map(delta),
          whole(pieces.join("")),
          call(String(index), "started", { readToolCall: { args: {} } }),
          call(String(index), "completed", { readToolCall: { args: {}, result: { success: {} } } })
        ]),
        ...last.map(delta),
        final(last.join(""))
      ]
      const mixed = lines.flatMap((line, index) => [line, ...(noise.length > 0 ? [noise[index % noise.length]] : [])])
      const expected = [...segments, last].map((pieces) => pieces.join("")).join("")
      assert.strictEqual(said(listen(mixed).events), expected)
    }
  )

  it.prop(
    "says every message where Cursor sends no pieces",
    [Schema.NonEmptyArray(Schema.NonEmptyString)],
    ([texts]) => {
      const distinct = texts.map((text, index) => `${index}${text}`)
      assert.strictEqual(said(listen(distinct.map(whole)).events), distinct.join(""))
    }
  )

  it("says the rest of a message whose pieces did not all arrive", () => {
    assert.strictEqual(said(listen([delta("Hel"), final("Hello")]).events), "Hello")
  })

  it("does not repeat a last message that repeats the whole turn", () => {
    assert.strictEqual(said(listen([delta("a"), whole("a"), delta("b"), final("ab")]).events), "ab")
  })

  it("pairs parallel calls that end in another order, by an id with a line break", () => {
    const { events, heard } = listen([
      call("1", "started", { readToolCall: { args: { path: "/w/a" } } }),
      call("2", "started", { shellToolCall: { args: { command: "make" } } }),
      call("2", "completed", {
        shellToolCall: {
          args: { command: "make" },
          result: { failure: { exitCode: 2, stdout: "", stderr: "no rule" } }
        }
      }),
      call("1", "completed", { readToolCall: { args: {}, result: { success: { content: "x" } } } })
    ])
    assert.deepStrictEqual(events, [
      { _tag: "ToolStarted", callId: "1\nfc_1", title: "read /w/a", kind: "read" },
      { _tag: "ToolStarted", callId: "2\nfc_2", title: "shell make", kind: "shell" },
      { _tag: "ToolEnded", callId: "2\nfc_2", ok: false, detail: "failure: no rule" },
      { _tag: "ToolEnded", callId: "1\nfc_1", ok: true }
    ])
    assert.strictEqual(heard.open.size, 0)
  })

  it("tells every way in which a tool can fail, and a denial from the others", () => {
    for (const outcome of ["failure", "error", "rejected", "spawnError", "somethingNew"]) {
      const { events } = listen([
        call("1", "completed", { editToolCall: { args: { path: "p" }, result: { [outcome]: { reason: "r" } } } })
      ])
      assert.deepStrictEqual(events.slice(0, 2), [
        { _tag: "ToolStarted", callId: "1\nfc_1", title: "edit p", kind: "edit" },
        { _tag: "ToolEnded", callId: "1\nfc_1", ok: false, detail: `${outcome}: r` }
      ])
      assert.deepStrictEqual(
        events.slice(2),
        outcome === "rejected" ? [{ _tag: "Denied", what: "edit p", reason: "r" }] : []
      )
    }
    const { events } = listen([
      call("1", "completed", { shellToolCall: { args: {}, result: { success: { exitCode: 1, stderr: "boom" } } } })
    ])
    assert.deepInclude(events, { _tag: "ToolEnded", callId: "1\nfc_1", ok: false, detail: "success: boom" })
  })

  it("says the session when it first appears, and again only when it changes", () => {
    const init = { type: "system", subtype: "init", session_id: "s" }
    const { events } = listen([init, { ...final("x"), session_id: "s" }, { ...init, session_id: "t" }])
    assert.deepStrictEqual(
      events.filter(({ _tag }) => _tag === "Session"),
      [
        { _tag: "Session", sessionId: "s" },
        { _tag: "Session", sessionId: "t" }
      ]
    )
  })

  it("keeps the last message while nothing follows it", () => {
    assert.strictEqual(listen([delta("x"), final("x")]).heard.last, "x")
    for (const later of [delta("y"), whole("y"), call("1", "started", {}), { type: "thinking", text: "hm" }]) {
      assert.isUndefined(listen([final("x"), later]).heard.last)
    }
  })

  it("takes the result, its usage where there is some, and nothing after it", () => {
    const usage = { inputTokens: 1, outputTokens: 2, cacheReadTokens: 3, cacheWriteTokens: 4 }
    const { events, heard } = listen([result({ result: "r", usage }), delta("late"), result({ result: "other" })])
    assert.deepStrictEqual(heard.result, { isError: false, text: "r" })
    assert.deepStrictEqual(events, [{ _tag: "Usage", ...usage }])
    assert.deepStrictEqual(listen([result({ result: "r" })]).events, [])
    assert.deepStrictEqual(listen([result({ usage: { inputTokens: "1", outputTokens: 2 } })]).events, [])
  })

  it("falls back on the last message where the result has no text", () => {
    assert.strictEqual(listen([final("the end"), result()]).heard.result?.text, "the end")
    assert.deepStrictEqual(listen([result({ is_error: true, result: "limit" })]).heard.result, {
      isError: true,
      text: "limit"
    })
  })

  it.prop("counts every line that is no event, and warns of them in one sentence", [Schema.Array(Noise)], ([noise]) => {
    const bad = noise.filter((line) => {
      if (line.trim() === "") return false
      try {
        return typeof (JSON.parse(line) as { type?: unknown } | null)?.type !== "string"
      } catch {
        return true
      }
    })
    const { events, heard } = listen(noise)
    assert.strictEqual(heard.malformed, bad.length)
    assert.deepStrictEqual(events, [])
    assert.strictEqual(warningsOf(heard, 0).length, bad.length > 0 ? 1 : 0)
    assert.strictEqual(warningsOf(heard, 1).length, 1)
  })

  it("does not grow with noise", () => {
    const { heard } = listen(Array.from({ length: 2000 }, () => "x".repeat(100)))
    assert.isAtMost(heard.noise.length, 4096)
  })
})
