import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as FastCheck from "effect/FastCheck"
import { admit, startable } from "../../../src/services/jobs/admission.ts"
import { byteLength, cut, fit, fitResult, push, titleOf } from "../../../src/services/jobs/caps.ts"
import { overlap, pageLength } from "../../../src/services/jobs/diffPage.ts"
import * as Ending from "../../../src/services/jobs/ending.ts"
import { defaults, timeoutOf } from "../../../src/services/jobs/EngineSettings.ts"
import type * as Job from "../../../src/services/jobs/Job.ts"
import { render } from "../../../src/services/jobs/report.ts"
import * as Tally from "../../../src/services/jobs/tally.ts"
import { AnyWorkerEvent, job, time } from "../../support/suites/jobs.ts"

const Text = FastCheck.string({ unit: "grapheme", size: "medium" })
const settings = { ...defaults, roots: [], stateDir: "/" }

describe("admission", () => {
  const Limits = FastCheck.record({
    maxConcurrent: FastCheck.integer({ min: 1, max: 5 }),
    whenBusy: FastCheck.constantFrom("refuse" as const, "queue" as const),
    maxQueued: FastCheck.nat(3)
  })
  const Load = FastCheck.record({ running: FastCheck.nat(8), waiting: FastCheck.nat(8) })

  it.prop(
    "starts one more than may run, or keeps one waiting where there is room",
    [Load, Limits],
    ([load, limits]) => {
      const free = limits.maxConcurrent - load.running
      const started = startable(load, limits)
      assert.isAtMost(started, Math.max(0, free))
      assert.isAtMost(started, load.waiting)
      assert.isTrue(started === load.waiting || started === Math.max(0, free))
    }
  )

  it.prop("lets a newcomer overtake, or wait where nobody may", [Load, Limits], ([load, limits]) => {
    const answer = admit(load, limits)
    if (answer === "start")
      assert.isAtLeast(startable({ ...load, waiting: load.waiting + 1 }, limits), load.waiting + 1)
    if (answer === "wait") {
      assert.strictEqual(limits.whenBusy, "queue")
      assert.isBelow(load.waiting, limits.maxQueued)
    }
    if (answer === "refuse") assert.isAtLeast(load.running + load.waiting, limits.maxConcurrent)
  })
})

