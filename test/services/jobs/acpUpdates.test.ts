import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import type { Told } from "../../../src/services/jobs/acpUpdates.ts"
import { askedOf, fold, messageOf, nothing, planOf, usageOf } from "../../../src/services/jobs/acpUpdates.ts"
import type { WorkerEvent } from "../../../src/services/jobs/Job.ts"

const hear = (updates: ReadonlyArray<unknown>) => {
  let told: Told = nothing
  const events: Array<WorkerEvent> = []
  for (const update of updates) {
    const [after, said] = fold(told, update)
    told = after
    events.push(...said)
  }
  return { told, events }
}

const text = (text: string) => ({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } })
const call = (toolCallId: string, more: Record<string, unknown> = {}) => ({
  sessionUpdate: "tool_call",
  toolCallId,
  title: "Read a",
  kind: "read",
  ...more
})
const change = (toolCallId: string, more: Record<string, unknown>) => ({
  sessionUpdate: "tool_call_update",
  toolCallId,
  ...more
})

const Status = Schema.Literal("pending", "in_progress", "completed", "failed")
const Change = Schema.Struct({ id: Schema.Literal("a", "b", "c"), status: Status, isNew: Schema.Boolean })

describe("fold", () => {
  it.prop(
    "begins every call once and ends it at most once, after its beginning",
    [Schema.Array(Change)],
    ([changes]) => {
      const { events } = hear(
        changes.map(({ id, isNew, status }) => (isNew ? call(id, { status }) : change(id, { status })))
      )
      for (const id of ["a", "b", "c"]) {
        const mine = events.filter((event) => "callId" in event && event.callId === id).map(({ _tag }) => _tag)
        const seen = changes.filter((change) => change.id === id)
        const ends = seen.some(({ status }) => status === "completed" || status === "failed")
        assert.deepStrictEqual(mine, seen.length === 0 ? [] : ends ? ["ToolStarted", "ToolEnded"] : ["ToolStarted"])
      }
    }
  )

  it("keeps the message after the last tool call, or the one before while there is none", () => {
    assert.strictEqual(hear([text("First "), text("this."), call("1"), text("Then that.")]).told.message, "Then that.")
    assert.strictEqual(hear([text("All."), call("1"), change("1", { status: "completed" })]).told.message, "All.")
  })

  it("remembers what a call is when its changes do not say it", () => {
    const { events, told } = hear([
      call("1"),
      change("1", { status: "failed", content: [{ type: "content", content: { text: "no" } }] })
    ])
    assert.deepStrictEqual(events, [
      { _tag: "ToolStarted", callId: "1", title: "Read a", kind: "read" },
      { _tag: "ToolEnded", callId: "1", ok: false, detail: "no" }
    ])
    assert.deepStrictEqual(told.calls.get("1"), { title: "Read a", kind: "read", ended: true })
  })

  it.prop("passes over anything", [Schema.Unknown], ([anything]) => {
    assert.deepStrictEqual(
      hear([anything, { sessionUpdate: "new", anything }, { sessionUpdate: "tool_call", toolCallId: 7 }]),
      {
        told: nothing,
        events: []
      }
    )
  })
})

it("messageOf takes objects only", () => {
  assert.deepStrictEqual(messageOf('{"id":1}'), { id: 1 })
  for (const line of ["", "x", "1", "null", "[]", '"a"', "{"]) assert.isUndefined(messageOf(line), line)
})

it("planOf takes ACP's entries and Cursor's to-dos", () => {
  assert.deepStrictEqual(
    planOf([{ content: "One", status: "completed" }, { title: "Two" }, { status: "pending" }, 7]),
    [
      { text: "One", status: "completed" },
      { text: "Two", status: "pending" }
    ]
  )
  assert.deepStrictEqual(planOf(undefined), [])
})

it("usageOf needs both sums, as numbers", () => {
  assert.deepStrictEqual(usageOf({ inputTokens: 1, outputTokens: 2, cachedWriteTokens: 3, totalTokens: 6 }), {
    inputTokens: 1,
    outputTokens: 2,
    cacheWriteTokens: 3
  })
  for (const usage of [
    undefined,
    {},
    { inputTokens: 1 },
    { inputTokens: "1", outputTokens: 2 },
    { inputTokens: -1, outputTokens: 2 }
  ]) {
    assert.isUndefined(usageOf(usage))
  }
})

it("askedOf makes one text of Cursor's questions, whatever of them is there", () => {
  const questions = [
    { id: "1", prompt: "Which?", options: [{ id: "a", label: "A" }, { id: "b" }] },
    { id: "2", prompt: "Why?" }
  ]
  assert.strictEqual(askedOf({ title: "Choose", questions }), "Choose\nWhich?\n- A\n- b\nWhy?")
  assert.strictEqual(askedOf({}), "")
})
