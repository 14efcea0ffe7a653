import { execFileSync } from "node:child_process"
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it, vi } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as FsWorktreeFolder from "../../../src/layers/jobs/FsWorktreeFolder.ts"
import * as GitProcess from "../../../src/layers/jobs/GitProcess.ts"
import * as GitWorkspace from "../../../src/layers/jobs/GitWorkspace.ts"
import { JobId } from "../../../src/services/jobs/Job.ts"
import type { Changes, Checkout } from "../../../src/services/jobs/Workspace.ts"
import { Workspace } from "../../../src/services/jobs/Workspace.ts"
import { git, gitEnv, repository, snapshot, tree, write } from "../../support/gitRepo.ts"
import { folder } from "../../support/suites/folder.ts"

// Some twenty git processes a test, on a machine that others load.
vi.setConfig({ testTimeout: 60_000 })

const newJob = () => JobId.make(crypto.randomUUID())

/** A bridge over a folder of its own: `repo` is a checkout below the one root. */
const setup = Effect.fnUntraced(function* (
  options: {
    readonly roots?: (dir: string) => ReadonlyArray<string>
    readonly copyFiles?: ReadonlyArray<string>
    readonly env?: Record<string, string>
    readonly files?: Readonly<Record<string, string>>
    readonly maxPatchBytes?: number
  } = {}
) {
  const dir = realpathSync(yield* folder)
  const repo = repository(join(dir, "roots/app"), options.files)
  const worktrees = join(dir, "state/worktrees")
  const allowed = { roots: options.roots?.(dir) ?? [join(dir, "roots")] }
  const build = Layer.build(
    GitWorkspace.layer({
      roots: Effect.sync(() => allowed.roots),
      copyFiles: Effect.succeed(options.copyFiles ?? []),
      ...(options.maxPatchBytes === undefined ? {} : { maxPatchBytes: options.maxPatchBytes })
    }).pipe(Layer.provide([GitProcess.layer({ env: options.env ?? gitEnv }), FsWorktreeFolder.layer({ worktrees })]))
  ).pipe(Effect.map(Context.get(Workspace)))
  const workspace = yield* build
  return { dir, repo, worktrees, allowed, workspace, build }
})

const text = (changes: Changes) => Buffer.from(changes.patch).toString("latin1")
const changed = (changes: Changes) => changes.diffstat.files.map(({ change, path }) => `${change} ${path}`)

/** What the patch makes of a clean checkout of the base. */
const applied = (dir: string, repo: string, base: string, changes: Changes): string => {
  const clean = join(dir, `clean-${crypto.randomUUID()}`)
  git(dir, "clone", "--quiet", "--no-checkout", repo, clean)
  git(clean, "checkout", "--quiet", "--detach", base)
  if (changes.patch.length > 0) {
    writeFileSync(join(dir, "job.patch"), changes.patch)
    git(clean, "apply", "--binary", "--index", join(dir, "job.patch"))
  }
  return clean
}

const nothingLeft = (worktrees: string, repo: string) => {
  assert.deepStrictEqual(readdirSync(worktrees), [])
  assert.isFalse(existsSync(join(repo, ".git/worktrees")))
}

describe("GitWorkspace.resolve", () => {
  it.scopedLive("lets a path in that no root holds, or refuses for another reason", () =>
    Effect.gen(function* () {
      const { allowed, dir, repo, workspace } = yield* setup()
      repository(join(dir, "roots2/app"))
      symlinkSync(join(dir, "roots2"), join(dir, "roots/escape"))
      symlinkSync(repo, join(dir, "roots/inner"))
      symlinkSync(join(dir, "nowhere"), join(dir, "roots/dangling"))
      const outcome = (path: string) =>
        workspace.resolve(path).pipe(Effect.catchAll(({ reason }) => Effect.succeed(reason)))
      assert.strictEqual(yield* outcome(repo), repo)
      assert.strictEqual(yield* outcome(join(dir, "roots/inner")), repo)
      assert.strictEqual(yield* outcome(join(dir, "roots/escape/app")), "link-escape")
      assert.strictEqual(yield* outcome(join(dir, "roots2/app")), "outside")
      assert.strictEqual(yield* outcome(join(dir, "nowhere")), "outside")
      assert.strictEqual(yield* outcome(`${repo}/../../roots2/app`), "dot-dot")
      assert.strictEqual(yield* outcome(join(repo, "absent")), "absent")
      assert.strictEqual(yield* outcome(join(dir, "roots/dangling")), "absent")
      assert.strictEqual(yield* outcome(join(repo, "a.txt")), "not-a-folder")
      assert.strictEqual(yield* outcome(`${repo}\0`), "nul")
      assert.strictEqual(yield* outcome("app"), "not-absolute")
      allowed.roots = []
      assert.strictEqual(yield* outcome(repo), "no-roots")
      allowed.roots = [join(dir, "roots2")]
      assert.strictEqual(yield* outcome(repo), "outside")
      assert.strictEqual(yield* outcome(join(dir, "roots2/app")), join(dir, "roots2/app"))
    })
  )

  it.scopedLive("lets a caller work in another job's worktree where a root lies around it", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup({ roots: (dir) => [dir] })
      const { root } = yield* workspace.open(newJob(), repo)
      assert.strictEqual((yield* Effect.flip(workspace.resolve(root))).reason, "outside")
      assert.strictEqual((yield* Effect.flip(workspace.open(newJob(), root)))._tag, "WorkspaceRefused")
    })
  )

  it.scopedLive("refuses a symlinked root", () =>
    Effect.gen(function* () {
      const { allowed, dir, repo, workspace } = yield* setup()
      symlinkSync(join(dir, "roots"), join(dir, "link"))
      allowed.roots = [join(dir, "link")]
      for (const path of [join(dir, "link/app"), repo]) {
        assert.strictEqual(yield* workspace.resolve(path), repo)
        const jobId = newJob()
        const { repository: toplevel, root } = yield* workspace.open(jobId, path)
        assert.strictEqual(toplevel, repo)
        yield* workspace.remove(jobId, root)
      }
    })
  )
})

