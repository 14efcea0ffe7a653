import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Job from "../../src/services/jobs/Job.ts"
import type { Artifact, Filter } from "../../src/services/jobs/JobStore.ts"
import { JobStore, pruneBatch, StoreFailed } from "../../src/services/jobs/JobStore.ts"

interface Entry {
  job: Job.Job
  readonly events: Array<Job.StoredEvent>
  readonly artifacts: Map<string, { readonly artifact: Artifact; readonly bytes: Uint8Array }>
}

const descending = (a: string, b: string): number => (a < b ? 1 : a > b ? -1 : 0)

const passes = (job: Job.Job, filter: Filter): boolean =>
  (filter.owner === undefined || job.owner === filter.owner) &&
  (filter.states === undefined || filter.states.includes(job.state)) &&
  (filter.thread === undefined || job.thread === filter.thread) &&
  (filter.updatedAfter === undefined || job.updatedAt > filter.updatedAfter) &&
  (filter.hasWorktree !== true || job.worktree !== undefined)

/** What the port promises, in the plainest form; and one that fails on demand, as a full disk does. */
export class MemoryJobStore {
  readonly entries = new Map<string, Entry>()
  /** Methods that fail now. */
  readonly failing = new Set<string>()

  readonly layer: Layer.Layer<JobStore> = Layer.sync(JobStore, () => this.service())

  private attempt<A>(operation: string, body: () => A): Effect.Effect<A, StoreFailed> {
    return Effect.suspend(() =>
      this.failing.has(operation)
        ? Effect.fail(new StoreFailed({ operation, detail: "told to fail" }))
        : Effect.try({
            try: body,
            catch: (error) => new StoreFailed({ operation, detail: String(error) })
          })
    )
  }

  private record(entry: Entry, events: ReadonlyArray<Job.Event>, at: string): ReadonlyArray<Job.StoredEvent> {
    const stored: Array<Job.StoredEvent> = []
    for (const event of events) {
      if (!Job.accepts(entry.job.state, event)) continue
      const next = { seq: entry.job.lastSeq + 1, at, event }
      stored.push(next)
      entry.job = Job.apply(entry.job, next)
    }
    entry.events.push(...stored)
    return stored
  }

  private service(): JobStore["Type"] {
    return JobStore.of({
      insert: (job, events, at) =>
        this.attempt("insert", () => {
          if (this.entries.has(job.id)) throw new Error("twice")
          const entry: Entry = { job, events: [], artifacts: new Map() }
          const stored = this.record(entry, events, at)
          this.entries.set(job.id, entry)
          return { job: entry.job, events: stored }
        }),
      append: (id, events, at, patch) =>
        this.attempt("append", () => {
          const entry = this.entries.get(id)
          if (entry === undefined) return Option.none()
          const stored = this.record(entry, events, at)
          if (stored.length > 0 || events.length === 0) entry.job = { ...entry.job, ...patch }
          return Option.some({ job: entry.job, events: stored })
        }),
      get: (id) => this.attempt("get", () => Option.fromNullable(this.entries.get(id)?.job)),
      list: (filter, limit, after) =>
        this.attempt("list", () => {
          const all = [...this.entries.values()]
            .map(({ job }) => job)
            .filter((job) => passes(job, filter))
            .sort((a, b) => descending(a.updatedAt, b.updatedAt) || descending(a.id, b.id))
          const rest =
            after === undefined
              ? all
              : all.filter(
                  (job) => job.updatedAt < after.updatedAt || (job.updatedAt === after.updatedAt && job.id < after.id)
                )
          return { jobs: rest.slice(0, limit), total: all.length }
        }),
      events: (id, since, limit, tags) =>
        this.attempt("events", () =>
          (this.entries.get(id)?.events ?? [])
            .filter(({ event, seq }) => seq > since && (tags === undefined || tags.includes(event._tag)))
            .slice(0, limit)
        ),
      putArtifact: (id, name, mediaType, bytes) =>
        this.attempt("putArtifact", () => {
          const entry = this.entries.get(id)
          if (entry === undefined) throw new Error("no such job")
          entry.artifacts.set(name, { artifact: { name, mediaType, size: bytes.byteLength }, bytes: bytes.slice() })
        }),
      artifacts: (id) =>
        this.attempt("artifacts", () =>
          [...(this.entries.get(id)?.artifacts.values() ?? [])]
            .map(({ artifact }) => artifact)
            .sort((a, b) => (a.name < b.name ? -1 : 1))
        ),
      readArtifact: (id, name, offset, length) =>
        this.attempt("readArtifact", () =>
          Option.map(Option.fromNullable(this.entries.get(id)?.artifacts.get(name)), ({ artifact, bytes }) => ({
            artifact,
            bytes: bytes.slice(Math.max(0, offset), Math.max(0, offset) + Math.max(0, length))
          }))
        ),
      processOf: (id) =>
        this.attempt("processOf", () => {
          const event = this.entries.get(id)?.events.findLast(({ event }) => event._tag === "Process")?.event
          return event?._tag === "Process" ? Option.some({ pid: event.pid, startedAt: event.startedAt }) : Option.none()
        }),
      prune: (retention, now) =>
        this.attempt("prune", () => {
          const oldest = DateTime.formatIso(DateTime.subtractDuration(DateTime.unsafeMake(now), retention.maxAge))
          const ended = [...this.entries.values()]
            .map(({ job }) => job)
            .filter((job) => job.endedAt !== undefined)
            .sort((a, b) => descending(a.endedAt ?? "", b.endedAt ?? "") || descending(a.id, b.id))
          const removed = ended
            .filter((job, n) => job.worktree === undefined && (n >= retention.maxJobs || (job.endedAt ?? "") < oldest))
            .toReversed()
            .slice(0, pruneBatch)
          for (const { id } of removed) this.entries.delete(id)
          return removed.map(({ id }) => id)
        }),
      counts: this.attempt("counts", () => {
        const count = <K extends string>(keys: ReadonlyArray<K>, of: (job: Job.Job) => K) => {
          const counts = Object.fromEntries(keys.map((key) => [key, 0])) as Record<K, number>
          for (const { job } of this.entries.values()) counts[of(job)]++
          return counts
        }
        return {
          states: count(Job.State.literals, (job) => job.state),
          tiers: count(Job.Tier.literals, (job) => job.tier)
        }
      })
    })
  }
}
