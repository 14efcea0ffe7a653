import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

/** Processes that another run of the bridge left behind. */
export class Processes extends Context.Tag("pi-a2a-ext/services/jobs/Processes")<
  Processes,
  {
    /**
     * Kills what still runs of a worker's process group, and everything that descends from it. A process that merely has
     * the same number (another start time) is not touched. Returns whether something was killed, once it is gone.
     */
    readonly reap: (process: { readonly pid: number; readonly startedAt: string }) => Effect.Effect<boolean>
  }
>() {}