describe("GitWorkspace.open", () => {
  it.scopedLive("touches the user's checkout, or leaves a trace of a job in it", () =>
    Effect.gen(function* () {
      const { repo, workspace, worktrees } = yield* setup({ files: { "a.txt": "one\n", "clean.txt": "c\n" } })
      git(repo, "branch", "other")
      write(repo, "a.txt", "stashed\n")
      git(repo, "stash")
      write(repo, "a.txt", "dirty\n")
      write(repo, "staged.txt", "staged\n")
      git(repo, "add", "staged.txt")
      write(repo, "untracked.txt", "untracked\n")
      // Stale stat data: a `status` that takes locks would write the index.
      utimesSync(join(repo, "clean.txt"), 1, 1)
      const before = snapshot(repo)
      const { gitFiles, worktrees: listed, ...outward } = before
      const unchanged = () => {
        const now = snapshot(repo)
        delete now["gitFiles"]
        delete now["worktrees"]
        assert.deepStrictEqual(now, outward)
      }
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      unchanged()
      assert.strictEqual(checkout.base, git(repo, "rev-parse", "HEAD").trim())
      assert.strictEqual(checkout.cwd, checkout.root)
      assert.strictEqual(checkout.root, join(worktrees, jobId))
      assert.strictEqual(statSync(worktrees).mode & 0o777, 0o700)
      assert.strictEqual(git(checkout.root, "status", "--porcelain", "--branch"), "## HEAD (no branch)\n")
      assert.strictEqual(readFileSync(join(checkout.root, "a.txt"), "utf8"), "one\n")
      assert.match(checkout.notes.join(), /2 changed files and 1 untracked file/)

      write(checkout.root, "b.txt", "two\n")
      git(checkout.root, "add", "b.txt")
      git(checkout.root, "commit", "-qm", "worker's")
      yield* workspace.collect(checkout)
      unchanged()
      assert.deepStrictEqual(readdirSync(worktrees).sort(), [jobId, `${jobId}.index`, `${jobId}.json`])
      yield* workspace.remove(jobId, checkout.root)
      assert.deepStrictEqual(snapshot(repo), before)
      assert.isDefined(gitFiles)
      assert.isDefined(listed)
      nothingLeft(worktrees, repo)
    })
  )

  it.scopedLive("works in another folder than the one that was asked for", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace, worktrees } = yield* setup({
        files: { "packages/app/x.ts": "x\n", "packages/lib/y.ts": "y\n" }
      })
      mkdirSync(join(repo, "scratch"))
      write(repo, "packages/ignored/z", "z")
      symlinkSync(join(repo, "packages"), join(dir, "roots/packages"))
      const checkout = yield* workspace.open(newJob(), join(dir, "roots/packages/app"))
      assert.strictEqual(checkout.cwd, join(checkout.root, "packages/app"))
      assert.isTrue(existsSync(join(checkout.cwd, "x.ts")))
      const before = readdirSync(worktrees)
      for (const name of ["scratch", "packages/ignored"]) {
        const error = yield* Effect.flip(workspace.open(newJob(), join(repo, name)))
        assert.deepInclude(error, { _tag: "WorkspaceUnusable", reason: "untracked" })
      }
      assert.deepStrictEqual(readdirSync(worktrees), before)
    })
  )

  it.scopedLive("follows a link of the commit out of the worktree", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace, worktrees } = yield* setup()
      mkdirSync(join(dir, "secret"))
      symlinkSync(join(dir, "secret"), join(repo, "sub"))
      mkdirSync(join(repo, "deep"))
      symlinkSync(join(dir, "secret"), join(repo, "deep/link"))
      git(repo, "add", "--all")
      git(repo, "commit", "-qm", "links")
      rmSync(join(repo, "sub"))
      mkdirSync(join(repo, "sub"))
      rmSync(join(repo, "deep/link"))
      mkdirSync(join(repo, "deep/link"))
      for (const name of ["sub", "deep/link"]) {
        const error = yield* Effect.flip(workspace.open(newJob(), join(repo, name)))
        assert.deepInclude(error, { _tag: "WorkspaceUnusable", reason: "untracked" })
      }
      assert.isFalse(existsSync(worktrees) && readdirSync(worktrees).length > 0)
    })
  )

  it.scopedLive("gives a repository away that only a part of is allowed", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup({
        files: { "packages/app/x.ts": "x\n", "secret.txt": "s\n" },
        roots: (dir) => [join(dir, "roots/app/packages/app")]
      })
      const error = yield* Effect.flip(workspace.open(newJob(), join(repo, "packages/app")))
      assert.deepInclude(error, { _tag: "WorkspaceRefused", reason: "outside", path: repo })
    })
  )

  it.scopedLive("makes something of what is no repository to work in", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace, worktrees } = yield* setup()
      const roots = join(dir, "roots")
      mkdirSync(join(roots, "plain"))
      repository(join(roots, "empty"), {})
      git(roots, "clone", "--quiet", "--bare", repo, "bare.git")
      const reason = (path: string) =>
        Effect.map(Effect.flip(workspace.open(newJob(), path)), (error) => `${error._tag} ${error.reason}`)
      assert.strictEqual(yield* reason(join(roots, "plain")), "WorkspaceUnusable no-repository")
      assert.strictEqual(yield* reason(join(roots, "empty")), "WorkspaceUnusable no-commits")
      assert.strictEqual(yield* reason(join(roots, "bare.git")), "WorkspaceUnusable bare")
      assert.strictEqual(yield* reason(join(repo, ".git")), "WorkspaceUnusable no-repository")
      assert.strictEqual(yield* reason(join(repo, ".git/refs")), "WorkspaceUnusable no-repository")
      assert.strictEqual(yield* reason(join(roots, "absent")), "WorkspaceRefused absent")
      writeFileSync(join(repo, ".git/HEAD"), "garbage\n")
      assert.match(yield* reason(repo), /^WorkspaceUnusable no-repository|git-failed$/)
      assert.isFalse(existsSync(worktrees) && readdirSync(worktrees).length > 0)
    })
  )

  it.scopedLive("says anything else than that there is no git", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup({ env: { PATH: "/nonexistent" } })
      assert.isTrue(existsSync(dir))
      assert.deepInclude(yield* Effect.flip(workspace.open(newJob(), repo)), { reason: "git-missing" })
    })
  )

  it.scopedLive("puts worktrees into the user's own checkout", () =>
    Effect.gen(function* () {
      const { dir } = yield* setup()
      const outer = repository(join(dir, "roots/outer"))
      const workspace = yield* Layer.build(
        GitWorkspace.layer({
          roots: Effect.succeed([outer]),
          copyFiles: Effect.succeed([])
        }).pipe(
          Layer.provide([
            GitProcess.layer({ env: gitEnv }),
            FsWorktreeFolder.layer({ worktrees: join(outer, ".state") })
          ])
        )
      ).pipe(Effect.map(Context.get(Workspace)))
      assert.deepInclude(yield* Effect.flip(workspace.open(newJob(), outer)), { reason: "git-failed" })
    })
  )

  it.scopedLive("breaks on a linked worktree, or starts from another's HEAD", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup()
      const linked = join(dir, "roots/linked")
      git(repo, "worktree", "add", "-q", "-b", "feature", linked)
      write(linked, "a.txt", "feature\n")
      git(linked, "commit", "-qam", "feature")
      write(linked, "a.txt", "dirty\n")
      const before = [snapshot(repo), snapshot(linked)]
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, linked)
      assert.strictEqual(readFileSync(join(checkout.root, "a.txt"), "utf8"), "feature\n")
      assert.strictEqual(checkout.repository, linked)
      assert.match(checkout.notes.join(), /1 changed file/)
      write(checkout.root, "new.txt", "n\n")
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["added new.txt"])
      yield* workspace.remove(jobId, checkout.root)
      assert.deepStrictEqual([snapshot(repo), snapshot(linked)], before)
    })
  )

  it.scopedLive("takes the outer repository for a nested one", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup()
      const inner = repository(join(repo, "vendor/inner"), { "inner.txt": "i\n" })
      const { root, repository: toplevel } = yield* workspace.open(newJob(), inner)
      assert.strictEqual(toplevel, inner)
      assert.deepStrictEqual(Object.keys(tree(root, [".git"])), ["inner.txt"])
    })
  )

  it.scopedLive("breaks on submodules, or recurses into them", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace, worktrees } = yield* setup()
      const library = repository(join(dir, "library"), { "lib.txt": "l\n" })
      git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "lib")
      git(repo, "commit", "-qm", "submodule")
      const before = snapshot(repo)
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      assert.match(checkout.notes.join(), /Submodules are empty folders: lib\./)
      assert.deepStrictEqual(readdirSync(join(checkout.root, "lib")), [])
      assert.deepStrictEqual((yield* workspace.collect(checkout)).patch.length, 0)
      // The worker fills it itself: git's own removal refuses such a worktree.
      git(checkout.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
      assert.isTrue(existsSync(join(checkout.root, "lib/lib.txt")))
      write(checkout.root, "a.txt", "two\n")
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["modified a.txt"])
      yield* workspace.remove(jobId, checkout.root)
      assert.deepStrictEqual(snapshot(repo), before)

      // The submodule is a checkout of its own.
      const inner = yield* workspace.open(newJob(), join(repo, "lib"))
      assert.deepStrictEqual(Object.keys(tree(inner.root, [".git"])), ["lib.txt"])
      write(inner.root, "lib.txt", "changed\n")
      assert.deepStrictEqual(changed(yield* workspace.collect(inner)), ["modified lib.txt"])
      yield* workspace.remove(inner.jobId, inner.root)
      assert.deepStrictEqual(snapshot(repo), before)
      nothingLeft(worktrees, repo)
    })
  )

  it.scopedLive("waits for, or breaks, a lock of the user's index", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup()
      writeFileSync(join(repo, ".git/index.lock"), "")
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      write(checkout.root, "b", "b")
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["added b"])
      yield* workspace.remove(jobId, checkout.root)
      assert.isTrue(existsSync(join(repo, ".git/index.lock")))
    })
  )

  it.scopedLive("fills a sparse checkout, or takes what it leaves out for deleted", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup({ files: { "in/x": "x\n", "out/y": "y\n", "out/z": "z\n" } })
      git(repo, "sparse-checkout", "set", "in")
      assert.isFalse(existsSync(join(repo, "out")))
      const before = snapshot(repo)
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      assert.isFalse(existsSync(join(checkout.root, "out")))
      assert.match(checkout.notes.join(), /sparse: 2 files/)
      assert.strictEqual((yield* workspace.collect(checkout)).patch.length, 0)
      // What the worker writes where the sparse checkout has nothing is a change all the same.
      write(checkout.root, "out/y", "changed\n")
      write(checkout.root, "in/x", "changed\n")
      const changes = yield* workspace.collect(checkout)
      assert.deepStrictEqual(changed(changes), ["modified in/x", "modified out/y"])
      assert.strictEqual(readFileSync(join(applied(dir, repo, checkout.base, changes), "out/z"), "utf8"), "z\n")
      yield* workspace.remove(jobId, checkout.root)
      assert.deepStrictEqual(snapshot(repo), before)
      // HEAD has the folder, the checkout has one of its own there, the worktree would have none.
      write(repo, "out/own", "o\n")
      const error = yield* Effect.flip(workspace.open(newJob(), join(repo, "out")))
      assert.deepInclude(error, { reason: "untracked" })
    })
  )

  it.scopedLive("takes only the main checkout's word for what is left out", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup({ files: { "in/x": "x\n", "out/y": "y\n" } })
      const linked = join(dir, "roots/linked")
      git(repo, "worktree", "add", "-q", "--detach", linked)
      git(linked, "sparse-checkout", "set", "in")
      const checkout = yield* workspace.open(newJob(), linked)
      assert.isFalse(existsSync(join(checkout.root, "out")))
      assert.strictEqual((yield* workspace.collect(checkout)).patch.length, 0)
      write(checkout.root, "out/y", "changed\n")
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["modified out/y"])
    })
  )

  it.scopedLive("runs what a repository or its user configured for other occasions", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup({
        files: {
          "a.txt": "one\n",
          "b.bin": "b\n",
          ".gitattributes": "*.bin diff=evil\n*.big filter=lfs\n",
          "x.big": "pointer\n"
        }
      })
      const marker = join(dir, "ran")
      const evil = join(dir, "evil.sh")
      writeFileSync(evil, `#!/bin/sh\necho "$0 $@" >> ${marker}\ncat "$1" 2>/dev/null\nexit 0\n`, { mode: 0o755 })
      for (const hook of ["post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"]) {
        mkdirSync(join(repo, ".git/hooks"), { recursive: true })
        writeFileSync(join(repo, ".git/hooks", hook), `#!/bin/sh\necho ${hook} >> ${marker}\n`, { mode: 0o755 })
      }
      for (const [name, value] of [
        ["core.hooksPath", join(repo, ".git/hooks")],
        ["core.fsmonitor", evil],
        ["diff.external", evil],
        ["diff.evil.command", evil],
        ["diff.evil.textconv", evil],
        ["core.pager", evil],
        ["core.askPass", evil],
        ["color.ui", "always"],
        ["diff.noprefix", "true"],
        ["diff.mnemonicPrefix", "true"],
        ["diff.renames", "false"],
        ["diff.context", "0"],
        ["core.abbrev", "4"],
        ["core.ignoreStat", "true"],
        ["core.checkStat", "minimal"],
        ["core.splitIndex", "true"],
        ["core.untrackedCache", "true"],
        ["submodule.recurse", "true"],
        ["status.showUntrackedFiles", "no"]
      ] as const)
        git(repo, "-c", "core.fsmonitor=false", "config", name, value)
      rmSync(marker, { force: true })
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      assert.match(checkout.notes.join(), /Git LFS: 1 file is a pointer/)
      write(checkout.root, "a.txt", "two\n")
      write(checkout.root, "b.bin", "c\n")
      const changes = yield* workspace.collect(checkout)
      const clean = applied(dir, repo, checkout.base, changes)
      assert.strictEqual(readFileSync(join(clean, "b.bin"), "utf8"), "c\n")
      assert.deepStrictEqual(changed(changes), ["modified a.txt", "modified b.bin"])
      yield* workspace.remove(jobId, checkout.root)
      // `applied` runs a git of its own in a clone, which has none of the configuration.
      assert.isFalse(existsSync(marker), existsSync(marker) ? readFileSync(marker, "utf8") : "")
    })
  )

  it.scopedLive("obeys GIT_* variables of the bridge's own environment", () =>
    Effect.gen(function* () {
      const other = repository(join(yield* folder, "other"), { "other.txt": "o\n" })
      const { repo, workspace } = yield* setup({
        env: {
          ...gitEnv,
          GIT_DIR: join(other, ".git"),
          GIT_WORK_TREE: other,
          GIT_INDEX_FILE: join(other, ".git/index"),
          GIT_OBJECT_DIRECTORY: join(other, ".git/objects"),
          GIT_TRACE: join(other, "trace"),
          GIT_EXTERNAL_DIFF: "false"
        }
      })
      const checkout = yield* workspace.open(newJob(), repo)
      assert.isTrue(existsSync(join(checkout.root, "a.txt")))
      write(checkout.root, "a.txt", "two\n")
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["modified a.txt"])
      assert.isFalse(existsSync(join(other, "trace")))
    })
  )

  it.scopedLive("copies other files than those configured, over tracked ones, or into the patch", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup({
        files: {
          "a.txt": "one\n",
          "apps/web/x": "x\n",
          "tracked.env": "t\n",
          "unstaged.env": "t\n",
          ".gitignore": ".env\n"
        },
        copyFiles: [
          ".env",
          "apps/*/.env",
          "**/*.local",
          "tracked.env",
          "unstaged.env",
          "../outside",
          "/etc/passwd",
          "linked.env"
        ]
      })
      write(repo, ".env", "SECRET=1\n", 0o600)
      write(repo, "apps/web/.env", "WEB=1\n")
      write(repo, "not/copied.txt", "n\n")
      write(repo, "deep/er/some.local", "L=1\n")
      write(repo, "tracked.env", "changed\n")
      // Untracked in the index, and still in HEAD.
      git(repo, "rm", "--quiet", "--cached", "unstaged.env")
      write(repo, "unstaged.env", "changed\n")
      write(dir, "roots/outside", "o\n")
      symlinkSync("/etc/passwd", join(repo, "linked.env"))
      const checkout = yield* workspace.open(newJob(), repo)
      const files = tree(checkout.root, [".git"])
      assert.deepStrictEqual(
        Object.keys(files).sort(),
        [
          ".env",
          ".gitignore",
          "a.txt",
          "apps/web/.env",
          "apps/web/x",
          "deep/er/some.local",
          "tracked.env",
          "unstaged.env"
        ].sort()
      )
      assert.strictEqual(statSync(join(checkout.root, ".env")).mode & 0o777, 0o600)
      for (const name of ["tracked.env", "unstaged.env"])
        assert.strictEqual(readFileSync(join(checkout.root, name), "utf8"), "t\n")
      assert.match(checkout.notes.join(), /Copied from the checkout: .*\.env/)
      assert.strictEqual((yield* workspace.collect(checkout)).patch.length, 0)
      // Not even where the worker changes and commits them.
      write(checkout.root, ".env", "SECRET=2\n")
      write(checkout.root, "b.txt", "b\n")
      git(checkout.root, "add", "--force", ".env", "deep", "b.txt")
      git(checkout.root, "commit", "-qm", "all")
      const changes = yield* workspace.collect(checkout)
      assert.deepStrictEqual(changed(changes), ["added b.txt"])
      assert.notInclude(text(changes), "SECRET")
    })
  )

  it.scopedLive("opens two worktrees for one job, or harms the first", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup()
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      write(checkout.root, "work", "w")
      assert.deepInclude(yield* Effect.flip(workspace.open(jobId, repo)), { reason: "git-failed" })
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["added work"])
    })
  )

  it.scopedLive("leaves something behind when it fails halfway or is interrupted", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace, worktrees } = yield* setup({
        files: { "a.txt": "one\n", ".gitattributes": "*.slow filter=slow\n", "x.slow": "x\n" }
      })
      const started = join(dir, "started")
      // A checkout that fails after some files, and one that hangs.
      git(repo, "config", "filter.slow.required", "true")
      git(repo, "config", "filter.slow.clean", "cat")
      git(repo, "config", "filter.slow.smudge", "exit 3")
      const before = snapshot(repo)
      const error = yield* Effect.flip(workspace.open(newJob(), repo))
      assert.deepInclude(error, { _tag: "WorkspaceUnusable", reason: "git-failed" })
      assert.match("detail" in error ? error.detail : "", /filter/)
      nothingLeft(worktrees, repo)
      assert.deepStrictEqual(snapshot(repo), before)

      git(repo, "config", "filter.slow.smudge", `touch ${started}; exec sleep 1000`)
      const slow = snapshot(repo)
      yield* Effect.raceFirst(
        workspace.open(newJob(), repo),
        until(() => existsSync(started))
      )
      nothingLeft(worktrees, repo)
      assert.deepStrictEqual(snapshot(repo), slow)
      yield* until(() => !running(dir))
    })
  )

  it.scopedLive("fails when many open and close in one repository at once", () =>
    Effect.gen(function* () {
      const { repo, workspace, worktrees } = yield* setup()
      const before = snapshot(repo)
      yield* Effect.forEach(
        Array.from({ length: 8 }, newJob),
        (jobId) =>
          Effect.gen(function* () {
            const checkout = yield* workspace.open(jobId, repo)
            write(checkout.root, "mine", jobId)
            assert.include(text(yield* workspace.collect(checkout)), jobId)
            yield* workspace.remove(jobId, checkout.root)
          }),
        { concurrency: "unbounded" }
      )
      nothingLeft(worktrees, repo)
      assert.deepStrictEqual(snapshot(repo), before)
    })
  )
})

