import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { Git } from "./Git.ts"
import { GitFailed, GitMissing } from "./Git.ts"
import { decode, line, parseIndex, parseStatus, records } from "./gitOutput.ts"
import { WorkspaceRefused, WorkspaceUnusable } from "./Workspace.ts"

/** The repository that a folder is in. */
export interface Repository {
  /** Top level of the checkout. */
  readonly toplevel: string
  /** Its git folder; of a linked worktree the main one's. */
  readonly common: string
  /** HEAD's commit. */
  readonly base: string
}

/** What a failure of git means for the folder that a job was asked for. */
export const unusable =
  (path: string) =>
  (error: GitMissing | GitFailed): WorkspaceUnusable | WorkspaceRefused => {
    if (error instanceof GitMissing) return new WorkspaceUnusable({ path, reason: "git-missing", detail: error.detail })
    const { detail } = error
    if (/cannot change to|Unable to read current working directory/.test(detail))
      return new WorkspaceRefused({ path, reason: "absent" })
    const reason = /not a git repository/.test(detail)
      ? "no-repository"
      : /No space left on device|Disk quota exceeded/.test(detail)
        ? "disk"
        : "git-failed"
    return new WorkspaceUnusable({ path, reason, detail })
  }

type GitService = Context.Tag.Service<typeof Git>

/** Looks, and changes nothing. */
export const look = Effect.fnUntraced(function* (git: GitService, path: string) {
  const ask = (...args: ReadonlyArray<string>) =>
    git.run(["-C", path, ...args]).pipe(Effect.map(line), Effect.mapError(unusable(path)))
  const refuse = (reason: WorkspaceUnusable["reason"], detail: string) =>
    new WorkspaceUnusable({ path, reason, detail })

  const [bare, inWorkTree] = (yield* ask("rev-parse", "--is-bare-repository", "--is-inside-work-tree")).split(/\r?\n/)
  if (inWorkTree !== "true") {
    return yield* bare === "true"
      ? refuse("bare", "the repository is bare: it has no checkout")
      : refuse("no-repository", "the folder belongs to a repository's own data")
  }
  const toplevel = yield* ask("rev-parse", "--path-format=absolute", "--show-toplevel")
  const common = yield* ask("rev-parse", "--path-format=absolute", "--git-common-dir")
  const base = yield* git.run(["-C", path, "rev-parse", "--verify", "--end-of-options", "HEAD^{commit}"]).pipe(
    Effect.mapBoth({
      onSuccess: line,
      onFailure: (error) => (error instanceof GitMissing ? unusable(path)(error) : refuse("no-commits", error.detail))
    })
  )
  const repository: Repository = { toplevel, common, base }
  return repository
})

export const untracked = (path: string, folder: string) =>
  new WorkspaceUnusable({ path, reason: "untracked", detail: `HEAD has no folder ${folder}` })

/** Whether HEAD has the folder (path in the repository, "/" between names, empty for the top level). */
export const hasFolder = (git: GitService, { base, toplevel }: Repository, folder: string) =>
  folder === ""
    ? Effect.succeed(true)
    : git.run(["-C", toplevel, "cat-file", "-t", "--end-of-options", `${base}:${folder}`]).pipe(
        // A submodule's commit is not among the repository's own objects: git fails.
        Effect.map((output) => line(output) === "tree"),
        Effect.catchTag("GitFailed", () => Effect.succeed(false))
      )

const count = (n: number, one: string, many: string): string => `${n} ${n === 1 ? one : many}`

/** For people: what the user's checkout has and a worktree of HEAD has not. */
export const uncommitted = (git: GitService, toplevel: string) =>
  git.run(["-C", toplevel, "status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty"]).pipe(
    Effect.match({
      onFailure: ({ detail }) => [`Whether the checkout has uncommitted changes could not be read: ${detail}`],
      onSuccess: (output) => {
        const { changed, untracked } = parseStatus(output)
        const parts = [
          ...(changed > 0 ? [count(changed, "changed file", "changed files")] : []),
          ...(untracked > 0 ? [count(untracked, "untracked file or folder", "untracked files or folders")] : [])
        ]
        return parts.length === 0
          ? []
          : [`Uncommitted work is not included: ${parts.join(" and ")} of the checkout. The job starts from its HEAD.`]
      }
    })
  )

