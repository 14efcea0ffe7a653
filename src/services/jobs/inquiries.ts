import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { PrincipalId } from "../Auth.ts"
import { overlap, pageLength } from "./diffPage.ts"
import type { EngineSettings } from "./EngineSettings.ts"
import type { JobLog } from "./JobLog.ts"
import type { DiffPage, Health, Stats } from "./Jobs.ts"
import { ArtifactNotFound } from "./Jobs.ts"
import { JobStore } from "./JobStore.ts"
import { patchName } from "./keepsakes.ts"
import type { Slots } from "./slots.ts"
import * as Tally from "./tally.ts"
import { Workers } from "./Worker.ts"
import { Workspace } from "./Workspace.ts"

const maxPageBytes = 1024 * 1024
const healthWait = "5 seconds"

/** What is asked about jobs and the bridge, and changes nothing. `writable` fails with what is wrong with a folder. */
export const make = Effect.fnUntraced(function* (
  settings: Effect.Effect<EngineSettings>,
  log: JobLog,
  slots: Slots,
  writable: (folder: string) => Effect.Effect<void, string>
) {
  const store = yield* JobStore
  const workspace = yield* Workspace
  const workers = yield* Workers

  const read = Effect.fnUntraced(function* (
    id: string,
    owner: PrincipalId,
    name: string,
    offset: number,
    length: number
  ) {
    const job = yield* log.find(id, owner)
    const found = yield* store.readArtifact(job.id, name, offset, length)
    if (Option.isNone(found)) return yield* new ArtifactNotFound({ jobId: job.id, name })
    return { job, ...found.value }
  })

  const diff = Effect.fnUntraced(function* (
    id: string,
    owner: PrincipalId,
    page: { readonly offset: number; readonly limit: number }
  ) {
    const limit = Math.min(Math.max(1, page.limit), maxPageBytes)
    const { artifact, bytes, job } = yield* read(id, owner, patchName, page.offset, limit + overlap)
    if (job.diffstat === undefined) return yield* new ArtifactNotFound({ jobId: job.id, name: patchName })
    const offset = Math.min(Math.max(0, page.offset), artifact.size)
    const used = pageLength(bytes, limit, offset + bytes.byteLength >= artifact.size)
    const next = offset + used
    const answer: DiffPage = {
      diffstat: job.diffstat,
      text: new TextDecoder().decode(bytes.subarray(0, used)),
      offset,
      total: artifact.size,
      next: next < artifact.size ? next : undefined
    }
    return answer
  })

  const health: Effect.Effect<Health> = Effect.gen(function* () {
    const { maxConcurrent, roots, stateDir } = yield* settings
    const askedWorkers = yield* Effect.forEach(
      yield* workers.all,
      ({ health, name }) =>
        health.pipe(
          Effect.timeoutTo({
            duration: healthWait,
            onSuccess: (answer) => answer,
            onTimeout: () => ({ ok: false, detail: "it did not answer in time" })
          }),
          Effect.map((answer) => ({ name, ...answer }))
        ),
      { concurrency: "unbounded" }
    )
    const askedRoots = yield* Effect.forEach(roots, (path) =>
      workspace.resolve(path).pipe(
        Effect.match({
          onFailure: ({ reason }) => ({ path, ok: false, detail: reason as string }),
          onSuccess: (real) => ({ path, ok: true, detail: real })
        })
      )
    )
    const stored = Effect.mapError(store.counts, ({ detail }) => detail)
    const folder = yield* Effect.zipRight(writable(stateDir), stored).pipe(
      Effect.match({
        onFailure: (detail) => ({ path: stateDir, ok: false, detail }),
        onSuccess: () => ({ path: stateDir, ok: true, detail: "writable" })
      })
    )
    return {
      ok: folder.ok && roots.length > 0 && askedRoots.every(({ ok }) => ok) && askedWorkers.some(({ ok }) => ok),
      workers: askedWorkers,
      roots: askedRoots,
      stateDir: folder,
      running: slots.running(),
      limit: maxConcurrent
    }
  })

  const stats = Effect.gen(function* () {
    const { states, tiers } = yield* store.counts
    const { maxConcurrent } = yield* settings
    const tally = log.tally()
    const answer: Stats = {
      states,
      tiers,
      succeeded: tally.succeeded,
      failed: tally.failed,
      canceled: tally.canceled,
      duration: Tally.durations(tally),
      running: slots.running(),
      limit: maxConcurrent
    }
    return answer
  })

  return {
    diff,
    health,
    stats,
    artifacts: (id: string, owner: PrincipalId) =>
      Effect.flatMap(log.find(id, owner), (job) => store.artifacts(job.id)),
    readArtifact: (id: string, owner: PrincipalId, name: string, offset: number, length: number) =>
      Effect.map(read(id, owner, name, offset, length), ({ artifact, bytes }) => ({ artifact, bytes }))
  }
})
