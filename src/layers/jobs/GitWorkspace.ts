import { constants, realpath as realpathCallback } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname, join, relative, sep } from "node:path"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Git } from "../../services/jobs/Git.ts"
import type { Disk } from "../../services/jobs/gitChanges.ts"
import * as GitChanges from "../../services/jobs/gitChanges.ts"
import { line } from "../../services/jobs/gitOutput.ts"
import * as GitRepository from "../../services/jobs/gitRepository.ts"
import { JobId } from "../../services/jobs/Job.ts"
import type { Flavour } from "../../services/jobs/pathRules.ts"
import { checkLiteral, decide, insideReal } from "../../services/jobs/pathRules.ts"
import type { Checkout } from "../../services/jobs/Workspace.ts"
import {
  CollectFailed,
  RemoveFailed,
  Workspace,
  WorkspaceRefused,
  WorkspaceUnusable
} from "../../services/jobs/Workspace.ts"
import { type WorktreeRecord, WorktreeRecordJson } from "../../services/jobs/WorktreeRecord.ts"

export interface Options {
  /** Folders that remote parties may work in, asked for each time. */
  readonly roots: Effect.Effect<ReadonlyArray<string>>
  /**
   * Holds, of each job, `<jobId>` (the worktree) and `<jobId>.*` (what is known of it). Made with mode 0700; must lie
   * outside every checkout.
   */
  readonly worktrees: string
  /** Globs relative to a repository: untracked files that are copied into its worktrees. */
  readonly copyFiles: Effect.Effect<ReadonlyArray<string>>
  /** A larger patch is not collected. */
  readonly maxPatchBytes?: number
}

const flavour: Flavour = process.platform === "win32" || process.platform === "darwin" ? process.platform : "posix"
const defaultMaxPatchBytes = 256 * 1024 * 1024

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error ? String(error.code) : undefined

const isJobId = Schema.is(JobId)
const encodeRecord = Schema.encodeSync(WorktreeRecordJson)
const decodeRecord = Schema.decodeOption(WorktreeRecordJson)

/** The native one knows the disk's own spelling of a path. */
const nativeRealpath = promisify(realpathCallback.native)
const realpath = (path: string) => nativeRealpath(path).catch(() => undefined)
const lstat = (path: string | Buffer) => fs.lstat(path).catch(() => undefined)
const list = (path: string) => fs.readdir(path).catch((): Array<string> => [])

const bytes = Buffer.from(sep)
const below = (folder: Buffer, name: Uint8Array): Buffer => Buffer.concat([folder, bytes, name])

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

/** Git's records of a job's worktree: it adds a number where a name is taken. */
const gitRecords = async (common: string, jobId: JobId): Promise<ReadonlyArray<string>> =>
  (await list(join(common, "worktrees")))
    .filter((name) => name.startsWith(jobId))
    .map((name) => join(common, "worktrees", name))

/** The git folder of the repository that a worktree of ours belongs to, as the worktree has it. */
const commonOf = async (root: string, jobId: JobId): Promise<string | undefined> => {
  const text = await fs.readFile(join(root, ".git"), "utf8").catch(() => "")
  const record = /^gitdir: (.*)\n?$/.exec(text)?.[1]
  if (record === undefined || !basename(record).startsWith(jobId)) return undefined
  return basename(dirname(record)) === "worktrees" ? dirname(dirname(record)) : undefined
}

/** Untracked files of the checkout, into a worktree that has nothing at their place. Those that were copied. */
const copyFiles = async (from: string, to: string, names: ReadonlyArray<string>): Promise<ReadonlyArray<string>> => {
  const copied: Array<string> = []
  for (const name of names) {
    const target = join(to, name)
    if (!(await lstat(join(from, name)))?.isFile()) continue
    await fs.mkdir(dirname(target), { recursive: true }).catch(() => undefined)
    // The commit may have a link where the checkout has a folder.
    if ((await realpath(dirname(target))) !== dirname(target)) continue
    const done = await fs.copyFile(join(from, name), target, constants.COPYFILE_EXCL).then(
      () => true,
      (error: unknown) => {
        if (codeOf(error) === "EEXIST") return false
        throw error
      }
    )
    if (done) copied.push(name)
  }
  return copied
}

