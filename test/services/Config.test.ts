import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import * as Redacted from "effect/Redacted"
import * as Config from "../../src/services/Config.ts"
import { Json, JsonRecord } from "../support/suites/arbitraries.ts"

const token = "0123456789abcdef0123456789abcdef"
const Token = FastCheck.stringMatching(/^[A-Za-z0-9._~+/-]{16,64}={0,2}$/)
const Names = FastCheck.array(FastCheck.stringMatching(/^[A-Za-z_*?][ A-Za-z0-9_*?.-]{0,10}[a-z*]$/), { maxLength: 4 })
/** A file that the documentation calls valid. */
const ValidFile = FastCheck.record(
  {
    $schema: FastCheck.string(),
    token: Token,
    port: FastCheck.integer({ min: 0, max: 65535 }),
    host: FastCheck.constantFrom("127.0.0.1", "0.0.0.0", "::1", "localhost"),
    deny: Names,
    denyMCPTools: FastCheck.boolean(),
    expose: FastCheck.constantFrom("all", "active"),
    approval: FastCheck.record(
      { timeoutSeconds: FastCheck.double({ min: 1, max: 3600, noNaN: true }) },
      { requiredKeys: [] }
    ),
    audit: FastCheck.record(
      {
        maxBytes: FastCheck.integer({ min: 4096, max: 1073741824 }),
        generations: FastCheck.integer({ min: 1, max: 100 })
      },
      { requiredKeys: [] }
    ),
    allowedOrigins: Names,
    allowedHosts: Names,
    maxBodyBytes: FastCheck.integer({ min: 1024, max: 67108864 }),
    maxResultBytes: FastCheck.integer({ min: 16384, max: 67108864 })
  },
  { requiredKeys: ["token"] }
)

const valid = (raw: unknown): Config.BridgeConfig => Either.getOrThrow(Config.decode("test.json", raw))
const issuesOf = (raw: unknown): ReadonlyArray<Config.ConfigIssue> => {
  const decoded = Config.decode("/home/u/a2a-bridge.json", raw)
  assert.isTrue(Either.isLeft(decoded), JSON.stringify(raw))
  if (Either.isRight(decoded)) return []
  assert.strictEqual(decoded.left.source, "/home/u/a2a-bridge.json")
  for (const { expected, field, found } of decoded.left.issues) {
    for (const part of ["/home/u/a2a-bridge.json", field, found, expected]) assert.include(decoded.left.message, part)
  }
  return decoded.left.issues
}

