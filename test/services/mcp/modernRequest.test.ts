import { assert, describe, it } from "@effect/vitest"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import {
  checkHeaders,
  checkLogLevel,
  checkParamHeaders,
  checkVersion,
  clientName,
  decodeHeaderValue,
  decodeMeta,
  isModernRequest,
  mirroredParams,
  progressTokenOf
} from "../../../src/services/mcp/modernRequest.ts"

const version = "2026-07-28"
const key = (name: string) => `io.modelcontextprotocol/${name}`
const metaWith = (more: Record<string, unknown> = {}) => ({
  [key("protocolVersion")]: version,
  [key("clientCapabilities")]: {},
  ...more
})
const failed = <A, E extends { readonly _tag: string }>(either: Either.Either<A, E>) =>
  Either.match(either, { onLeft: ({ _tag }) => _tag, onRight: () => "ok" })

const base64 = (text: string): string => btoa(String.fromCharCode(...new TextEncoder().encode(text)))
/** Streamable HTTP, value encoding, as a client does it. */
const encode = (value: string): string =>
  /^(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?$/.test(value) && !/^=\?base64\?.*\?=$/.test(value)
    ? value
    : `=?base64?${base64(value)}?=`

const Text = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.string({ unit: "grapheme" }),
  FastCheck.string({ unit: "binary" }),
  FastCheck.constantFrom(
    "",
    " padded ",
    "line1\nline2",
    "=?base64?literal?=",
    "\ufeffbom",
    "Hello, 世界",
    "\u0000",
    "\t"
  )
).map((text) => text.toWellFormed())

describe("an encoded header value", () => {
  it.prop(
    "is not what was encoded",
    [Text],
    ([text]) => {
      assert.strictEqual(decodeHeaderValue(encode(text)), text)
      assert.strictEqual(decodeHeaderValue(`=?base64?${base64(text)}?=`), text)
      // HTTP leaves white space round a value to chance.
      assert.strictEqual(decodeHeaderValue(` \t${encode(text)} `), text)
    },
    { fastCheck: { numRuns: 500 } }
  )

  it.each<readonly [header: string, value: string]>([
    ["us-west1", "us-west1"],
    ["=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"],
    ["=?base64?IHBhZGRlZCA=?=", " padded "],
    ["=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"],
    ["=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="],
    // The markers are case-sensitive, and there are two of them.
    ["=?BASE64?QQ==?=", "=?BASE64?QQ==?="],
    ["=?Base64?QQ==?=", "=?Base64?QQ==?="],
    ["=?base64?QQ==", "=?base64?QQ=="],
    ["x=?base64?QQ==?=", "x=?base64?QQ==?="]
  ])("%s does not say %j", (header, value) => {
    assert.strictEqual(decodeHeaderValue(header), value)
  })

  it.each([
    "=?base64?QQ=?=",
    "=?base64?QQ?=",
    "=?base64?Q?=",
    "=?base64?Q!==?=",
    "=?base64?QQ==QQ==?=",
    "=?base64?Q Q=?=",
    "=?base64?_-8=?=",
    "=?base64?/w==?=",
    "=?base64?literal?=",
    "caf\u00e9",
    "a\u0000b",
    "a\u007fb"
  ])("%j is taken", (header) => {
    assert.isUndefined(decodeHeaderValue(header))
  })
})

