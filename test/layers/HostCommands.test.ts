import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as HostCommands from "../../src/layers/HostCommands.ts"
import { Auth } from "../../src/services/Auth.ts"
import { TokenPinned } from "../../src/services/Config.ts"
import { Listening } from "../../src/services/Listening.ts"
import { McpServer } from "../../src/services/mcp/McpServer.ts"
import * as FakeConfig from "../support/suites/fakeConfig.ts"

const token = Redacted.value(FakeConfig.defaults.token)
const fresh = "fresh-token-0123456789"

const run = (args: string, rotate: Auth["Type"]["rotate"] = Effect.succeed(Redacted.make(fresh))) =>
  Effect.flatMap(FakeConfig.make(), (config) =>
    Effect.provide(
      HostCommands.run(args),
      Layer.mergeAll(
        config.layer,
        Layer.succeed(Listening, { url: "http://127.0.0.1:4711", port: 4711, taken: undefined }),
        Layer.mock(Auth, { rejected: Effect.succeed(1), rotate, revocations: Stream.never }),
        Layer.mock(McpServer, { activity: Stream.make({ sessions: 2, calls: 1 }) })
      )
    )
  )
const valuesOf = (prefix: string) => HostCommands.completions(prefix).map(({ value }) => value)

describe("HostCommands.run", () => {
  it.effect.each(["", "  "])("/a2a%s shows the whole token, or not where the bridge listens and who uses it", (args) =>
    Effect.gen(function* () {
      const { level, text } = yield* run(args)
      assert.strictEqual(level, "info")
      for (const part of [
        "http://127.0.0.1:4711",
        "2 clients",
        "1 call in flight",
        "1 unauthorized attempt since",
        "012345..."
      ]) {
        assert.include(text, part)
      }
      assert.notInclude(text, token)
    })
  )

  it.effect("/a2a token does not show the token", () =>
    Effect.gen(function* () {
      assert.include((yield* run("token")).text, token)
      assert.include((yield* run("  token  ")).text, token)
    })
  )

  it.effect("/a2a rotate shows the new token, or hides that it failed", () =>
    Effect.gen(function* () {
      const rotated = yield* run("rotate")
      assert.strictEqual(rotated.level, "info")
      assert.include(rotated.text, "fresh-...")
      assert.notInclude(rotated.text, fresh)
      const failed = yield* run("rotate", new TokenPinned({ variable: "A2A_BRIDGE_TOKEN" }))
      assert.strictEqual(failed.level, "error")
      assert.include(failed.text, "A2A_BRIDGE_TOKEN")
    })
  )

  it.effect("/a2a connect leaves a client out, or shows others than the one asked for", () =>
    Effect.gen(function* () {
      const all = (yield* run("connect")).text
      for (const part of ["mcp.json", "claude mcp add", "[mcp_servers.omp-host]", "curl -s"]) assert.include(all, part)
      const one = (yield* run("connect claude")).text
      assert.include(one, "claude mcp add")
      assert.notInclude(one, "curl")
      assert.strictEqual((yield* run("connect emacs")).level, "error")
    })
  )

  it.effect.each(["tokens", "toString", "Token", "__proto__", "rotate-now"])("/a2a %s does something", (args) =>
    Effect.gen(function* () {
      const notice = yield* run(args, Effect.dieMessage("rotated"))
      assert.strictEqual(notice.level, "error")
      assert.include(notice.text, "/a2a token")
      assert.notInclude(notice.text, token)
    })
  )
})

describe("HostCommands.completions", () => {
  it("offers what cannot follow, or not what can", () => {
    assert.sameMembers(valuesOf(""), ["token", "rotate", "connect"])
    assert.deepStrictEqual(valuesOf("t"), ["token"])
    assert.deepStrictEqual(valuesOf("x"), [])
    assert.lengthOf(valuesOf("connect "), 5)
    assert.deepStrictEqual(valuesOf("connect cu"), ["connect cursor", "connect curl"])
    assert.deepStrictEqual(valuesOf("connect curl more"), [])
    assert.deepStrictEqual(valuesOf("token "), [])
  })

  it.effect("offers what the command then refuses", () =>
    Effect.forEach(
      [...valuesOf(""), ...valuesOf("connect ")],
      (args) => Effect.map(run(args), ({ level }) => assert.strictEqual(level, "info", args)),
      { discard: true }
    )
  )
})
