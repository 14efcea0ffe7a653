import { constants, realpath as realpathCallback } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname, join, sep } from "node:path"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type { Disk } from "../../services/jobs/gitChanges.ts"
import { JobId } from "../../services/jobs/Job.ts"
import { FolderFailed, WorktreeFolder } from "../../services/jobs/WorktreeFolder.ts"
import { type WorktreeRecord, WorktreeRecordJson } from "../../services/jobs/WorktreeRecord.ts"

export interface Options {
  /** Must lie outside every checkout. */
  readonly worktrees: string
}

const isJobId = Schema.is(JobId)
const encodeRecord = Schema.encodeSync(WorktreeRecordJson)
const decodeRecord = Schema.decodeOption(WorktreeRecordJson)

const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error ? String(error.code) : undefined
/** Only what is not there is absent: what cannot be looked at may be there. */
const orAbsent =
  <A>(absent: A) =>
  (error: unknown): A => {
    if (["ENOENT", "ENOTDIR"].includes(codeOf(error) ?? "")) return absent
    throw error
  }
const attempt = <A>(act: () => Promise<A>) =>
  Effect.tryPromise({
    try: act,
    catch: (error) => new FolderFailed({ detail: error instanceof Error ? error.message : String(error) })
  })

/** The native one knows the disk's own spelling of a path. */
const realpath = promisify(realpathCallback.native)
const lstat = (path: string | Buffer) => fs.lstat(path).catch(orAbsent(undefined))
const list = (path: string) => fs.readdir(path).catch(orAbsent<Array<string>>([]))

const separator = Buffer.from(sep)
const below = (folder: Buffer, name: Uint8Array): Buffer => Buffer.concat([folder, separator, name])

/** A folder's tree without following links, folders before what is in them. Names are bytes: they need not be text. */
async function* tree(
  folder: Buffer,
  skip?: string
): AsyncGenerator<{ readonly path: Buffer; readonly isFolder: boolean }> {
  for (const name of await fs.readdir(folder, { encoding: "buffer" })) {
    if (name.toString("latin1") === skip) continue
    const path = below(folder, name)
    const isFolder = (await lstat(path))?.isDirectory() ?? false
    yield { path, isFolder }
    if (isFolder) yield* tree(path, skip)
  }
}

/** Of a folder that is ours. What is read-only in it goes as well. */
const removeTree = async (folder: string): Promise<void> => {
  const stat = await lstat(folder)
  if (stat === undefined) return
  if (!stat.isDirectory()) return fs.unlink(folder)
  await fs.chmod(folder, 0o700)
  for await (const { isFolder, path } of tree(Buffer.from(folder))) if (isFolder) await fs.chmod(path, 0o700)
  await fs.rm(folder, { recursive: true, force: true, maxRetries: 3 })
}

const disk = (root: string): Disk => ({
  isFile: (path) =>
    Effect.promise(async () => {
      const stat = await lstat(below(Buffer.from(root), path))
      return stat !== undefined && !stat.isDirectory()
    }),
  walk: (folder) =>
    Effect.promise(async () => {
      const found: Array<Uint8Array> = []
      const from = Buffer.byteLength(root) + 1
      for await (const { isFolder, path } of tree(below(Buffer.from(root), folder), ".git"))
        if (!isFolder) found.push(path.subarray(from))
      return found
    })
})

/** With its time: git takes a file for unchanged that is older than the index. Rounded down, it looks once too often. */
const copyIndex = async (from: string, to: string): Promise<void> => {
  const { mtimeMs } = await fs.stat(from)
  const seconds = Math.floor(mtimeMs / 1000)
  await fs.copyFile(from, to)
  await fs.utimes(to, seconds, seconds)
}

const copyNew = async (from: string, to: string): Promise<boolean> => {
  if (!(await lstat(from))?.isFile()) return false
  // Something else than a folder on the way to it is a tracked file.
  const made = await fs.mkdir(dirname(to), { recursive: true }).then(
    () => true,
    () => false
  )
  // The commit may have a link where the checkout has a folder.
  if (!made || (await realpath(dirname(to))) !== dirname(to)) return false
  return fs.copyFile(from, to, constants.COPYFILE_EXCL).then(
    () => true,
    (error: unknown) => {
      if (codeOf(error) === "EEXIST") return false
      throw error
    }
  )
}

