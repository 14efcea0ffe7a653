/** How each client is told of this bridge. One source for the command, the headless host and the documentation. */
export interface Target {
  /** Base URL, without a path. */
  readonly url: string
  readonly token: string
  /** Name under which the client lists the bridge. */
  readonly name: string
}

export const clients = ["omp", "claude", "codex", "cursor", "curl"] as const
export type Client = (typeof clients)[number]

const endpoint = (target: Target): string => `${target.url}/mcp`
const bearer = (target: Target): string => `Bearer ${target.token}`
const indent = (json: unknown): string => JSON.stringify(json, null, 2)

/** Lines to paste: a file's content or a command, after a line that says where it goes. */
export const instructions: { readonly [C in Client]: (target: Target) => string } = {
  omp: (target) =>
    `omp, in ~/.omp/agent/mcp.json (timeout 0: calls may take as long as they need):\n` +
    indent({
      mcpServers: {
        [target.name]: {
          type: "http",
          url: endpoint(target),
          headers: { Authorization: bearer(target) },
          timeout: 0
        }
      }
    }),
  claude: (target) =>
    `Claude Code:\n` +
    `claude mcp add --transport http ${target.name} ${endpoint(target)} --header "Authorization: ${bearer(target)}"`,
  codex: (target) =>
    `Codex, in ~/.codex/config.toml:\n` +
    `[mcp_servers.${target.name}]\n` +
    `url = "${endpoint(target)}"\n` +
    `http_headers = { Authorization = "${bearer(target)}" }`,
  cursor: (target) =>
    `Cursor, in ~/.cursor/mcp.json:\n` +
    indent({ mcpServers: { [target.name]: { url: endpoint(target), headers: { Authorization: bearer(target) } } } }),
  // A session first, then whatever is called in it.
  curl: (target) => {
    const headers = `-H 'Authorization: ${bearer(target)}' -H 'Content-Type: application/json'`
    const initialize = {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "curl", version: "1" } }
    }
    const list = { jsonrpc: "2.0", id: 2, method: "tools/list" }
    return (
      `curl:\n` +
      `SID=$(curl -sD- -o/dev/null ${endpoint(target)} ${headers} -d '${JSON.stringify(initialize)}' | ` +
      `tr -d '\\r' | awk 'tolower($1)=="mcp-session-id:"{print $2}'); ` +
      `curl -s ${endpoint(target)} ${headers} -H "Mcp-Session-Id: $SID" -d '${JSON.stringify(list)}'`
    )
  }
}

export const isClient = (name: string): name is Client => (clients as ReadonlyArray<string>).includes(name)
