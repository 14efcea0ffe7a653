import { assert, describe, it } from "@effect/vitest"
import { clients, instructions, isClient } from "../../src/services/connect.ts"

const target = { url: "http://127.0.0.1:4711", token: "tok_0123456789abcdef", name: "omp-host" }
const json = (text: string): unknown => JSON.parse(text.slice(text.indexOf("{")))

describe("connect.instructions", () => {
  it.each([...clients])("%s is told without the endpoint or the bearer", (client) => {
    const text = instructions[client](target)
    assert.include(text, "http://127.0.0.1:4711/mcp")
    assert.include(text, "Bearer tok_0123456789abcdef")
  })

  it("omp would cut calls off at its default time limit, or finds no http server", () => {
    assert.deepStrictEqual(json(instructions.omp(target)), {
      mcpServers: {
        "omp-host": {
          type: "http",
          url: "http://127.0.0.1:4711/mcp",
          headers: { Authorization: "Bearer tok_0123456789abcdef" },
          timeout: 0
        }
      }
    })
  })

  it("Cursor gets what is no JSON", () => {
    assert.deepStrictEqual(json(instructions.cursor(target)), {
      mcpServers: {
        "omp-host": { url: "http://127.0.0.1:4711/mcp", headers: { Authorization: "Bearer tok_0123456789abcdef" } }
      }
    })
  })

  it("Codex gets what is no TOML", () => {
    const text = instructions.codex(target)
    assert.deepStrictEqual(Bun.TOML.parse(text.slice(text.indexOf("["))) as unknown, {
      mcp_servers: {
        "omp-host": {
          url: "http://127.0.0.1:4711/mcp",
          http_headers: { Authorization: "Bearer tok_0123456789abcdef" }
        }
      }
    })
  })

  it("a shell reads the curl line as something else", () => {
    const text = instructions.curl(target)
    const line = text.slice(text.indexOf("\n") + 1)
    // curl replaced by one that prints what it gets: the lines parse, and the session id goes from one into the other.
    const script = `curl() { case "$*" in *-sD-*) printf 'HTTP/1.1 200 OK\\r\\nMCP-Session-Id: s-1\\r\\n\\r\\n';; *) printf '%s\\n' "$@";; esac; }; ${line}`
    const { stdout } = Bun.spawnSync(["sh", "-c", script])
    const words = stdout.toString().trim().split("\n")
    assert.include(words, "Mcp-Session-Id: s-1")
    assert.include(words, "Authorization: Bearer tok_0123456789abcdef")
    assert.include(words, '{"jsonrpc":"2.0","id":2,"method":"tools/list"}')
  })

  it("isClient takes an inherited name for a client", () => {
    for (const name of ["toString", "constructor", "__proto__", "Omp", ""]) assert.isFalse(isClient(name), name)
    for (const name of clients) assert.isTrue(isClient(name))
  })
})
