import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import { hostAllowed, isLoopback, originAllowed } from "../../src/services/originRules.ts"

const loopback = { host: "127.0.0.1", allowedHosts: [], allowedOrigins: [] }

/** Names that resolve to wherever their owner likes. None of them is `localhost` or a 127.x address. */
const Foreign = FastCheck.oneof(
  FastCheck.domain(),
  FastCheck.domain().map((name) => `localhost.${name}`),
  FastCheck.domain().map((name) => `127.0.0.1.${name}`),
  FastCheck.ipV4().filter((ip) => !ip.startsWith("127.")),
  FastCheck.constantFrom("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "[::2]", "")
)
const Port = FastCheck.oneof(
  FastCheck.constant(""),
  FastCheck.integer({ min: 1, max: 65535 }).map((port) => `:${port}`)
)
const Bind = FastCheck.constantFrom("127.0.0.1", "localhost", "127.0.0.2", "::1", "[::1]")

describe("originRules on a loopback bind", () => {
  it.prop("lets a rebound name in by its Host", [Bind, Foreign, Port], ([host, name, port]) => {
    assert.isFalse(hostAllowed({ ...loopback, host }, `${name}${port}`))
  })

  it.prop(
    "lets a page of another site in by its Origin",
    [Bind, Foreign, Port, FastCheck.constantFrom("http", "https")],
    ([host, name, port, scheme]) => {
      assert.isFalse(originAllowed({ ...loopback, host }, `${scheme}://${name}${port}`, `127.0.0.1${port}`))
    }
  )

  it.each(["::1", "[::1]"])("does not take the bind address %s for loopback", (host) => {
    assert.isFalse(hostAllowed({ ...loopback, host }, "evil.example"))
    assert.isTrue(hostAllowed({ ...loopback, host }, "[::1]:3"))
  })

  it.each([
    "127.0.0.1:80",
    "127.0.0.1",
    "[::1]:3",
    "[::1]",
    "localhost",
    "localhost:8080",
    "LocalHost:1",
    "127.1.2.3:4"
  ])("refuses the Host %s", (host) => {
    assert.isTrue(hostAllowed(loopback, host))
    assert.isTrue(originAllowed(loopback, `http://${host}`, host))
  })

  it.each([
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "xlocalhost",
    "127.0.0.1:80:90",
    ""
  ])("accepts the Host %j", (host) => {
    assert.isFalse(hostAllowed(loopback, host))
  })

  it("accepts a request without Host", () => {
    assert.isFalse(hostAllowed(loopback, undefined))
  })

  it.each([
    "null",
    "",
    "http://localhost/path",
    "http://localhost@evil.example",
    "http://evil.example@localhost",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example:80",
    "file://",
    "chrome-extension://localhost",
    "localhost"
  ])("accepts the Origin %j", (origin) => {
    assert.isFalse(originAllowed(loopback, origin, "127.0.0.1"))
  })

  it("takes a client that is no browser for one", () => {
    assert.isTrue(originAllowed(loopback, undefined, "127.0.0.1"))
  })

  it.prop("refuses what the operator allowed", [FastCheck.domain(), Port], ([name, port]) => {
    const origin = `https://${name}${port}`
    assert.isTrue(hostAllowed({ ...loopback, allowedHosts: ["other.example", name] }, `${name.toUpperCase()}${port}`))
    assert.isTrue(originAllowed({ ...loopback, allowedOrigins: [origin] }, origin.toUpperCase(), "127.0.0.1"))
    assert.isFalse(originAllowed({ ...loopback, allowedOrigins: [origin] }, `${origin}.evil.example`, "127.0.0.1"))
    assert.isFalse(hostAllowed({ ...loopback, allowedHosts: [name] }, `evil.${name}${port}`))
  })
})

describe("originRules on a public bind", () => {
  const open = { host: "0.0.0.0", allowedHosts: [], allowedOrigins: [] }

  it.prop("asks for names that only the operator knows", [Foreign], ([name]) => {
    assert.isTrue(hostAllowed(open, name))
  })

  it.prop("lets a page of another site in", [FastCheck.domain(), FastCheck.domain()], ([site, own]) => {
    FastCheck.pre(site !== own)
    assert.isFalse(originAllowed(open, `https://${site}`, own))
    assert.isTrue(originAllowed(open, `https://${own}:81`, `${own}:81`))
    assert.isFalse(originAllowed(open, `https://${own}`, undefined))
  })
})

it("isLoopback takes a name that only begins like a loopback address", () => {
  for (const name of ["127.0.0.1x", "127.0.0", "1127.0.0.1", "localhost.", "::11", "10.0.0.1"]) {
    assert.isFalse(isLoopback(name), name)
  }
})
