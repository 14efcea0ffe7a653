import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import * as Schema from "effect/Schema"
import * as Job from "../../../src/services/jobs/Job.ts"
import { AnyEvent, AnyWorkerEvent, job, StoryEvent, time } from "../../support/suites/jobs.ts"

const States = FastCheck.constantFrom(...Job.State.literals)
/** The four ends that the specification names. */
const ends: ReadonlyArray<Job.State> = ["completed", "failed", "canceled", "orphaned"]

/** What a store keeps of events that arrive: those that the state accepts, numbered. */
const record = (start: Job.Job, events: ReadonlyArray<Job.Event>) => {
  const stored: Array<Job.StoredEvent> = []
  let now = start
  for (const [n, event] of events.entries()) {
    if (!Job.accepts(now.state, event)) continue
    const next = { seq: now.lastSeq + 1, at: time(n * 10), event }
    stored.push(next)
    now = Job.apply(now, next)
  }
  return { job: now, stored }
}

describe("step", () => {
  it.prop(
    "moves a job that has ended",
    [FastCheck.constantFrom(...ends), FastCheck.array(AnyEvent)],
    ([end, events]) => {
      assert.strictEqual(events.reduce(Job.step, end), end)
    }
  )

  it.prop("moves a job because of what its worker says", [States, AnyWorkerEvent], ([state, event]) => {
    assert.strictEqual(Job.step(state, event), state)
  })

  it.prop("lets a job run that was not started", [States, AnyEvent], ([state, event]) => {
    if (Job.step(state, event) !== "running" || state === "running") return
    assert.strictEqual(event._tag, "Started")
    assert.strictEqual(state, "queued")
  })

  it.prop("completes a job, or has it ask, while it does not run", [States, AnyEvent], ([state, event]) => {
    const next = Job.step(state, event)
    if (next !== state && (next === "completed" || next === "input-required")) assert.strictEqual(state, "running")
  })

  it("does not cancel, or fail, a job wherever it stands before its end", () => {
    for (const state of ["queued", "running", "input-required"] as const) {
      assert.strictEqual(Job.step(state, { _tag: "Canceled", reason: "" }), "canceled")
      assert.strictEqual(Job.step(state, { _tag: "Failed", reason: "internal", message: "" }), "failed")
    }
  })

  it("orphans a job that waits for input: its worktree and its session outlive the bridge", () => {
    const orphaned = { _tag: "Orphaned", message: "" } as const
    assert.strictEqual(Job.step("input-required", orphaned), "input-required")
    for (const state of ["queued", "running"] as const) assert.strictEqual(Job.step(state, orphaned), "orphaned")
  })
})

describe("accepts", () => {
  it.prop("drops an event that moves the job", [States, AnyEvent], ([state, event]) => {
    if (Job.step(state, event) !== state) assert.isTrue(Job.accepts(state, event))
  })

  it.prop("takes a worker's word for a job that does not run", [States, AnyWorkerEvent], ([state, event]) => {
    assert.strictEqual(Job.accepts(state, event), state === "running")
  })

  it.prop("records a second end, or anything but clean-up after the first", [AnyEvent], ([event]) => {
    for (const end of ends) {
      assert.strictEqual(Job.accepts(end, event), event._tag === "CleanedUp" || event._tag === "CleanUpFailed")
    }
  })

  it.prop("records the worktree as gone while the job may still need it", [States], ([state]) => {
    const ended = ends.includes(state)
    assert.strictEqual(Job.accepts(state, { _tag: "CleanedUp" }), ended)
    assert.strictEqual(Job.accepts(state, { _tag: "CleanUpFailed", message: "" }), ended)
  })
})

