import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Runtime from "effect/Runtime"
import { PrincipalId } from "../services/Auth.ts"
import { silent } from "../services/Exchange.ts"
import type { JsonObject } from "../services/HostTools.ts"
import { definitions, JobTools } from "../services/jobs/JobTools.ts"
import type { OmpHost } from "../services/OmpHost.ts"

/** The host's own model, and its user. */
const host = { id: PrincipalId.make("host"), name: "host" }

/** Gives omp the nine tools, for its own model. Remote calls of them take another way (jobHostTools). */
export const layer = (omp: OmpHost) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const tools = yield* JobTools
      const run = Runtime.runPromiseExit(yield* Effect.runtime<never>())
      for (const { description, inputSchema, name, tier, title } of definitions) {
        const execute = async (args: JsonObject, signal: AbortSignal | undefined) => {
          const call = tools.validate(name, args).pipe(
            Effect.flatMap((valid) =>
              tools.execute(name, valid, { principal: host, client: "the host's own model", exchange: silent })
            ),
            Effect.map(({ content, isError }) => ({
              text: content.map((block) => (block.type === "text" ? block.text : "")).join("\n"),
              isError
            })),
            Effect.catchTags({
              ArgumentsInvalid: ({ detail }) => Effect.succeed({ text: detail, isError: true }),
              CapabilityMissing: () => Effect.dieMessage("the host's own calls ask nobody")
            })
          )
          const exit = await run(call, signal === undefined ? undefined : { signal })
          if (exit._tag === "Success") return exit.value
          throw Cause.isInterruptedOnly(exit.cause) ? new Error("aborted") : Cause.squash(exit.cause)
        }
        omp.registerTool({ name, label: title, description, parameters: inputSchema, tier, execute })
      }
    })
  )
