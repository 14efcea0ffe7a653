import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/TestClock"
import * as MemoryResults from "../../src/layers/MemoryResults.ts"
import { PrincipalId } from "../../src/services/Auth.ts"
import type { ToolContent, ToolResult } from "../../src/services/HostTools.ts"
import { Results, sizeOf } from "../../src/services/Results.ts"
import { forAll } from "../support/suites/arbitraries.ts"
import * as FakeConfig from "../support/suites/fakeConfig.ts"

const alice = PrincipalId.make("alice")
const bob = PrincipalId.make("bob")
const limit = 16 * 1024

const withResults = <A, E>(use: (results: Results["Type"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(FakeConfig.make({ maxResultBytes: limit }), (config) =>
    Effect.provide(Effect.flatMap(Results, use), Layer.provide(MemoryResults.layer, config.layer))
  )

const texts = (...parts: ReadonlyArray<string>): ToolResult => ({
  content: parts.map((text) => ({ type: "text", text })),
  isError: false
})

const links = (content: ReadonlyArray<ToolContent>) =>
  content.flatMap((block) => (block.type === "resource_link" ? [block] : []))

const read = (results: Results["Type"], uri: string, owner = alice) =>
  Effect.map(results.read(uri, owner), ([contents]) => {
    assert(contents !== undefined)
    return "text" in contents ? contents.text : contents.blob
  })

describe("MemoryResults.fit", () => {
  it.effect("touches a result that fits, to the byte", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const fitting = texts("ü".repeat(limit / 2))
        assert.strictEqual(yield* results.fit(alice, "bash", fitting), fitting)
        assert.deepStrictEqual(yield* results.list(alice), [])
      })
    )
  )

  it.effect("loses a character of a result that does not fit, or sends it whole", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const long = Array.from({ length: 9000 }, (_, i) => `line ${i} 😀`).join("\n")
        const fitted = yield* results.fit(alice, "bash", texts("short", long))
        const [first, preview, link] = fitted.content
        assert.deepStrictEqual(first, { type: "text", text: "short" })
        assert(preview?.type === "text" && link?.type === "resource_link")
        assert.isTrue(preview.text.startsWith("line 0 😀\nline 1 😀"))
        assert.isTrue(preview.text.endsWith("line 8999 😀"))
        assert.include(preview.text, link.uri)
        assert.isBelow(preview.text.length, 20_000)
        assert.strictEqual(link.size, Buffer.byteLength(long))
        assert.strictEqual(yield* read(results, link.uri), long)
        assert.strictEqual(yield* read(results, `${link.uri}?offset=7&length=20`), long.slice(7, 27))
      })
    )
  )

  it.effect("sends more than the limit, or a result that cannot be put together again", () =>
    withResults((results) =>
      forAll(
        FastCheck.array(FastCheck.tuple(FastCheck.constantFrom("a", "ü", "😀"), FastCheck.nat(40_000)), {
          minLength: 1,
          maxLength: 4
        }),
        (parts) =>
          Effect.gen(function* () {
            const given = texts(...parts.map(([unit, count]) => unit.repeat(count)))
            const fitted = yield* results.fit(alice, "bash", given)
            const total = given.content.reduce((sum, block) => sum + sizeOf(block), 0)
            if (total <= limit) return assert.strictEqual(fitted, given)
            assert.isNotEmpty(links(fitted.content))
            const back: Array<string> = []
            for (const [i, block] of fitted.content.entries()) {
              const next = fitted.content[i + 1]
              if (block.type === "resource_link") continue
              assert(block.type === "text")
              back.push(next?.type === "resource_link" ? yield* Effect.orDie(read(results, next.uri)) : block.text)
            }
            assert.deepStrictEqual(
              back,
              given.content.map((block) => (block.type === "text" ? block.text : ""))
            )
          }),
        40
      )
    )
  )

  it.effect("sends an image that is too large", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const data = "QUJD".repeat(limit)
        const fitted = yield* results.fit(alice, "read", {
          content: [{ type: "image", data, mimeType: "image/png" }],
          isError: false
        })
        const [link] = links(fitted.content)
        assert(link !== undefined)
        assert.deepStrictEqual(yield* results.read(link.uri, alice), [
          { uri: link.uri, mimeType: "image/png", blob: data }
        ])
      })
    )
  )

  it.effect("keeps structured content beside what it cut, or loses that it was an error", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const fitted = yield* results.fit(alice, "bash", {
          ...texts("x".repeat(limit + 1)),
          isError: true,
          structuredContent: { a: 1 },
          details: { exitCode: 2 }
        })
        assert.isTrue(fitted.isError)
        assert.notProperty(fitted, "structuredContent")
        assert.deepStrictEqual(fitted.details, { exitCode: 2 })
      })
    )
  )
})

describe("MemoryResults.read", () => {
  const kept = (results: Results["Type"]) =>
    Effect.map(results.fit(alice, "bash", texts("x".repeat(limit + 1))), ({ content }) => {
      const [link] = links(content)
      assert(link !== undefined)
      return link.uri
    })

  it.effect("shows one principal's result to another", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const uri = yield* kept(results)
        assert.deepStrictEqual(yield* results.list(bob), [])
        assert.strictEqual((yield* Effect.flip(results.read(uri, bob)))._tag, "ResourceNotFound")
        assert.lengthOf(yield* results.list(alice), 1)
      })
    )
  )

  it.effect("keeps a result for ever, or for less than an hour", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const uri = yield* kept(results)
        yield* TestClock.adjust("59 minutes")
        assert.isNotEmpty(yield* read(results, uri))
        yield* TestClock.adjust("2 minutes")
        assert.strictEqual((yield* Effect.flip(results.read(uri, alice)))._tag, "ResourceNotFound")
      })
    )
  )

  it.effect("takes a range that is none, or another kind's URI", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const uri = yield* kept(results)
        for (const bad of [`${uri}?offset=x`, `${uri}?`, "result://", "result://unknown"]) {
          assert.strictEqual((yield* Effect.flip(results.read(bad, alice)))._tag, "ResourceNotFound", bad)
        }
      })
    )
  )

  it.effect("grows without bound: the oldest go first, the newest stays", () =>
    withResults((results) =>
      Effect.gen(function* () {
        const big = "x".repeat(30 * 1024 * 1024)
        const uris: Array<string> = []
        for (let i = 0; i < 3; i++) {
          const [link] = links((yield* results.fit(alice, "bash", texts(big))).content)
          assert(link !== undefined)
          uris.push(link.uri)
        }
        const left = (yield* results.list(alice)).map(({ uri }) => uri)
        assert.deepStrictEqual(left, uris.slice(1))
      })
    )
  )
})