describe("headers and body of a modern request", () => {
  const Call = FastCheck.record({
    method: FastCheck.constantFrom(
      "tools/call",
      "prompts/get",
      "resources/read",
      "tasks/get",
      "tasks/update",
      "tasks/cancel"
    ),
    name: Text
  })
  const sourceOf = (method: string) =>
    method === "resources/read" ? "uri" : method.startsWith("tasks/") ? "taskId" : "name"
  const meta = Either.getOrThrow(decodeMeta({ _meta: metaWith() }))
  const check = (method: string, params: Record<string, unknown>, headers: Record<string, string | undefined>) =>
    failed(checkHeaders(method, params, meta, headers))
  const good = (method: string, name: string) => ({
    "mcp-protocol-version": version,
    "mcp-method": method,
    "mcp-name": encode(name)
  })

  it.prop("are refused although they agree", [Call], ([{ method, name }]) => {
    assert.strictEqual(check(method, { [sourceOf(method)]: name }, good(method, name)), "ok")
  })

  it.prop(
    "are taken although they disagree, or one is missing",
    [
      Call,
      FastCheck.constantFrom("mcp-protocol-version", "mcp-method", "mcp-name"),
      FastCheck.oneof(Text.map(encode), FastCheck.constantFrom(undefined, "2025-11-25", "tools/list", "TOOLS/CALL", ""))
    ],
    ([{ method, name }, header, value]) => {
      const headers = good(method, name)
      FastCheck.pre(value?.trim() !== headers[header as keyof typeof headers].trim())
      assert.strictEqual(check(method, { [sourceOf(method)]: name }, { ...headers, [header]: value }), "HeaderMismatch")
    }
  )

  it("differ in case, and pass for the same", () => {
    const params = { name: "Deploy" }
    for (const [header, value] of [
      ["mcp-method", "Tools/Call"],
      ["mcp-name", "deploy"],
      ["mcp-name", "DEPLOY"]
    ] as const) {
      assert.strictEqual(
        check("tools/call", params, { ...good("tools/call", "Deploy"), [header]: value }),
        "HeaderMismatch"
      )
    }
  })

  it.each(["tools/list", "server/discover", "subscriptions/listen", "completion/complete", "no/such"])(
    "must name something in %s, which names nothing",
    (method) => {
      const { "mcp-name": _, ...headers } = good(method, "")
      assert.strictEqual(check(method, { name: "x", uri: "y" }, headers), "ok")
    }
  )

  it("agree on a version that is not spoken here, and are taken, or called a mismatch", () => {
    for (const other of ["2025-11-25", "2099-01-01", "x"]) {
      const theirs = Either.getOrThrow(decodeMeta({ _meta: metaWith({ [key("protocolVersion")]: other }) }))
      const headers = { "mcp-protocol-version": other, "mcp-method": "tools/list" }
      assert.strictEqual(failed(checkHeaders("tools/list", {}, theirs, headers)), "UnsupportedProtocolVersion")
      assert.strictEqual(failed(checkVersion(theirs)), "UnsupportedProtocolVersion")
    }
    assert.strictEqual(failed(checkVersion(meta)), "ok")
  })
})

describe("parameters that headers repeat", () => {
  const schema = {
    type: "object",
    properties: {
      region: { type: "string", "x-mcp-header": "Region" },
      count: { type: "integer", "x-mcp-header": "Count" },
      dry: { type: "boolean", "x-mcp-header": "Dry-Run" },
      inner: { type: "object", properties: { name: { type: "string", "x-mcp-header": "Inner-Name" } } },
      plain: { type: "string" },
      list: { type: "array", items: { type: "object", properties: { x: { type: "string", "x-mcp-header": "X" } } } }
    }
  }
  const check = (args: unknown, headers: Record<string, string>) => failed(checkParamHeaders(schema, args, headers))

  it("are found elsewhere than along properties", () => {
    assert.deepStrictEqual(
      mirroredParams({ ...schema, anyOf: [{ properties: { y: { "x-mcp-header": "Y" } } }] }).map(({ header, path }) => [
        header,
        path.join(".")
      ]),
      [
        ["Region", "region"],
        ["Count", "count"],
        ["Dry-Run", "dry"],
        ["Inner-Name", "inner.name"]
      ]
    )
    for (const odd of [{}, { properties: 5 }, { properties: { a: true, b: null, c: { "x-mcp-header": 5 } } }]) {
      assert.deepStrictEqual(mirroredParams(odd), [])
    }
  })

  it.prop(
    "are refused although each header repeats its value",
    [FastCheck.record({ region: Text, count: FastCheck.maxSafeInteger(), dry: FastCheck.boolean(), name: Text })],
    ([{ count, dry, name, region }]) => {
      const headers = {
        "mcp-param-region": encode(region),
        "mcp-param-count": String(count),
        "mcp-param-dry-run": String(dry),
        "mcp-param-inner-name": encode(name)
      }
      const args = { region, count, dry, inner: { name }, plain: "x", list: [{ x: "y" }] }
      assert.strictEqual(check(args, headers), "ok")
      for (const header of Object.keys(headers)) {
        const { [header as keyof typeof headers]: _, ...rest } = headers
        assert.strictEqual(check(args, rest), "HeaderMismatch", `without ${header}`)
        assert.strictEqual(check(args, { ...headers, [header]: "other" }), "HeaderMismatch", header)
      }
    }
  )

  it("are expected where the value is null or not there, or may be there all the same", () => {
    for (const args of [{}, { region: null, count: null, inner: null }, { inner: {} }, undefined, "x", []]) {
      assert.strictEqual(check(args, {}), "ok")
      assert.strictEqual(check(args, { "mcp-param-region": "x" }), "HeaderMismatch")
    }
    // Headers of nobody's parameters are nobody's business.
    assert.strictEqual(check({ plain: "x" }, { "mcp-param-plain": "y", "mcp-param-x": "z" }), "ok")
  })

  it.each<readonly [count: number, header: string, same: boolean]>([
    [42, "42", true],
    [42, "42.0", true],
    [-7, "-7", true],
    [0, "0", true],
    [42, "43", false],
    [42, "42.5", false],
    [0, "", false],
    [0, "=?base64??=", false],
    [42, "0x2a", false],
    [5, "0b101", false],
    [42, "forty-two", false],
    [9007199254740991, "9007199254740991", true],
    [9007199254740992, "9007199254740993", false]
  ])("the integer %s and the header %j are taken for the same otherwise than %s", (count, header, same) => {
    assert.strictEqual(check({ count }, { "mcp-param-count": header }), same ? "ok" : "HeaderMismatch")
  })

  it("say true in another case, or are the text of something that is no primitive", () => {
    for (const [args, headers] of [
      [{ dry: true }, { "mcp-param-dry-run": "True" }],
      [{ dry: true }, { "mcp-param-dry-run": "1" }],
      [{ region: "West" }, { "mcp-param-region": "west" }],
      [{ region: ["west"] }, { "mcp-param-region": "west" }],
      [{ region: {} }, { "mcp-param-region": "[object Object]" }],
      [{ region: "west" }, { "mcp-param-region": "=?base64?d2VzdA=?=" }]
    ] as const) {
      assert.strictEqual(check(args, headers), "HeaderMismatch", JSON.stringify(args))
    }
  })
})

