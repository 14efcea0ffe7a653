import * as Either from "effect/Either"
import { ParamsInvalid } from "./failures.ts"

/** Items on one page of any list. */
export const pageSize = 200

/** Opaque to clients. Says of which list it is, so that no other list takes it. */
const encode = (list: string, offset: number): string => btoa(`${list}:${offset}`)

const decode = (list: string, cursor: string): number | undefined => {
  try {
    const match = /^([^:]+):(\d{1,9})$/.exec(atob(cursor))
    const offset = Number(match?.[2])
    const given = match?.[1] === list && offset > 0 && offset % pageSize === 0
    // base64 and decimals have other writings of the same, which nobody was given.
    return given && encode(list, offset) === cursor ? offset : undefined
  } catch {
    return undefined
  }
}

/** One page (MCP, pagination). A cursor that was never given out, the empty one too, is an error. */
export const page = <A>(
  list: string,
  items: ReadonlyArray<A>,
  cursor: unknown
): Either.Either<{ readonly items: ReadonlyArray<A>; readonly nextCursor?: string }, ParamsInvalid> => {
  const offset = cursor === undefined ? 0 : typeof cursor === "string" ? decode(list, cursor) : undefined
  if (offset === undefined) {
    return Either.left(
      new ParamsInvalid({ method: list, detail: "params.cursor: not a cursor that this server gave out for this list" })
    )
  }
  const end = offset + pageSize
  return Either.right({
    items: items.slice(offset, end),
    ...(end < items.length ? { nextCursor: encode(list, end) } : {})
  })
}
