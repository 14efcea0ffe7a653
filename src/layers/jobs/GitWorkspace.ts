import { join, relative, sep } from "node:path"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Git } from "../../services/jobs/Git.ts"
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
import { WorktreeFolder } from "../../services/jobs/WorktreeFolder.ts"
import type { WorktreeRecord } from "../../services/jobs/WorktreeRecord.ts"

export interface Options {
  /** Folders that remote parties may work in, asked for each time. */
  readonly roots: Effect.Effect<ReadonlyArray<string>>
  /** Globs relative to a repository: untracked files that are copied into its worktrees. */
  readonly copyFiles: Effect.Effect<ReadonlyArray<string>>
  /** A larger patch is not collected. */
  readonly maxPatchBytes?: number
}

const flavour: Flavour = process.platform === "win32" || process.platform === "darwin" ? process.platform : "posix"
const defaultMaxPatchBytes = 256 * 1024 * 1024
const isJobId = Schema.is(JobId)

const folderIn = (top: string, folder: string): string => (folder === "" ? top : join(top, ...folder.split("/")))

const toCheckout = (home: string, { base, folder, jobId, notes, repository }: WorktreeRecord): Checkout => {
  const root = join(home, jobId)
  return { jobId, root, cwd: folderIn(root, folder), repository, base, notes }
}

