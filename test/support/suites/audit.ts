import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as TestClock from "effect/TestClock"
import type { Audit, AuditCall, AuditOutcome, AuditRecord } from "../../../src/services/Audit.ts"

export interface Subject {
  readonly audit: Audit["Type"]
  /** What is stored now, oldest first; nothing is flushed for it. */
  readonly stored: Effect.Effect<ReadonlyArray<AuditRecord>>
}

export const call = (id: string, more: Partial<AuditCall> = {}): AuditCall => ({
  id,
  sid: "sid-1",
  client: "test/1",
  tool: "bash",
  args: { command: "ls" },
  durable: true,
  ...more
})

export const suite = (name: string, subject: Effect.Effect<Subject, never, Scope.Scope>) => {
  describe(`${name} as an Audit`, () => {
    it.scoped("writes start and done that do not name the same call", () =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        yield* TestClock.setTime(1_700_000_000_000)
        const done = yield* audit.start(call("a"))
        yield* TestClock.adjust("1500 millis")
        yield* done({ _tag: "Ran", isError: false })
        const records = yield* stored
        const shared = { id: "a", sid: "sid-1", client: "test/1", tool: "bash", args: { command: "ls" } }
        assert.deepStrictEqual(records, [
          { ...shared, phase: "start", ts: "2023-11-14T22:13:20.000Z" },
          {
            ...shared,
            phase: "done",
            ts: "2023-11-14T22:13:21.500Z",
            isError: false,
            durationMs: 1500,
            outcome: "ran"
          }
        ])
      })
    )

    it.effect.each<readonly [outcome: AuditOutcome, record: Record<string, unknown>]>([
      [
        { _tag: "Ran", isError: true },
        { outcome: "ran", isError: true }
      ],
      [
        { _tag: "Refused", reason: "PolicyDenied" },
        { outcome: "refused", isError: true, reason: "PolicyDenied" }
      ],
      [{ _tag: "Cancelled" }, { outcome: "cancelled", isError: true }],
      [{ _tag: "Failed" }, { outcome: "failed", isError: true }]
    ])("does not record the outcome %j", ([outcome, expected]) =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        yield* (yield* audit.start(call("a")))(outcome)
        const done = (yield* stored)[1]
        assert.deepInclude(done, expected)
        if (outcome._tag !== "Refused") assert.notProperty(done, "reason")
      }).pipe(Effect.scoped)
    )

    it.scoped("has not stored a durable record when the effect returns", () =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        const done = yield* audit.start(call("a"))
        assert.lengthOf(yield* stored, 1)
        yield* done({ _tag: "Ran", isError: false })
        assert.lengthOf(yield* stored, 2)
      })
    )

    it.scoped("has not stored a record that was flushed", () =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        yield* audit.start(call("a", { durable: false }))
        yield* audit.flush
        assert.lengthOf(yield* stored, 1)
        yield* audit.flush
        assert.lengthOf(yield* stored, 1)
      })
    )

    it.scoped("mixes up calls that run at once", () =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        const ids = Array.from({ length: 40 }, (_, n) => `call-${n}`)
        yield* Effect.forEach(
          ids,
          (id, n) =>
            Effect.flatMap(audit.start(call(id, { durable: n % 3 === 0, args: { n } })), (done) =>
              Effect.zipRight(Effect.yieldNow(), done({ _tag: "Refused", reason: id }))
            ),
          { concurrency: "unbounded" }
        )
        yield* audit.flush
        const records = yield* stored
        assert.lengthOf(records, 80)
        for (const [n, id] of ids.entries()) {
          const mine = records.filter((record) => record.id === id)
          assert.deepStrictEqual(
            mine.map((record) => [record.phase, (record.args as { readonly n: number }).n]),
            [
              ["start", n],
              ["done", n]
            ]
          )
          assert.deepInclude(mine[1], { reason: id })
        }
      })
    )

    it.scoped("stores a secret or a whole file", () =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        const token = "0123456789abcdef0123456789abcdef"
        yield* audit.start(call("a", { args: { password: "hunter2", note: `x${token}y`, content: "z".repeat(5000) } }))
        const text = JSON.stringify(yield* stored)
        for (const secret of ["hunter2", token, "zzzz"]) assert.notInclude(text, secret)
      })
    )

    it.scoped("breaks a line at a line break in an argument", () =>
      Effect.gen(function* () {
        const { audit, stored } = yield* subject
        const args = { "a\nb": "c\r\n\u2028d" }
        yield* audit.start(call("a\n", { args, client: "x\ny", tool: "t\n{}" }))
        const records = yield* stored
        assert.lengthOf(records, 1)
        assert.deepInclude(records[0], { args, client: "x\ny", tool: "t\n{}" })
      })
    )
  })
}