describe("caps", () => {
  it.prop("cuts through a character, or more than it must", [Text, FastCheck.nat(60)], ([text, limit]) => {
    const kept = cut(text, limit)
    assert.isTrue(text.startsWith(kept))
    assert.isAtMost(byteLength(kept), limit)
    assert.notInclude(
      new TextDecoder().decode(new TextEncoder().encode(kept)),
      text.includes("\ufffd") ? "\0none" : "\ufffd"
    )
    const [next] = text.slice(kept.length)
    if (next !== undefined) assert.isAbove(byteLength(kept) + byteLength(next), limit)
  })

  const Deltas = FastCheck.array(
    FastCheck.record({ _tag: FastCheck.constantFrom("Text" as const, "Thought" as const), text: Text })
  )
  it.prop("loses or reorders a text when pieces are joined", [Deltas], ([deltas]) => {
    const waiting: Array<Job.WorkerEvent> = []
    for (const delta of deltas) push(waiting, delta, 100)
    const told = (events: ReadonlyArray<Job.WorkerEvent>) =>
      events.reduce((text, event) => {
        if (event._tag !== "Text" && event._tag !== "Thought") return text
        return `${text}${[...event.text].map((character) => `${event._tag}:${character}`).join("")}`
      }, "")
    // Where a piece ends with half a character, joining mends it: compare what is left of each kind in order.
    assert.strictEqual(told(waiting), told(deltas))
    for (const event of waiting)
      if (event._tag === "Text" && !deltas.some((delta) => delta.text === event.text))
        assert.isAtMost(byteLength(event.text), 100)
  })

  it("waits with what must not wait", () => {
    const waiting: Array<Job.WorkerEvent> = []
    const tool = { _tag: "ToolStarted", callId: "1", title: "t" } as const
    for (const event of [{ _tag: "Text", text: "a" }, tool, { _tag: "Text", text: "b" }] as const)
      push(waiting, event, 100)
    assert.deepStrictEqual(
      waiting.map(({ _tag }) => _tag),
      ["Text", "ToolStarted", "Text"]
    )
  })

  const texts = (event: Job.WorkerEvent): ReadonlyArray<string> =>
    event._tag === "Session" || event._tag === "Process"
      ? []
      : event._tag === "Plan"
        ? event.entries.flatMap((entry) => [entry.text, entry.status])
        : Object.entries(event).flatMap(([key, value]) => (key !== "_tag" && typeof value === "string" ? [value] : []))

  it.prop(
    "stores a larger event, or more events, than it may, or does not say what it cut",
    [FastCheck.array(AnyWorkerEvent, { maxLength: 30 }), FastCheck.nat(20), FastCheck.nat(10), FastCheck.nat(15)],
    ([events, maxEventBytes, maxEventsPerJob, used]) => {
      const fitted = fit(events, used, { maxEventBytes, maxEventsPerJob }, false)
      const warned = fitted.events.filter(
        (event) => event._tag === "Warning" && /were cut$|^the job has said/u.test(event.text)
      )
      for (const event of fitted.events) {
        if (warned.includes(event)) continue
        assert.isAtMost(
          texts(event).reduce((sum, text) => sum + byteLength(text), 0),
          maxEventBytes
        )
      }
      const essential = ["Session", "Process", "Usage", "Denied"]
      const surplus = fitted.events.slice(Math.max(0, maxEventsPerJob - used))
      for (const event of surplus) assert.isTrue(essential.includes(event._tag) || event._tag === "Warning")
      assert.isAtMost(used + fitted.events.length, Math.max(used, 2 * maxEventsPerJob) + 2)
      const lost = events.reduce((sum, event) => sum + texts(event).join("").length, 0)
      const kept = fitted.events
        .filter((event) => !warned.includes(event))
        .reduce((sum, event) => sum + texts(event).join("").length, 0)
      assert.strictEqual(warned.length > 0, kept < lost || fitted.full)
    }
  )

  it("says again and again that the job has said enough", () => {
    const tool = { _tag: "ToolStarted", callId: "1", title: "t" } as const
    const limits = { maxEventBytes: 100, maxEventsPerJob: 2 }
    const first = fit([tool, tool, tool, tool], 0, limits, false)
    assert.lengthOf(first.events, 3)
    assert.deepStrictEqual(fit([tool, tool], 3, limits, first.full), { events: [], full: true })
  })

  it("cuts a result that fits, or does not say that it cut", () => {
    assert.deepStrictEqual(fitResult("abc", 3), { text: "abc", warning: undefined })
    assert.deepStrictEqual(fitResult("aé", 2), { text: "a", warning: "the result was cut from 3 to 1 bytes" })
  })

  it("makes a title of an empty line, or a page", () => {
    assert.strictEqual(titleOf("\r\n \n fix it \nnow"), "fix it")
    assert.strictEqual(titleOf(""), "")
    assert.strictEqual(titleOf("x".repeat(500)), `${"x".repeat(120)}...`)
  })

  it("gives a job more or less time than the operator allows", () => {
    assert.strictEqual(timeoutOf(undefined, settings), 900)
    assert.strictEqual(timeoutOf(1e9, settings), 86_400)
    assert.strictEqual(timeoutOf(0, settings), 1)
  })
})