/** Git adds a number to the name of a record where the name is taken. */
const gitRecords = async (common: string, jobId: JobId): Promise<ReadonlyArray<string>> =>
  (await list(join(common, "worktrees")))
    .filter((name) => name.startsWith(jobId))
    .map((name) => join(common, "worktrees", name))

const make = ({ worktrees }: Options) => {
  const find = async (): Promise<string | undefined> =>
    (await lstat(worktrees)) === undefined ? undefined : realpath(worktrees)
  /** For what exists only where the folder does. */
  const home = async (): Promise<string> => (await find()) ?? worktrees
  const write = async (record: WorktreeRecord): Promise<void> => {
    const file = join(await home(), `${record.jobId}.json`)
    await fs.writeFile(`${file}.new`, encodeRecord(record), { mode: 0o600 })
    await fs.rename(`${file}.new`, file)
  }

  return WorktreeFolder.of({
    make: attempt(async () => {
      await fs.mkdir(worktrees, { recursive: true, mode: 0o700 })
      if (process.platform !== "win32") await fs.chmod(worktrees, 0o700)
      return realpath(worktrees)
    }),
    find: attempt(find),
    jobs: attempt(async () => {
      const names = (await list(await home())).map((name) => name.split(".")[0]!)
      return [...new Set(names)].filter(isJobId)
    }),
    claim: (record) =>
      attempt(async () => {
        const { jobId } = record
        const taken = (await list(await home())).some((name) => name === jobId || name.startsWith(`${jobId}.`))
        if (!taken) await write(record)
        return !taken
      }),
    write: (record) => attempt(() => write(record)),
    read: (jobId) =>
      attempt(async () => {
        const text = await fs.readFile(join(await home(), `${jobId}.json`), "utf8").catch(orAbsent(""))
        const record = decodeRecord(text)
        return record._tag === "Some" && record.value.jobId === jobId ? record.value : undefined
      }),
    keepIndex: (jobId, gitDir) =>
      attempt(async () => copyIndex(join(gitDir, "index"), join(await home(), `${jobId}.index`))),
    scratch: (jobId) =>
      Effect.acquireRelease(
        attempt(async () => fs.mkdtemp(join(await home(), `${jobId}.tmp-`))),
        // What stays goes with the job.
        (folder) => Effect.ignoreLogged(attempt(() => removeTree(folder)))
      ).pipe(
        Effect.flatMap((folder) =>
          attempt(async () => {
            const kept = join(await home(), `${jobId}.index`)
            const index = join(folder, "index")
            const objects = join(folder, "objects")
            const seeded = (await lstat(kept)) !== undefined
            if (seeded) await copyIndex(kept, index)
            await fs.mkdir(objects)
            return { index, seeded, objects }
          })
        )
      ),
    copy: (from, jobId, names) =>
      attempt(async () => {
        const root = join(await home(), jobId)
        const copied: Array<string> = []
        for (const name of names) if (await copyNew(join(from, name), join(root, name))) copied.push(name)
        return copied
      }),
    gitRecords: (common, jobId) => attempt(() => gitRecords(common, jobId)),
    commonOf: (jobId) =>
      attempt(async () => {
        const text = await fs.readFile(join(await home(), jobId, ".git"), "utf8").catch(() => "")
        const record = /^gitdir: (.*)\n?$/.exec(text)?.[1]
        if (record === undefined || !basename(record).startsWith(jobId)) return undefined
        return basename(dirname(record)) === "worktrees" ? dirname(dirname(record)) : undefined
      }),
    removeTree: (jobId) => attempt(async () => removeTree(join(await home(), jobId))),
    removeGitRecords: (common, jobId) =>
      attempt(async () => {
        for (const record of await gitRecords(common, jobId)) await removeTree(record)
        // As git does it with the last one.
        await fs.rmdir(join(common, "worktrees")).catch(() => undefined)
      }),
    forget: (jobId) =>
      attempt(async () => {
        const at = await home()
        const record = `${jobId}.json`
        const own = (await list(at)).filter((name) => name.startsWith(`${jobId}.`) && name !== record)
        // Without the record nobody would come back for the rest.
        for (const name of [...own, record]) await removeTree(join(at, name))
      }),
    realpath: (path) => Effect.promise(() => realpath(path).catch(() => undefined)),
    kind: (path) =>
      attempt(async () => {
        const stat = await lstat(path)
        return stat === undefined ? undefined : stat.isDirectory() ? "folder" : "other"
      }),
    disk
  })
}

export const layer = (options: Options) => Layer.sync(WorktreeFolder, () => make(options))