const make = (options: Options) =>
  Effect.gen(function* () {
    const git = yield* Git
    const worktrees = yield* WorktreeFolder
    const maxPatchBytes = options.maxPatchBytes ?? defaultMaxPatchBytes
    // Git locks a repository's list of worktrees for nobody.
    const locks = new Map<string, Effect.Semaphore>()
    const exclusively = (common: string) => {
      const lock = locks.get(common) ?? Effect.unsafeMakeSemaphore(1)
      locks.set(common, lock)
      return lock.withPermits(1)
    }

    const resolve = Effect.fn("Workspace.resolve")(function* (path: string) {
      const refuse = (reason: WorkspaceRefused["reason"]) => new WorkspaceRefused({ path, reason })
      // The disk is asked about nothing that the rules refuse: a share's name would already log in to it.
      const roots = yield* Effect.forEach(
        yield* options.roots,
        Effect.fnUntraced(function* (root) {
          return {
            path: root,
            real: checkLiteral(flavour, root) === undefined ? yield* worktrees.realpath(root) : undefined
          }
        })
      )
      const literally = decide(flavour, roots, path, undefined)
      if (Either.isLeft(literally) && literally.left !== "absent") return yield* refuse(literally.left)
      const real = yield* Either.mapLeft(decide(flavour, roots, path, yield* worktrees.realpath(path)), refuse)
      // Other jobs' worktrees are nobody's workspace, even where a root lies around them.
      const own = yield* Effect.orElseSucceed(worktrees.find, () => undefined)
      if (own !== undefined && insideReal(flavour, own, real)) return yield* refuse("outside")
      const kind = yield* Effect.orElseSucceed(worktrees.kind(real), () => undefined)
      return kind === "folder" ? real : yield* refuse(kind === undefined ? "absent" : "not-a-folder")
    })

    const tearDown = Effect.fnUntraced(
      function* (home: string, jobId: JobId, record: WorktreeRecord | undefined) {
        const root = join(home, jobId)
        const common = record?.common ?? (yield* worktrees.commonOf(jobId))
        const complaints: Array<string> = []
        const complain = ({ detail }: { readonly detail: string }) => Effect.sync(() => void complaints.push(detail))
        const gitRecords = common === undefined ? Effect.succeed([]) : worktrees.gitRecords(common, jobId)

        if (record?.phase === "opening") yield* git.endStrays(jobId)
        const branches = new Set(record?.branchesMade)
        if (record !== undefined) {
          for (const gitDir of yield* gitRecords)
            for (const name of yield* GitRepository.ownBranches(git, gitDir, record.branchesBefore)) branches.add(name)
          yield* worktrees.write({ ...record, branchesMade: [...branches] }).pipe(Effect.catchAll(complain))
        }
        // Git is not asked to delete through a link.
        if (common !== undefined && (yield* worktrees.kind(root)) === "folder")
          yield* git
            .run([`--git-dir=${common}`, "worktree", "remove", "--force", "--force", root])
            .pipe(Effect.catchAll(complain))
        yield* worktrees.removeTree(jobId).pipe(Effect.catchAll(complain))
        // Not `worktree prune`: it would also forget worktrees of the user's that are merely not mounted.
        if (common !== undefined) yield* worktrees.removeGitRecords(common, jobId).pipe(Effect.catchAll(complain))

        const left = [...(yield* gitRecords), ...((yield* worktrees.kind(root)) === undefined ? [] : [root])]
        if (left.length > 0) {
          const detail = [`still there: ${left.join(", ")}`, ...complaints].join("; ")
          return yield* new RemoveFailed({ path: root, detail })
        }
        if (common !== undefined)
          for (const branch of branches)
            yield* GitRepository.deleteBranch(git, common, branch).pipe(
              Effect.catchAll(({ detail }) => Effect.logWarning("branch of a job stays", { branch, detail }))
            )
        yield* worktrees.forget(jobId)
      },
      (effect, home, jobId) =>
        Effect.catchTag(effect, "FolderFailed", ({ detail }) => new RemoveFailed({ path: join(home, jobId), detail }))
    )

    const remove = Effect.fn("Workspace.remove")(
      function* (jobId: JobId, root: string) {
        const home = yield* worktrees.find
        // Without the folder that holds them all there is none.
        if (home === undefined) return
        if (!isJobId(jobId) || root !== join(home, jobId))
          return yield* new RemoveFailed({ path: root, detail: `not the worktree of job ${jobId}` })
        const record = yield* worktrees.read(jobId)
        const work = tearDown(home, jobId, record)
        yield* record === undefined ? work : exclusively(record.common)(work)
      },
      (effect, _, path) => Effect.catchTag(effect, "FolderFailed", ({ detail }) => new RemoveFailed({ path, detail }))
    )

    /** Makes the worktree that a record of phase `opening` announces. */
    const fill = Effect.fnUntraced(function* (home: string, record: WorktreeRecord) {
      const { base, folder, jobId, repository } = record
      const { cwd, root } = toCheckout(home, record)
      yield* git.run(["-C", repository, "worktree", "add", "--detach", "--quiet", root, base])
      // A link of the commit could lead elsewhere, and a sparse checkout can lack the folder.
      if ((yield* worktrees.realpath(cwd)) !== cwd) return yield* GitRepository.untracked(repository, folder)
      const gitDir = line(yield* git.run(["-C", root, "rev-parse", "--absolute-git-dir"]))
      yield* worktrees.keepIndex(jobId, gitDir)
      const notes = [
        ...(yield* GitRepository.uncommitted(git, repository)),
        ...(yield* GitRepository.lacking(git, root))
      ]
      const wanted = yield* GitRepository.untrackedMatching(git, repository, yield* options.copyFiles)
      const copied = yield* worktrees.copy(repository, jobId, wanted)
      if (copied.length > 0) notes.push(`Copied from the checkout: ${copied.join(", ")}.`)
      const ready: WorktreeRecord = { ...record, phase: "ready", copied, notes }
      yield* worktrees.write(ready)
      return toCheckout(home, ready)
    })

    const begin = Effect.fnUntraced(function* (jobId: JobId, path: string) {
      const real = yield* resolve(path)
      const repository = yield* GitRepository.look(git, real)
      // The worktree holds the whole repository: a root that is a part of one gives the rest away to nobody.
      const toplevel = yield* resolve(repository.toplevel)
      const folder = relative(toplevel, real).split(sep).join("/")
      if (!(yield* GitRepository.hasFolder(git, repository, folder)))
        return yield* GitRepository.untracked(path, folder)
      const home = yield* worktrees.make
      if (insideReal(flavour, toplevel, home)) {
        const detail = `the folder for worktrees, ${home}, lies in the checkout`
        return yield* new WorkspaceUnusable({ path, reason: "git-failed", detail })
      }
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
        branchesBefore: yield* GitRepository.branches(git, repository.common)
      }
      const undo = Effect.catchAll(tearDown(home, jobId, record), ({ detail }) =>
        Effect.logWarning("worktree of a failed start stays", { jobId, detail })
      )
      const create = Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(worktrees.claim(record), (claimed) =>
          claimed
            ? Effect.onError(restore(fill(home, record)), () => undo)
            : new WorkspaceUnusable({ path, reason: "git-failed", detail: "the job has a worktree already" })
        )
      )
      return yield* exclusively(record.common)(create)
    })

    const open = Effect.fn("Workspace.open")((jobId: JobId, path: string) =>
      begin(jobId, path).pipe(
        Effect.catchTags({
          GitFailed: GitRepository.unusable(path),
          GitMissing: GitRepository.unusable(path),
          FolderFailed: ({ detail }) => new WorkspaceUnusable({ path, reason: "disk", detail })
        })
      )
    )

    const reopen = Effect.fn("Workspace.reopen")(function* (jobId: JobId, path: string) {
      const real = yield* resolve(path)
      const find = Effect.gen(function* () {
        const home = yield* worktrees.find
        const record = home === undefined ? undefined : yield* worktrees.read(jobId)
        if (home === undefined || record?.phase !== "ready" || record.branchesMade !== undefined) return undefined
        const checkout = toCheckout(home, record)
        const there =
          (yield* worktrees.kind(checkout.cwd)) === "folder" &&
          (yield* worktrees.kind(join(checkout.root, ".git"))) === "other" &&
          (yield* worktrees.gitRecords(record.common, jobId)).length > 0
        return there && folderIn(record.repository, record.folder) === real ? checkout : undefined
      })
      return yield* Effect.orElseSucceed(find, () => undefined)
    })

    const collect = Effect.fn("Workspace.collect")(
      function* ({ jobId, root }: Checkout) {
        const home = yield* worktrees.find
        const record = home === undefined ? undefined : yield* worktrees.read(jobId)
        if (home === undefined || record === undefined || root !== join(home, jobId))
          return yield* new CollectFailed({ detail: `no worktree of job ${jobId} at ${root}` })
        const { base, common, copied } = record
        const [gitDir] = yield* worktrees.gitRecords(common, jobId)
        const scratch = yield* worktrees.scratch(jobId)
        const place = { ...scratch, common, gitDir, root, base, excluded: new Set(copied), maxPatchBytes }
        return yield* GitChanges.collect(git, place, worktrees.disk(root))
      },
      Effect.catchAll(({ detail }) => new CollectFailed({ detail })),
      Effect.scoped
    )

    const leftovers = Effect.gen(function* () {
      const home = yield* worktrees.find
      return home === undefined ? [] : (yield* worktrees.jobs).map((jobId) => ({ jobId, root: join(home, jobId) }))
    }).pipe(
      // To say that there are none would be a lie, and the port has no failure for it.
      Effect.orDie
    )

    return Workspace.of({ resolve, open, reopen, collect, remove, leftovers })
  })

export const layer = (options: Options) => Layer.effect(Workspace, make(options))
