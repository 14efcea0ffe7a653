import { chmodSync, lstatSync, mkdirSync, realpathSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Layer from "effect/Layer"
import * as FsWorktreeFolder from "../../../src/layers/jobs/FsWorktreeFolder.ts"
import * as GitProcess from "../../../src/layers/jobs/GitProcess.ts"
import * as GitWorkspace from "../../../src/layers/jobs/GitWorkspace.ts"
import { JobId } from "../../../src/services/jobs/Job.ts"
import { Workspace } from "../../../src/services/jobs/Workspace.ts"
import { git, gitEnv, repository } from "../../support/gitRepo.ts"
import { forAll } from "../../support/suites/arbitraries.ts"
import { folder } from "../../support/suites/folder.ts"

/** Paths, a byte for each unit. Some are folders of others, so that files become folders and folders files. */
const Name = FastCheck.constantFrom(
  "a",
  "a/b",
  "a/b/c",
  "d",
  "d/e",
  "d/f",
  "x.bin",
  "CASE",
  "case",
  "sp ace",
  " lead",
  "trail ",
  "-dash",
  ":colon",
  'q"uote',
  "new\nline",
  "t\tab",
  "back\\slash",
  "*star[x]?",
  "{a => b}",
  "caf\xc3\xa9",
  "no\xfftext",
  "\xff/\xfe"
)

const long = Array.from({ length: 40 }, (_, i) => `line ${i} of a file that is long enough to be known again`).join(
  "\n"
)
const Content = FastCheck.oneof(
  FastCheck.constantFrom("", "\n", "x", "one\n", "one\ntwo\n", "one\r\ntwo\r\n", "no end\nof line", "\\ No newline\n"),
  FastCheck.constantFrom(
    long,
    `${long}\n`,
    `first\n${long}`,
    `${long}\nlast`,
    "--- a/x\n+++ b/x\n@@ -1 +1 @@\n",
    "diff --git a/a b/a\n"
  ),
  FastCheck.constantFrom("\0", "\0\x01\xff\n", `\0${long}`, `${long}\0`),
  FastCheck.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes).toString("latin1"))
)

const Op = FastCheck.oneof(
  {
    weight: 6,
    arbitrary: FastCheck.record({
      op: FastCheck.constant("write" as const),
      name: Name,
      content: Content,
      executable: FastCheck.boolean()
    })
  },
  { weight: 2, arbitrary: FastCheck.record({ op: FastCheck.constant("delete" as const), name: Name }) },
  { weight: 3, arbitrary: FastCheck.record({ op: FastCheck.constant("rename" as const), name: Name, to: Name }) },
  { weight: 2, arbitrary: FastCheck.record({ op: FastCheck.constant("chmod" as const), name: Name }) },
  {
    weight: 2,
    arbitrary: FastCheck.record({
      op: FastCheck.constant("link" as const),
      name: Name,
      target: FastCheck.constantFrom("a", "nowhere", "/etc/passwd", "..", "no\xfftext")
    })
  },
  {
    weight: 1,
    arbitrary: FastCheck.record({
      op: FastCheck.constant("ignore" as const),
      pattern: FastCheck.constantFrom("*.bin", "d", "CASE")
    })
  },
  {
    weight: 2,
    arbitrary: FastCheck.record({ op: FastCheck.constantFrom("commit" as const, "stage" as const, "force" as const) })
  }
)
type Op =
  FastCheck.Arbitrary<typeof Op> extends never ? never : typeof Op extends FastCheck.Arbitrary<infer A> ? A : never

const at = (root: string, name: string) => Buffer.concat([Buffer.from(`${root}/`), Buffer.from(name, "latin1")])
const statOf = (path: Buffer) => lstatSync(path, { throwIfNoEntry: false })

/** Makes room for a file: no file where a folder must be, nothing where the file will be. */
const clear = (root: string, name: string): Buffer => {
  const parts = name.split("/")
  for (let i = 1; i < parts.length; i++) {
    const parent = at(root, parts.slice(0, i).join("/"))
    const stat = statOf(parent)
    if (stat !== undefined && !stat.isDirectory()) rmSync(parent)
    if (!statOf(parent)) mkdirSync(parent)
  }
  const path = at(root, name)
  if (statOf(path)) rmSync(path, { recursive: true })
  return path
}

/** A path through a link is another file's. */
const own = (root: string, name: string): boolean => {
  const parts = name.split("/")
  return parts.every((_, i) => {
    const stat = at(root, parts.slice(0, i + 1).join("/"))
    return i === parts.length - 1 ? statOf(stat) !== undefined : (statOf(stat)?.isDirectory() ?? false)
  })
}