describe("Config.decode", () => {
  it.prop("refuses a valid file, or loses a setting on the way back", [ValidFile], ([file]) => {
    const encoded = Config.encode(valid(file)) as Record<string, unknown>
    for (const [key, value] of Object.entries(file)) {
      // A nested object may have been given in part.
      if (key === "approval" || key === "audit") assert.deepInclude(encoded[key], value as never, key)
      else assert.deepStrictEqual(encoded[key], value, key)
    }
    assert.deepStrictEqual(Config.encode(valid(encoded)), encoded as never)
    assert.deepStrictEqual(Config.changedFields(valid(file), valid(encoded)), [])
  })

  it("has other defaults than those documented", () => {
    assert.deepStrictEqual(Config.encode(valid({ token })), {
      port: 0,
      token,
      host: "127.0.0.1",
      deny: [],
      denyMCPTools: false,
      expose: "all",
      approval: { timeoutSeconds: 30 },
      audit: { maxBytes: 524288, generations: 5 },
      rateLimit: { requestsPerSecond: 200, burst: 1000, concurrentCalls: 256 },
      allowedOrigins: [],
      allowedHosts: [],
      maxBodyBytes: 1048576,
      maxResultBytes: 2097152,
      logLevel: "info",
      workspaceRoots: [],
      cursorBin: "agent",
      defaultTimeoutSec: 900,
      maxConcurrency: 4,
      persistEvents: false,
      jobs: {
        worker: "cursor",
        workers: [],
        tiers: ["consult", "plan", "execute"],
        whenBusy: "refuse",
        maxQueued: 32,
        maxResultBytes: 262144,
        maxEventBytes: 65536,
        maxEvents: 20000,
        keepDays: 14,
        keepJobs: 500,
        copyFiles: []
      }
    })
  })

  it.each<readonly [field: string, found: string, expected: RegExp, change: Record<string, unknown>]>([
    ["port", '"x"', /integer from 0 to 65535/, { port: "x" }],
    ["port", "70000", /integer from 0 to 65535/, { port: 70000 }],
    ["port", "-1", /integer from 0 to 65535/, { port: -1 }],
    ["port", "1.5", /integer/, { port: 1.5 }],
    ["port", "null", /integer/, { port: null }],
    ["host", '""', /non-empty/, { host: "" }],
    ["deny", '"bash"', /array of tool names/, { deny: "bash" }],
    ["deny.0", "1", /array of tool names/, { deny: [1] }],
    ["denyMCPTools", '"yes"', /true or false/, { denyMCPTools: "yes" }],
    ["expose", '"none"', /"all".*"active"/, { expose: "none" }],
    ["approval", "30", /object/, { approval: 30 }],
    ["approval.timeoutSeconds", "0", /number from 1 to 3600/, { approval: { timeoutSeconds: 0 } }],
    ["approval.timeoutSeconds", '"30"', /number from 1 to 3600/, { approval: { timeoutSeconds: "30" } }],
    ["audit.maxBytes", "4095", /integer from 4096/, { audit: { maxBytes: 4095 } }],
    ["audit.generations", "0", /integer from 1 to 100/, { audit: { generations: 0 } }],
    ["allowedOrigins.1", "null", /origins/, { allowedOrigins: ["http://a", null] }],
    ["allowedHosts", "{}", /host names/, { allowedHosts: {} }],
    ["maxBodyBytes", "1023", /integer from 1024/, { maxBodyBytes: 1023 }],
    ["prot", "unknown", /port/, { prot: 4711 }],
    ["constructor", "unknown", /port/, { constructor: 1 }],
    ["approval.timeout", "unknown", /timeoutSeconds/, { approval: { timeout: 30 } }],
    ["audit.constructor", "unknown", /maxBytes/, { audit: { constructor: 1 } }],
    ["$schema", "5", /string/, { $schema: 5 }]
  ])("does not say that %s is wrong, that it is %s, and what it should be", (field, found, expected, change) => {
    const issues = issuesOf({ token, ...change })
    assert.deepStrictEqual(
      issues.map((issue) => issue.field),
      [field]
    )
    assert.include(issues[0]?.found ?? "", found)
    assert.match(issues[0]?.expected ?? "", expected)
  })

  it("does not see a field named __proto__", () => {
    assert.deepStrictEqual(
      issuesOf(JSON.parse(`{"token":"${token}","__proto__":{"port":1}}`)).map((issue) => issue.field),
      ["__proto__"]
    )
  })

  it("tells of one problem at a time", () => {
    assert.sameMembers(
      issuesOf({ token, port: "x", expose: 1, more: true }).map((issue) => issue.field),
      ["port", "expose", "more"]
    )
  })

  it.each([null, 1, "x", [], [{ token }], true])("takes %j for settings", (raw) => {
    assert.lengthOf(issuesOf(raw), 1)
  })

  it.prop("throws, or fails with nothing said, for some JSON", [FastCheck.oneof(Json, JsonRecord)], ([raw]) => {
    const decoded = Config.decode("x", raw)
    if (Either.isRight(decoded)) return
    assert.strictEqual(decoded.left._tag, "ConfigInvalid")
    assert.isNotEmpty(decoded.left.issues)
    assert.isString(decoded.left.message)
  })

  it.prop(
    "throws, or fails with nothing said, where a known field holds some JSON",
    [
      FastCheck.dictionary(FastCheck.constantFrom(...Object.keys(Config.encode(valid({ token })))), Json, {
        minKeys: 1
      })
    ],
    ([change]) => {
      const decoded = Config.decode("x", { token, ...change })
      if (Either.isLeft(decoded)) {
        for (const issue of decoded.left.issues) {
          assert.include(Object.keys(change), issue.field.split(".")[0])
          assert.notStrictEqual(issue.expected, "another value")
        }
      }
    }
  )

  it.prop("prints a token", [Token, FastCheck.constantFrom("", "!", " ", "\u0000")], ([secret, bad]) => {
    const wrong = bad === "" ? secret.slice(0, 15) : `${secret}${bad}`
    const raws = [{ token: wrong }, { token: { value: secret } }, { token: [secret] }, { token: secret, port: "x" }]
    for (const raw of raws) {
      const decoded = Config.decode("x", raw)
      assert.isTrue(Either.isLeft(decoded))
      if (Either.isRight(decoded)) return
      for (const text of [decoded.left.message, String(decoded.left), JSON.stringify(decoded.left)]) {
        assert.notInclude(text, secret.slice(0, 12))
      }
    }
    assert.notInclude(JSON.stringify(valid({ token: secret })), secret)
  })
})

