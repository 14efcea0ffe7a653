import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Worker } from "../../services/jobs/Worker.ts"
import { Workers, WorkerUnknown } from "../../services/jobs/Worker.ts"
import type { WorkerSpec } from "../../services/jobs/workerSpecs.ts"

export interface Options<R> {
  readonly specs: ReadonlyArray<WorkerSpec>
  /** Name of the worker of jobs that name none; the first where it is left out. */
  readonly default?: string | undefined
  /** The implementations, by kind. */
  readonly make: {
    readonly [K in WorkerSpec["kind"]]: (
      spec: Extract<WorkerSpec, { readonly kind: K }>
    ) => Effect.Effect<Worker, never, R>
  }
}

/** The workers that the settings name. */
export const layerWith = <R>(options: Options<R>): Layer.Layer<Workers, never, R> =>
  Layer.effect(
    Workers,
    Effect.gen(function* () {
      const workers = yield* Effect.forEach(options.specs, (spec) =>
        spec.kind === "acp" ? options.make.acp(spec) : options.make["cursor-cli"](spec)
      )
      // Of two with one name the later one: settings that name a known worker replace it.
      const byName = new Map(workers.map((worker) => [worker.name, worker]))
      const known = [...byName.keys()]
      const fallback = options.default ?? known[0] ?? ""
      return {
        get: (name = fallback) => {
          const worker = byName.get(name)
          return worker === undefined ? new WorkerUnknown({ worker: name, known }) : Effect.succeed(worker)
        },
        all: Effect.succeed([...byName.values()])
      }
    })
  )