const make = (options: Options) =>
  Effect.gen(function* () {
    const git = yield* Git
    const maxPatchBytes = options.maxPatchBytes ?? defaultMaxPatchBytes
    // Git locks a repository's list of worktrees for nobody.
    const locks = new Map<string, Effect.Semaphore>()
    const exclusively = (common: string) => {
      const lock = locks.get(common) ?? Effect.unsafeMakeSemaphore(1)
      locks.set(common, lock)
      return lock.withPermits(1)
    }

    const home = async (): Promise<string> => {
      await fs.mkdir(options.worktrees, { recursive: true, mode: 0o700 })
      if (flavour !== "win32") await fs.chmod(options.worktrees, 0o700)
      return nativeRealpath(options.worktrees)
    }
    const writeRecord = async (home: string, record: WorktreeRecord): Promise<void> => {
      const file = join(home, `${record.jobId}.json`)
      await fs.writeFile(`${file}.new`, encodeRecord(record), { mode: 0o600 })
      await fs.rename(`${file}.new`, file)
    }
    const readRecord = async (home: string, jobId: JobId): Promise<WorktreeRecord | undefined> => {
      const text = await fs.readFile(join(home, `${jobId}.json`), "utf8").catch(() => "")
      const record = decodeRecord(text)
      return record._tag === "Some" && record.value.jobId === jobId ? record.value : undefined
    }
    const toCheckout = (home: string, record: WorktreeRecord): Checkout => {
      const root = join(home, record.jobId)
      return {
        jobId: record.jobId,
        root,
        cwd: record.folder === "" ? root : join(root, ...record.folder.split("/")),
        repository: record.repository,
        base: record.base,
        notes: record.notes
      }
    }

    const resolve = Effect.fnUntraced(function* (path: string) {
      const configured = yield* options.roots
      const decision = yield* Effect.promise(async () => {
        const roots = await Promise.all(
          configured.map(async (root) => ({
            path: root,
            // The disk is asked about nothing that the rules refuse: a share's name would already log in to it.
            real: checkLiteral(flavour, root) === undefined ? await realpath(root) : undefined
          }))
        )
        const literally = decide(flavour, roots, path, undefined)
        if (Either.isLeft(literally) && literally.left !== "absent") return literally
        const decided = decide(flavour, roots, path, await realpath(path))
        if (Either.isLeft(decided)) return decided
        // Other jobs' worktrees are nobody's workspace, even where a root lies around them.
        const worktrees = await realpath(options.worktrees)
        if (worktrees !== undefined && insideReal(flavour, worktrees, decided.right))
          return Either.left("outside" as const)
        const stat = await lstat(decided.right)
        if (stat === undefined) return Either.left("absent" as const)
        return stat.isDirectory() ? decided : Either.left("not-a-folder" as const)
      })
      return yield* Either.mapLeft(decision, (reason) => new WorkspaceRefused({ path, reason }))
    })

    const tearDown = Effect.fnUntraced(function* (home: string, jobId: JobId, record: WorktreeRecord | undefined) {
      const root = join(home, jobId)
      const attempt = (remove: () => Promise<void>) =>
        Effect.tryPromise(remove).pipe(
          Effect.as(""),
          Effect.catchAll(({ error }) => Effect.succeed(reasonOf(error)))
        )
      const common = record?.common ?? (yield* Effect.promise(() => commonOf(root, jobId)))
      const known = Effect.promise(() => (common === undefined ? Promise.resolve([]) : gitRecords(common, jobId)))
      const complaints: Array<string> = []

      if (record?.phase === "opening") yield* git.endStrays(jobId)
      let branches = record?.branchesMade ?? []
      if (record !== undefined) {
        for (const gitDir of yield* known)
          branches = [
            ...new Set([...branches, ...(yield* GitRepository.ownBranches(git, gitDir, record.branchesBefore))])
          ]
        const begun = { ...record, branchesMade: branches }
        complaints.push(yield* attempt(() => writeRecord(home, begun)))
      }
      // Through a link git would empty the folder that it leads to.
      const isFolder = yield* Effect.promise(async () => (await lstat(root))?.isDirectory() ?? false)
      if (common !== undefined && isFolder)
        yield* git
          .run([`--git-dir=${common}`, "worktree", "remove", "--force", "--force", root])
          .pipe(Effect.catchAll(({ detail }) => Effect.sync(() => void complaints.push(detail))))
      complaints.push(yield* attempt(() => removeTree(root)))
      // Not `worktree prune`: it would also forget worktrees of the user's that are merely not mounted.
      for (const gitDir of yield* known) complaints.push(yield* attempt(() => removeTree(gitDir)))
      if (common !== undefined) yield* attempt(() => fs.rmdir(join(common, "worktrees")))

      const left = [...(yield* known), ...((yield* Effect.promise(() => lstat(root))) === undefined ? [] : [root])]
      if (left.length > 0) {
        const detail = [`still there: ${left.join(", ")}`, ...complaints.filter((text) => text !== "")].join("; ")
        return yield* new RemoveFailed({ path: root, detail })
      }
      for (const branch of branches)
        yield* GitRepository.deleteBranch(git, record?.common ?? root, branch).pipe(
          Effect.catchAll(({ detail }) => Effect.logWarning("branch of a job stays", { branch, detail }))
        )
      yield* Effect.tryPromise({
        try: async () => {
          const own = (await list(home)).filter((name) => name.startsWith(`${jobId}.`))
          // The record last: without it nobody would come back for the rest.
          own.sort((a, b) => Number(a === `${jobId}.json`) - Number(b === `${jobId}.json`))
          for (const name of own) await removeTree(join(home, name))
        },
        catch: (error) => new RemoveFailed({ path: root, detail: reasonOf(error) })
      })
    })

    const remove = Effect.fn("Workspace.remove")(function* (jobId: JobId, root: string) {
      const real = yield* Effect.promise(() => realpath(options.worktrees))
      // Without the folder that holds them all there is none.
      if (real === undefined) return
      if (!isJobId(jobId) || ![join(real, jobId), join(options.worktrees, jobId)].includes(root))
        return yield* new RemoveFailed({ path: root, detail: `not the worktree of job ${jobId}` })
      const record = yield* Effect.promise(() => readRecord(real, jobId))
      const work = tearDown(real, jobId, record)
      yield* record === undefined ? work : exclusively(record.common)(work)
    })

    const fill = Effect.fnUntraced(function* (home: string, path: string, record: WorktreeRecord) {
      const root = join(home, record.jobId)
      const { repository } = record
      yield* git
        .run(["-C", repository, "worktree", "add", "--detach", "--quiet", root, record.base])
        .pipe(Effect.mapError(GitRepository.unusable(path)))
      const { cwd } = toCheckout(home, record)
      // A link of the commit could lead elsewhere, and a sparse checkout can lack the folder.
      if ((yield* Effect.promise(() => realpath(cwd))) !== cwd)
        return yield* new WorkspaceUnusable({
          path,
          reason: "untracked",
          detail: `HEAD has no folder ${record.folder}`
        })
      const rest = Effect.gen(function* () {
        const notes = [
          ...(yield* GitRepository.uncommitted(git, repository)),
          ...(yield* GitRepository.lacking(git, root))
        ]
        const wanted = yield* GitRepository.untrackedMatching(git, repository, yield* options.copyFiles)
        const gitDir = line(yield* git.run(["-C", root, "rev-parse", "--absolute-git-dir"]))
        return { notes, wanted, gitDir }
      })
      const { gitDir, notes, wanted } = yield* Effect.mapError(rest, GitRepository.unusable(path))
      return yield* Effect.tryPromise({
        try: async () => {
          await copyIndex(join(gitDir, "index"), join(home, `${record.jobId}.index`))
          const copied = await copyFiles(repository, root, wanted)
          if (copied.length > 0) notes.push(`Copied from the checkout: ${copied.join(", ")}.`)
          const ready: WorktreeRecord = { ...record, phase: "ready", copied, notes }
          await writeRecord(home, ready)
          return toCheckout(home, ready)
        },
        catch: (error) => new WorkspaceUnusable({ path, reason: "disk", detail: reasonOf(error) })
      })
    })

    const open = Effect.fn("Workspace.open")(function* (jobId: JobId, path: string) {
      const refuse = (reason: WorkspaceUnusable["reason"], detail: string) =>
        new WorkspaceUnusable({ path, reason, detail })
      const real = yield* resolve(path)
      const repository = yield* GitRepository.look(git, real)
      // The worktree holds the whole repository: a root that is a part of one gives the rest away to nobody.
      const toplevel = yield* resolve(repository.toplevel)
      const folder = relative(toplevel, real).split(sep).join("/")
      if (
        !(yield* GitRepository.hasFolder(git, repository, folder).pipe(Effect.mapError(GitRepository.unusable(path))))
      )
        return yield* refuse("untracked", `HEAD has no folder ${folder}`)
      const into = yield* Effect.tryPromise({ try: home, catch: (error) => refuse("disk", reasonOf(error)) })
      if (insideReal(flavour, toplevel, into))
        return yield* refuse("git-failed", `the folder for worktrees, ${into}, lies in the checkout`)
      const branchesBefore = yield* GitRepository.branches(git, repository.common).pipe(
        Effect.mapError(GitRepository.unusable(path))
      )
      const record: WorktreeRecord = {
        version: 1,
        jobId,
        phase: "opening",
        repository: toplevel,
        common: repository.common,
        base: repository.base,
        folder,
        copied: [],
        notes: [],
        branchesBefore
      }
      const claim = Effect.tryPromise({
        try: async () => {
          const taken = (await list(into)).some((name) => name === jobId || name.startsWith(`${jobId}.`))
          if (!taken) await writeRecord(into, record)
          return !taken
        },
        catch: (error) => refuse("disk", reasonOf(error))
      })
      const create = Effect.flatMap(claim, (claimed) =>
        claimed
          ? Effect.onExit(fill(into, path, record), (exit) =>
              exit._tag === "Success"
                ? Effect.void
                : Effect.catchAll(tearDown(into, jobId, record), ({ detail }) =>
                    Effect.logWarning("worktree of a failed start stays", { jobId, detail })
                  )
            )
          : refuse("git-failed", "the job has a worktree already")
      )
      return yield* exclusively(repository.common)(create)
    })

    const reopen = Effect.fn("Workspace.reopen")(function* (jobId: JobId, path: string) {
      const real = yield* resolve(path)
      return yield* Effect.promise(async () => {
        const at = await realpath(options.worktrees)
        const record = at === undefined ? undefined : await readRecord(at, jobId)
        if (at === undefined || record?.phase !== "ready" || record.branchesMade !== undefined) return undefined
        const checkout = toCheckout(at, record)
        const asked = record.folder === "" ? record.repository : join(record.repository, ...record.folder.split("/"))
        const there = (await lstat(checkout.cwd))?.isDirectory() && (await lstat(join(checkout.root, ".git")))?.isFile()
        const known = (await gitRecords(record.common, jobId)).length > 0
        return asked === real && there && known ? checkout : undefined
      })
    })

    const collect = Effect.fn("Workspace.collect")(function* ({ jobId, root }: Checkout) {
      const failed = (error: unknown) => new CollectFailed({ detail: reasonOf(error) })
      const scratch = Effect.acquireRelease(
        Effect.tryPromise({ try: async () => fs.mkdtemp(join(await home(), `${jobId}.tmp-`)), catch: failed }),
        (folder) => Effect.promise(() => removeTree(folder).catch(() => undefined))
      )
      const at = yield* Effect.tryPromise({ try: home, catch: failed })
      const record = yield* Effect.promise(() => readRecord(at, jobId))
      if (record === undefined || root !== join(at, jobId))
        return yield* new CollectFailed({ detail: `no worktree of job ${jobId} at ${root}` })
      const folder = yield* scratch
      const place = yield* Effect.tryPromise({
        try: async () => {
          const index = join(folder, "index")
          const objects = join(folder, "objects")
          await fs.mkdir(objects)
          const saved = join(at, `${jobId}.index`)
          const seeded = (await lstat(saved)) !== undefined
          if (seeded) await copyIndex(saved, index)
          const { base, common } = record
          const [gitDir] = await gitRecords(common, jobId)
          return { common, gitDir, root, base, excluded: new Set(record.copied), index, seeded, objects, maxPatchBytes }
        },
        catch: failed
      })
      return yield* GitChanges.collect(git, place, disk(root)).pipe(
        Effect.mapError(({ detail }) => new CollectFailed({ detail }))
      )
    }, Effect.scoped)

    const leftovers = Effect.promise(async () => {
      const at = await realpath(options.worktrees)
      if (at === undefined) return []
      const ids = new Set((await list(at)).map((name) => name.split(".")[0]!))
      return [...ids].filter(isJobId).map((jobId) => ({ jobId, root: join(at, jobId) }))
    })

    return Workspace.of({ resolve, open, reopen, collect, remove, leftovers })
  })

export const layer = (options: Options) => Layer.effect(Workspace, make(options))