const until = (condition: () => boolean) =>
  Effect.promise(async () => {
    const deadline = performance.now() + 20_000
    while (!condition()) {
      if (performance.now() > deadline) throw new Error("the condition did not come true in time")
      await Bun.sleep(5)
    }
  })

/** Whether a process of some git filter still names the folder. */
const running = (dir: string): boolean =>
  readdirSync("/proc").some((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, "latin1").includes(dir)
    } catch {
      return false
    }
  })

describe("GitWorkspace.collect", () => {
  it.scopedLive("misses a change since the base, the worker's commits included", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup({
        files: {
          keep: "k\n",
          edit: "1\n2\n3\n",
          old: "some content\nthat moves\n",
          gone: "g\n",
          tool: "#!/bin/sh\n",
          ".gitignore": "ignored\n"
        }
      })
      const checkout = yield* workspace.open(newJob(), repo)
      const { root } = checkout
      write(root, "edit", "1\ntwo\n3\n")
      git(root, "commit", "-qam", "one")
      renameSync(join(root, "old"), join(root, "new"))
      git(root, "add", "--all")
      git(root, "commit", "-qm", "two")
      rmSync(join(root, "gone"))
      chmodSync(join(root, "tool"), 0o755)
      write(root, "bin", Buffer.from([0, 1, 2, 255]))
      write(root, "ignored", "i\n")
      symlinkSync("keep", join(root, "link"))
      const { diffstat, patch } = yield* workspace.collect(checkout)
      assert.deepStrictEqual(diffstat, {
        files: [
          { path: "bin", change: "added", binary: true, insertions: 0, deletions: 0 },
          { path: "edit", change: "modified", binary: false, insertions: 1, deletions: 1 },
          { path: "gone", change: "deleted", binary: false, insertions: 0, deletions: 1 },
          { path: "link", change: "added", binary: false, insertions: 1, deletions: 0 },
          { path: "new", from: "old", change: "renamed", binary: false, insertions: 0, deletions: 0 },
          { path: "tool", change: "mode", binary: false, insertions: 0, deletions: 0 }
        ],
        insertions: 2,
        deletions: 2
      })
      const clean = applied(dir, repo, checkout.base, { diffstat, patch })
      const expected = tree(root, [".git"])
      delete expected["ignored"]
      assert.deepStrictEqual(tree(clean, [".git"]), expected)
    })
  )

  it.scopedLive("writes the worktree's index, or objects into the user's repository", () =>
    Effect.gen(function* () {
      const { repo, workspace, worktrees } = yield* setup()
      const checkout = yield* workspace.open(newJob(), repo)
      write(checkout.root, "new", "n\n")
      const before = [tree(join(repo, ".git")), readdirSync(worktrees).sort()]
      yield* workspace.collect(checkout)
      assert.deepStrictEqual([tree(join(repo, ".git")), readdirSync(worktrees).sort()], before)
    })
  )

  it.scopedLive("believes an index that the worker bent, or is stopped by one that it broke", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup({ files: { a: "a\n", b: "b\n", c: "c\n" } })
      const checkout = yield* workspace.open(newJob(), repo)
      const { root } = checkout
      git(root, "update-index", "--assume-unchanged", "a")
      git(root, "update-index", "--skip-worktree", "b", "c")
      write(root, "a", "A\n")
      write(root, "b", "B\n")
      rmSync(join(root, "c"))
      const expected = ["modified a", "modified b", "deleted c"]
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), expected)
      const gitDir = git(root, "rev-parse", "--absolute-git-dir").trim()
      writeFileSync(join(gitDir, "index.lock"), "")
      writeFileSync(join(gitDir, "index"), "garbage")
      writeFileSync(join(gitDir, "HEAD"), "garbage")
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), expected)
      rmSync(join(root, ".git"))
      rmSync(gitDir, { recursive: true })
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), expected)
    })
  )

  it.scopedLive("misses an edit of the same size in the second of the checkout, or one whose time was set back", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup({ files: { a: "one\n", b: "one\n" } })
      const checkout = yield* workspace.open(newJob(), repo)
      const at = statSync(join(checkout.root, "b")).mtime
      writeFileSync(join(checkout.root, "a"), "two\n")
      writeFileSync(join(checkout.root, "b"), "two\n")
      execFileSync("touch", ["-d", at.toISOString(), join(checkout.root, "b")])
      assert.deepStrictEqual(changed(yield* workspace.collect(checkout)), ["modified a", "modified b"])
    })
  )

  it.scopedLive(
    "loses the files of a repository that was made in the worktree, or ignored ones that were committed",
    () =>
      Effect.gen(function* () {
        const { dir, repo, workspace } = yield* setup({
          files: { ".gitignore": "node_modules\ndist\n", "pkg/x": "x\n", file: "f\n" }
        })
        const checkout = yield* workspace.open(newJob(), repo)
        const { root } = checkout
        repository(join(root, "fresh"), { "src/main": "m\n", "node_modules/dep": "d\n" })
        mkdirSync(join(root, "unborn"))
        git(join(root, "unborn"), "init", "-q")
        write(root, "unborn/u", "u\n")
        repository(join(root, "unborn/inner"), { i: "i\n" })
        git(join(root, "pkg"), "init", "-q")
        write(root, "pkg/y", "y\n")
        rmSync(join(root, "file"))
        repository(join(root, "file"), { z: "z\n" })
        write(root, "dist/out", "o\n")
        write(root, "dist/not", "n\n")
        git(root, "add", "--force", "dist/out")
        git(root, "commit", "-qm", "dist")
        const changes = yield* workspace.collect(checkout)
        assert.deepStrictEqual(changed(changes).sort(), [
          "added dist/out",
          "added file/z",
          "added fresh/src/main",
          "added pkg/y",
          "added unborn/inner/i",
          "added unborn/u",
          "deleted file"
        ])
        assert.isTrue(existsSync(join(applied(dir, repo, checkout.base, changes), "unborn/inner/i")))
      })
  )

  it.scopedLive("collects what has no end, or from a folder that is no worktree of the job", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup({ maxPatchBytes: 50_000 })
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, repo)
      write(checkout.root, "big", crypto.getRandomValues(new Uint8Array(60_000)))
      assert.match((yield* Effect.flip(workspace.collect(checkout))).detail, /more than 50000 bytes/)
      const other: Checkout = { ...checkout, root: repo }
      assert.match((yield* Effect.flip(workspace.collect(other))).detail, /no worktree/)
      rmSync(checkout.root, { recursive: true })
      assert.strictEqual((yield* Effect.flip(workspace.collect(checkout)))._tag, "CollectFailed")
      yield* workspace.remove(jobId, checkout.root)
      assert.match((yield* Effect.flip(workspace.collect(checkout))).detail, /no worktree/)
    })
  )
})

