import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { PrincipalId } from "../services/Auth.ts"
import { Config } from "../services/Config.ts"
import { slice, splitRange } from "../services/ranges.ts"
import { ResourceNotFound } from "../services/Resources.ts"
import type { Kept } from "../services/Results.ts"
import { Results, resultScheme, shrink } from "../services/Results.ts"

/** All results that are kept, in UTF-16 units: the oldest go first. */
const capacity = 64 * 1024 * 1024
const keptMillis = 60 * 60 * 1000

interface Entry extends Kept {
  readonly owner: PrincipalId
  readonly uri: string
  readonly name: string
  /** Milliseconds since the epoch. */
  readonly at: number
}

const make = Effect.gen(function* () {
  const config = yield* Config
  /** In the order in which they came. */
  const entries = new Map<string, Entry>()
  let size = 0

  const drop = (entry: Entry) => {
    if (entries.delete(entry.uri)) size -= entry.text.length
  }
  const sweep = (now: number) => {
    for (const entry of entries.values()) {
      const newest = entries.size === 1
      if ((size <= capacity || newest) && now - entry.at < keptMillis) break
      drop(entry)
    }
  }

  const mine = (owner: PrincipalId) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      sweep(now)
      return [...entries.values()].filter((entry) => entry.owner === owner)
    })

  return Results.of({
    fit: Effect.fnUntraced(function* (owner, tool, result) {
      const { maxResultBytes } = yield* config.current
      const now = yield* Clock.currentTimeMillis
      return shrink(result, maxResultBytes, tool, (kept) => {
        const uri = `${resultScheme}${crypto.randomUUID()}`
        entries.set(uri, { ...kept, owner, uri, name: tool, at: now })
        size += kept.text.length
        sweep(now)
        return uri
      })
    }),
    list: (owner) =>
      Effect.map(mine(owner), (found) =>
        found.map(({ at, mimeType, name, text, uri, binary }) => ({
          uri,
          name: `${name} result`,
          description: `Returned by ${name} at ${DateTime.formatIso(DateTime.unsafeMake(at))}; kept for an hour`,
          mimeType,
          ...(binary ? {} : { size: Buffer.byteLength(text) })
        }))
      ),
    read: Effect.fnUntraced(function* (uri, owner) {
      const parts = splitRange(uri)
      const entry = (yield* mine(owner)).find((one) => one.uri === parts?.base)
      if (parts === undefined || entry === undefined) return yield* new ResourceNotFound({ uri })
      const { mimeType, text } = entry
      if (entry.binary) return [{ uri, mimeType, blob: text }]
      return [{ uri, mimeType, text: parts.range === undefined ? text : slice(text, parts.range) }]
    })
  })
})

export const layer = Layer.effect(Results, make)
