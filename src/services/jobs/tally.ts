import type { Job } from "./Job.ts"
import { elapsed } from "./Job.ts"
import type { Stats } from "./Jobs.ts"

/** How jobs ended since the bridge started. Orphans ended with the bridge before. */
export interface Tally {
  readonly succeeded: number
  readonly failed: number
  readonly canceled: number
  /** Milliseconds from start to end, the newest last. */
  readonly durations: ReadonlyArray<number>
}

/** Durations that are kept. */
const window = 1000

export const empty: Tally = { succeeded: 0, failed: 0, canceled: 0, durations: [] }

/** With a job that has just ended. */
export const add = (tally: Tally, job: Job): Tally => ({
  succeeded: tally.succeeded + (job.state === "completed" ? 1 : 0),
  failed: tally.failed + (job.state === "failed" ? 1 : 0),
  canceled: tally.canceled + (job.state === "canceled" ? 1 : 0),
  durations:
    job.startedAt === undefined || job.endedAt === undefined || job.state === "orphaned"
      ? tally.durations
      : [...tally.durations.slice(-(window - 1)), elapsed(job.startedAt, job.endedAt)]
})

/** The smallest value that is not below that share of all (nearest rank); 0 of none. */
const quantile = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0

export const durations = (tally: Tally): Stats["duration"] => {
  const sorted = tally.durations.toSorted((a, b) => a - b)
  return { median: quantile(sorted, 0.5), p95: quantile(sorted, 0.95), max: sorted.at(-1) ?? 0 }
}
