/** Bytes of a line that has not ended yet. */
export interface Unfinished {
  readonly parts: ReadonlyArray<Uint8Array>
  readonly size: number
  /** The line is longer than it may be: the rest of it is passed over. */
  readonly passing: boolean
}

export const nothing: Unfinished = { parts: [], size: 0, passing: false }

export interface Split {
  readonly unfinished: Unfinished
  readonly lines: ReadonlyArray<string>
  /** Lines that were longer than they may be. */
  readonly dropped: number
}

const textOf = (parts: ReadonlyArray<Uint8Array>, size: number): string => {
  const bytes = new Uint8Array(size)
  let at = 0
  for (const part of parts) {
    bytes.set(part, at)
    at += part.length
  }
  return new TextDecoder().decode(bytes).replace(/\r$/, "")
}

/** Lines (without their ends) as a stream's chunks complete them, however it was cut; none longer than `limit` bytes. */
export const split = (before: Unfinished, chunk: Uint8Array, limit: number): Split => {
  const lines: Array<string> = []
  let { parts, passing, size } = before
  let dropped = 0
  let from = 0
  for (;;) {
    const end = chunk.indexOf(10, from)
    const part = chunk.subarray(from, end < 0 ? chunk.length : end)
    size += part.length
    if (size > limit) {
      passing = true
      parts = []
    }
    if (!passing && part.length > 0) parts = [...parts, part]
    if (end < 0) return { unfinished: { parts, size, passing }, lines, dropped }
    if (passing) dropped++
    else lines.push(textOf(parts, size))
    parts = []
    size = 0
    passing = false
    from = end + 1
  }
}

/** The last line, where the stream ended without an end of line. */
export const rest = ({ parts, passing, size }: Unfinished): Split => ({
  unfinished: nothing,
  lines: passing || size === 0 ? [] : [textOf(parts, size)],
  dropped: passing ? 1 : 0
})
