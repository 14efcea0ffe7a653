import { randomBytes } from "node:crypto"
import {
  chmodSync,
  closeSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync
} from "node:fs"
import { dirname, join } from "node:path"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import type { BridgeConfig, ConfigEvent } from "../services/Config.ts"
import * as Config from "../services/Config.ts"

type Env = Readonly<Record<string, string | undefined>>

export interface FileConfigOptions {
  /** Directory of the default file, `a2a-bridge.json`. */
  readonly agentDir: string
  /** Environment of the process: `A2A_BRIDGE_CONFIG` names another file, the others override single fields. */
  readonly env: Env
}

/** How often the file is looked at. A stat a second: works on network disks and across atomic renames alike. */
const pollInterval = "1 second"

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
const isMissing = (error: unknown): boolean =>
  typeof error === "object" && error !== null && "code" in error && error.code === "ENOENT"

export const configPath = (options: FileConfigOptions): string =>
  options.env["A2A_BRIDGE_CONFIG"] || join(options.agentDir, "a2a-bridge.json")

const unavailable = (file: string, operation: "read" | "write") => (error: unknown) =>
  new Config.ConfigUnavailable({ file, operation, reason: reasonOf(error) })

/** Created with its final mode, synced, then renamed over the old one: no moment shows half a file or an open one. */
const writeAtomically = (file: string, text: string): void => {
  // A settings file that is a link (a dotfiles checkout) stays one.
  const target = ((): string => {
    try {
      return lstatSync(file).isSymbolicLink() ? realpathSync(file) : file
    } catch {
      return file
    }
  })()
  mkdirSync(dirname(target), { recursive: true, mode: 0o700 })
  const temporary = `${target}.${process.pid}.${randomBytes(4).toString("hex")}.tmp`
  const handle = openSync(temporary, "wx", 0o600)
  try {
    try {
      writeSync(handle, text)
      fsyncSync(handle)
    } finally {
      closeSync(handle)
    }
    renameSync(temporary, target)
  } catch (error) {
    try {
      unlinkSync(temporary)
    } catch {
      // The first error is the one to tell.
    }
    throw error
  }
}

const write = (file: string, raw: unknown) =>
  Effect.try({
    try: () => writeAtomically(file, `${JSON.stringify(raw, null, 2)}\n`),
    catch: unavailable(file, "write")
  })

/** The file's text, `undefined` where there is no file. */
const read = (file: string) =>
  Effect.try({
    try: () => {
      try {
        return readFileSync(file, "utf8")
      } catch (error) {
        if (isMissing(error)) return undefined
        throw error
      }
    },
    catch: unavailable(file, "read")
  })

const parse = (file: string, text: string) =>
  Effect.try({
    try: () => JSON.parse(text) as unknown,
    // The parser's own words would quote the file, and the file holds the token.
    catch: () =>
      new Config.ConfigInvalid({
        source: file,
        issues: [{ field: "(the whole file)", found: "text that is not JSON", expected: "a JSON object" }]
      })
  })

const isRecord = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value)

/** Identifies a version of the file without reading it. */
const stamp = (file: string): string => {
  try {
    const { ctimeMs, ino, mtimeMs, size } = statSync(file)
    return `${ino}:${size}:${mtimeMs}:${ctimeMs}`
  } catch {
    return "absent"
  }
}

const freshToken = Effect.sync(() => randomBytes(32).toString("base64url"))

const make = (options: FileConfigOptions) =>
  Effect.gen(function* () {
    const file = configPath(options)
    const events = yield* PubSub.unbounded<ConfigEvent>()

    /** Decodes, heals the token where that is all that is wrong, and lays the environment over it. */
    const load = Effect.gen(function* () {
      const text = yield* read(file)
      const raw: unknown = text === undefined ? {} : yield* parse(file, text)
      const fresh = yield* freshToken
      const healed = isRecord(raw) ? Config.heal(raw, fresh) : undefined
      const stored = yield* Config.decode(file, healed ?? raw)
      if (text === undefined) yield* write(file, Config.encode(stored))
      else if (healed !== undefined) yield* write(file, healed)
      if (text !== undefined) yield* tighten(file)
      return { stored, effective: yield* Config.overlay(stored, options.env) }
    })

    let seen = stamp(file)
    const first = yield* load
    /** What the file holds, and what is in force: the same, but for the environment. */
    let stored = first.stored
    let current = first.effective
    seen = stamp(file)

    const reload = Effect.gen(function* () {
      const now = stamp(file)
      // A file that is gone may be an editor's save half done; it must not be answered with a new one.
      if (now === seen || now === "absent") return
      seen = now
      const loaded = yield* Effect.either(load)
      // Healing writes the file: that version is known already.
      seen = stamp(file)
      if (Either.isLeft(loaded)) {
        yield* PubSub.publish(events, { _tag: "Rejected", error: loaded.left })
        return
      }
      stored = loaded.right.stored
      const changed = Config.changedFields(current, loaded.right.effective)
      if (changed.length === 0) return
      current = loaded.right.effective
      yield* PubSub.publish(events, { _tag: "Applied", config: current, changed })
    })
    yield* reload.pipe(Effect.repeat(Schedule.spaced(pollInterval)), Effect.forkScoped)

    return Config.Config.of({
      file,
      current: Effect.sync(() => current),
      changes: Stream.fromPubSub(events),
      setToken: Effect.fnUntraced(function* (token) {
        if (options.env["A2A_BRIDGE_TOKEN"] !== undefined) {
          return yield* new Config.TokenPinned({ variable: "A2A_BRIDGE_TOKEN" })
        }
        // The file, not memory, is what is kept: fields that were edited meanwhile, or overridden here, stay as they
        // are. Where it is gone, it is written again as it was.
        const text = yield* read(file)
        const raw: unknown = text === undefined ? Config.encode(stored) : yield* parse(file, text)
        const next = isRecord(raw) ? { ...raw, token: Redacted.value(token) } : raw
        const kept = yield* Config.decode(file, next)
        const config: BridgeConfig = yield* Config.overlay(kept, options.env)
        yield* write(file, next)
        stored = kept
        const changed = Config.changedFields(current, config)
        seen = stamp(file)
        current = config
        yield* PubSub.publish(events, { _tag: "Applied", config, changed })
        return config
      })
    })
  })

/** A file that others could read is closed to them; where that fails (not ours), it is used as it is. */
const tighten = (file: string) =>
  Effect.try(() => {
    if ((statSync(file).mode & 0o077) !== 0) chmodSync(file, 0o600)
  }).pipe(Effect.catchAll((error) => Effect.logWarning(`cannot make ${file} private: ${reasonOf(error.error)}`)))

export const layer = (options: FileConfigOptions) => Layer.scoped(Config.Config, make(options))
