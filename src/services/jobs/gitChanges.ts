import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { Git } from "./Git.ts"
import { concat, decode, encode, parseChanges, quote, records, toDiffstat, toRecords } from "./gitOutput.ts"
import type { Changes } from "./Workspace.ts"

/**
 * A worktree's changes since its base, from the files themselves: neither its HEAD nor its index is asked what changed,
 * since whoever worked in it could have said anything there. Writes into an index and an object folder of its own only.
 */
export interface Place {
  /** The repository's git folder. */
  readonly common: string
  /** Git's record of the worktree; undefined where it is gone. */
  readonly gitDir: string | undefined
  readonly root: string
  readonly base: string
  /** Paths in the worktree that are not the job's. */
  readonly excluded: ReadonlySet<string>
  /** An index file to write into. Where it exists it holds `base`. */
  readonly index: string
  readonly seeded: boolean
  /** An empty folder for objects. */
  readonly objects: string
  readonly maxPatchBytes: number
}

/** What of the disk git does not tell. Paths are bytes, relative to the worktree, "/" between names. */
export interface Disk {
  /** A file or a link, and no folder. */
  readonly isFile: (path: Uint8Array) => Effect.Effect<boolean>
  /** Every file and link beneath a folder, without those of a `.git`. */
  readonly walk: (folder: Uint8Array) => Effect.Effect<ReadonlyArray<Uint8Array>>
}

const slash = 0x2f

const withoutSlash = (path: Uint8Array): Uint8Array => (path.at(-1) === slash ? path.subarray(0, -1) : path)

/** In `--raw`: a symbolic link of the base under another name. */
const linkRenamed = /:120000 \d{6} [0-9a-f]+ [0-9a-f]+ R/

export const collect = Effect.fnUntraced(function* (git: Context.Tag.Service<typeof Git>, place: Place, disk: Disk) {
  const { base, root } = place
  const env = {
    // Not the worktree's own record: it may be broken, and holds nothing that is needed.
    GIT_DIR: place.common,
    GIT_WORK_TREE: root,
    GIT_INDEX_FILE: place.index,
    GIT_OBJECT_DIRECTORY: place.objects,
    GIT_ALTERNATE_OBJECT_DIRECTORIES: quote(encode(`${place.common}/objects`))
  }
  // A file that the sparse checkout left out, and that is there now, counts.
  const run = (args: ReadonlyArray<string>, input?: Uint8Array, codes?: ReadonlyArray<number>) =>
    git.run(["-C", root, "-c", "core.sparseCheckout=true", ...args], {
      env,
      maxBytes: place.maxPatchBytes,
      ...(input === undefined ? {} : { input }),
      ...(codes === undefined ? {} : { codes })
    })
  const add = (paths: ReadonlyArray<Uint8Array>) =>
    paths.length === 0
      ? Effect.void
      : run(["update-index", "--add", "--remove", "--replace", "-z", "--stdin"], toRecords(paths))

  if (!place.seeded) yield* run(["read-tree", base])

  // Not the dirt inside a submodule: git would run a git of its own there.
  const tracked = parseChanges(yield* run(["diff-files", "-z", "--raw", "--ignore-submodules=dirty"])).entries
  // By name: a file whose folder became a link is beyond what may be looked at.
  const gone = tracked.filter(({ status }) => status === "D")
  if (gone.length > 0) {
    const removal = encode(`0 ${"0".repeat(base.length)}\t`)
    yield* run(["update-index", "-z", "--index-info"], toRecords(gone.map(({ path }) => concat(removal, path))))
  }
  yield* add(tracked.filter(({ status }) => status !== "D").map(({ path }) => path))

  // A repository that was made in the worktree is listed as a folder. Its files are files: as a submodule of nowhere
  // they would be lost.
  const others = records(yield* run(["ls-files", "-o", "--exclude-standard", "-z"]))
  const inner: Array<Uint8Array> = []
  for (const folder of others.filter((path) => path.at(-1) === slash))
    inner.push(...(yield* disk.walk(withoutSlash(folder))))
  const ignored =
    inner.length === 0
      ? []
      : records(yield* run(["check-ignore", "-z", "--stdin", "--no-index"], toRecords(inner), [1]))
  const ignoredNames = new Set(ignored.map(decode))

  // Ignored files that were added all the same.
  const { gitDir } = place
  const forced =
    gitDir === undefined
      ? []
      : yield* Effect.forEach(
          [
            ["diff-index", "--cached", base],
            ["diff-tree", "-r", base, "HEAD"]
          ],
          ([command = "", ...rest]) =>
            git
              .run([`--git-dir=${gitDir}`, command, "-z", "--name-only", "--no-renames", "--diff-filter=A", ...rest])
              // A broken record of the worktree hides nothing else.
              .pipe(
                Effect.map(records),
                Effect.catchTag("GitFailed", () => Effect.succeed([]))
              )
        ).pipe(Effect.flatMap((lists) => Effect.filter(lists.flat(), disk.isFile)))

  yield* add(
    [
      ...others.filter((path) => path.at(-1) !== slash),
      ...inner.filter((path) => !ignoredNames.has(decode(path))),
      ...forced
    ].filter((path) => !place.excluded.has(decode(path)))
  )

  const diff = ["diff-index", "--cached", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative"]
  const summary = yield* run([...diff, "-M", "--ignore-submodules=none", "--raw", "--numstat", "-z", base])
  const patch = yield* run([
    ...diff,
    // A renamed link's patch does not say that it was a link: `git apply` takes what comes in its place for beyond it.
    linkRenamed.test(decode(summary)) ? "--no-renames" : "-M",
    "--ignore-submodules=none",
    "--submodule=short",
    "--patch",
    "--binary",
    "--full-index",
    "--unified=3",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    base
  ])
  const changes: Changes = { patch, diffstat: toDiffstat(summary) }
  return changes
})
