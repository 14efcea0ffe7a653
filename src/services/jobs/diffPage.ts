const newline = 0x0a
const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

/** How many bytes more than the page a reader needs, to see whether a character goes on. */
export const overlap = 4

/**
 * How many of these bytes make the page of at most `limit`: up to the last line's end where there is one in its second
 * half, else up to a character's end. Always at least one character, so that pages come to an end. `bytes` may go
 * beyond the limit; `last` where nothing follows them.
 */
export const pageLength = (bytes: Uint8Array, limit: number, last: boolean): number => {
  const most = Math.max(1, limit)
  if (last && bytes.byteLength <= most) return bytes.byteLength
  const end = Math.min(most, bytes.byteLength)
  const line = bytes.lastIndexOf(newline, end - 1)
  if (line + 1 > end / 2) return line + 1
  let boundary = end
  // Not UTF-8 at all where a character is longer than four bytes.
  while (boundary > 0 && end - boundary < overlap && isContinuation(bytes[boundary])) boundary--
  if (boundary > 0 && !isContinuation(bytes[boundary])) return boundary
  let next = end
  while (next < bytes.byteLength && next - end < overlap && isContinuation(bytes[next])) next++
  return boundary === 0 ? Math.max(1, next) : end
}