describe("Config.heal", () => {
  const BadToken = FastCheck.oneof(
    FastCheck.constantFrom<unknown>(undefined, null, 1, "", "short", "has space 0123456789", [], {}, "x".repeat(515)),
    FastCheck.string({ maxLength: 15 })
  )

  it.prop(
    "leaves a bad token, changes another field, or heals twice",
    [JsonRecord, BadToken, FastCheck.boolean()],
    ([rest, bad, absent]) => {
      const { token: _, ...raw } = rest
      const healed = Config.heal(absent ? raw : { ...raw, token: bad }, token)
      assert.isDefined(healed)
      if (healed === undefined) return
      const { token: fresh, ...others } = healed
      assert.strictEqual(fresh, token)
      assert.deepStrictEqual(others, raw)
      assert.isUndefined(Config.heal(healed, "another-token-0123456789"))
    }
  )

  it.prop("replaces a good token", [JsonRecord, Token], ([rest, good]) => {
    assert.isUndefined(Config.heal({ ...rest, token: good }, token))
  })

  it.prop("and decode disagree about what a good token is", [FastCheck.oneof(Token, FastCheck.string())], ([some]) => {
    assert.strictEqual(
      Either.isRight(Config.decode("x", { token: some })),
      Config.heal({ token: some }, token) === undefined
    )
  })
})