describe("apply", () => {
  const stories = FastCheck.array(StoryEvent, { maxLength: 60, size: "max" })

  it.prop("makes another job of the same stored events", [stories], ([events]) => {
    const told = record(job(), [{ _tag: "Started" }, ...events])
    assert.deepStrictEqual(told.stored.reduce(Job.apply, Job.initial(told.job)), told.job)
  })

  it.prop("leaves a gap in the numbers, or a number twice", [stories], ([events]) => {
    const told = record(job(), events)
    assert.deepStrictEqual(
      told.stored.map(({ seq }) => seq),
      told.stored.map((_, n) => n + 1)
    )
    assert.strictEqual(told.job.lastSeq, told.stored.length)
  })

  it.prop("records more than one end, or none for an ended job", [stories], ([events]) => {
    const told = record(job(), events)
    const endings = told.stored.filter(({ event }) =>
      ["Completed", "Failed", "Canceled", "Orphaned"].includes(event._tag)
    )
    assert.lengthOf(endings, ends.includes(told.job.state) ? 1 : 0)
    assert.strictEqual(told.job.endedAt, endings[0]?.at)
  })

  it.prop("makes what the store cannot read back", [stories], ([events]) => {
    const told = record(job(), events)
    assert.deepStrictEqual(Schema.decodeUnknownSync(Job.Job)(JSON.parse(JSON.stringify(told.job))), told.job)
  })

  it.prop("shows a question that is not open", [stories], ([events]) => {
    const told = record(job(), events)
    assert.strictEqual(told.job.question !== undefined, told.job.state === "input-required")
  })

  it.prop("dates the last move otherwise than its event", [stories], ([events]) => {
    let now = job()
    let moved = now.createdAt
    for (const stored of record(now, events).stored) {
      const next = Job.apply(now, stored)
      if (next.state !== now.state) moved = stored.at
      now = next
      assert.strictEqual(now.updatedAt, moved)
    }
  })

  it("counts time in the queue, or time that a question was open, as time that the job ran", () => {
    const at: ReadonlyArray<readonly [number, Job.Event]> = [
      [0, { _tag: "Submitted" }],
      [5_000, { _tag: "Started" }],
      [12_000, { _tag: "Asked", question: "?" }],
      [100_000, { _tag: "Replied", prompt: "!" }],
      [150_000, { _tag: "Started" }],
      [153_000, { _tag: "Completed", text: "" }],
      [999_000, { _tag: "CleanedUp" }]
    ]
    const done = at.reduce(
      (now, [millis, event], n) => Job.apply(now, { seq: n + 1, at: time(millis), event }),
      job({ timeoutSeconds: 11 })
    )
    assert.strictEqual(done.ranMillis, 10_000)
    assert.strictEqual(Job.remaining(done), 1_000)
    assert.strictEqual(done.startedAt, time(5_000))
    assert.strictEqual(done.endedAt, time(153_000))
  })

  it("adds up other tokens than those of all turns, or forgets the session", () => {
    const told = record(job(), [
      { _tag: "Started" },
      { _tag: "Session", sessionId: "a" },
      { _tag: "Usage", inputTokens: 10, outputTokens: 1 },
      { _tag: "Asked", question: "?" },
      { _tag: "Replied", prompt: "!" },
      { _tag: "Started" },
      { _tag: "Usage", inputTokens: 5, outputTokens: 2, cacheReadTokens: 7 },
      { _tag: "Failed", reason: "worker-refused", message: "no" }
    ])
    assert.deepStrictEqual(told.job.usage, {
      inputTokens: 15,
      outputTokens: 3,
      cacheReadTokens: 7,
      cacheWriteTokens: 0
    })
    assert.strictEqual(told.job.session, "a")
    assert.deepStrictEqual(told.job.failure, { reason: "worker-refused", message: "no" })
  })

  it("keeps a worktree that is gone, or loses one that could not be removed", () => {
    const ended = record(job({ worktree: "/w" }), [{ _tag: "Canceled", reason: "" }]).job
    const failed = record(ended, [{ _tag: "CleanUpFailed", message: "busy" }]).job
    assert.strictEqual(failed.worktree, "/w")
    assert.notProperty(record(failed, [{ _tag: "CleanedUp" }]).job, "worktree")
  })
})
