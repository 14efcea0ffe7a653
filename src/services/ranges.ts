/** A piece of a text that is too long to be read at once, in UTF-16 units. */
export interface Range {
  readonly offset: number
  readonly length: number
}

/** A URI without its range, and the range. `undefined` where the range is not one. */
export const splitRange = (uri: string): { readonly base: string; readonly range: Range | undefined } | undefined => {
  const at = uri.indexOf("?")
  if (at < 0) return { base: uri, range: undefined }
  const range = { offset: 0, length: Number.MAX_SAFE_INTEGER }
  const seen = new Set<string>()
  for (const pair of uri.slice(at + 1).split("&")) {
    const [key, value, ...rest] = pair.split("=")
    if ((key !== "offset" && key !== "length") || rest.length > 0 || seen.has(key)) return undefined
    if (value === undefined || !/^\d{1,15}$/.test(value)) return undefined
    seen.add(key)
    range[key] = Number(value)
  }
  return { base: uri.slice(0, at), range }
}

const isHigh = (text: string, at: number): boolean => /^[\uD800-\uDBFF]$/.test(text.charAt(at))
const isLow = (text: string, at: number): boolean => /^[\uDC00-\uDFFF]$/.test(text.charAt(at))

/** `at`, or one less where that would part a surrogate pair. */
export const boundary = (text: string, at: number): number =>
  at > 0 && at < text.length && isLow(text, at) && isHigh(text, at - 1) ? at - 1 : at

/**
 * The piece of the text. Never half a character: both ends move back to where one starts, so that pieces in a row, each
 * starting where the one before ended, are the whole text.
 */
export const slice = (text: string, { length, offset }: Range): string => {
  const start = boundary(text, Math.min(offset, text.length))
  const end = boundary(text, Math.min(offset + length, text.length))
  // A piece that is too short for its first character has it all the same: else nobody would get past it.
  return text.slice(start, end === start && length > 0 ? Math.min(start + 2, text.length) : end)
}
