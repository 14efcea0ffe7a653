import type { EngineSettings } from "./EngineSettings.ts"

export type Limits = Pick<EngineSettings, "maxConcurrent" | "whenBusy" | "maxQueued">

export interface Load {
  readonly running: number
  readonly waiting: number
}

/** What becomes of one more job. Nobody overtakes those that wait. */
export const admit = ({ running, waiting }: Load, limits: Limits): "start" | "wait" | "refuse" => {
  if (running + waiting < limits.maxConcurrent) return "start"
  return limits.whenBusy === "queue" && waiting < limits.maxQueued ? "wait" : "refuse"
}

/** How many of those that wait may start now, the longest waiting first. */
export const startable = ({ running, waiting }: Load, { maxConcurrent }: Limits): number =>
  Math.max(0, Math.min(waiting, maxConcurrent - running))