describe("what a modern request says about itself", () => {
  it("is taken from a body that does not say it, or missed in one that does", () => {
    const modern = { "mcp-protocol-version": version }
    assert.isTrue(isModernRequest({ _meta: metaWith() }, undefined))
    assert.isTrue(isModernRequest({ _meta: { [key("protocolVersion")]: 5 } }, {}))
    assert.isTrue(isModernRequest(undefined, modern))
    assert.isFalse(isModernRequest(undefined, undefined))
    assert.isFalse(isModernRequest({ _meta: { progressToken: 1 } }, { "mcp-protocol-version": "2025-11-25" }))
    assert.isFalse(isModernRequest({ _meta: null }, {}))
    assert.isFalse(isModernRequest({ _meta: [key("protocolVersion")] }, {}))
  })

  it.each<readonly [params: Record<string, unknown> | undefined]>([
    [undefined],
    [{}],
    [{ _meta: null }],
    [{ _meta: [] }],
    [{ _meta: { [key("protocolVersion")]: version } }],
    [{ _meta: { [key("clientCapabilities")]: {} } }],
    [{ _meta: metaWith({ [key("protocolVersion")]: 20260728 }) }],
    [{ _meta: metaWith({ [key("clientCapabilities")]: [] }) }],
    [{ _meta: metaWith({ [key("clientCapabilities")]: null }) }]
  ])("is taken for complete: %j", (params) => {
    assert.strictEqual(failed(decodeMeta(params)), "MetaInvalid")
  })

  it.prop("is lost, or believed whatever it is", [FastCheck.anything(), FastCheck.anything()], ([token, info]) => {
    const decoded = Either.getOrThrow(
      decodeMeta({ _meta: metaWith({ progressToken: token, [key("clientInfo")]: info }) })
    )
    const usable = typeof token === "string" || (typeof token === "number" && Number.isInteger(token))
    assert.strictEqual(decoded.progressToken, usable ? token : undefined)
    assert.isAtMost(decoded.client.length, 128)
    assert.isTrue(decoded.client.isWellFormed() && decoded.client !== "")
  })

  it("takes a progress token that is neither string nor integer", () => {
    for (const progressToken of [1.5, NaN, Infinity, true, null, {}, []]) {
      assert.isUndefined(progressTokenOf({ _meta: { progressToken } }))
    }
    for (const progressToken of [0, -1, "", "x"]) {
      assert.strictEqual(progressTokenOf({ _meta: { progressToken } }), progressToken)
    }
  })

  it("gives a client the name of another, or none", () => {
    assert.strictEqual(clientName({ name: "c", version: "1" }), "c/1")
    assert.strictEqual(clientName({ name: "c" }), "c")
    for (const info of [undefined, null, {}, { name: "" }, { name: 5, version: {} }, "c"]) {
      assert.strictEqual(clientName(info), "unknown")
    }
  })

  it("asks for a log level that does not exist, and is taken", () => {
    const check = (level: unknown) =>
      failed(checkLogLevel("tools/call", { _meta: metaWith({ [key("logLevel")]: level }) }))
    for (const level of ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]) {
      assert.strictEqual(check(level), "ok")
    }
    for (const level of ["DEBUG", "warn", "", 1, null, {}]) assert.strictEqual(check(level), "ParamsInvalid")
    assert.strictEqual(failed(checkLogLevel("tools/call", undefined)), "ok")
  })
})
