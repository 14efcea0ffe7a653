import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { admit, startable } from "./admission.ts"
import type { EngineSettings } from "./EngineSettings.ts"
import type { Event, Job, JobId } from "./Job.ts"
import { Busy, Closing } from "./Jobs.ts"
import type { Changes, Checkout } from "./Workspace.ts"

/** How a job may end while the bridge lives. */
export type End = Extract<Event, { readonly _tag: "Completed" | "Failed" | "Canceled" }>

/** One stay of a job in the queue and in a worker's hands. */
export interface Ticket {
  readonly id: JobId
  readonly prompt: string
  /** Goes on in the job's worktree and session. */
  readonly resumes: boolean
  /** Its turn has come. */
  readonly go: Deferred.Deferred<void>
  /** Somebody ended it. */
  readonly stop: Deferred.Deferred<End>
  /** Nothing happens with it any more. */
  readonly done: Deferred.Deferred<void>
  /** Counts as running. */
  holds: boolean
  checkout: Checkout | undefined
  changes: Changes | undefined
}

/** Who runs and who waits. Knows nothing of what a job does. */
export const make = (settings: Effect.Effect<EngineSettings>) =>
  Effect.gen(function* () {
    const active = new Map<JobId, Ticket>()
    const waiting: Array<Ticket> = []
    let running = 0
    let closing = false
    // Whether a job may start, and which, is decided by one at a time.
    const gate = yield* Effect.makeSemaphore(1)

    const pump = Effect.map(settings, (limits) => {
      for (let n = startable({ running, waiting: waiting.length }, limits); n > 0; n--) {
        const next = waiting.shift()
        if (next === undefined) return
        next.holds = true
        running++
        Deferred.unsafeDone(next.go, Exit.void)
      }
    })

    /** Gives its place away, or up. */
    const release = (ticket: Ticket) =>
      Effect.suspend(() => {
        if (ticket.holds) running--
        ticket.holds = false
        const place = waiting.indexOf(ticket)
        if (place >= 0) waiting.splice(place, 1)
        return pump
      })

    return {
      isClosing: () => closing,
      running: () => running,
      of: (id: JobId): Ticket | undefined => active.get(id),
      /**
       * Takes one more job where there is room: `prepare` stores it, `serve` starts what waits for `go`. Its place in the
       * queue is that of this call.
       */
      take: <E>(
        entry: { readonly prompt: string; readonly resumes: boolean },
        prepare: (limits: EngineSettings) => Effect.Effect<Job, E>,
        serve: (ticket: Ticket) => Effect.Effect<unknown>
      ): Effect.Effect<Job, E | Busy | Closing> =>
        gate
          .withPermits(1)(
            Effect.gen(function* () {
              if (closing) return yield* new Closing()
              const limits = yield* settings
              if (admit({ running, waiting: waiting.length }, limits) === "refuse")
                return yield* new Busy({ running, limit: limits.maxConcurrent })
              const job = yield* prepare(limits)
              const ticket: Ticket = {
                ...entry,
                id: job.id,
                go: yield* Deferred.make<void>(),
                stop: yield* Deferred.make<End>(),
                done: yield* Deferred.make<void>(),
                holds: false,
                checkout: undefined,
                changes: undefined
              }
              active.set(job.id, ticket)
              waiting.push(ticket)
              yield* serve(ticket)
              yield* pump
              return job
            })
          )
          .pipe(Effect.uninterruptible),
      release,
      leave: (ticket: Ticket) =>
        Effect.suspend(() => {
          // Not where the same job has come back with an answer already.
          if (active.get(ticket.id) === ticket) active.delete(ticket.id)
          return Effect.zipRight(release(ticket), Deferred.succeed(ticket.done, undefined))
        }),
      /** Runs while nobody can take the job up; absent where it is in somebody's hands. */
      whileIdle: <A, E>(id: JobId, effect: Effect.Effect<A, E>): Effect.Effect<A | void, E> =>
        gate.withPermits(1)(Effect.suspend((): Effect.Effect<A | void, E> => (active.has(id) ? Effect.void : effect))),
      /** From now on nothing is taken. Those that are here, one that is just being taken included. */
      close: Effect.suspend(() => {
        closing = true
        return gate.withPermits(1)(Effect.sync(() => [...active.values()]))
      })
    }
  })

export type Slots = Effect.Effect.Success<ReturnType<typeof make>>
