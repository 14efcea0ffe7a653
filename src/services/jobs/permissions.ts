import type { Tier } from "./Job.ts"

/** What a tool call does, in the words of the Agent Client Protocol's ToolKind. */
export type ToolKind =
  | "read"
  | "edit"
  | "delete"
  | "move"
  | "search"
  | "execute"
  | "think"
  | "fetch"
  | "switch_mode"
  | "other"

const readOnly: ReadonlySet<string> = new Set<ToolKind>(["read", "search", "fetch", "think"])

export interface PermissionOption {
  readonly optionId: string
  readonly kind: string
}

export interface Request {
  readonly tier: Tier
  /** The worktree, as a real path. */
  readonly root: string
  /** A kind that this does not know is one that may do anything. */
  readonly kind: string
  /** Files that it is about, as absolute real paths. */
  readonly locations: ReadonlyArray<string>
  readonly options: ReadonlyArray<PermissionOption>
}

export interface Decision {
  /** The option to select; none where the request has none that says it: then it is cancelled. */
  readonly optionId: string | undefined
  /** Why it is refused; none where it is not. */
  readonly refused: string | undefined
}

const separator = /[\\/]/

/** Whether an absolute path without `..` is in a folder, and not in its `.git`, by which git itself would be led astray. */
export const isWithin = (root: string, path: string): boolean => {
  const base = root.replace(/[\\/]+$/, "").split(separator)
  const parts = path.split(separator)
  if (parts.includes("..") || base.some((part, index) => parts[index] !== part)) return false
  return !parts.slice(base.length).some((part) => part.toLowerCase() === ".git")
}

/** Whether the tier allows a tool of this kind, on these files. */
export const refusalOf = ({ kind, locations, root, tier }: Omit<Request, "options">): string | undefined => {
  if (tier !== "execute" && !readOnly.has(kind)) return `the ${tier} tier does not allow ${kind}`
  const outside = locations.find((path) => !isWithin(root, path))
  return outside === undefined ? undefined : `outside the worktree: ${outside}`
}

const optionOf = (options: ReadonlyArray<PermissionOption>, ...kinds: ReadonlyArray<string>): string | undefined =>
  kinds.map((kind) => options.find((option) => option.kind === kind)?.optionId).find((id) => id !== undefined)

/** Answers a permission request, for this once: what would be remembered is never chosen to allow. */
export const decide = (request: Request): Decision => {
  const refused = refusalOf(request)
  const allow = optionOf(request.options, "allow_once")
  if (refused === undefined && allow !== undefined) return { optionId: allow, refused: undefined }
  return {
    optionId: optionOf(request.options, "reject_once", "reject_always"),
    refused: refused ?? "it can only be allowed for ever"
  }
}
