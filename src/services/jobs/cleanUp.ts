import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type { JobId } from "./Job.ts"
import { isTerminal } from "./Job.ts"
import type { JobLog } from "./JobLog.ts"
import { JobStore } from "./JobStore.ts"
import { hasPatch, keepChanges } from "./keepsakes.ts"
import { Workspace } from "./Workspace.ts"

/** Once more after 1, 2, 4... seconds, in the end every five minutes. */
export const patience = Schedule.union(Schedule.exponential("1 second"), Schedule.spaced("5 minutes"))

/** Attempts in which unread changes keep a worktree. */
const careful = 3

class Unread extends Schema.TaggedError<Unread>()("Unread", { detail: Schema.String }) {}

/**
 * Removes the worktree of a job that has ended, however long it takes; changes in it that were not stored yet (the bridge
 * died, or was in a hurry) are stored first. `CleanedUp` is recorded when it is gone, `CleanUpFailed` for each new reason
 * why it is not. A worktree of no known job is removed as well. Leaves alone what may still be needed. Runs `tried` after
 * each attempt.
 */
export const cleanUp = Effect.fnUntraced(function* (log: JobLog, id: JobId, tried: Effect.Effect<unknown>) {
  const store = yield* JobStore
  const workspace = yield* Workspace
  let attempts = 0
  let said: string | undefined

  const salvage = Effect.fnUntraced(function* (path: string) {
    if (yield* hasPatch(store, id)) return
    const checkout = yield* workspace.reopen(id, path)
    if (checkout === undefined) return
    const changes = yield* workspace.collect(checkout)
    yield* keepChanges(store, id, changes)
    yield* log.append(id, [], { diffstat: changes.diffstat })
  })

  const attempt = Effect.gen(function* () {
    attempts++
    const job = Option.getOrUndefined(yield* store.get(id))
    if (job !== undefined && !isTerminal(job.state)) return
    const leftovers = yield* workspace.leftovers
    const root = leftovers.find(({ jobId }) => jobId === id)?.root ?? job?.worktree
    if (root === undefined) return
    if (job !== undefined)
      yield* salvage(job.workspace).pipe(
        Effect.catchTags({
          // Its root is not allowed any more: nothing of it is read.
          WorkspaceRefused: () => Effect.void,
          CollectFailed: ({ detail }) =>
            attempts > careful
              ? Effect.logWarning("changes of a job are lost", { job: id, detail })
              : new Unread({ detail: `the changes cannot be read: ${detail}` })
        })
      )
    yield* workspace.remove(id, root)
    yield* log.append(id, [{ _tag: "CleanedUp" }])
  })

  const report = Effect.fnUntraced(function* (detail: string) {
    if (detail === said) return
    said = detail
    yield* Effect.logWarning("a worktree is still there", { job: id, detail })
    yield* Effect.ignore(log.append(id, [{ _tag: "CleanUpFailed", message: detail }]))
  })

  yield* attempt.pipe(
    Effect.catchAllDefect((defect) => new Unread({ detail: String(defect) })),
    Effect.tapError(({ detail }) => report(detail)),
    Effect.ensuring(tried),
    Effect.retry(patience),
    Effect.ignore
  )
})
