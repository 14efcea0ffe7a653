import { mkdir, open, readdir } from "node:fs/promises"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Job, StoredEvent } from "../../services/jobs/Job.ts"
import { JobId } from "../../services/jobs/Job.ts"
import { Jobs } from "../../services/jobs/Jobs.ts"

/** Told once when the disk stops taking events, and once when it takes them again. */
export type OnTrouble = (trouble: { readonly file: string; readonly reason: string } | undefined) => Effect.Effect<void>

const pageEvents = 500
const tailBytes = 256 * 1024
const isJobId = Schema.is(JobId)

/**
 * Number of the last whole event in the file; what follows it is the half of a line that a crash left, and is cut off.
 * A line is longer than the part that is looked at only in a file that is not ours: it is then read from the start.
 */
const lastSeq = async (file: string): Promise<number> => {
  const handle = await open(file, "a+", 0o600)
  try {
    const { mode, size } = await handle.stat()
    if ((mode & 0o077) !== 0) await handle.chmod(0o600)
    const look = async (from: number): Promise<number | undefined> => {
      const bytes = Buffer.alloc(size - from)
      await handle.read(bytes, 0, bytes.length, from)
      const end = bytes.lastIndexOf(0x0a)
      if (end < 0) return from === 0 ? 0 : undefined
      const start = bytes.lastIndexOf(0x0a, end - 1)
      if (start < 0 && from > 0) return undefined
      if (from + end + 1 < size) await handle.truncate(from + end + 1)
      const line: unknown = JSON.parse(bytes.subarray(start + 1, end).toString("utf8"))
      return typeof line === "object" && line !== null && "seq" in line ? Number(line.seq) : 0
    }
    const near = await look(Math.max(0, size - tailBytes))
    if (near !== undefined) return near
    const whole = (await look(0)) ?? 0
    if (whole === 0) await handle.truncate(0)
    return whole
  } finally {
    await handle.close()
  }
}

const append = async (file: string, jobId: string, events: ReadonlyArray<StoredEvent>): Promise<void> => {
  const lines = events.map(({ at, event, seq }) => `${JSON.stringify({ jobId, seq, at, event })}\n`)
  const handle = await open(file, "a", 0o600)
  try {
    await handle.appendFile(lines.join(""))
  } finally {
    await handle.close()
  }
}

const make = (directory: string, onTrouble: OnTrouble) =>
  Effect.gen(function* () {
    const jobs = yield* Jobs
    // Only which jobs have something new: the events themselves come from the store, so that none is missed.
    const dirty = new Map<JobId, Job>()
    const written = new Map<JobId, number>()
    const bell = yield* Queue.sliding<void>(1)
    let troubled = false
    const mark = (job: Job) =>
      Effect.suspend(() => {
        dirty.set(job.id, job)
        return Queue.offer(bell, undefined)
      })

    const write = Effect.fnUntraced(function* (job: Job) {
      const file = join(directory, job.id, "events.jsonl")
      const trying = <A>(run: () => Promise<A>) =>
        Effect.mapError(Effect.tryPromise(run), ({ error }) => ({
          file,
          reason: error instanceof Error ? error.message : String(error)
        }))
      let since =
        written.get(job.id) ??
        (yield* trying(async () => {
          await mkdir(join(directory, job.id), { recursive: true, mode: 0o700 })
          return lastSeq(file)
        }))
      for (;;) {
        const { events, job: now } = yield* jobs
          .follow(job.id, job.owner, { since, waitSeconds: 0, limit: pageEvents })
          .pipe(
            Effect.mapError((failure) => ({
              file,
              reason: failure._tag === "StoreFailed" ? failure.detail : undefined
            }))
          )
        if (events.length === 0) {
          // Nothing comes any more: the next start knows from the file.
          if (now.endedAt === undefined || now.worktree !== undefined) written.set(job.id, since)
          else written.delete(job.id)
          return
        }
        // Until it is written, nobody knows how much of it is: the file tells.
        written.delete(job.id)
        yield* trying(() => append(file, job.id, events))
        since = events.at(-1)?.seq ?? since
        written.set(job.id, since)
      }
    })

    const writeAll = Effect.gen(function* () {
      const batch = [...dirty.values()]
      dirty.clear()
      for (const job of batch) {
        const trouble = yield* Effect.match(write(job), { onFailure: (trouble) => trouble, onSuccess: () => undefined })
        const reason = trouble?.reason
        if (trouble !== undefined) written.delete(job.id)
        // Once more with the next change. A job that has gone from the store comes no more.
        if (reason !== undefined) dirty.set(job.id, job)
        if ((reason !== undefined) === troubled) continue
        troubled = reason !== undefined
        yield* onTrouble(trouble === undefined || reason === undefined ? undefined : { file: trouble.file, reason })
      }
    })

    yield* Effect.addFinalizer(() => writeAll)
    yield* Effect.forkScoped(Stream.runForEach(jobs.changes, ({ job }) => mark(job)))
    yield* Effect.forkScoped(Effect.forever(Effect.zipRight(Queue.take(bell), Effect.uninterruptible(writeAll))))
    // What happened to known jobs since: the end of the last run, and what this start made of it.
    const known = yield* Effect.promise(() => readdir(directory).catch((): Array<string> => []))
    const ids = new Set(known.filter(isJobId))
    const { jobs: stored } = yield* jobs.list({}, 100_000).pipe(Effect.orElseSucceed(() => ({ jobs: [] })))
    yield* Effect.forEach(
      stored.filter(({ id }) => ids.has(id)),
      mark,
      { discard: true }
    )
  })

/**
 * Each job's events as lines of `<directory>/<jobId>/events.jsonl` (0600), shortly after they are stored; what a failing
 * disk or the end of the process kept back follows later, so that a file has no gap. Jobs never wait for it. Files stay
 * when the store forgets the job.
 */
export const layer = (directory: string, onTrouble: OnTrouble): Layer.Layer<never, never, Jobs> =>
  Layer.scopedDiscard(make(directory, onTrouble))
