import type { Unauthorized } from "../../services/Auth.ts"
import type { McpFailure } from "../../services/mcp/failures.ts"
import type { ErrorObject } from "../../services/wire/JsonRpc.ts"
import type { HttpFailure } from "./httpFailures.ts"

export type Failure = McpFailure | HttpFailure | Unauthorized

type Row<F extends Failure> = readonly [status: number, code: number, message: (failure: F) => string]

/**
 * Every failure that a caller can meet, with its HTTP status and JSON-RPC code. Total: a new failure without a row
 * does not compile. docs/protocol.md prints it.
 */
export const table: { readonly [T in Failure["_tag"]]: Row<Extract<Failure, { _tag: T }>> } = {
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
  BodyBroken: [400, -32700, () => "the request body ended early"],
  NotJson: [400, -32700, ({ detail }) => `parse error: ${detail}`],
  NotAMessage: [400, -32600, ({ reason }) => `invalid request: ${reason}`],
  BatchNotSupported: [
    400,
    -32600,
    ({ protocolVersion }) => `invalid request: protocol version ${protocolVersion} has no batches`
  ],
  SessionRequired: [400, -32000, () => "missing mcp-session-id: every request but initialize must carry it"],
  SessionNotFound: [404, -32001, () => "unknown session: it expired or was closed; initialize again"],
  SessionLimitReached: [
    503,
    -32000,
    ({ limit }) => `all ${limit} sessions have a call in flight; try again when one has ended`
  ],
  ProtocolVersionUnsupported: [
    400,
    -32000,
    ({ requested, supported }) =>
      `unsupported protocol version ${requested.slice(0, 64)}; supported: ${supported.join(", ")}`
  ],
  MethodNotFound: [200, -32601, ({ method }) => `method not found: ${method.slice(0, 128)}`],
  ParamsInvalid: [200, -32602, ({ detail }) => `invalid params: ${detail.slice(0, 1024)}`],
  InternalError: [500, -32603, ({ reference }) => `internal error (${reference}); the host's log has the cause`]
}

const row = <F extends Failure>(failure: F) => table[failure._tag] as unknown as Row<F>

export const statusOf = (failure: Failure): number => row(failure)[0]

export const toErrorObject = (failure: Failure): ErrorObject => {
  const [, code, message] = row(failure)
  return { code, message: message(failure).toWellFormed() }
}
