import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { WorkerEvent } from "./Job.ts"
import type { WorkerExited } from "./Worker.ts"

/** Configuration folders of a job's own: two programs that share one break each other's files. */
export class PrivateConfig extends Context.Tag("pi-a2a-ext/services/jobs/PrivateConfig")<
  PrivateConfig,
  {
    /**
     * Makes the folder `to`, mode 0700, with the user's `files` (settings, a login) as they are now in `from`, which is
     * only read. A file that is in `to` already stays, one that is not in `from` is left out. Warns of what could not be
     * copied.
     */
    readonly prepare: (
      from: string,
      to: string,
      files: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<WorkerEvent>, WorkerExited>
  }
>() {}
