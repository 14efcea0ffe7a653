import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as PubSub from "effect/PubSub"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { PrincipalId } from "../Auth.ts"
import type { Event, Job, StoredEvent } from "./Job.ts"
import { apply, initial, isTerminal, JobId, step } from "./Job.ts"
import { JobNotFound } from "./Jobs.ts"
import type { Patch, StoreFailed } from "./JobStore.ts"
import { JobStore } from "./JobStore.ts"
import * as Tally from "./tally.ts"

export interface Change {
  readonly job: Job
  readonly stored: StoredEvent
}

const maxWaitSeconds = 55
/** Events that a watcher reads at a time: what it has not taken yet waits in the store, not in memory. */
const pageEvents = 256

const isJobId = Schema.is(JobId)

/** The time as the store keeps it. */
export const now: Effect.Effect<string> = Effect.map(DateTime.now, DateTime.formatIso)

/**
 * The store and those who look at it: each event is stored before anybody hears of it, and heard of in the order in which
 * it was stored. Does not know what a job does.
 */
export const make = Effect.gen(function* () {
  const store = yield* JobStore
  const published = yield* PubSub.unbounded<Change>()
  // Writes and the looks that decide to wait exclude each other: nobody waits for what has just happened.
  const gate = yield* Effect.makeSemaphore(1)
  const signals = new Map<JobId, Deferred.Deferred<void>>()
  let closed = false
  let tally = Tally.empty

  const signal = (id: JobId): Effect.Effect<Deferred.Deferred<void>> =>
    Effect.suspend(() => {
      const known = signals.get(id)
      return known === undefined
        ? Effect.tap(Deferred.make<void>(), (made) => Effect.sync(() => signals.set(id, made)))
        : Effect.succeed(known)
    })
  const wake = (id: JobId): void => {
    const waiting = signals.get(id)
    signals.delete(id)
    if (waiting !== undefined) Deferred.unsafeDone(waiting, Exit.void)
  }

  const find = Effect.fnUntraced(function* (id: string, owner: PrincipalId) {
    const found = isJobId(id) ? yield* store.get(id) : Option.none()
    if (Option.isNone(found) || found.value.owner !== owner) return yield* new JobNotFound({ jobId: id.slice(0, 64) })
    return found.value
  })

  /** The job and its events above `since`, of one moment; and what to wait for where there is nothing yet. */
  const look = (id: string, owner: PrincipalId, since: number, limit: number) =>
    gate.withPermits(1)(
      Effect.gen(function* () {
        const job = yield* find(id, owner)
        const events = since >= job.lastSeq ? [] : yield* store.events(job.id, since, limit)
        const nothing = events.length === 0 && !isTerminal(job.state) && !closed
        return { job, events, changed: nothing ? yield* signal(job.id) : undefined }
      })
    )

  /** The job as it stood after the event `since`. */
  const asOf = Effect.fnUntraced(function* (id: string, owner: PrincipalId, since: number) {
    const current = yield* find(id, owner)
    if (since >= current.lastSeq) return current
    let job = initial(current)
    while (job.lastSeq < since) {
      const page = yield* store.events(current.id, job.lastSeq, Math.min(pageEvents, since - job.lastSeq))
      if (page.length === 0) break
      job = page.reduce(apply, job)
    }
    return job
  })

  const publish = (job: Job, events: ReadonlyArray<StoredEvent>): void => {
    for (const stored of events) {
      published.unsafeOffer({ job, stored })
      if (step("running", stored.event) === job.state && isTerminal(job.state)) tally = Tally.add(tally, job)
    }
    if (events.length > 0) wake(job.id)
  }

  return {
    find,
    insert: (job: Job, events: ReadonlyArray<Event>): Effect.Effect<Job, StoreFailed> =>
      Effect.uninterruptible(
        gate.withPermits(1)(
          Effect.gen(function* () {
            const stored = yield* store.insert(job, events, yield* now)
            publish(stored.job, stored.events)
            return stored.job
          })
        )
      ),
    /** See `JobStore.append`. An event that moves the job comes alone: subscribers get the job as it was made by it. */
    append: (id: JobId, events: ReadonlyArray<Event>, patch?: Patch) =>
      Effect.uninterruptible(
        gate.withPermits(1)(
          Effect.gen(function* () {
            const stored = yield* store.append(id, events, yield* now, patch)
            if (Option.isSome(stored)) publish(stored.value.job, stored.value.events)
            return stored
          })
        )
      ),
    follow: Effect.fnUntraced(function* (
      id: string,
      owner: PrincipalId,
      options: { readonly since: number; readonly waitSeconds: number; readonly limit: number }
    ) {
      const deadline = (yield* Clock.currentTimeMillis) + Math.min(options.waitSeconds, maxWaitSeconds) * 1000
      for (;;) {
        const { changed, events, job } = yield* look(id, owner, options.since, Math.max(1, options.limit))
        const left = deadline - (yield* Clock.currentTimeMillis)
        if (changed === undefined || left <= 0) return { job, events }
        yield* Effect.timeoutOption(Deferred.await(changed), left)
      }
    }),
    /**
     * Ends with the event that ends the job; what is recorded of the clean-up after it is for `follow`. The job of each
     * change is as that event made it. Ends early where the bridge closes.
     */
    watch: (id: string, owner: PrincipalId, since: number): Stream.Stream<Change, JobNotFound | StoreFailed> =>
      Stream.unwrap(
        Effect.map(asOf(id, owner, since), (start) =>
          Stream.unfoldChunkEffect(start, (before) =>
            Effect.gen(function* () {
              if (isTerminal(before.state)) return Option.none()
              for (;;) {
                const { changed, events, job } = yield* look(id, owner, before.lastSeq, pageEvents)
                if (changed !== undefined) {
                  yield* Deferred.await(changed)
                  continue
                }
                const changes: Array<Change> = []
                let after = before
                for (const stored of events) {
                  after = apply(after, stored)
                  if (job.diffstat !== undefined) after = { ...after, diffstat: job.diffstat }
                  if (stored.seq > since) changes.push({ job: stored.seq === job.lastSeq ? job : after, stored })
                  if (isTerminal(after.state)) break
                }
                return events.length === 0 ? Option.none() : Option.some([Chunk.fromIterable(changes), after] as const)
              }
            })
          )
        )
      ),
    changes: Stream.fromPubSub(published),
    /** How jobs ended since the start. */
    tally: (): Tally.Tally => tally,
    /** Lets go of all who wait. */
    close: gate.withPermits(1)(
      Effect.sync(() => {
        closed = true
        for (const id of signals.keys()) wake(id)
      })
    )
  }
})

export type JobLog = Effect.Effect.Success<typeof make>
