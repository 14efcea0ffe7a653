import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import type { HostTool } from "../HostTools.ts"
import { HostTools } from "../HostTools.ts"
import { definitions, isJobTool, JobTools } from "./JobTools.ts"

const byName = new Map<string, HostTool>(definitions.map((definition) => [definition.name, definition]))

/** The nine tools as all that a host has: a bridge without an omp. The tiers and roots are its policy. */
export const alone = Layer.effect(
  HostTools,
  Effect.map(JobTools, (jobs) =>
    HostTools.of({
      catalog: Effect.succeed(definitions),
      changes: Stream.never,
      validate: (tool, args) => (isJobTool(tool.name) ? jobs.validate(tool.name, args) : Effect.succeed(args)),
      policy: () => Effect.succeed({ _tag: "Allow" }),
      execute: (tool, args, options) =>
        isJobTool(tool.name)
          ? jobs.execute(tool.name, args, options)
          : Effect.dieMessage(`${tool.name} is not one of the nine`)
    })
  )
)

/**
 * A host that has the nine among its own tools, for its own model. Remote calls of them go to the job engine itself:
 * it knows whose they are, and answers in structure. The host's policy goes for them as for all its tools.
 */
export const among = <E, R>(host: Layer.Layer<HostTools, E, R>) =>
  Layer.effect(
    HostTools,
    Effect.gen(function* () {
      const inner = yield* HostTools
      const jobs = yield* JobTools
      return HostTools.of({
        catalog: Effect.map(inner.catalog, (tools) =>
          tools.map((tool) => {
            const ours = byName.get(tool.name)
            return ours === undefined ? tool : { ...ours, active: tool.active }
          })
        ),
        changes: inner.changes,
        validate: (tool, args) => (isJobTool(tool.name) ? jobs.validate(tool.name, args) : inner.validate(tool, args)),
        policy: (tool, args) => inner.policy(tool, args),
        execute: (tool, args, options) =>
          isJobTool(tool.name) ? jobs.execute(tool.name, args, options) : inner.execute(tool, args, options)
      })
    })
  ).pipe(Layer.provide(host))