describe("GitWorkspace.reopen", () => {
  it.scopedLive("loses a worktree when the bridge dies, or gives it to another folder's job", () =>
    Effect.gen(function* () {
      const { allowed, build, repo, workspace } = yield* setup({ files: { "a/x": "x\n", "b/y": "y\n" } })
      const jobId = newJob()
      const checkout = yield* workspace.open(jobId, join(repo, "a"))
      write(checkout.cwd, "new", "n\n")
      const next = yield* build
      assert.deepStrictEqual(yield* next.reopen(jobId, join(repo, "a")), checkout)
      assert.deepStrictEqual(changed(yield* next.collect(checkout)), ["added a/new"])
      assert.isUndefined(yield* next.reopen(jobId, join(repo, "b")))
      assert.isUndefined(yield* next.reopen(newJob(), join(repo, "a")))
      allowed.roots = []
      assert.strictEqual((yield* Effect.flip(next.reopen(jobId, join(repo, "a")))).reason, "no-roots")
      allowed.roots = [repo]
      yield* next.remove(jobId, checkout.root)
      assert.isUndefined(yield* next.reopen(jobId, join(repo, "a")))
    })
  )

  it.scopedLive("takes a worktree for there whose folder or record is gone", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup()
      const [first, second] = [newJob(), newJob()]
      rmSync((yield* workspace.open(first, repo)).root, { recursive: true })
      assert.isUndefined(yield* workspace.reopen(first, repo))
      yield* workspace.open(second, repo)
      rmSync(join(repo, ".git/worktrees", second), { recursive: true })
      assert.isUndefined(yield* workspace.reopen(second, repo))
    })
  )
})

