import { Database, type SQLQueryBindings, SQLiteError, type Statement } from "bun:sqlite"
import { chmodSync, closeSync, mkdirSync, openSync, statSync } from "node:fs"
import { dirname } from "node:path"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Job from "../../services/jobs/Job.ts"
import type { Artifact, Filter, Patch, Position, Recorded, Retention } from "../../services/jobs/JobStore.ts"
import { JobStore, pruneBatch, StoreFailed } from "../../services/jobs/JobStore.ts"

/**
 * Each entry leads from its index to the next `user_version`, and is never edited once released.
 *
 * Artifacts are rows of 256 KiB, since SQLite reads a blob whole however little of it is asked for.
 */
const migrations = [
  `
  CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    thread TEXT NOT NULL,
    state TEXT NOT NULL,
    tier TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    ended_at TEXT,
    worktree TEXT,
    job TEXT NOT NULL
  ) STRICT;
  CREATE INDEX jobs_recent ON jobs (updated_at, id, state);
  CREATE INDEX jobs_owner ON jobs (owner, updated_at, id, state);
  CREATE INDEX jobs_thread ON jobs (thread, updated_at, id);
  CREATE INDEX jobs_state ON jobs (state, tier);
  CREATE INDEX jobs_ended ON jobs (ended_at, id) WHERE ended_at IS NOT NULL;
  CREATE INDEX jobs_worktree ON jobs (updated_at, id) WHERE worktree IS NOT NULL;
  CREATE TABLE events (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at TEXT NOT NULL,
    tag TEXT NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (job, seq)
  ) STRICT;
  CREATE INDEX events_tag ON events (job, tag, seq);
  CREATE TABLE artifacts (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (job, name)
  ) STRICT;
  CREATE TABLE pieces (
    job TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (job, name, number),
    FOREIGN KEY (job, name) REFERENCES artifacts (job, name) ON DELETE CASCADE
  ) STRICT;
  `
]
const pieceBytes = 256 * 1024

const strict = { onExcessProperty: "error" } as const
const encodeJob = Schema.encodeSync(Schema.parseJson(Job.Job), strict)
const decodeJob = Schema.decodeUnknownSync(Schema.parseJson(Job.Job))
const encodeEvent = Schema.encodeSync(Schema.parseJson(Job.Event), strict)
const decodeEvent = Schema.decodeUnknownSync(Schema.parseJson(Job.Event))

/** What a person can do, by SQLite's primary result code. */
const advice: Readonly<Record<string, (file: string) => string>> = {
  SQLITE_BUSY: (file) => `another process has ${file} open: end it, or set another state folder`,
  SQLITE_LOCKED: (file) => `another process has ${file} open: end it, or set another state folder`,
  SQLITE_CORRUPT: (file) => `${file} is damaged: move it away (its jobs are lost) and start again`,
  SQLITE_NOTADB: (file) => `${file} is not a database: move it away and start again`,
  SQLITE_READONLY: (file) => `${file} cannot be written: make it and its folder writable`,
  SQLITE_CANTOPEN: (file) => `${file} cannot be opened: make it and its folder readable and writable`,
  SQLITE_PERM: (file) => `${file} cannot be opened: make it and its folder readable and writable`,
  SQLITE_FULL: (file) => `the disk of ${file} is full: make room`,
  SQLITE_IOERR: (file) => `the disk of ${file} does not work, or is full`
}

const codeOf = (error: unknown): string =>
  error instanceof SQLiteError ? (/^SQLITE_[A-Z]+/.exec(error.code ?? "")?.[0] ?? "") : ""

const describe = (file: string, error: unknown): string => {
  const what = advice[codeOf(error)]?.(file)
  const reason = error instanceof Error ? error.message : String(error)
  return what === undefined ? reason : `${what} (${reason})`
}

/** Somebody else has it, or just had it: worth another try. */
const isBusy = (error: unknown): boolean => ["SQLITE_BUSY", "SQLITE_LOCKED"].includes(codeOf(error))

const prepareFile = (file: string): void => {
  const folder = dirname(file)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  if ((statSync(folder).mode & 0o077) !== 0) chmodSync(folder, 0o700)
  // SQLite would make it readable to all; its journals take the file's own mode.
  closeSync(openSync(file, "a", 0o600))
  if ((statSync(file).mode & 0o077) !== 0) chmodSync(file, 0o600)
}

export interface Options {
  /** Beyond it the store fails as it does on a full disk. */
  readonly maxBytes?: number
}

