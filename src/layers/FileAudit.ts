import { createHash } from "node:crypto"
import { chmod, lstat, mkdir, open, readdir, rename, rm } from "node:fs/promises"
import type { FileHandle } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Redacted from "effect/Redacted"
import type { AuditCall, AuditRecord } from "../services/Audit.ts"
import { Audit, doneRecord, startRecord } from "../services/Audit.ts"
import { Config } from "../services/Config.ts"
import { summarize } from "../services/redaction.ts"

export interface FileAuditOptions {
  readonly agentDir: string
  /** `A2A_BRIDGE_AUDIT` names another file than `a2a-bridge.log`. */
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Told once when the disk stops taking records, and once when it takes them again. */
export type OnTrouble = (trouble: { readonly file: string; readonly reason: string } | undefined) => Effect.Effect<void>

export const auditPath = (options: FileAuditOptions): string =>
  options.env["A2A_BRIDGE_AUDIT"] || join(options.agentDir, "a2a-bridge.log")

type Item =
  | { readonly _tag: "Line"; readonly text: string }
  | { readonly _tag: "Flush"; readonly done: Deferred.Deferred<void> }

const digest = (text: string): string => createHash("sha256").update(text, "utf8").digest("hex")

interface Limits {
  readonly maxBytes: number
  readonly generations: number
}

/** The open log. One writer per file: appends, and moves full files to `.1`, `.2`... */
class LogFile {
  private handle: FileHandle | undefined
  private size = 0
  private inode = 0n
  private readonly path: string

  constructor(path: string) {
    this.path = path
  }

  async append(lines: ReadonlyArray<string>, limits: Limits): Promise<void> {
    await this.ensure()
    let chunk = ""
    let bytes = 0
    for (const line of lines) {
      const length = Buffer.byteLength(line)
      if (this.size + bytes > 0 && this.size + bytes + length > limits.maxBytes) {
        await this.write(chunk, bytes)
        chunk = ""
        bytes = 0
        await this.rotate(limits.generations)
      }
      chunk += line
      bytes += length
    }
    await this.write(chunk, bytes)
  }

  async close(): Promise<void> {
    const handle = this.handle
    this.handle = undefined
    await handle?.close()
  }

  private async write(chunk: string, bytes: number): Promise<void> {
    if (bytes === 0) return
    await this.handle?.appendFile(chunk)
    this.size += bytes
  }

  /** Opens the log, again where somebody moved or deleted it: records must not go on into a file without a name. */
  private async ensure(): Promise<void> {
    if (this.handle !== undefined) {
      const now = await lstat(this.path, { bigint: true }).catch(() => undefined)
      if (now?.ino === this.inode && !now.isSymbolicLink()) return
      await this.close()
    }
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 })
    const existing = await lstat(this.path).catch(() => undefined)
    // A link could lead the records of this user's calls to anybody.
    if (existing?.isSymbolicLink()) throw new Error(`${this.path} is a symbolic link; the audit log must be a file`)
    const handle = await open(this.path, "a", 0o600)
    const { ino, mode, size } = await handle.stat({ bigint: true })
    if ((mode & 0o077n) !== 0n) await chmod(this.path, 0o600)
    this.handle = handle
    this.size = Number(size)
    this.inode = ino
  }

  private async rotate(generations: number): Promise<void> {
    await this.close()
    // Those that the rename below would push out, and those that a lower limit no longer allows.
    const name = `${basename(this.path)}.`
    for (const file of await readdir(dirname(this.path))) {
      const number = file.startsWith(name) ? file.slice(name.length) : ""
      if (/^[1-9]\d*$/.test(number) && Number(number) >= generations)
        await rm(`${this.path}.${number}`, { force: true })
    }
    for (let n = generations - 1; n >= 1; n--) {
      await rename(`${this.path}.${n}`, `${this.path}.${n + 1}`).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error
      })
    }
    await rename(this.path, `${this.path}.1`)
    await this.ensure()
  }
}

const make = (options: FileAuditOptions, onTrouble: OnTrouble) =>
  Effect.gen(function* () {
    const config = yield* Config
    const path = auditPath(options)
    const file = new LogFile(path)
    // Records wait here until a batch takes them all. The bell only wakes the writer: a wake that is interrupted
    // takes no record with it.
    const waiting: Array<Item> = []
    const bell = yield* Queue.sliding<void>(1)
    let troubled = false

    const writeAll = Effect.gen(function* () {
      const items = waiting.splice(0)
      const lines = items.flatMap((item) => (item._tag === "Line" ? [item.text] : []))
      if (lines.length > 0) {
        const { audit } = yield* config.current
        yield* Effect.tryPromise(() => file.append(lines, audit)).pipe(
          Effect.matchEffect({
            onFailure: ({ error }) => {
              if (troubled) return Effect.void
              troubled = true
              return onTrouble({ file: path, reason: error instanceof Error ? error.message : String(error) })
            },
            onSuccess: () => {
              if (!troubled) return Effect.void
              troubled = false
              return onTrouble(undefined)
            }
          })
        )
      }
      for (const item of items) if (item._tag === "Flush") yield* Deferred.succeed(item.done, undefined)
    })

    const put = (item: Item) =>
      Effect.suspend(() => {
        waiting.push(item)
        return Queue.offer(bell, undefined)
      })
    const flush = Effect.gen(function* () {
      const done = yield* Deferred.make<void>()
      yield* put({ _tag: "Flush", done })
      yield* Deferred.await(done)
    })
    yield* Effect.addFinalizer(() => Effect.promise(() => file.close().catch(() => undefined)))
    // Runs after the writer has been interrupted: what still waits goes out here.
    yield* Effect.addFinalizer(() => writeAll)
    yield* Effect.forkScoped(Effect.forever(Effect.zipRight(Queue.take(bell), Effect.uninterruptible(writeAll))))

    const record = (entry: AuditRecord, durable: boolean) =>
      Effect.zipRight(put({ _tag: "Line", text: `${JSON.stringify(entry)}\n` }), durable ? flush : Effect.void)
    const now = Effect.map(DateTime.now, DateTime.formatIso)

    return Audit.of({
      start: Effect.fnUntraced(function* (call: AuditCall) {
        const { token } = yield* config.current
        const began = yield* Clock.currentTimeMillis
        const args = summarize(call.args, { digest, secrets: [Redacted.value(token)] })
        const start = startRecord(call, args, yield* now)
        yield* record(start, call.durable)
        return Effect.fnUntraced(function* (outcome) {
          const ended = yield* Clock.currentTimeMillis
          yield* record(doneRecord(start, outcome, yield* now, ended - began), call.durable)
        })
      }),
      flush
    })
  })

export const layer = (options: FileAuditOptions, onTrouble: OnTrouble) => Layer.scoped(Audit, make(options, onTrouble))
