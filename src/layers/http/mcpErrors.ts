import type { Unauthorized } from "../../services/Auth.ts"
import { rows, toErrorObject as toMcpErrorObject } from "../../services/mcp/errorObjects.ts"
import type { McpFailure } from "../../services/mcp/failures.ts"
import type { ErrorObject } from "../../services/wire/JsonRpc.ts"
import type { HttpFailure } from "./httpFailures.ts"

type Refusal = HttpFailure | Unauthorized
export type Failure = McpFailure | Refusal

type Row<F extends Refusal> = readonly [status: number, code: number, message: (failure: F) => string]

/** What HTTP itself refuses, before there is a message. */
const refusals: { readonly [T in Refusal["_tag"]]: Row<Extract<Refusal, { _tag: T }>> } = {
  HostRejected: [
    403,
    -32000,
    () => "forbidden: the Host header names no address of this bridge (allowedHosts adds one)"
  ],
  OriginRejected: [403, -32000, () => "forbidden: requests from this Origin are not allowed (allowedOrigins adds one)"],
  Unauthorized: [
    401,
    -32000,
    ({ reason }) =>
      ({
        missing: "unauthorized: send 'Authorization: Bearer <token>'",
        malformed: "unauthorized: the Authorization header must be 'Bearer <token>'",
        mismatch: "unauthorized: the token is not (or no longer) valid"
      })[reason]
  ],
  NotFound: [404, -32000, ({ path }) => `not found: nothing at ${path}; MCP is at /mcp and at /`],
  MethodNotAllowed: [405, -32000, ({ allow, method }) => `method not allowed: ${method}; use ${allow.join(", ")}`],
  BodyTooSlow: [408, -32000, ({ seconds }) => `the request body did not arrive within ${seconds} seconds`],
  BodyTooLarge: [413, -32000, ({ limit }) => `the request body is larger than ${limit} bytes (maxBodyBytes)`],
  Unavailable: [503, -32000, ({ what }) => `not available now: ${what}`],
  BodyBroken: [400, -32700, () => "the request body ended early"]
}

/** The HTTP status under which each failure of the protocol goes out. Total, as the table of its codes is. */
const statuses: { readonly [T in McpFailure["_tag"]]: number } = {
  NotJson: 400,
  IntegerTooLarge: 400,
  NestedTooDeep: 400,
  NotAMessage: 400,
  BatchNotSupported: 400,
  SessionRequired: 400,
  SessionNotFound: 404,
  SessionLimitReached: 503,
  ProtocolVersionUnsupported: 400,
  UnsupportedProtocolVersion: 400,
  HeaderMismatch: 400,
  MetaInvalid: 400,
  MethodNotFound: 200,
  MethodNotImplemented: 404,
  ParamsInvalid: 200,
  TaskNotFound: 200,
  StateRejected: 200,
  ResourceNotFound: 200,
  ResourceUnknown: 200,
  CapabilityMissing: 400,
  RateLimited: 429,
  TooManyCalls: 429,
  Refused: 200,
  CallFailed: 200,
  InternalError: 500
}

type Codes<T extends string> = { readonly [K in T]: readonly [status: number, code: number] }

const refusalCodes = Object.fromEntries(
  Object.entries(refusals).map(([tag, [status, code]]) => [tag, [status, code]])
) as unknown as Codes<Refusal["_tag"]>
const failureCodes = Object.fromEntries(
  Object.entries(statuses).map(([tag, status]) => [tag, [status, rows[tag as McpFailure["_tag"]][0]]])
) as unknown as Codes<McpFailure["_tag"]>

/** Failure -> (status, code), all of them: what docs/protocol.md prints. */
export const table: Codes<Failure["_tag"]> = { ...refusalCodes, ...failureCodes }

const isRefusal = (failure: Failure): failure is Refusal => failure._tag in refusals

export const statusOf = (failure: Failure): number => table[failure._tag][0]

export const toErrorObject = (failure: Failure): ErrorObject => {
  if (!isRefusal(failure)) return toMcpErrorObject(failure)
  const [, code, message] = refusals[failure._tag] as unknown as Row<Refusal>
  return { code, message: message(failure).toWellFormed() }
}