/** The open database. One process at a time: its jobs' fibers and worktrees are this process's alone. */
class Connection {
  private readonly db: Database
  private readonly statements = new Map<string, Statement>()

  private constructor(db: Database) {
    this.db = db
  }

  static open(file: string, options: Options): Connection {
    prepareFile(file)
    const connection = new Connection(new Database(file, { readwrite: true, create: false, strict: true }))
    try {
      connection.setUp(file)
      if (options.maxBytes !== undefined) connection.limit(options.maxBytes)
      return connection
    } catch (error) {
      connection.close()
      throw error
    }
  }

  private setUp(file: string): void {
    // Taken with the first transaction below, let go by the kernel when the process ends, however it does.
    this.db.run("PRAGMA locking_mode = EXCLUSIVE")
    this.db.run("PRAGMA busy_timeout = 0")
    // Before there is a table, or never.
    this.db.run("PRAGMA auto_vacuum = INCREMENTAL")
    this.db.run("PRAGMA journal_mode = WAL")
    this.db.run("PRAGMA journal_size_limit = 16777216")
    this.db.run("PRAGMA foreign_keys = ON")
    this.transaction(true, () => {
      const version = this.row<{ readonly user_version: number }>("PRAGMA user_version")?.user_version ?? 0
      if (version > migrations.length)
        throw new Error(
          `${file} was written by a newer version (schema ${version}, this one knows ${migrations.length}): ` +
            "update pi-a2a-ext, or set another state folder"
        )
      for (const migration of migrations.slice(version)) this.db.run(migration)
      this.db.run(`PRAGMA user_version = ${migrations.length}`)
    })
  }

  /**
   * `lasting`: on the disk when it returns, even past a power cut. Without, a power cut (not a crash) may take the last
   * ones, in order; worth it for what a worker says several times a second, since a sync halts the whole process.
   */
  transaction<A>(lasting: boolean, body: () => A): A {
    this.db.run(`PRAGMA synchronous = ${lasting ? "FULL" : "NORMAL"}`)
    this.db.run("BEGIN IMMEDIATE")
    try {
      const result = body()
      this.db.run("COMMIT")
      return result
    } catch (error) {
      // SQLite has rolled back by itself after some errors.
      if (this.db.inTransaction) this.db.run("ROLLBACK")
      throw error
    }
  }

  private statement(sql: string): Statement {
    let statement = this.statements.get(sql)
    if (statement === undefined) {
      statement = this.db.prepare(sql)
      this.statements.set(sql, statement)
    }
    return statement
  }

  row<R>(sql: string, ...values: Array<SQLQueryBindings>): R | undefined {
    return (this.statement(sql).get(...values) as R | null) ?? undefined
  }

  rows<R>(sql: string, ...values: Array<SQLQueryBindings>): ReadonlyArray<R> {
    return this.statement(sql).all(...values) as Array<R>
  }

  run(sql: string, ...values: Array<SQLQueryBindings>): number {
    return this.statement(sql).run(...values).changes
  }

  private limit(bytes: number): void {
    const page = this.row<{ readonly page_size: number }>("PRAGMA page_size")?.page_size ?? 4096
    this.db.run(`PRAGMA max_page_count = ${Math.ceil(bytes / page)}`)
  }

  /** Gives room back to the disk, some pages at a time. */
  shrink(): void {
    this.db.run("PRAGMA incremental_vacuum(4096)")
  }

  close(): void {
    for (const statement of this.statements.values()) statement.finalize()
    this.statements.clear()
    this.db.close(true)
  }
}

interface JobRow {
  readonly job: string
}

const read = (db: Connection, id: Job.JobId): Job.Job | undefined => {
  const row = db.row<JobRow>("SELECT job FROM jobs WHERE id = ?", id)
  return row === undefined ? undefined : decodeJob(row.job)
}

const columns = (job: Job.Job) =>
  [job.owner, job.thread, job.state, job.tier, job.updatedAt, job.endedAt ?? null, job.worktree ?? null] as const

/** The job with those events that it accepts, which are stored. */
const record = (db: Connection, job: Job.Job, events: ReadonlyArray<Job.Event>, at: string): Recorded => {
  const stored: Array<Job.StoredEvent> = []
  let now = job
  for (const event of events) {
    if (!Job.accepts(now.state, event)) continue
    const next: Job.StoredEvent = { seq: now.lastSeq + 1, at, event }
    db.run(
      "INSERT INTO events (job, seq, at, tag, event) VALUES (?, ?, ?, ?, ?)",
      job.id,
      next.seq,
      at,
      event._tag,
      encodeEvent(event)
    )
    stored.push(next)
    now = Job.apply(now, next)
  }
  return { job: now, events: stored }
}

