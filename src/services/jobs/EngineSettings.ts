import type { Retention } from "./JobStore.ts"

/** What the operator decides about jobs. Read anew for each decision: an edit applies to what comes after it. */
export interface EngineSettings {
  /** Folders that jobs may work in. None: every job is refused. */
  readonly roots: ReadonlyArray<string>
  readonly defaultTimeoutSeconds: number
  readonly maxTimeoutSeconds: number
  readonly maxConcurrent: number
  readonly whenBusy: "refuse" | "queue"
  readonly maxQueued: number
  /** Bytes of a job's result; the rest is cut. */
  readonly maxResultBytes: number
  /** Bytes of the texts of one event; the rest is cut. */
  readonly maxEventBytes: number
  readonly maxEventsPerJob: number
  readonly retention: Retention
  /** The bridge's own folder; workers have theirs in it. */
  readonly stateDir: string
}

export const defaults: Omit<EngineSettings, "roots" | "stateDir"> = {
  defaultTimeoutSeconds: 900,
  maxTimeoutSeconds: 86_400,
  maxConcurrent: 4,
  whenBusy: "refuse",
  maxQueued: 100,
  maxResultBytes: 1024 * 1024,
  maxEventBytes: 64 * 1024,
  maxEventsPerJob: 10_000,
  retention: { maxAge: 30 * 24 * 60 * 60 * 1000, maxJobs: 500 }
}

/** Seconds that a job may run: what was asked for, within what the operator allows. */
export const timeoutOf = (asked: number | undefined, settings: EngineSettings): number =>
  Math.max(1, Math.min(asked ?? settings.defaultTimeoutSeconds, settings.maxTimeoutSeconds))
