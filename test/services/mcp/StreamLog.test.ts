import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import type { StreamEvent } from "../../../src/services/mcp/reply.ts"
import { parseEventId, StreamLog } from "../../../src/services/mcp/StreamLog.ts"
import * as HandClock from "../../support/handClock.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

const id = "5ff10d9e-6e2c-4f0a-9d0e-0a64a31f6f77"
const note = (n: number) => ({ _tag: "Notification", method: "n", params: { n } }) as const
const { settle } = HandClock.make()

/** Reads in the background; `got` is what has come. */
const reader = Effect.fnUntraced(function* (log: StreamLog, from: number) {
  const got: Array<StreamEvent> = []
  const fiber = yield* log.read(from).pipe(
    Stream.runForEach((event) => Effect.sync(() => got.push(event))),
    Effect.forkScoped
  )
  yield* settle
  return {
    got,
    numbers: () => got.map((event) => Number(event.id?.split("_")[1])),
    ended: () => fiber.unsafePoll() !== null,
    leave: Effect.zipLeft(Fiber.interrupt(fiber), settle)
  }
})
const range = (from: number, to: number) => Array.from({ length: Math.max(0, to - from + 1) }, (_, n) => from + n)

describe("an event id", () => {
  it.prop("does not name its event", [FastCheck.uuid(), FastCheck.nat()], ([stream, at]) => {
    assert.deepStrictEqual(parseEventId(new StreamLog(stream).eventId(at)), { stream, at })
  })

  it.each([
    "",
    "_",
    "_1",
    `${id}`,
    `${id}_`,
    `${id}_x`,
    `${id}_-1`,
    `${id}_1.5`,
    `${id}_1 `,
    ` ${id}_1`,
    `${id}_1_2`,
    "1"
  ])("%j is taken for one", (text) => {
    assert.isUndefined(parseEventId(text))
  })

  it.prop("is found in any text", [FastCheck.string()], ([text]) => {
    assert.isUndefined(parseEventId(text))
  })
})

describe("a stream's log", () => {
  it.effect(
    "gives a reader an event twice, in another order, or not at all, wherever it starts and is interrupted",
    () =>
      forAll(
        FastCheck.array(
          FastCheck.oneof(
            { weight: 4, arbitrary: FastCheck.constant("append" as const) },
            { weight: 2, arbitrary: FastCheck.constant("again" as const) },
            { weight: 1, arbitrary: FastCheck.constant("leave" as const) },
            { weight: 1, arbitrary: FastCheck.constant("detach" as const) }
          ),
          { maxLength: 40, size: "max" }
        ),
        (steps) =>
          Effect.gen(function* () {
            const log = new StreamLog(id)
            let appended = 0
            const seen: Array<number> = []
            let current = yield* reader(log, 0)
            let startedAt = 0
            const collect = () => seen.push(...current.numbers().slice(Math.max(0, seen.length - startedAt)))
            for (const step of steps) {
              switch (step) {
                case "append":
                  log.append(note(++appended))
                  break
                case "again":
                  collect()
                  startedAt = seen.length
                  current = yield* reader(log, seen.at(-1) ?? 0)
                  break
                case "leave":
                  yield* current.leave
                  break
                case "detach":
                  log.detach()
              }
              yield* settle
            }
            log.end()
            collect()
            startedAt = seen.length
            current = yield* reader(log, seen.at(-1) ?? 0)
            collect()
            assert.deepStrictEqual(seen, range(1, appended))
            assert.isTrue(current.ended())
          }).pipe(Effect.scoped)
      )
  )

  it.scoped("keeps more than its last 1,024 events, or fewer, or begins to count anew", () =>
    Effect.gen(function* () {
      const log = new StreamLog(id)
      for (const n of range(1, 1500)) log.append(note(n))
      assert.strictEqual(log.position, 1500)
      log.end()
      assert.deepStrictEqual((yield* reader(log, 0)).numbers(), range(477, 1500))
      assert.deepStrictEqual((yield* reader(log, 1400)).numbers(), range(1401, 1500))
      assert.deepStrictEqual((yield* reader(log, 1500)).numbers(), [])
    })
  )

  it.scoped("leaves the first of two readers in its place, or lets it go on", () =>
    Effect.gen(function* () {
      const log = new StreamLog(id)
      const first = yield* reader(log, 0)
      log.append(note(1))
      yield* settle
      const second = yield* reader(log, 1)
      assert.isTrue(first.ended())
      log.append(note(2))
      yield* settle
      assert.deepStrictEqual(first.numbers(), [1])
      assert.deepStrictEqual(second.numbers(), [2])
      assert.isTrue(log.isRead)
      assert.strictEqual(log.readersSoFar, 2)
      // The end of the old one's connection does not take the new one's place away.
      yield* first.leave
      assert.isTrue(log.isRead)
      yield* second.leave
      assert.isFalse(log.isRead)
    })
  )

  it.scoped("ends with its reader's stream, or does not know that it sent the reader away", () =>
    Effect.gen(function* () {
      const log = new StreamLog(id)
      const first = yield* reader(log, 0)
      log.detach()
      yield* settle
      assert.isTrue(first.ended())
      assert.isTrue(log.detached)
      assert.isFalse(log.isRead || log.ended)
      log.append(note(1))
      const second = yield* reader(log, 0)
      assert.isFalse(log.detached)
      assert.deepStrictEqual(second.numbers(), [1])
      assert.isFalse(second.ended())
      // One who leaves by itself was not sent away.
      yield* second.leave
      assert.isFalse(log.detached)
    })
  )

  it.scoped("keeps the first reader that it was to send away, or turns the second away as well", () =>
    Effect.gen(function* () {
      const log = new StreamLog(id)
      log.append(note(1))
      log.detach()
      const first = yield* reader(log, 0)
      assert.isTrue(first.ended())
      assert.deepStrictEqual(first.numbers(), [])
      assert.isTrue(log.detached)
      const second = yield* reader(log, 0)
      assert.deepStrictEqual(second.numbers(), [1])
      assert.isFalse(second.ended())
      // Where all is over already, there is nothing to come back for.
      const other = new StreamLog(id)
      other.detach()
      other.append(note(1))
      other.end()
      assert.deepStrictEqual((yield* reader(other, 0)).numbers(), [1])
    })
  )

  it.scoped("tells what it was to forget, or goes on after its end", () =>
    Effect.gen(function* () {
      const log = new StreamLog(id)
      const first = yield* reader(log, 0)
      log.append(note(1))
      yield* settle
      log.append(note(2))
      log.forget()
      log.end()
      yield* settle
      assert.deepStrictEqual(first.numbers(), [1])
      assert.isTrue(first.ended())
      const second = yield* reader(log, 0)
      assert.deepStrictEqual(second.got, [])
      assert.isTrue(second.ended())
    })
  )
})