const perform = (root: string, step: Op): void => {
  switch (step.op) {
    case "write": {
      const path = clear(root, step.name)
      writeFileSync(path, Buffer.from(step.content, "latin1"))
      chmodSync(path, step.executable ? 0o755 : 0o644)
      return
    }
    case "delete":
      if (own(root, step.name)) rmSync(at(root, step.name), { recursive: true })
      return
    case "rename": {
      if (!own(root, step.name) || step.to.startsWith(step.name) || step.name.startsWith(step.to)) return
      const to = clear(root, step.to)
      if (own(root, step.name)) renameSync(at(root, step.name), to)
      return
    }
    case "chmod": {
      const path = at(root, step.name)
      if (own(root, step.name) && statOf(path)!.isFile()) chmodSync(path, statOf(path)!.mode ^ 0o111)
      return
    }
    case "link":
      return symlinkSync(Buffer.from(step.target, "latin1"), clear(root, step.name))
    case "ignore":
      return writeFileSync(join(root, ".gitignore"), `${step.pattern}\n`)
    case "commit":
      git(root, "add", "--all")
      git(root, "commit", "--quiet", "--allow-empty", "--message=worker's")
      return
    case "stage":
      git(root, "add", "--all")
      return
    case "force":
      git(root, "add", "--all", "--force")
  }
}

const Program = FastCheck.record({
  base: FastCheck.array(Op, { maxLength: 8 }),
  work: FastCheck.array(Op, { minLength: 1, maxLength: 10 }),
  attributes: FastCheck.constantFrom("", "", "", "* text=auto\n", "* -text diff=none\n*.bin binary\n", "a* ident\n")
})

/** git apply takes the folder that comes in place of a renamed link for one beyond it. */
const linkReplaced: typeof Program extends FastCheck.Arbitrary<infer P> ? P : never = {
  attributes: "",
  base: [{ op: "link", name: "d", target: "/etc/passwd" }],
  work: [
    { op: "rename", name: "d", to: "a" },
    { op: "write", name: "d/e", content: "", executable: false }
  ]
}

describe("a job's patch", () => {
  it.scopedLive(
    "does not make, of a clean checkout of the base, what the worker left",
    () =>
      Effect.gen(function* () {
        const dir = realpathSync(yield* folder)
        const workspace = yield* Layer.build(
          GitWorkspace.layer({
            roots: Effect.succeed([dir]),
            copyFiles: Effect.succeed([])
          }).pipe(
            Layer.provide([
              GitProcess.layer({ env: gitEnv }),
              FsWorktreeFolder.layer({ worktrees: join(dir, "worktrees") })
            ])
          )
        ).pipe(Effect.map(Context.get(Workspace)))
        yield* forAll(
          FastCheck.oneof(
            { weight: 1, arbitrary: FastCheck.constant(linkReplaced) },
            { weight: 9, arbitrary: Program }
          ),
          ({ attributes, base, work }) =>
            Effect.gen(function* () {
              const jobId = JobId.make(crypto.randomUUID())
              const repo = repository(join(dir, jobId), { ".gitattributes": attributes })
              for (const step of base) perform(repo, step)
              git(repo, "add", "--all")
              git(repo, "commit", "--quiet", "--allow-empty", "--message=base")
              const checkout = yield* workspace.open(jobId, repo)
              for (const step of work) perform(checkout.root, step)
              const { diffstat, patch } = yield* workspace.collect(checkout)

              const clean = join(dir, `${jobId}-clean`)
              git(dir, "clone", "--quiet", repo, clean)
              if (patch.length > 0) {
                writeFileSync(join(dir, "job.patch"), patch)
                git(clean, "apply", "--binary", "--index", "--whitespace=nowarn", join(dir, "job.patch"))
              }
              git(checkout.root, "add", "--all")
              assert.strictEqual(git(clean, "ls-files", "-s"), git(checkout.root, "ls-files", "-s"))
              // Its files are what its index says.
              assert.strictEqual(git(clean, "diff", "--name-only"), "")
              const expected = git(checkout.root, "diff", "--cached", "-M", "--name-only", "-z", checkout.base)
              assert.strictEqual(diffstat.files.length, expected.split("\0").length - 1)
              assert.strictEqual(patch.length === 0, diffstat.files.length === 0)

              yield* workspace.remove(jobId, checkout.root)
              assert.strictEqual(git(repo, "status", "--porcelain"), "")
              rmSync(repo, { recursive: true })
              rmSync(clean, { recursive: true })
            }),
          Number(process.env["RUNS"] ?? 25)
        )
      }),
    120_000
  )
})
