import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import { isDelta, push } from "./caps.ts"
import type { WorkerEvent } from "./Job.ts"
import type { StoreFailed } from "./JobStore.ts"
import type { Turn, TurnEnd, Worker, WorkerFailure } from "./Worker.ts"
import { ProtocolBroken } from "./Worker.ts"

/** How long pieces of a text wait for each other, so that a fast worker does not cost a transaction a token. */
const gather = "50 millis"
/** As many as wait before the worker has to. */
const crowd = 64

const isEnd = (item: WorkerEvent | TurnEnd): item is TurnEnd => item._tag === "Answered" || item._tag === "Question"

/**
 * One turn to its end. `record` gets all that the worker says, in order and never twice at a time: texts soon, everything
 * else at once, and the worker waits for it. Interrupted or failed, it has ended the worker and recorded what was said.
 */
export const run = Effect.fnUntraced(function* (
  worker: Worker,
  turn: Turn,
  maxEventBytes: number,
  record: (events: ReadonlyArray<WorkerEvent>) => Effect.Effect<void, StoreFailed>
): Effect.fn.Return<TurnEnd, WorkerFailure | StoreFailed> {
  const waiting: Array<WorkerEvent> = []
  const bell = yield* Queue.sliding<void>(1)
  const writing = yield* Effect.makeSemaphore(1)
  const flush = Effect.uninterruptible(
    writing.withPermits(1)(
      Effect.suspend(() => {
        const batch = waiting.splice(0)
        return batch.length === 0 ? Effect.void : record(batch)
      })
    )
  )
  const ends: Array<TurnEnd> = []
  const listen = worker.run(turn).pipe(
    Stream.takeUntil(isEnd),
    Stream.runForEach((item) =>
      Effect.suspend(() => {
        if (isEnd(item)) {
          ends.push(item)
          return Effect.void
        }
        push(waiting, item, maxEventBytes)
        return isDelta(item) && waiting.length < crowd ? Queue.offer(bell, undefined) : flush
      })
    )
  )
  const write = Effect.forever(Effect.zipRight(Queue.take(bell), Effect.delay(flush, gather)))
  yield* Effect.raceFirst(listen, write).pipe(Effect.onError(() => Effect.ignore(flush)))
  yield* flush
  const end = ends[0]
  if (end === undefined) return yield* new ProtocolBroken({ detail: "it ended without a result" })
  return end
})