describe("GitWorkspace.remove", () => {
  const ruins: Readonly<Record<string, (root: string, repo: string) => void>> = {
    "is locked": (root) => git(root, "worktree", "lock", root),
    "has files that are read-only": (root) => {
      write(root, "ro/deep/file", "x", 0o444)
      chmodSync(join(root, "ro/deep"), 0o555)
      chmodSync(join(root, "ro"), 0o555)
      chmodSync(root, 0o555)
    },
    "has a broken .git": (root) => writeFileSync(join(root, ".git"), "garbage"),
    "has a folder for .git": (root) => {
      rmSync(join(root, ".git"))
      repository(root)
    },
    "has lost its folder": (root) => rmSync(root, { recursive: true }),
    "has lost its folder, locked": (root) => {
      git(root, "worktree", "lock", root)
      rmSync(root, { recursive: true })
    },
    "has lost git's record": (root, repo) => {
      assert.isTrue(existsSync(root))
      rmSync(join(repo, ".git/worktrees"), { recursive: true })
    },
    "has a broken record": (root, repo) => {
      const record = join(repo, ".git/worktrees", root.split("/").at(-1)!)
      rmSync(join(record, "gitdir"))
      writeFileSync(join(record, "HEAD"), "garbage")
      writeFileSync(join(record, "index.lock"), "")
    },
    "was pruned by the user": (root, repo) => {
      renameSync(root, `${root}.away`)
      git(repo, "worktree", "prune")
      renameSync(`${root}.away`, root)
    },
    "was moved in git's eyes": (root, repo) => {
      writeFileSync(join(repo, ".git/worktrees", root.split("/").at(-1)!, "gitdir"), `${repo}/.git\n`)
    },
    "is a file": (root) => {
      rmSync(root, { recursive: true })
      writeFileSync(root, "")
    },
    "has names that are no text": (root) => {
      mkdirSync(Buffer.concat([Buffer.from(`${root}/d`), Buffer.from([0xff, 0x0a])]))
      writeFileSync(
        Buffer.concat([Buffer.from(`${root}/d`), Buffer.from([0xff, 0x0a]), Buffer.from("/\xfe", "latin1")]),
        ""
      )
    },
    "is in the middle of a merge": (root) => {
      git(root, "checkout", "-q", "-b", "side")
      write(root, "a.txt", "side\n")
      git(root, "commit", "-qam", "side")
      git(root, "checkout", "-q", "--detach", "HEAD~1")
      write(root, "a.txt", "other\n")
      git(root, "commit", "-qam", "other")
      try {
        git(root, "merge", "side")
      } catch {
        // The conflict is what is wanted.
      }
      assert.include(git(root, "status", "--porcelain"), "UU a.txt")
    }
  }

  it.scopedLive.each(Object.entries(ruins))(
    "reports success, or harms the checkout, where the worktree %s",
    ([, ruin]) =>
      Effect.gen(function* () {
        const { repo, workspace, worktrees } = yield* setup()
        const before = snapshot(repo)
        const jobId = newJob()
        const { root } = yield* workspace.open(jobId, repo)
        ruin(root, repo)
        yield* workspace.remove(jobId, root)
        assert.deepStrictEqual(snapshot(repo), before)
        nothingLeft(worktrees, repo)
        yield* workspace.remove(jobId, root)
      })
  )

  it.scopedLive("deletes what a link leads to", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace, worktrees } = yield* setup()
      const precious = join(dir, "precious")
      write(precious, "inner/file", "p\n")
      const jobId = newJob()
      const { root } = yield* workspace.open(jobId, repo)
      symlinkSync(precious, join(root, "link"))
      yield* workspace.remove(jobId, root)
      const second = newJob()
      const { root: replaced } = yield* workspace.open(second, repo)
      rmSync(replaced, { recursive: true })
      symlinkSync(precious, replaced)
      yield* workspace.remove(second, replaced)
      // A whole other worktree of the user's, reached through the link.
      const linked = join(dir, "roots/linked")
      git(repo, "worktree", "add", "-q", "--detach", linked)
      const third = newJob()
      const { root: aimed } = yield* workspace.open(third, repo)
      rmSync(aimed, { recursive: true })
      symlinkSync(linked, aimed)
      yield* workspace.remove(third, aimed)
      assert.isTrue(existsSync(join(linked, "a.txt")))
      git(linked, "status")
      assert.deepStrictEqual(Object.keys(tree(precious)), ["inner/file"])
      assert.deepStrictEqual(readdirSync(worktrees), [])
    })
  )

  it.scopedLive("deletes another folder than the job's", () =>
    Effect.gen(function* () {
      const { repo, workspace, worktrees } = yield* setup()
      const [mine, other] = [newJob(), newJob()]
      yield* workspace.open(mine, repo)
      const { root } = yield* workspace.open(other, repo)
      for (const path of [repo, worktrees, root, "/", "", `${worktrees}/${mine}/..`, `${worktrees}/x/../${mine}`])
        assert.strictEqual((yield* Effect.flip(workspace.remove(mine, path)))._tag, "RemoveFailed", path)
      for (const odd of ["..", ".", "", "*"])
        assert.strictEqual(
          (yield* Effect.flip(workspace.remove(odd as JobId, join(worktrees, odd))))._tag,
          "RemoveFailed"
        )
      assert.isTrue(existsSync(join(root, "a.txt")))
      assert.isTrue(existsSync(join(worktrees, mine, "a.txt")))
    })
  )

  it.scopedLive("says that it is done while the worktree is there, or never gets it done", ({ skip }) =>
    Effect.gen(function* () {
      const { repo, workspace, worktrees } = yield* setup()
      const jobId = newJob()
      const { root } = yield* workspace.open(jobId, repo)
      const pinned = join(root, "pinned")
      writeFileSync(pinned, "")
      // Only the superuser can pin a file against the superuser; anybody else is stopped by the folder's owner alone.
      const pin = (flag: string) => {
        try {
          execFileSync("chattr", [flag, pinned], { stdio: "ignore" })
          return true
        } catch {
          return false
        }
      }
      if (!pin("+i")) return skip()
      const error = yield* Effect.flip(workspace.remove(jobId, root)).pipe(
        Effect.ensuring(Effect.sync(() => pin("-i")))
      )
      assert.strictEqual(error._tag, "RemoveFailed")
      assert.strictEqual(error.path, root)
      assert.include(error.detail, root)
      assert.deepStrictEqual(yield* workspace.leftovers, [{ jobId, root }])
      yield* workspace.remove(jobId, root)
      nothingLeft(worktrees, repo)
    })
  )

  it.scopedLive("leaves a worker's branch behind, or takes one of the user's away", () =>
    Effect.gen(function* () {
      const { repo, workspace } = yield* setup()
      git(repo, "branch", "users")
      const before = snapshot(repo)
      const jobId = newJob()
      const { root } = yield* workspace.open(jobId, repo)
      git(root, "checkout", "-q", "-b", "workers/first")
      write(root, "a.txt", "w\n")
      git(root, "commit", "-qam", "work")
      git(root, "switch", "-q", "-c", "second", "--track", "users")
      git(root, "checkout", "-q", "users")
      git(root, "checkout", "-q", "workers/first")
      yield* workspace.remove(jobId, root)
      assert.deepStrictEqual({ ...snapshot(repo), gitFiles: 0, config: 0 }, { ...before, gitFiles: 0, config: 0 })
      assert.notInclude(readFileSync(join(repo, ".git/config"), "utf8"), "second")

      const next = newJob()
      const { root: again } = yield* workspace.open(next, repo)
      git(repo, "branch", "while-it-ran")
      git(again, "checkout", "-q", "users")
      yield* workspace.remove(next, again)
      assert.include(git(repo, "for-each-ref"), "refs/heads/while-it-ran")
      assert.include(git(repo, "for-each-ref"), "refs/heads/users")
    })
  )

  it.scopedLive("forgets a worktree of the user's that is not mounted", () =>
    Effect.gen(function* () {
      const { dir, repo, workspace } = yield* setup()
      git(repo, "worktree", "add", "-q", "--detach", join(dir, "usb"))
      renameSync(join(dir, "usb"), join(dir, "unplugged"))
      const jobId = newJob()
      const { root } = yield* workspace.open(jobId, repo)
      rmSync(root, { recursive: true })
      yield* workspace.remove(jobId, root)
      renameSync(join(dir, "unplugged"), join(dir, "usb"))
      git(join(dir, "usb"), "status")
    })
  )

  it.scopedLive("does not get rid of a worktree whose repository is gone", () =>
    Effect.gen(function* () {
      const { repo, workspace, worktrees } = yield* setup()
      const jobId = newJob()
      const { root } = yield* workspace.open(jobId, repo)
      rmSync(repo, { recursive: true })
      yield* workspace.remove(jobId, root)
      assert.deepStrictEqual(readdirSync(worktrees), [])
    })
  )
})