const where = (filter: Filter, after: Position | undefined) => {
  const tests: Array<string> = []
  const values: Array<string> = []
  const add = (test: string, ...bound: ReadonlyArray<string>) => {
    tests.push(test)
    values.push(...bound)
  }
  if (filter.owner !== undefined) add("owner = ?", filter.owner)
  if (filter.states !== undefined) add("state IN (SELECT value FROM json_each(?))", JSON.stringify(filter.states))
  if (filter.thread !== undefined) add("thread = ?", filter.thread)
  if (filter.updatedAfter !== undefined) add("updated_at > ?", filter.updatedAfter)
  if (filter.hasWorktree === true) add("worktree IS NOT NULL")
  if (after !== undefined) add("(updated_at, id) < (?, ?)", after.updatedAt, after.id)
  return { sql: tests.length === 0 ? "" : `WHERE ${tests.join(" AND ")}`, values }
}

const service = (db: Connection, file: string): JobStore["Type"] => {
  const attempt =
    (lasting: boolean) =>
    <A>(operation: string, body: () => A): Effect.Effect<A, StoreFailed> =>
      Effect.try({
        try: () => db.transaction(lasting, body),
        catch: (error) => new StoreFailed({ operation, detail: describe(file, error) })
      })
  const reading = attempt(false)
  const writing = attempt(true)

  return JobStore.of({
    insert: (job, events, at) =>
      writing("insert", () => {
        db.run(
          "INSERT INTO jobs (id, owner, thread, state, tier, updated_at, ended_at, worktree, job) " +
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')",
          job.id,
          ...columns(job)
        )
        const recorded = record(db, job, events, at)
        update(db, recorded.job)
        return recorded
      }),
    append: (id, events, at, patch) =>
      attempt(!events.every(Job.isWorkerEvent) || patch !== undefined)("append", () => {
        const job = read(db, id)
        if (job === undefined) return Option.none()
        const recorded = record(db, job, events, at)
        const idle = recorded.events.length === 0 && (events.length > 0 || patch === undefined)
        if (idle) return Option.some({ job, events: [] })
        const patched = patch === undefined ? recorded.job : withPatch(recorded.job, patch)
        update(db, patched)
        return Option.some({ job: patched, events: recorded.events })
      }),
    get: (id) => reading("get", () => Option.fromNullable(read(db, id))),
    list: (filter, limit, after) =>
      reading("list", () => {
        const all = where(filter, undefined)
        const page = where(filter, after)
        return {
          jobs: db
            .rows<JobRow>(
              `SELECT job FROM jobs ${page.sql} ORDER BY updated_at DESC, id DESC LIMIT ?`,
              ...page.values,
              limit
            )
            .map((row) => decodeJob(row.job)),
          total: db.row<{ readonly n: number }>(`SELECT count(*) AS n FROM jobs ${all.sql}`, ...all.values)?.n ?? 0
        }
      }),
    events: (id, since, limit, tags) =>
      reading("events", () =>
        db
          .rows<{ readonly seq: number; readonly at: string; readonly event: string }>(
            "SELECT seq, at, event FROM events WHERE job = ? AND seq > ? " +
              (tags === undefined ? "" : "AND tag IN (SELECT value FROM json_each(?)) ") +
              "ORDER BY seq LIMIT ?",
            id,
            since,
            ...(tags === undefined ? [] : [JSON.stringify(tags)]),
            limit
          )
          .map((row) => ({ seq: row.seq, at: row.at, event: decodeEvent(row.event) }))
      ),
    putArtifact: (id, name, mediaType, bytes) =>
      writing("putArtifact", () => {
        db.run("DELETE FROM artifacts WHERE job = ? AND name = ?", id, name)
        db.run(
          "INSERT INTO artifacts (job, name, media_type, size) VALUES (?, ?, ?, ?)",
          id,
          name,
          mediaType,
          bytes.byteLength
        )
        for (let number = 0; number * pieceBytes < bytes.byteLength; number++) {
          db.run(
            "INSERT INTO pieces (job, name, number, bytes) VALUES (?, ?, ?, ?)",
            id,
            name,
            number,
            bytes.subarray(number * pieceBytes, (number + 1) * pieceBytes)
          )
        }
      }),
    artifacts: (id) =>
      reading("artifacts", () =>
        db.rows<Artifact>("SELECT name, media_type AS mediaType, size FROM artifacts WHERE job = ? ORDER BY name", id)
      ),
    readArtifact: (id, name, offset, length) =>
      reading("readArtifact", () => {
        const artifact = db.row<Artifact>(
          "SELECT name, media_type AS mediaType, size FROM artifacts WHERE job = ? AND name = ?",
          id,
          name
        )
        if (artifact === undefined) return Option.none()
        const start = Math.min(Math.max(0, offset), artifact.size)
        const bytes = new Uint8Array(Math.min(Math.max(0, length), artifact.size - start))
        const first = Math.floor(start / pieceBytes)
        const pieces = db.rows<{ readonly bytes: Uint8Array }>(
          "SELECT bytes FROM pieces WHERE job = ? AND name = ? AND number >= ? AND number * ? < ? ORDER BY number",
          id,
          name,
          first,
          pieceBytes,
          start + bytes.byteLength
        )
        let at = 0
        for (const [n, piece] of pieces.entries()) {
          const from = n === 0 ? start - first * pieceBytes : 0
          const part = piece.bytes.subarray(from, from + bytes.byteLength - at)
          bytes.set(part, at)
          at += part.byteLength
        }
        if (at !== bytes.byteLength) throw new Error(`${file} is damaged: an artifact of job ${id} is incomplete`)
        return Option.some({ artifact, bytes })
      }),
    processOf: (id) =>
      reading("processOf", () => {
        const row = db.row<{ readonly event: string }>(
          "SELECT event FROM events WHERE job = ? AND tag = 'Process' ORDER BY seq DESC LIMIT 1",
          id
        )
        const event = row === undefined ? undefined : decodeEvent(row.event)
        return event?._tag === "Process" ? Option.some({ pid: event.pid, startedAt: event.startedAt }) : Option.none()
      }),
    prune: (retention, now) =>
      Effect.tap(
        writing("prune", () => prune(db, retention, now)),
        // The jobs are gone already: a disk that gives no room back is no failure of that.
        (removed) => (removed.length === 0 ? Effect.void : Effect.ignore(Effect.try(() => db.shrink())))
      ),
    counts: reading("counts", () => {
      const states = Object.fromEntries(Job.State.literals.map((state) => [state, 0])) as Record<Job.State, number>
      const tiers = Object.fromEntries(Job.Tier.literals.map((tier) => [tier, 0])) as Record<Job.Tier, number>
      const rows = db.rows<{ readonly state: Job.State; readonly tier: Job.Tier; readonly n: number }>(
        "SELECT state, tier, count(*) AS n FROM jobs GROUP BY state, tier"
      )
      for (const { n, state, tier } of rows) {
        states[state] += n
        tiers[tier] += n
      }
      return { states, tiers }
    })
  })
}