describe("diffPage", () => {
  const Lines = FastCheck.array(FastCheck.string({ unit: "grapheme", maxLength: 30 })).map((lines) => lines.join("\n"))

  it.prop(
    "loses a byte, breaks a character, grows beyond the limit, or never ends",
    [Lines, FastCheck.integer({ min: 1, max: 50 })],
    ([text, limit]) => {
      const bytes = new TextEncoder().encode(text)
      const pages: Array<string> = []
      for (let offset = 0; offset < bytes.byteLength;) {
        const read = bytes.subarray(offset, offset + limit + overlap)
        const length = pageLength(read, limit, offset + read.byteLength >= bytes.byteLength)
        assert.isAtLeast(length, 1)
        assert.isAtMost(length, Math.max(limit, 4))
        pages.push(new TextDecoder("utf8", { fatal: true, ignoreBOM: true }).decode(read.subarray(0, length)))
        offset += length
      }
      assert.strictEqual(pages.join(""), new TextDecoder("utf8", { ignoreBOM: true }).decode(bytes))
    }
  )

  it.prop(
    "never ends, or loses a byte, where the patch is not text",
    [FastCheck.uint8Array({ maxLength: 300 }), FastCheck.integer({ min: 1, max: 20 })],
    ([bytes, limit]) => {
      let offset = 0
      while (offset < bytes.byteLength) {
        const read = bytes.subarray(offset, offset + limit + overlap)
        const length = pageLength(read, limit, offset + read.byteLength >= bytes.byteLength)
        assert.isAtLeast(length, 1)
        assert.isAtMost(length, read.byteLength)
        offset += length
      }
      assert.strictEqual(offset, bytes.byteLength)
    }
  )

  it("breaks a line where it need not", () => {
    const bytes = new TextEncoder().encode("aaaa\nbbbb\ncccc\n")
    assert.strictEqual(pageLength(bytes, 12, false), 10)
    assert.strictEqual(pageLength(bytes, 15, true), 15)
    assert.strictEqual(pageLength(bytes, 4, false), 4)
  })
})

describe("report", () => {
  it("lets a prompt or a path break out of its place", () => {
    const stored = (event: Job.Event): Job.StoredEvent => ({ seq: 1, at: time(0), event })
    const text = render(
      job({
        prompt: "```\n# not a heading\n````",
        result: "fine\n",
        title: "`a`",
        diffstat: {
          files: [
            { path: "b`\n# c", from: "a", change: "renamed", binary: true, insertions: 0, deletions: 0 },
            { path: "d", change: "added", binary: false, insertions: 2, deletions: 1 }
          ],
          insertions: 2,
          deletions: 1
        },
        usage: { inputTokens: 1, outputTokens: 2, cacheReadTokens: 3 }
      }),
      [
        stored({ _tag: "Denied", what: "rm", reason: "tier" }),
        stored({ _tag: "Warning", text: "careful" }),
        stored({ _tag: "Replied", prompt: "the second" })
      ]
    )
    assert.include(text, "# `` `a` ``")
    assert.include(text, "`````text\n```\n# not a heading\n````\n`````")
    assert.include(text, "`a` → ``b` # c``: renamed, binary")
    assert.include(text, "`d`: added, +2 −1")
    for (const part of ["2 files, +2 −1", "the second", "`rm`: `tier`", "`careful`", "read from cache: 3"])
      assert.include(text, part)
    // Headings of its own and no other, but in code.
    const outside = text.replaceAll(/(`{3,})text\n[\s\S]*?\n\1(?=\n)/gu, "")
    assert.deepStrictEqual(outside.match(/^#+ .*$/gmu), [
      "# `` `a` ``",
      "## Prompt",
      "## Result",
      "## Changes",
      "## Usage",
      "## Denied",
      "## Warnings"
    ])
  })
})

describe("tally", () => {
  it("counts orphans, or another duration than from start to end", () => {
    const ended = (state: Job.State, millis: number) => job({ state, startedAt: time(0), endedAt: time(millis) })
    const tally = [
      ended("completed", 10),
      ended("completed", 20),
      ended("failed", 30),
      ended("canceled", 1000),
      ended("orphaned", 99_999),
      job({ state: "canceled", endedAt: time(5) })
    ].reduce(Tally.add, Tally.empty)
    assert.deepInclude(tally, { succeeded: 2, failed: 1, canceled: 2 })
    assert.deepStrictEqual(Tally.durations(tally), { median: 20, p95: 1000, max: 1000 })
    assert.deepStrictEqual(Tally.durations(Tally.empty), { median: 0, p95: 0, max: 0 })
  })
})

describe("ending", () => {
  it("takes an interruption for a fault, or a fault for an interruption", () => {
    const reason = (cause: Cause.Cause<Ending.RunFailure>) => Ending.ofCause(cause).reason
    const timedOut = new Ending.TimedOut({ seconds: 3 })
    assert.strictEqual(reason(Cause.fail(timedOut)), "timed-out")
    assert.strictEqual(reason(Cause.sequential(Cause.fail(timedOut), Cause.empty)), "timed-out")
    assert.strictEqual(reason(Cause.die(new Error("x"))), "internal")
    assert.strictEqual(reason(Cause.empty), "shutdown")
  })
})
