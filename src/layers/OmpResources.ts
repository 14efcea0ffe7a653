import { readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import type { OmpHost } from "../services/OmpHost.ts"
import { slice, splitRange } from "../services/ranges.ts"
import { ResourceNotFound, Resources } from "../services/Resources.ts"
import { ToolCalls } from "../services/ToolCalls.ts"

/** omp's own scheme for what it keeps of outputs that were too long for its model. */
const scheme = "artifact://"

/** The tool that reads the same at the host. */
const reader = "read"

interface Artifact {
  readonly id: string
  readonly tool: string
  readonly file: string
}

/** `<number>.<tool>.log`, as omp names them. */
const parse = (dir: string, name: string): ReadonlyArray<Artifact> => {
  const match = /^(\d{1,15})\.([A-Za-z0-9_-]+)\.log$/.exec(name)
  const [, id, tool] = match ?? []
  return id === undefined || tool === undefined ? [] : [{ id, tool, file: join(dir, name) }]
}

/** Artifacts of the Main session, for those who may `read`, under the rules for that. */
export const layer = (host: OmpHost) =>
  Layer.effect(
    Resources,
    Effect.gen(function* () {
      const tools = yield* ToolCalls

      const artifacts = Effect.promise(async (): Promise<ReadonlyArray<Artifact>> => {
        const dir = host.artifactsDir()
        // A session that has kept nothing has no such folder.
        const names = dir === undefined ? [] : await readdir(dir).catch(() => [])
        return names.flatMap((name) => parse(dir ?? "", name)).toSorted((a, b) => Number(a.id) - Number(b.id))
      })
      const readable = Effect.map(tools.list, (list) => list.some(({ wireName }) => wireName === reader))
      const shown = Effect.flatMap(readable, (yes) => (yes ? artifacts : Effect.succeed([])))

      const sizeOf = (file: string) =>
        Effect.promise(() =>
          stat(file).then(
            ({ size }) => size,
            () => undefined
          )
        )

      return Resources.of({
        list: () =>
          Effect.flatMap(
            shown,
            Effect.forEach(({ file, id, tool }) =>
              Effect.map(sizeOf(file), (size) => ({
                uri: `${scheme}${id}`,
                name: `${tool} output ${id}`,
                description: `Whole output of a call of ${tool} in the host's session`,
                mimeType: "text/plain",
                ...(size === undefined ? {} : { size })
              }))
            )
          ),
        templates: [
          {
            uriTemplate: `${scheme}{id}{?offset,length}`,
            name: "artifact",
            title: "Output kept by the host's session, whole or in part",
            description: "offset and length count UTF-16 units.",
            mimeType: "text/plain"
          }
        ],
        read: Effect.fnUntraced(function* (uri, caller) {
          const parts = splitRange(uri)
          const artifact = (yield* shown).find(({ id }) => `${scheme}${id}` === parts?.base)
          if (parts === undefined || artifact === undefined) return yield* new ResourceNotFound({ uri })
          const text = yield* tools.inPlaceOf(
            { ...caller, callId: crypto.randomUUID(), name: reader, args: { path: `${scheme}${artifact.id}` } },
            Effect.tryPromise({
              try: () => readFile(artifact.file, "utf8"),
              catch: () => new ResourceNotFound({ uri })
            })
          )
          return [{ uri, mimeType: "text/plain", text: parts.range === undefined ? text : slice(text, parts.range) }]
        }),
        complete: (uriTemplate, argument) =>
          uriTemplate.startsWith(scheme) && argument.name === "id"
            ? Effect.map(shown, (found) => found.map(({ id }) => id).filter((id) => id.startsWith(argument.value)))
            : Effect.succeed([]),
        changes: Stream.repeatEffectWithSchedule(
          Effect.map(shown, (found) => found.map(({ file }) => file).join("\n")),
          Schedule.spaced("5 seconds")
        ).pipe(Stream.changes, Stream.drop(1), Stream.as(undefined)),
        updates: Stream.never
      })
    })
  )
