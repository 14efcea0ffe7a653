import * as Either from "effect/Either"
import * as Schema from "effect/Schema"

/** Why a path is not one that remote parties may work in. */
export const PathRefusal = Schema.Literal(
  "no-roots",
  "several-roots",
  "not-absolute",
  "nul",
  "dot-dot",
  "device-name",
  "short-name",
  /** Names that Windows reads as another file's: `app.`, `app `, `app:stream`, wildcards. */
  "bad-name",
  "unc",
  "outside",
  "link-escape",
  "absent",
  "not-a-folder"
)
export type PathRefusal = typeof PathRefusal.Type

/** `darwin` is POSIX on a file system that, as a rule, folds case and normal forms. */
export type Flavour = "posix" | "darwin" | "win32"

/** An allowed root as configured, and where it really is (absent: nowhere). */
export interface Root {
  readonly path: string
  readonly real: string | undefined
}

/** Microsoft, "Naming Files, Paths, and Namespaces"; CONIN$ and CONOUT$ are the console's own. */
const device = /^(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[1-9\u00b9\u00b2\u00b3])$/i
const shortName = /^[^.]{0,7}~\d+(?:\.[^.]{0,3})?$/
const reserved = /[<>:"|?*\p{Cc}]/u

/** Up to the first dot or colon, without the blanks before it: `NUL .tar.gz` opens NUL. */
const stem = (segment: string): string => (/^[^.:]*/.exec(segment)?.[0] ?? "").trimEnd()

const isShortName = (segment: string): boolean =>
  shortName.test(segment) && (segment.split(".")[0] ?? segment).length <= 8

const refuseWindowsSegment = (segment: string): PathRefusal | undefined => {
  if (device.test(stem(segment))) return "device-name"
  if (reserved.test(segment) || /[. ]$/.test(segment)) return "bad-name"
  return isShortName(segment) ? "short-name" : undefined
}

/** Volume and names of an absolute path, `.` and empty names dropped; undefined where it is not absolute. */
const parse = (
  flavour: Flavour,
  path: string
): { readonly volume: string; readonly names: ReadonlyArray<string> } | undefined => {
  const drive = flavour === "win32" ? /^[A-Za-z]:(?=[\\/])/.exec(path)?.[0] : ""
  if (drive === undefined || (flavour !== "win32" && !path.startsWith("/"))) return undefined
  const names = path.slice(drive.length).split(flavour === "win32" ? /[\\/]/ : "/")
  return { volume: drive.toUpperCase(), names: names.filter((name) => name !== "" && name !== ".") }
}

/** What the text alone says against a path; undefined where it says nothing. */
export const checkLiteral = (flavour: Flavour, path: string): PathRefusal | undefined => {
  if (path.includes("\0")) return "nul"
  // Shares and `\\?\`, `\\.\`: names that are resolved by other rules than the ones below.
  if (flavour === "win32" && /^[\\/]{2}/.test(path)) return "unc"
  const parsed = parse(flavour, path)
  if (parsed === undefined) return "not-absolute"
  if (parsed.names.includes("..")) return "dot-dot"
  if (flavour !== "win32") return undefined
  for (const name of parsed.names) {
    const refusal = refuseWindowsSegment(name)
    if (refusal !== undefined) return refusal
  }
  return undefined
}

/**
 * One unit for one unit, as file systems do it: full case mapping would make `straße` and `STRASSE` one name, and let
 * what lies in the one into the other. No letter folds to an ASCII one that is not ASCII itself (`ſ`, `ı`).
 */
const foldUnit = (unit: string): string => {
  const upper = unit.toUpperCase()
  return upper.length !== 1 || (unit > "\u007f" && upper <= "\u007f") ? unit : upper
}
const foldCase = (name: string): string => Array.from({ length: name.length }, (_, i) => foldUnit(name[i]!)).join("")

type Fold = (name: string) => string
const exact: Fold = (name) => name

const literalFold: { readonly [F in Flavour]: Fold } = {
  posix: exact,
  darwin: (name) => foldCase(name.normalize("NFC")),
  win32: foldCase
}
/**
 * Real paths come in the disk's own spelling. On macOS they are compared as they are: where two spellings are one
 * folder their real paths are equal, and on a case-sensitive volume they are two folders.
 */
const realFold: { readonly [F in Flavour]: Fold } = { posix: exact, darwin: exact, win32: foldCase }

const within = (flavour: Flavour, fold: Fold, root: string, path: string): boolean => {
  const outer = parse(flavour, root)
  const inner = parse(flavour, path)
  if (outer === undefined || inner === undefined || outer.volume !== inner.volume) return false
  if (outer.names.includes("..") || inner.names.includes("..")) return false
  return outer.names.every((name, i) => {
    const other = inner.names[i]
    return other !== undefined && fold(name) === fold(other)
  })
}

/** Whether an absolute path is the root or lies beneath it, name by name, as the flavour compares names. */
export const inside = (flavour: Flavour, root: string, path: string): boolean =>
  within(flavour, literalFold[flavour], root, path)

/** `inside` for two real paths. */
export const insideReal = (flavour: Flavour, root: string, real: string): boolean =>
  within(flavour, realFold[flavour], root, real)

/**
 * The real path that may be worked in. `literal` is what was asked for, `real` where it really is (absent: nowhere);
 * both must be inside a root. A symlinked root may be named by either of its names.
 */
export const decide = (
  flavour: Flavour,
  roots: ReadonlyArray<Root>,
  literal: string,
  real: string | undefined
): Either.Either<string, PathRefusal> => {
  if (roots.length === 0) return Either.left("no-roots")
  const refusal = checkLiteral(flavour, literal)
  if (refusal !== undefined) return Either.left(refusal)
  const usable = roots.flatMap((root) =>
    root.real === undefined || checkLiteral(flavour, root.path) !== undefined
      ? []
      : [{ path: root.path, real: root.real }]
  )
  // Before `absent`: whether something exists outside is nobody's business.
  if (!usable.some((root) => inside(flavour, root.path, literal) || inside(flavour, root.real, literal)))
    return Either.left("outside")
  if (real === undefined) return Either.left("absent")
  if (!usable.some((root) => insideReal(flavour, root.real, real))) return Either.left("link-escape")
  return Either.right(real)
}