const update = (db: Connection, job: Job.Job): void => {
  db.run(
    "UPDATE jobs SET owner = ?, thread = ?, state = ?, tier = ?, updated_at = ?, ended_at = ?, worktree = ?, job = ? " +
      "WHERE id = ?",
    ...columns(job),
    encodeJob(job),
    job.id
  )
}

const withPatch = (job: Job.Job, patch: Patch): Job.Job => ({ ...job, ...patch })

const prune = (db: Connection, retention: Retention, now: string): ReadonlyArray<Job.JobId> => {
  const oldest = DateTime.formatIso(DateTime.subtractDuration(DateTime.unsafeMake(now), retention.maxAge))
  const ids = db.rows<{ readonly id: Job.JobId }>(
    "SELECT id FROM jobs WHERE ended_at IS NOT NULL AND worktree IS NULL AND (ended_at < ? OR id IN " +
      "(SELECT id FROM jobs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT -1 OFFSET ?)) " +
      "ORDER BY ended_at, id LIMIT ?",
    oldest,
    retention.maxJobs,
    pruneBatch
  )
  for (const { id } of ids) db.run("DELETE FROM jobs WHERE id = ?", id)
  return ids.map(({ id }) => id)
}

/**
 * Waits up to two seconds for another process to let go of the file (a bridge that is just ending), then fails: a store
 * serves one process.
 */
export const layer = (file: string, options: Options = {}): Layer.Layer<JobStore, StoreFailed> =>
  Layer.scoped(
    JobStore,
    Effect.acquireRelease(
      Effect.try(() => Connection.open(file, options)).pipe(
        Effect.retry({ while: ({ error }) => isBusy(error), schedule: Schedule.spaced("100 millis"), times: 20 }),
        Effect.mapError(({ error }) => new StoreFailed({ operation: "open", detail: describe(file, error) }))
      ),
      (db) => Effect.sync(() => db.close())
    ).pipe(Effect.map((db) => service(db, file)))
  )
