import { chmodSync, constants, copyFileSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { WorkerEvent } from "../../services/jobs/Job.ts"
import { PrivateConfig } from "../../services/jobs/PrivateConfig.ts"
import { WorkerExited } from "../../services/jobs/Worker.ts"

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const copy = (from: string, to: string): ReadonlyArray<WorkerEvent> => {
  try {
    copyFileSync(from, to, constants.COPYFILE_EXCL)
    chmodSync(to, 0o600)
    return []
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    // Not there; or copied in an earlier turn, and the worker's own since.
    if (code === "ENOENT" || code === "EEXIST") return []
    return [{ _tag: "Warning", text: `${from} could not be copied for the job: ${reasonOf(error)}` }]
  }
}

export const layer: Layer.Layer<PrivateConfig> = Layer.succeed(PrivateConfig, {
  prepare: (from, to, files) =>
    Effect.try({
      try: () => {
        mkdirSync(to, { recursive: true, mode: 0o700 })
        return files.flatMap((name) => copy(join(from, name), join(to, name)))
      },
      catch: (error) => new WorkerExited({ code: undefined, signal: undefined, stderr: reasonOf(error) })
    })
})
