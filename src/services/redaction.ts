import { isRecord } from "./wire/JsonRpc.ts"

/**
 * What the audit log keeps of a call's arguments: enough to tell what was done, too little to leak or to flood.
 * Long strings become their length and digest; anything that looks like a secret is blanked, by its key or by its form.
 */

/** UTF-8 bytes of the summary's JSON. */
export const maxSummaryBytes = 1024
const maxString = 256
const maxEntries = 32
const maxDepth = 6

export const blank = "[redacted]"

const secretKey =
  /(pass(word|wd|phrase)?|secret|token|api[-_]?key|auth(orization)?|credential|cookie|private[-_]?key|access[-_]?key|session[-_]?key|signature)/i

/** Whole-text patterns of well-known secret forms. Each replaces the secret, not what stands around it. */
const secretForms: ReadonlyArray<readonly [pattern: RegExp, replacement: string]> = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)/g, blank],
  [/\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${blank}`],
  [/\b(sk|pk|rk|xox[abprs]|gh[pousr]|github_pat|glpat|npm|hf|AIza)[-_][A-Za-z0-9_-]{12,}/g, blank],
  [/\bAIza[A-Za-z0-9_-]{30,}/g, blank],
  [/\bAKIA[A-Z0-9]{16}\b/g, blank],
  [/\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g, blank],
  [/(\b[a-z][a-z0-9+.-]*:\/\/[^\s/:@]*:)[^\s/@]+@/gi, `$1${blank}@`],
  // An assignment in a shell, in JSON (quotes may be escaped) or in a query string. A quote that never closes hides
  // the rest: better too much than the secret.
  [
    /(\b[A-Za-z0-9_-]*(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credentials?)[A-Za-z0-9_-]*(?:\\*["'])?\s*[=:]\s*)(\\*"[^"]*(?:"|$)|\\*'[^']*(?:'|$)|[^\s"',;&]+)/gi,
    `$1${blank}`
  ],
  [/(--?(?:password|passwd|token|secret|api-?key)\s+)("[^"]*(?:"|$)|'[^']*(?:'|$)|\S+)/gi, `$1${blank}`]
]

export interface RedactionOptions {
  /** Hex digest of a string; the first 16 characters are kept. */
  readonly digest: (text: string) => string
  /** Exact strings that must not appear, whatever stands around them (the bridge's own token). */
  readonly secrets: ReadonlyArray<string>
}

const redactText = (text: string, options: RedactionOptions): string => {
  let out = text
  for (const secret of options.secrets) if (secret !== "") out = out.replaceAll(secret, blank)
  for (const [pattern, replacement] of secretForms) out = out.replace(pattern, replacement)
  return out
}

const summarizeText = (text: string, options: RedactionOptions): string =>
  text.length > maxString
    ? `[${text.length} characters, sha256 ${options.digest(text).slice(0, 16)}]`
    : redactText(text, options).toWellFormed()

const reduce = (value: unknown, depth: number, options: RedactionOptions): unknown => {
  if (typeof value === "string") return summarizeText(value, options)
  if (value === null || typeof value === "number" || typeof value === "boolean") return value
  if (Array.isArray(value)) {
    if (depth >= maxDepth) return `[array of ${value.length}]`
    const kept = value.slice(0, maxEntries).map((item) => reduce(item, depth + 1, options))
    return value.length > maxEntries ? [...kept, `[${value.length - maxEntries} more]`] : kept
  }
  if (isRecord(value)) {
    const keys = Object.keys(value)
    if (depth >= maxDepth) return `[object of ${keys.length}]`
    const out: Record<string, unknown> = Object.create(null) as Record<string, unknown>
    for (const key of keys.slice(0, maxEntries)) {
      out[summarizeText(key, options)] =
        secretKey.test(key) && value[key] !== null && typeof value[key] !== "boolean"
          ? blank
          : reduce(value[key], depth + 1, options)
    }
    if (keys.length > maxEntries) out["..."] = `[${keys.length - maxEntries} more]`
    return out
  }
  return `[${typeof value}]`
}

/** At most this many UTF-8 bytes, without an encoder: a UTF-16 unit takes no more than three. */
const utf8Length = (text: string): number => {
  let bytes = 0
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    bytes += unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit >= 0xd800 && unit < 0xe000 ? 2 : 3
  }
  return bytes
}

/** A JSON value of at most {@link maxSummaryBytes} bytes. Total: any JSON value in. */
export const summarize = (args: unknown, options: RedactionOptions): unknown => {
  const reduced = reduce(args, 0, options)
  const text = JSON.stringify(reduced)
  if (utf8Length(text) <= maxSummaryBytes) return reduced
  // Keep whole top-level entries while they fit, so that the first arguments stay readable.
  if (isRecord(reduced)) {
    const out: Record<string, unknown> = Object.create(null) as Record<string, unknown>
    const note = `[cut: ${text.length} characters, sha256 ${options.digest(text).slice(0, 16)}]`
    let size = utf8Length(JSON.stringify({ "...": note }))
    for (const [key, value] of Object.entries(reduced)) {
      const entry = utf8Length(JSON.stringify({ [key]: value }))
      if (size + entry > maxSummaryBytes) continue
      size += entry
      out[key] = value
    }
    out["..."] = note
    return out
  }
  return `[cut: ${text.length} characters, sha256 ${options.digest(text).slice(0, 16)}]`
}
