import type { Diffstat } from "./Job.ts"

/** What git prints with `-z`, read as bytes: names may hold anything but NUL. */

type Change = Diffstat["files"][number]["change"]

export const records = (output: Uint8Array): ReadonlyArray<Uint8Array> => {
  const found: Array<Uint8Array> = []
  for (let start = 0; start < output.length;) {
    const nul = output.indexOf(0, start)
    const end = nul < 0 ? output.length : nul
    found.push(output.subarray(start, end))
    start = end + 1
  }
  return found
}

/** Records, each ended by NUL: what `-z --stdin` takes. */
export const toRecords = (parts: ReadonlyArray<Uint8Array>): Uint8Array => {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length + 1, 0))
  let at = 0
  for (const part of parts) {
    joined.set(part, at)
    at += part.length + 1
  }
  return joined
}

export const concat = (...parts: ReadonlyArray<Uint8Array>): Uint8Array => {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0))
  let at = 0
  for (const part of parts) {
    joined.set(part, at)
    at += part.length
  }
  return joined
}

const encoder = new TextEncoder()
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

export const encode = (text: string): Uint8Array => encoder.encode(text)

const octal = (byte: number): string => `\\${byte.toString(8).padStart(3, "0")}`

/** As git's `quote.c` writes it, without choosing nicer escapes. */
export const quote = (name: Uint8Array): string =>
  `"${Array.from(name, (byte) => (byte < 0x20 || byte > 0x7e || byte === 0x22 || byte === 0x5c ? octal(byte) : String.fromCharCode(byte))).join("")}"`

/** A file's name as text; one that is no UTF-8 in git's quotes, so that two names never become one. */
export const decode = (name: Uint8Array): string => {
  try {
    return strict.decode(name)
  } catch {
    return quote(name)
  }
}

/** What git printed as one line: names may end in blanks, so only the line's end goes. */
export const line = (output: Uint8Array): string => decode(output).replace(/\r?\n$/, "")

/** One entry of `--raw -z`. */
export interface RawEntry {
  readonly oldMode: string
  readonly newMode: string
  readonly oldId: string
  readonly newId: string
  readonly status: string
  readonly from: Uint8Array | undefined
  readonly path: Uint8Array
}

const isPair = (status: string): boolean => status.startsWith("R") || status.startsWith("C")

/** Counts of `--numstat -z`; none for a binary file. */
interface Counts {
  readonly insertions: number
  readonly deletions: number
  readonly binary: boolean
}

const countOf = (text: string | undefined): number => (text === undefined || text === "-" ? 0 : Number(text))

/** Output of `--raw --numstat -z`, or of one of the two. */
export const parseChanges = (
  output: Uint8Array
): { readonly entries: ReadonlyArray<RawEntry>; readonly counts: ReadonlyMap<string, Counts> } => {
  const parts = records(output)
  const entries: Array<RawEntry> = []
  const counts = new Map<string, Counts>()
  for (let i = 0; i < parts.length;) {
    const head = parts[i++]!
    if (head[0] === 0x3a) {
      const [oldMode = "", newMode = "", oldId = "", newId = "", status = ""] = decode(head.subarray(1)).split(" ")
      const from = isPair(status) ? parts[i++] : undefined
      const path = parts[i++]
      if (path !== undefined) entries.push({ oldMode, newMode, oldId, newId, status, from, path })
      continue
    }
    const first = head.indexOf(0x09)
    const second = head.indexOf(0x09, first + 1)
    const insertions = decode(head.subarray(0, first))
    const deletions = decode(head.subarray(first + 1, second))
    const named = head.subarray(second + 1)
    // A rename has its two names in records of their own.
    if (named.length === 0) i++
    const path = named.length === 0 ? parts[i++] : named
    if (path !== undefined) {
      counts.set(decode(path), {
        insertions: countOf(insertions),
        deletions: countOf(deletions),
        binary: insertions === "-"
      })
    }
  }
  return { entries, counts }
}

const changeOf = ({ newId, oldId, oldMode, newMode, status }: RawEntry): Change => {
  switch (status[0]) {
    case "A":
    case "C":
      return "added"
    case "D":
      return "deleted"
    case "R":
      return "renamed"
    default:
      return oldId === newId && oldMode !== newMode ? "mode" : "modified"
  }
}

/** Diffstat of `diff-index --cached --raw --numstat -z`. */
export const toDiffstat = (output: Uint8Array): Diffstat => {
  const { counts, entries } = parseChanges(output)
  const files = entries.map((entry) => {
    const path = decode(entry.path)
    const count = counts.get(path)
    return {
      path,
      ...(entry.from === undefined || entry.status.startsWith("C") ? {} : { from: decode(entry.from) }),
      change: changeOf(entry),
      binary: count?.binary ?? false,
      insertions: count?.insertions ?? 0,
      deletions: count?.deletions ?? 0
    }
  })
  return {
    files,
    insertions: files.reduce((sum, file) => sum + file.insertions, 0),
    deletions: files.reduce((sum, file) => sum + file.deletions, 0)
  }
}

/** One entry of `ls-files -t -s -z`. */
export interface IndexEntry {
  /** `S`: left out of the folder by a sparse checkout. */
  readonly tag: string
  readonly mode: string
  readonly path: Uint8Array
}

export const parseIndex = (output: Uint8Array): ReadonlyArray<IndexEntry> =>
  records(output).flatMap((record) => {
    const tab = record.indexOf(0x09)
    const [tag, mode] = decode(record.subarray(0, tab)).split(" ")
    return tag === undefined || mode === undefined ? [] : [{ tag, mode, path: record.subarray(tab + 1) }]
  })

/** Counts of `status --porcelain=v1 -z --no-renames`. */
export const parseStatus = (output: Uint8Array): { readonly changed: number; readonly untracked: number } => {
  const found = records(output)
  const untracked = found.filter((record) => record[0] === 0x3f).length
  return { changed: found.length - untracked, untracked }
}
