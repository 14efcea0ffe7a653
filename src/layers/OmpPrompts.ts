import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import type { OmpHost, OmpPrompt } from "../services/OmpHost.ts"
import { hinted, promptName } from "../services/promptRules.ts"
import { PromptArgumentsInvalid, PromptNotFound, Prompts } from "../services/Prompts.ts"
import { ToolCalls } from "../services/ToolCalls.ts"

/** The one argument: omp's commands take a line of text. */
const argumentName = "arguments"

/** The tool under whose rules prompts are given: they are files of the host. */
const reader = "read"

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The host's skills, slash commands and templates. They are there for those who may `read`, and read as such. */
export const layer = (host: OmpHost) =>
  Layer.effect(
    Prompts,
    Effect.gen(function* () {
      const tools = yield* ToolCalls

      const all = (): ReadonlyMap<string, OmpPrompt> => {
        const byName = new Map<string, OmpPrompt>()
        for (const prompt of host.prompts()) {
          const name = promptName(prompt.name)
          if (name !== "" && !byName.has(name)) byName.set(name, prompt)
        }
        return byName
      }
      const readable = Effect.map(tools.list, (list) => list.some(({ wireName }) => wireName === reader))
      const shown = Effect.map(readable, (yes) => (yes ? [...all()] : []))

      const list = Effect.map(shown, (prompts) =>
        prompts.map(([name, { argumentHint, description }]) => ({
          name,
          ...(description.trim() === "" ? {} : { description: description.toWellFormed() }),
          arguments: [
            {
              name: argumentName,
              description: argumentHint ?? "what follows the command's name on its line",
              required: false
            }
          ]
        }))
      )

      return Prompts.of({
        list,
        get: Effect.fnUntraced(function* (name, args, caller) {
          const unknown = Object.keys(args).filter((key) => key !== argumentName)
          if (unknown.length > 0) {
            return yield* new PromptArgumentsInvalid({
              name,
              detail: `'${unknown.join("', '")}' is no argument of it; '${argumentName}' is the only one`
            })
          }
          const prompt = new Map(yield* shown).get(name)
          if (prompt === undefined) return yield* new PromptNotFound({ name })
          const text = yield* tools.inPlaceOf(
            { ...caller, callId: crypto.randomUUID(), name: reader, args: { path: `prompt://${name}` } },
            Effect.tryPromise({
              try: () => host.renderPrompt(prompt, args[argumentName] ?? ""),
              catch: (error) =>
                new PromptArgumentsInvalid({ name, detail: `the host cannot expand it: ${messageOf(error)}` })
            })
          )
          return {
            ...(prompt.description.trim() === "" ? {} : { description: prompt.description.toWellFormed() }),
            messages: [{ role: "user" as const, content: { type: "text" as const, text: text.toWellFormed() } }]
          }
        }),
        complete: (name, argument) =>
          Effect.map(shown, (prompts) => {
            const hint = new Map(prompts).get(name)?.argumentHint
            return hint === undefined || argument.name !== argumentName ? [] : hinted(hint, argument.value)
          }),
        // omp has no event for it; the lists are in its memory and short.
        changes: Stream.repeatEffectWithSchedule(Effect.map(list, JSON.stringify), Schedule.spaced("2 seconds")).pipe(
          Stream.changes,
          Stream.drop(1),
          Stream.as(undefined)
        )
      })
    })
  )