describe("Config.overlay", () => {
  const base = valid({ token, port: 1, deny: ["a"], approval: { timeoutSeconds: 7 }, audit: { generations: 9 } })

  it.each<
    readonly [
      variable: string,
      good: string,
      read: (config: Config.BridgeConfig) => unknown,
      value: unknown,
      bad: string
    ]
  >([
    ["A2A_BRIDGE_PORT", "4711", (c) => c.port, 4711, "70000"],
    [
      "A2A_BRIDGE_TOKEN",
      "another-token-0123456789",
      (c) => Redacted.value(c.token),
      "another-token-0123456789",
      "short"
    ],
    ["A2A_BRIDGE_HOST", "0.0.0.0", (c) => c.host, "0.0.0.0", ""],
    ["A2A_BRIDGE_DENY", " bash, mcp__* ,", (c) => c.deny, ["bash", "mcp__*"], ""],
    ["A2A_BRIDGE_DENY_MCP_TOOLS", "1", (c) => c.denyMCPTools, true, "yes"],
    ["A2A_BRIDGE_EXPOSE", "active", (c) => c.expose, "active", "none"],
    ["A2A_BRIDGE_APPROVAL_TIMEOUT_SECONDS", "2.5", (c) => c.approval.timeoutSeconds, 2.5, "0"],
    ["A2A_BRIDGE_AUDIT_MAX_BYTES", "4096", (c) => c.audit.maxBytes, 4096, "4095"],
    ["A2A_BRIDGE_AUDIT_GENERATIONS", "3", (c) => c.audit.generations, 3, "x"],
    ["A2A_BRIDGE_ALLOWED_ORIGINS", "https://a,https://b", (c) => c.allowedOrigins, ["https://a", "https://b"], ""],
    ["A2A_BRIDGE_ALLOWED_HOSTS", "a.example", (c) => c.allowedHosts, ["a.example"], ""],
    ["A2A_BRIDGE_MAX_BODY_BYTES", "2048", (c) => c.maxBodyBytes, 2048, "1e9"]
  ])("%s is not read, changes other fields, or fails without its name", (variable, good, read, value, bad) => {
    const after = Either.getOrThrow(Config.overlay(base, { [variable]: good }))
    assert.deepStrictEqual(read(after), value)
    assert.lengthOf(Config.changedFields(base, after), 1)
    // Lists are never wrong: an empty variable is an empty list.
    if (Array.isArray(value)) {
      assert.deepStrictEqual(read(Either.getOrThrow(Config.overlay(base, { [variable]: bad }))), [])
      return
    }
    const failed = Config.overlay(base, { [variable]: bad })
    assert.isTrue(Either.isLeft(failed))
    if (Either.isRight(failed)) return
    assert.strictEqual(failed.left.source, "environment")
    assert.deepStrictEqual(
      failed.left.issues.map((issue) => issue.field),
      [variable]
    )
    assert.notStrictEqual(failed.left.issues[0]?.expected, "another value")
  })

  it("keeps the other half of a nested setting", () => {
    const after = Either.getOrThrow(Config.overlay(base, { A2A_BRIDGE_AUDIT_MAX_BYTES: "4096" }))
    assert.deepStrictEqual(after.audit, { maxBytes: 4096, generations: 9 })
  })

  it("takes 0 and false for true", () => {
    for (const text of ["0", "false"]) {
      assert.isFalse(
        Either.getOrThrow(Config.overlay(valid({ token, denyMCPTools: true }), { A2A_BRIDGE_DENY_MCP_TOOLS: text }))
          .denyMCPTools
      )
    }
  })

  it("prints a token from the environment", () => {
    const failed = Config.overlay(base, { A2A_BRIDGE_TOKEN: "a secret with spaces" })
    assert.isTrue(Either.isLeft(failed))
    if (Either.isLeft(failed)) assert.notInclude(failed.left.message, "secret")
  })

  it("reads other variables", () => {
    assert.deepStrictEqual(
      Config.changedFields(base, Either.getOrThrow(Config.overlay(base, { PORT: "9", A2A_BRIDGE: "x", HOME: "/" }))),
      []
    )
  })

  it.prop(
    "throws for some environment",
    [FastCheck.dictionary(FastCheck.constantFrom(...Object.keys(Config.environment)), FastCheck.string())],
    ([env]) => {
      const overlaid = Config.overlay(base, env)
      if (Either.isLeft(overlaid)) {
        for (const issue of overlaid.left.issues) assert.include(Object.keys(env), issue.field)
      }
    }
  )
})

describe("Config.jsonSchema", () => {
  const validate = new Ajv2020({ strict: true, strictTypes: false }).compile({ ...Config.jsonSchema() })

  it.prop("marks a valid file", [ValidFile], ([file]) => {
    assert.isTrue(validate(file), JSON.stringify(validate.errors))
  })

  it("marks the file that the bridge writes, or one without a token", () => {
    assert.isTrue(validate(Config.encode(valid({ token }))))
    assert.isTrue(validate({}))
  })

  it.each<Record<string, unknown>>([
    { port: "x" },
    { port: 70000 },
    { port: 1.5 },
    { token: "short" },
    { deny: [1] },
    { deny: "bash" },
    { expose: "none" },
    { unknown: 1 },
    { approval: { timeoutSeconds: 0 } },
    { approval: { more: 1 } },
    { audit: { maxBytes: 1 } },
    { maxBodyBytes: 1 },
    { host: "" }
  ])("accepts %j, which the bridge refuses", (raw) => {
    assert.isFalse(validate(raw))
  })
})

it.prop("Config.changedFields misses a change, or sees one where there is none", [ValidFile, ValidFile], ([a, b]) => {
  const before = Config.encode(valid(a)) as Record<string, unknown>
  const after = Config.encode(valid(b)) as Record<string, unknown>
  const changed = Config.changedFields(valid(a), valid(b))
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    assert.strictEqual(changed.includes(key), !Bun.deepEquals(before[key], after[key]), key)
  }
})

it("Config.tokenHint shows more than six characters", () => {
  assert.strictEqual(Config.tokenHint(Redacted.make(token)), "012345...")
})