/** For people: what a fresh worktree lacks although HEAD names it. */
export const lacking = Effect.fnUntraced(function* (git: GitService, root: string) {
  const entries = parseIndex(yield* git.run(["-C", root, "ls-files", "-t", "-s", "-z"]))
  const modules = entries.filter(({ mode }) => mode === "160000").map(({ path }) => decode(path))
  const sparse = entries.filter(({ tag }) => tag === "S").length
  const pointers = records(yield* git.run(["-C", root, "ls-files", "-z", "--", ":(attr:filter=lfs)"])).length
  return [
    ...(modules.length > 0
      ? [`Submodules are empty folders: ${modules.slice(0, 10).join(", ")}${modules.length > 10 ? "..." : ""}.`]
      : []),
    ...(sparse > 0 ? [`The checkout is sparse: ${count(sparse, "file", "files")} of HEAD left out, as there.`] : []),
    ...(pointers > 0
      ? [`Git LFS: ${count(pointers, "file is a pointer", "files are pointers")}, the content is not fetched.`]
      : [])
  ]
})

/** Patterns that stay inside the repository. */
const contained = (pattern: string): boolean =>
  pattern !== "" && !/^[\\/]|^[A-Za-z]:|\0/.test(pattern) && !pattern.split(/[\\/]/).includes("..")

/** Untracked files of a checkout (ignored ones too) that one of the patterns names: `.env`, `apps/*\/.env`, `**\/.env`. */
export const untrackedMatching = Effect.fnUntraced(function* (
  git: GitService,
  toplevel: string,
  patterns: ReadonlyArray<string>
) {
  const specs = patterns.filter(contained).map((pattern) => `:(top,glob)${pattern}`)
  if (specs.length === 0) return []
  const found = records(yield* git.run(["-C", toplevel, "ls-files", "-o", "-z", "--", ...specs]))
  // A name that ends in "/" is a repository of its own; one that is no UTF-8 comes quoted, and names nothing.
  return found.map(decode).filter((name) => !name.endsWith("/") && !name.startsWith('"'))
})

export const branches = (git: GitService, common: string) =>
  git.run([`--git-dir=${common}`, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/"]).pipe(
    Effect.map((output) =>
      line(output)
        .split("\n")
        .filter((name) => name !== "")
    )
  )

/**
 * Branches that were made in a worktree: they were not there before it, and its HEAD moved to them when they were made.
 * One whose logs do not tell is the user's.
 */
export const ownBranches = Effect.fnUntraced(function* (
  git: GitService,
  gitDir: string,
  before: ReadonlyArray<string>
) {
  /** Newest first. */
  const logOf = (ref: string) =>
    git.run([`--git-dir=${gitDir}`, "log", "--walk-reflogs", "--date=unix", "--format=%gd%x09%gs", ref, "--"]).pipe(
      Effect.map((output) =>
        line(output)
          .split("\n")
          .flatMap((entry) => {
            const [, seconds, what] = /@\{(\d+)\}\t(.*)$/.exec(entry) ?? []
            return seconds === undefined || what === undefined ? [] : [{ seconds: Number(seconds), what }]
          })
      ),
      Effect.orElseSucceed(() => [])
    )
  const own = new Set<string>()
  for (const { seconds, what } of yield* logOf("HEAD")) {
    const name = /^checkout: moving from \S+ to (\S+)$/.exec(what)?.[1]
    if (name === undefined || before.includes(name)) continue
    const made = (yield* logOf(`refs/heads/${name}`)).at(-1)
    if (made?.what.startsWith("branch: Created") && Math.abs(made.seconds - seconds) <= 1) own.add(name)
  }
  return [...own]
})

/** Not `branch --delete`: it rewrites the file of packed refs even where the branch is not in it. */
export const deleteBranch = Effect.fnUntraced(function* (git: GitService, common: string, name: string) {
  const ref = `refs/heads/${name}`
  const at = (...args: ReadonlyArray<string>) => git.run([`--git-dir=${common}`, ...args])
  const found = line(yield* at("for-each-ref", "--format=%(objectname) %(refname)", ref))
  const [id, exactly] = found.split(" ")
  if (id === undefined || exactly !== ref) return
  const elsewhere = line(yield* at("worktree", "list", "--porcelain")).split("\n")
  if (elsewhere.includes(`branch ${ref}`)) return yield* new GitFailed({ detail: "checked out elsewhere" })
  yield* at("update-ref", "-d", ref, id)
  // What it tracks; most have no such section.
  yield* at("config", "--local", "--remove-section", `branch.${name}`).pipe(
    Effect.catchTag("GitFailed", () => Effect.void)
  )
})
