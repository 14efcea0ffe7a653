/** Requests of 2026-07-28, and the headers that must repeat them. */

const prefix = "io.modelcontextprotocol/"

export const modernVersion = "2026-07-28"
export const subscriptionKey = `${prefix}subscriptionId`

export interface ModernRequest {
  readonly body: {
    readonly jsonrpc: "2.0"
    readonly id: string | number
    readonly method: string
    readonly params: Readonly<Record<string, unknown>>
  }
  readonly headers: Readonly<Record<string, string>>
}

const nameOf = (params: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> => {
  const name = params["name"] ?? params["uri"] ?? params["taskId"]
  return typeof name === "string" ? { "mcp-name": name } : {}
}

export const modern = (
  method: string,
  params: Readonly<Record<string, unknown>> = {},
  { capabilities = {}, id = 1 }: { readonly capabilities?: object; readonly id?: string | number } = {}
): ModernRequest => ({
  body: {
    jsonrpc: "2.0",
    id,
    method,
    params: {
      ...params,
      _meta: {
        [`${prefix}protocolVersion`]: modernVersion,
        [`${prefix}clientCapabilities`]: capabilities,
        [`${prefix}clientInfo`]: { name: "modern", version: "1" }
      }
    }
  },
  headers: {
    "mcp-protocol-version": modernVersion,
    "mcp-method": method,
    ...nameOf(params),
    accept: "application/json, text/event-stream"
  }
})

/** The same request with its `_meta` changed. */
export const withMeta = ({ body, headers }: ModernRequest, meta: unknown): ModernRequest => ({
  body: { ...body, params: { ...body.params, _meta: meta } },
  headers
})

export const metaOf = ({ body }: ModernRequest): Readonly<Record<string, unknown>> =>
  body.params["_meta"] as Readonly<Record<string, unknown>>

export const versionKey = `${prefix}protocolVersion`
export const capabilitiesKey = `${prefix}clientCapabilities`
