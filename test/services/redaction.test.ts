import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import type { RedactionOptions } from "../../src/services/redaction.ts"
import { maxSummaryBytes, summarize } from "../../src/services/redaction.ts"
import { Json, nested } from "../support/suites/arbitraries.ts"

const options: RedactionOptions = { digest: () => "d1ce57".repeat(10), secrets: [] }
const chars = (alphabet: string, minLength: number, maxLength: number) =>
  FastCheck.array(FastCheck.constantFrom(...alphabet), { minLength, maxLength }).map((all) => all.join(""))
const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
const written = (args: unknown, used: RedactionOptions = options): string => JSON.stringify(summarize(args, used))

/** What must not be seen, and the text that carries it. */
const Carrier: FastCheck.Arbitrary<readonly [secret: string, text: string]> = FastCheck.oneof(
  chars(`${alphanumeric}._~+/-`, 8, 60).map((s) => [s, `Bearer ${s}`] as const),
  chars(`${alphanumeric}._~+/-`, 8, 60).map((s) => [s, `authorization: bearer ${s}`] as const),
  chars(`${alphanumeric}+/`, 8, 60).map((s) => [s, `curl -H 'Authorization: Basic ${s}=='`] as const),
  chars(`${alphanumeric}!#%^*._-`, 6, 40).map((s) => [s, `password=${s}`] as const),
  chars(`${alphanumeric}!#%^*._-`, 6, 40).map((s) => [s, `DB_PASSWORD=${s} ./run`] as const),
  chars(`${alphanumeric}!#%^*._ -`, 6, 40).map((s) => [s, `password="${s}"`] as const),
  chars(`${alphanumeric}!#%^*._ -`, 6, 40).map((s) => [s, `export MY_TOKEN='${s}'`] as const),
  chars(`${alphanumeric}!#%^*._-`, 6, 40).map((s) => [s, `{"apiKey": "${s}"}`] as const),
  chars(`${alphanumeric}!#%^*._-`, 6, 40).map((s) => [s, `x-api-key: ${s}`] as const),
  chars(`${alphanumeric}!#%^*._`, 6, 40).map((s) => [s, `tool --password ${s}`] as const),
  chars(`${alphanumeric}_-`, 20, 48).map((s) => [s, `sk-${s}`] as const),
  chars(`${alphanumeric}_-`, 20, 48).map((s) => [s, `sk-proj-${s}`] as const),
  chars(alphanumeric, 36, 36).map((s) => [s, `ghp_${s}`] as const),
  chars(alphanumeric, 36, 36).map((s) => [s, `https://ghp_${s}@github.com/a/b`] as const),
  chars(alphanumeric, 30, 50).map((s) => [s, `github_pat_${s}`] as const),
  chars(`${alphanumeric}!$%^*._-`, 6, 30).map((s) => [s, `https://user:${s}@host.example/path`] as const),
  chars(`${alphanumeric}!$%^*._-`, 6, 30).map((s) => [s, `postgres://user:${s}@db:5432/x`] as const),
  chars(`${alphanumeric}+/`, 24, 60).map(
    (s) => [s, `-----BEGIN OPENSSH PRIVATE KEY-----\n${s}\n-----END OPENSSH PRIVATE KEY-----`] as const
  ),
  chars(`${alphanumeric}+/`, 24, 60).map((s) => [s, `-----BEGIN RSA PRIVATE KEY-----\n${s}`] as const)
)
/** Somewhere in the arguments: at the top, in a list, in an object, as a key. */
const Place = FastCheck.constantFrom<(text: string) => unknown>(
  (text) => text,
  (text) => ({ command: text }),
  (text) => ({ list: [1, text] }),
  (text) => ({ a: { b: { c: text } } }),
  (text) => ({ [text]: 1 }),
  (text) => JSON.parse(`{"__proto__": {"x": ${JSON.stringify(text)}}}`)
)

