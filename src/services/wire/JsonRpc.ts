/**
 * JSON-RPC 2.0 envelopes, as far as MCP allows them: ids are strings or integers that a double keeps exactly
 * (MCP: "MUST include a string or integer ID", "MUST NOT be null").
 * Guards, not schemas: they stand on the path of every request, and they never throw.
 */
export type RequestId = string | number
export type Params = Readonly<Record<string, unknown>>

export interface Request {
  readonly _tag: "Request"
  readonly id: RequestId
  readonly method: string
  readonly params: Params | undefined
}
export interface Notification {
  readonly _tag: "Notification"
  readonly method: string
  readonly params: Params | undefined
}
/** An answer to a request of ours. */
export interface Response {
  readonly _tag: "Response"
  readonly id: RequestId
  /** Exactly one of the two is there. */
  readonly result: unknown
  readonly error: unknown
}
/** Not a message. `id` is the message's own where it has a valid one. */
export interface Malformed {
  readonly _tag: "Malformed"
  readonly id: RequestId | null
  readonly reason: string
}
export type Message = Request | Notification | Response | Malformed

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value)

export const isRequestId = (value: unknown): value is RequestId =>
  typeof value === "string" || (typeof value === "number" && Number.isSafeInteger(value))

const malformed = (id: unknown, reason: string): Malformed => ({
  _tag: "Malformed",
  id: isRequestId(id) ? id : null,
  reason
})

export const classify = (value: unknown): Message => {
  if (!isRecord(value)) return malformed(null, "a message is a JSON object")
  const { id, jsonrpc, method, params } = value
  if (jsonrpc !== "2.0") return malformed(id, '"jsonrpc" must be "2.0"')
  const hasId = Object.hasOwn(value, "id")
  if (hasId && !isRequestId(id)) {
    return malformed(null, '"id" must be a string or an integer between -(2^53-1) and 2^53-1, and not null')
  }
  if (method === undefined) {
    const answers = Object.hasOwn(value, "result") !== Object.hasOwn(value, "error")
    return answers && isRequestId(id)
      ? { _tag: "Response", id, result: value["result"], error: value["error"] }
      : malformed(id, '"method" is missing, and this is not a response either')
  }
  if (typeof method !== "string") return malformed(id, '"method" must be a string')
  if (params !== undefined && !isRecord(params)) return malformed(id, '"params" must be an object')
  return isRequestId(id) ? { _tag: "Request", id, method, params } : { _tag: "Notification", method, params }
}

export interface ErrorObject {
  readonly code: number
  readonly message: string
  readonly data?: unknown
}

export const success = (id: RequestId, result: unknown) => ({ jsonrpc: "2.0", id, result }) as const
export const failure = (id: RequestId | null, error: ErrorObject) => ({ jsonrpc: "2.0", id, error }) as const
