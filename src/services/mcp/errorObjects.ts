import type { ErrorObject } from "../wire/JsonRpc.ts"
import type { McpFailure } from "./failures.ts"
import { modernVersions } from "./versions.ts"

type Row<F extends McpFailure> = readonly [
  code: number,
  message: (failure: F) => string,
  data?: (failure: F) => unknown
]

/**
 * JSON-RPC code, message and data of every failure, whatever the transport. Total: a new failure without a row does
 * not compile. docs/protocol.md prints it.
 */
export const rows: { readonly [T in McpFailure["_tag"]]: Row<Extract<McpFailure, { _tag: T }>> } = {
  NotJson: [-32700, ({ detail }) => `parse error: ${detail}`],
  IntegerTooLarge: [
    -32600,
    ({ integer }) =>
      `invalid request: the integer ${integer.slice(0, 64)} has more digits than JSON numbers keep (beyond 2^53-1); ` +
      `send it as a string`
  ],
  NestedTooDeep: [-32600, ({ limit }) => `invalid request: nested deeper than ${limit} levels`],
  NotAMessage: [-32600, ({ reason }) => `invalid request: ${reason}`],
  BatchNotSupported: [
    -32600,
    ({ protocolVersion }) => `invalid request: protocol version ${protocolVersion} has no batches`
  ],
  SessionRequired: [-32000, () => "missing mcp-session-id: every request but initialize must carry it"],
  SessionNotFound: [-32001, () => "unknown session: it expired or was closed; initialize again"],
  SessionLimitReached: [
    -32000,
    ({ limit }) => `all ${limit} sessions have a call in flight; try again when one has ended`
  ],
  ProtocolVersionUnsupported: [
    -32000,
    ({ requested, supported }) =>
      `unsupported protocol version ${requested.slice(0, 64)}; supported: ${supported.join(", ")}`
  ],
  UnsupportedProtocolVersion: [
    -32022,
    ({ requested }) => `Unsupported protocol version ${requested.slice(0, 64)}`,
    ({ requested, supported }) => ({ supported, requested })
  ],
  HeaderMismatch: [-32020, ({ detail, header }) => `Header mismatch: ${header} ${detail.slice(0, 512)}`],
  MetaInvalid: [
    -32602,
    ({ detail }) => `invalid params: ${detail}; every request of ${modernVersions.join(", ")} carries it`
  ],
  MethodNotFound: [-32601, ({ method }) => `method not found: ${method.slice(0, 128)}`],
  MethodNotImplemented: [-32601, ({ method }) => `method not found: ${method.slice(0, 128)}`],
  ParamsInvalid: [-32602, ({ detail }) => `invalid params: ${detail.slice(0, 1024)}`],
  TaskNotFound: [-32602, () => "no such task: it expired, or never was"],
  StateRejected: [-32602, ({ reason }) => `requestState rejected: ${reason}; send the request again without it`],
  ResourceNotFound: [-32002, ({ uri }) => `resource not found: ${uri.slice(0, 512)}`, ({ uri }) => ({ uri })],
  ResourceUnknown: [-32602, ({ uri }) => `resource not found: ${uri.slice(0, 512)}`, ({ uri }) => ({ uri })],
  CapabilityMissing: [
    -32021,
    ({ required }) => `Missing required client capability: ${Object.keys(required).join(", ")}`,
    ({ required }) => ({ requiredCapabilities: required })
  ],
  RateLimited: [
    -32000,
    ({ retryAfter }) => `too many requests; try again in ${retryAfter} s`,
    ({ retryAfter }) => ({ retryAfter })
  ],
  TooManyCalls: [
    -32000,
    ({ limit }) => `${limit} calls of this client are running (rateLimit.concurrentCalls); try again when one has ended`
  ],
  Refused: [-32000, ({ detail }) => detail],
  CallFailed: [-32603, ({ detail }) => detail],
  InternalError: [-32603, ({ reference }) => `internal error (${reference}); the host's log has the cause`]
}

export const toErrorObject = (failure: McpFailure): ErrorObject => {
  const [code, message, data] = rows[failure._tag] as unknown as Row<McpFailure>
  return {
    code,
    message: message(failure).toWellFormed(),
    ...(data === undefined ? {} : { data: data(failure) })
  }
}