describe("redaction.summarize", () => {
  it.prop("throws, or writes more than 1024 bytes, for some JSON", [Json], ([args]) => {
    assert.isAtMost(Buffer.byteLength(written(args), "utf8"), 1024)
  })

  it.prop(
    "writes more than 1024 bytes where much is said in short pieces",
    [
      FastCheck.dictionary(
        FastCheck.string({ unit: "binary", maxLength: 200 }),
        FastCheck.array(FastCheck.string({ unit: "binary", maxLength: 250 }), { maxLength: 40 }),
        { maxKeys: 50 }
      )
    ],
    ([args]) => {
      const text = written(args)
      assert.isAtMost(Buffer.byteLength(text, "utf8"), maxSummaryBytes)
      assert.isAtMost(Buffer.byteLength(written(Object.values(args)), "utf8"), maxSummaryBytes)
      assert.isTrue(text.isWellFormed())
    }
  )

  it("overflows the stack on deep arguments", () => {
    const arrays = nested(50_000, (inner) => [inner], 1)
    const objects = nested(50_000, (inner) => ({ a: inner }), 1)
    assert.isAtMost(written({ arrays, objects }).length, 1024)
  })

  it.prop(
    "shows a secret of a known form",
    [Carrier, Place, FastCheck.constantFrom("", "x ", "$ ")],
    ([[secret, text], place, before]) => {
      assert.notInclude(written(place(`${before}${text}`)), secret)
    }
  )

  it.prop(
    "shows the bridge's own token, whatever stands around it",
    [
      chars(`${alphanumeric}._~+/-`, 16, 60),
      FastCheck.string({ maxLength: 90 }),
      FastCheck.string({ maxLength: 90 }),
      Place
    ],
    ([token, before, after, place]) => {
      assert.notInclude(written(place(`${before}${token}${after}`), { ...options, secrets: [token] }), token)
    }
  )

  it.prop(
    "shows the value of a key that names a secret",
    [
      FastCheck.constantFrom(
        "apiKey",
        "api_key",
        "API-KEY",
        "token",
        "accessToken",
        "authorization",
        "Authorization",
        "password",
        "client_secret",
        "privateKey",
        "Cookie"
      ),
      chars(alphanumeric, 4, 30),
      FastCheck.constantFrom<(secret: string) => unknown>(
        (secret) => secret,
        (secret) => [secret],
        (secret) => ({ value: secret })
      )
    ],
    ([key, random, shape]) => {
      const secret = `hunter${random}`
      assert.notInclude(written({ [key]: shape(secret) }), secret)
      assert.notInclude(written({ headers: [{ [key]: shape(secret) }] }), secret)
    }
  )

  it("shows a password in JSON that a shell command quotes", () => {
    assert.notInclude(written({ command: 'curl -d "{\\"password\\":\\"hunter2secret\\"}" http://x' }), "hunter2secret")
  })

  it("shows a password behind an opening quote that never closes", () => {
    assert.notInclude(written({ command: 'export PASSWORD="hunter2secret' }), "hunter2secret")
  })

  it("cuts a long text without its length and digest, or keeps a part of it", () => {
    const long = "abcdefghij".repeat(30)
    const text = written({ content: long })
    assert.include(text, "300 characters")
    assert.include(text, "d1ce57d1ce57d1ce")
    assert.notInclude(text, "abcdefghij")
  })

  it("cuts or blanks what is short and harmless", () => {
    const args = { path: "src/a.ts", line: 3, flags: [true, null, "é"], nested: { deep: "yes" } }
    assert.deepStrictEqual(JSON.parse(written(args)), args)
  })

  it("loses the first arguments where a later one is large", () => {
    const args = {
      path: "src/a.ts",
      edits: Array.from({ length: 32 }, (_, n) => `edit number ${n} ${"x".repeat(100)}`)
    }
    const summary = JSON.parse(written(args)) as Record<string, unknown>
    assert.strictEqual(summary["path"], "src/a.ts")
    assert.include(String(summary["..."]), "cut")
  })

  it("pollutes a prototype, or drops an own __proto__", () => {
    const text = written(JSON.parse('{"__proto__": {"polluted": "yes"}}'))
    assert.strictEqual(text, '{"__proto__":{"polluted":"yes"}}')
    assert.isUndefined(({} as Record<string, unknown>)["polluted"])
  })

  it.prop("changes the arguments that the tool gets", [Json], ([args]) => {
    const before = JSON.stringify(args)
    summarize(args, options)
    assert.strictEqual(JSON.stringify(args), before)
  })
})
