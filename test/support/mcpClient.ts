/** A bare MCP client over fetch: every header and status is in the test's hands. */

export interface Reply {
  readonly status: number
  readonly headers: Headers
  /** Parsed JSON; `undefined` where there was no body. */
  readonly body: any
}

export interface ToolReply {
  readonly content: ReadonlyArray<{ readonly type: string; readonly text?: string }>
  readonly isError: boolean
  /** All text blocks. */
  readonly text: string
}

export interface WireTool {
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly inputSchema: Record<string, unknown>
  readonly annotations?: Record<string, unknown>
}

export interface PostOptions {
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
}

export const protocolVersion = "2025-11-25"

export const initializeMessage = (name = "e2e") => ({
  jsonrpc: "2.0",
  id: 0,
  method: "initialize",
  params: { protocolVersion, capabilities: {}, clientInfo: { name, version: "1" } }
})

/** The data of a stream's last event, which is the answer. */
const lastEvent = (text: string): string =>
  text
    .split("\n")
    .filter((line) => line.startsWith("data: "))
    .at(-1)
    ?.slice("data: ".length) ?? ""

export const post = async (url: string, message: unknown, options: PostOptions = {}): Promise<Reply> => {
  const response = await fetch(`${url}/mcp`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      // No connection of an earlier test, which may have been dropped on purpose.
      connection: "close",
      ...options.headers
    },
    body: typeof message === "string" ? message : JSON.stringify(message),
    ...(options.signal === undefined ? {} : { signal: options.signal })
  })
  const text = await response.text()
  const answer = response.headers.get("content-type")?.startsWith("text/event-stream") === true ? lastEvent(text) : text
  return { status: response.status, headers: response.headers, body: answer === "" ? undefined : JSON.parse(answer) }
}

const toToolReply = (reply: Reply): ToolReply => {
  const result = reply.body?.result
  if (result === undefined) throw new Error(`no result: ${reply.status} ${JSON.stringify(reply.body)}`)
  return {
    content: result.content,
    isError: result.isError === true,
    text: result.content.map((block: { readonly text?: string }) => block.text ?? "").join("\n")
  }
}

export interface McpClient {
  readonly sid: string
  readonly initialized: Reply
  /** Any message, in this client's session. */
  readonly send: (message: unknown, options?: PostOptions) => Promise<Reply>
  readonly list: () => Promise<ReadonlyArray<WireTool>>
  readonly names: () => Promise<ReadonlyArray<string>>
  readonly call: (name: string, args?: unknown, options?: PostOptions & { readonly id?: string }) => Promise<ToolReply>
  /** A call whose connection the test drops. */
  readonly start: (
    name: string,
    args: unknown
  ) => { readonly id: string; readonly drop: () => Promise<void>; readonly settled: Promise<"answered" | "dropped"> }
}

/** Opens a session. */
export const mcpClient = async (url: string, token: string, name = "e2e"): Promise<McpClient> => {
  const authorization = `Bearer ${token}`
  const initialized = await post(url, initializeMessage(name), { headers: { authorization } })
  const sid = initialized.headers.get("mcp-session-id")
  if (initialized.status !== 200 || sid === null) {
    throw new Error(`initialize: ${initialized.status} ${JSON.stringify(initialized.body)}`)
  }
  const send: McpClient["send"] = (message, options = {}) =>
    post(url, message, {
      ...options,
      headers: {
        authorization,
        "mcp-session-id": sid,
        "mcp-protocol-version": protocolVersion,
        ...options.headers
      }
    })
  await send({ jsonrpc: "2.0", method: "notifications/initialized" })
  const request = (method: string, params: unknown, id: string, options?: PostOptions) =>
    send({ jsonrpc: "2.0", id, method, params }, options)
  const list = async () => {
    const reply = await request("tools/list", {}, crypto.randomUUID())
    return reply.body.result.tools as ReadonlyArray<WireTool>
  }
  return {
    sid,
    initialized,
    send,
    list,
    names: async () => (await list()).map((tool) => tool.name),
    call: async (name, args = {}, { id = crypto.randomUUID(), ...options } = {}) =>
      toToolReply(await request("tools/call", { name, arguments: args }, id, options)),
    start: (name, args) => {
      const id = crypto.randomUUID()
      const controller = new AbortController()
      const settled = request("tools/call", { name, arguments: args }, id, { signal: controller.signal }).then(
        (): "answered" => "answered",
        (): "dropped" => "dropped"
      )
      return {
        id,
        settled,
        drop: async () => {
          controller.abort()
          await settled
        }
      }
    }
  }
}
