import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"

/** The environment of a git that knows nobody's configuration. */
export const gitEnv: Record<string, string> = {
  PATH: process.env["PATH"] ?? "",
  HOME: "/nonexistent",
  LC_ALL: "C",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_AUTHOR_NAME: "test",
  GIT_AUTHOR_EMAIL: "test@example.invalid",
  GIT_COMMITTER_NAME: "test",
  GIT_COMMITTER_EMAIL: "test@example.invalid"
}

/** Runs git as the user of a checkout (or the worker in a worktree) would; its stdout, byte for byte as latin1. */
export const git = (cwd: string, ...args: ReadonlyArray<string>): string =>
  execFileSync("git", args, { cwd, env: gitEnv, encoding: "latin1", stdio: ["ignore", "pipe", "pipe"] })

export const write = (root: string, name: string, content: string | Uint8Array, mode = 0o644): void => {
  mkdirSync(dirname(join(root, name)), { recursive: true })
  writeFileSync(join(root, name), content, { mode })
}

/** A repository with these files committed. */
export const repository = (root: string, files: Readonly<Record<string, string>> = { "a.txt": "one\n" }): string => {
  mkdirSync(root, { recursive: true })
  git(root, "init", "--quiet", "--initial-branch=main")
  for (const [name, content] of Object.entries(files)) write(root, name, content)
  git(root, "add", "--all")
  if (Object.keys(files).length > 0) git(root, "commit", "--quiet", "--message=first")
  return root
}

/** Every file beneath a folder with its mode and content's hash, links with their target; `skip` names left out. */
export const tree = (root: string, skip: ReadonlyArray<string> = []): Record<string, string> => {
  const found: Record<string, string> = {}
  const visit = (path: Buffer, name: string) => {
    for (const entry of readdirSync(path, { encoding: "buffer" })) {
      if (skip.includes(entry.toString("latin1"))) continue
      const child = Buffer.concat([path, Buffer.from("/"), entry])
      const childName = `${name}${entry.toString("latin1")}`
      const stat = lstatSync(child)
      if (stat.isDirectory()) visit(child, `${childName}/`)
      else if (stat.isSymbolicLink()) found[childName] = `-> ${readlinkSync(child, "latin1")}`
      else if (stat.isFile())
        found[childName] =
          `${(stat.mode & 0o777).toString(8)} ${createHash("sha256").update(readFileSync(child)).digest("hex")}`
    }
  }
  visit(Buffer.from(root), "")
  return found
}

/** All of a checkout that a job must leave as it is: files, refs, HEAD, index, stash, configuration, git's own records. */
export const snapshot = (root: string): Record<string, unknown> => {
  const gitDir = git(root, "rev-parse", "--absolute-git-dir").trim()
  const common = git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").trim()
  const read = (file: string) => (existsSync(file) ? readFileSync(file).toString("latin1") : undefined)
  return {
    refs: git(root, "for-each-ref"),
    head: read(join(gitDir, "HEAD")),
    index: read(join(gitDir, "index")),
    config: read(join(common, "config")),
    stash: read(join(common, "logs/refs/stash")),
    worktrees: git(root, "worktree", "list", "--porcelain"),
    status: git(root, "--no-optional-locks", "status", "--porcelain", "-z", "--ignored"),
    files: tree(root, [".git"]),
    // Objects may come (a worker's commits), nothing else.
    gitFiles: tree(common, ["objects"])
  }
}
