import * as Either from "effect/Either"
import { IntegerTooLarge, NestedTooDeep, NotJson } from "./failures.ts"

/** A string, or a number with its fraction and exponent. */
const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g
const integer = /^-?\d+$/

/** Exact, or what a client with the same numbers writes for its nearest one. */
const keeps = (digits: string): boolean => {
  const number = Number(digits)
  return String(number) === digits || (Number.isFinite(number) && BigInt(number) === BigInt(digits))
}

const rounded = (text: string): string | undefined => {
  for (const [found] of text.matchAll(token)) {
    if (integer.test(found) && !keeps(found)) return found
  }
  return undefined
}

/** Deeper than any schema or argument that a host has. What walks a message may recurse. */
const maxDepth = 256

const tooDeep = (text: string): boolean => {
  // Too short to be as deep.
  if (text.length < 2 * maxDepth) return false
  let depth = 0
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (inString) {
      if (code === 92) i++
      else if (code === 34) inString = false
    } else if (code === 34) inString = true
    else if (code === 91 || code === 123) {
      if (++depth > maxDepth) return true
    } else if (code === 93 || code === 125) depth--
  }
  return false
}

/** A message's text as JSON. An integer that would be rounded fails: a wrong number would do what nobody asked for. */
export const parseJson = (text: string): Either.Either<unknown, NotJson | IntegerTooLarge | NestedTooDeep> => {
  if (tooDeep(text)) return Either.left(new NestedTooDeep({ limit: maxDepth }))
  try {
    const value: unknown = JSON.parse(text)
    // Nothing with fewer digits is rounded, and hardly a message has as many.
    const lost = /\d{16}/.test(text) ? rounded(text) : undefined
    return lost === undefined ? Either.right(value) : Either.left(new IntegerTooLarge({ integer: lost }))
  } catch (error) {
    return Either.left(new NotJson({ detail: error instanceof Error ? error.message : String(error) }))
  }
}