describe("GitWorkspace after kill -9", () => {
  it.scopedLive("loses sight of a worktree, complete or not, or of what its git still does", () =>
    Effect.gen(function* () {
      const { build, dir, repo, worktrees } = yield* setup({
        files: { "a.txt": "one\n", ".gitattributes": "*.slow filter=slow\n", "x.slow": "x\n", "y.slow": "y\n" }
      })
      const before = snapshot(repo)
      const started = join(dir, "started")
      const script = join(dir, "bridge.ts")
      const source = (name: string) => JSON.stringify(join(import.meta.dirname, "../../..", name))
      const jobs = [newJob(), newJob()]
      writeFileSync(
        script,
        `import * as FsWorktreeFolder from ${source("src/layers/jobs/FsWorktreeFolder.ts")}
         import * as GitProcess from ${source("src/layers/jobs/GitProcess.ts")}
         import * as GitWorkspace from ${source("src/layers/jobs/GitWorkspace.ts")}
         import { Workspace } from ${source("src/services/jobs/Workspace.ts")}
         import * as Effect from ${source("node_modules/effect/dist/esm/Effect.js")}
         import * as Layer from ${source("node_modules/effect/dist/esm/Layer.js")}
         const layer = GitWorkspace.layer({
           roots: Effect.succeed([${JSON.stringify(repo)}]), copyFiles: Effect.succeed([])
         }).pipe(Layer.provide([
           GitProcess.layer({ env: process.env }), FsWorktreeFolder.layer({ worktrees: ${JSON.stringify(worktrees)} })
         ]))
         await Effect.runPromise(Effect.provide(Effect.gen(function* () {
           const workspace = yield* Workspace
           yield* workspace.open(${JSON.stringify(jobs[0])}, ${JSON.stringify(repo)})
           Bun.spawnSync(["git", "config", "filter.slow.smudge", "touch ${started}; sleep 1; cat"], { cwd: ${JSON.stringify(repo)} })
           yield* workspace.open(${JSON.stringify(jobs[1])}, ${JSON.stringify(repo)})
         }), layer))`
      )
      const child = Bun.spawn([process.execPath, script], { env: gitEnv, stdout: "ignore", stderr: "inherit" })
      yield* until(() => existsSync(started))
      child.kill("SIGKILL")
      yield* Effect.promise(() => child.exited)
      git(repo, "config", "--remove-section", "filter.slow")

      const workspace = yield* build
      const left = yield* workspace.leftovers
      assert.deepStrictEqual(left.map(({ jobId }) => jobId).sort(), [...jobs].sort())
      assert.isDefined(yield* workspace.reopen(jobs[0]!, repo))
      assert.isUndefined(yield* workspace.reopen(jobs[1]!, repo))
      for (const { jobId, root } of left) yield* workspace.remove(jobId, root)
      assert.deepStrictEqual(yield* workspace.leftovers, [])
      assert.isFalse(running(jobs[1]!))
      nothingLeft(worktrees, repo)
      assert.deepStrictEqual({ ...snapshot(repo), config: 0, gitFiles: 0 }, { ...before, config: 0, gitFiles: 0 })
      assert.isFalse(lstatSync(worktrees).isSymbolicLink())
    })
  )
})
