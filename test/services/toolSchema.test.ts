import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import * as FastCheck from "effect/FastCheck"
import { toInputSchema } from "../../src/services/toolSchema.ts"
import { Json, nested } from "../support/suites/arbitraries.ts"

/** As a client compiles it: unknown keywords pass, what contradicts the dialect does not. */
const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false, addUsedSchema: false })
const compile = (schema: unknown) => ajv.compile(schema as object)
const accepts = (schema: unknown, value: unknown): boolean => compile(schema)(value) === true

/** MCP 2025-11-25, server/tools: an object; and what model APIs refuse at the root. */
const assertRoot = (schema: Readonly<Record<string, unknown>>) => {
  assert.strictEqual(schema["type"], "object")
  for (const combinator of ["anyOf", "oneOf", "allOf"]) assert.notProperty(schema, combinator)
  assert.notProperty(schema, "$schema")
  assert.isObject(schema["properties"])
}

const Key = FastCheck.constantFrom("a", "b", "c")
const Leaf = FastCheck.constantFrom<Readonly<Record<string, unknown>>>(
  { type: "string" },
  { type: "string", enum: ["x", "y"] },
  { const: "x" },
  { type: "integer", minimum: 0 },
  { type: "number", minimum: 0, exclusiveMinimum: true },
  { type: "number", exclusiveMaximum: 3 },
  { type: "boolean", description: "a flag" },
  { type: ["string", "null"] },
  {}
)
/** Draft-04, draft-07 and 2020-12 forms, nested. */
const Inner: FastCheck.Arbitrary<unknown> = FastCheck.letrec((tie) => ({
  schema: FastCheck.oneof(
    { maxDepth: 3, depthIdentifier: "schema" },
    Leaf,
    FastCheck.boolean(),
    FastCheck.record({ type: FastCheck.constant("array"), items: tie("schema") }),
    FastCheck.record({
      type: FastCheck.constant("array"),
      items: FastCheck.array(tie("schema"), { minLength: 1, maxLength: 3, depthIdentifier: "schema" }),
      additionalItems: FastCheck.oneof(FastCheck.boolean(), tie("schema"))
    }),
    FastCheck.record(
      {
        type: FastCheck.constant("object"),
        properties: FastCheck.dictionary(Key, tie("schema"), { depthIdentifier: "schema" }),
        required: FastCheck.uniqueArray(Key),
        additionalProperties: FastCheck.oneof(FastCheck.boolean(), tie("schema")),
        dependencies: FastCheck.dictionary(Key, FastCheck.oneof(FastCheck.uniqueArray(Key), tie("schema")))
      },
      { requiredKeys: ["type"] }
    ),
    FastCheck.record({
      anyOf: FastCheck.array(tie("schema"), { minLength: 1, maxLength: 3, depthIdentifier: "schema" })
    }),
    FastCheck.record({ not: tie("schema") })
  )
})).schema

const ObjectSchema = FastCheck.record(
  {
    type: FastCheck.constant("object"),
    properties: FastCheck.dictionary(Key, Inner),
    required: FastCheck.uniqueArray(Key),
    additionalProperties: FastCheck.boolean()
  },
  { requiredKeys: ["type"] }
)
const Root = FastCheck.record(
  {
    $schema: FastCheck.constantFrom(
      "http://json-schema.org/draft-04/schema#",
      "http://json-schema.org/draft-07/schema#",
      "https://json-schema.org/draft/2020-12/schema"
    ),
    type: FastCheck.constantFrom("object", ["object", "null"]),
    title: FastCheck.string(),
    properties: FastCheck.dictionary(Key, Inner),
    required: FastCheck.uniqueArray(Key),
    additionalProperties: Inner,
    anyOf: FastCheck.array(ObjectSchema, { minLength: 1, maxLength: 3 }),
    oneOf: FastCheck.array(ObjectSchema, { minLength: 1, maxLength: 3 }),
    allOf: FastCheck.array(ObjectSchema, { minLength: 1, maxLength: 3 })
  },
  { requiredKeys: [] }
)
const Value = FastCheck.dictionary(
  Key,
  FastCheck.oneof(FastCheck.constantFrom<unknown>("x", "y", "z", 1, 0, -1, 4, 1.5, true, null, [], ["x"], {}), Json)
)

describe("toolSchema.toInputSchema", () => {
  it.prop("throws, or sends what clients drop, for some JSON", [Json], ([schema]) => {
    assertRoot(toInputSchema(schema))
  })

  it.prop(
    "throws, or sends what clients drop, where a schema's keywords hold other things",
    [
      FastCheck.dictionary(
        FastCheck.constantFrom(
          ..."properties required items prefixItems anyOf oneOf allOf not $ref $defs dependencies exclusiveMinimum minimum type".split(
            " "
          )
        ),
        Json
      )
    ],
    ([schema]) => {
      assertRoot(toInputSchema(schema))
    }
  )

  it.prop(
    "sends what a client's validator cannot compile",
    [Root],
    ([schema]) => {
      const sent = toInputSchema(schema)
      assertRoot(sent)
      compile(sent)
    },
    30_000
  )

  it.prop(
    "refuses what one branch of the root accepts",
    [FastCheck.array(ObjectSchema, { minLength: 1, maxLength: 3 }), FastCheck.constantFrom("anyOf", "oneOf"), Value],
    ([branches, combinator, value]) => {
      // The branches in 2020-12 form, each by itself, are the reference.
      FastCheck.pre(branches.some((branch) => accepts(toInputSchema({ ...branch }), value)))
      assert.isTrue(accepts(toInputSchema({ type: "object", [combinator]: branches }), value))
    },
    { timeout: 30_000, fastCheck: { numRuns: 200 } }
  )

  it("refuses a property of another type that an open branch takes", () => {
    const sent = toInputSchema({
      anyOf: [
        { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
        { type: "object", properties: { b: { type: "string" } }, required: ["b"] }
      ]
    })
    assert.isTrue(accepts(sent, { b: "x", a: 5 }))
  })

  it("asks for a property that an unconditional branch does not need", () => {
    const sent = toInputSchema({ type: "object", anyOf: [true, { required: ["a"] }] })
    assert.isTrue(accepts(sent, {}))
  })

  it("drops the properties of a union, so that the model does not know them", () => {
    const sent = toInputSchema({
      oneOf: [
        { type: "object", properties: { op: { const: "add" }, text: { type: "string" } }, required: ["op", "text"] },
        { type: "object", properties: { op: { const: "rm" }, id: { type: "integer" } }, required: ["op", "id"] }
      ]
    })
    assert.sameMembers(Object.keys(sent["properties"] as object), ["op", "text", "id"])
    assert.deepStrictEqual(sent["required"], ["op"])
    assert.isTrue(accepts(sent, { op: "add", text: "x" }))
    assert.isTrue(accepts(sent, { op: "rm", id: 1 }))
    assert.isFalse(accepts(sent, { text: "x" }))
  })

  it("leaves a reference into a folded branch without its target", () => {
    // As zod-to-json-schema writes a schema that is used twice.
    const sent = toInputSchema({
      anyOf: [
        { type: "object", properties: { at: { type: "object", properties: { line: { type: "integer" } } } } },
        { type: "object", properties: { from: { $ref: "#/anyOf/0/properties/at" } } }
      ]
    })
    assertRoot(sent)
    compile(sent)
  })

  it("leaves a draft-04 schema that names itself uncompilable", () => {
    compile(
      toInputSchema({
        $schema: "http://json-schema.org/draft-04/schema#",
        id: "http://example.com/tool.json",
        type: "object",
        properties: { id: { type: "string" } }
      })
    )
  })

  it("drops a property that has a keyword's name", () => {
    const sent = toInputSchema({
      type: "object",
      properties: { id: { type: "string" }, $schema: { type: "string" }, additionalItems: { type: "string" } }
    })
    assert.sameMembers(Object.keys(sent["properties"] as object), ["id", "$schema", "additionalItems"])
  })

  it("keeps draft-07 forms that mean something else in 2020-12", () => {
    const sent = toInputSchema({
      $schema: "http://json-schema.org/draft-07/schema#",
      type: "object",
      definitions: { size: { type: "integer" } },
      properties: {
        pair: { type: "array", items: [{ type: "string" }, { $ref: "#/definitions/size" }], additionalItems: false },
        url: { $ref: "https://example.com/elsewhere.json" }
      },
      dependencies: { pair: ["url"] }
    })
    assert.isTrue(accepts(sent, { pair: ["x", 1], url: 3 }))
    assert.isFalse(accepts(sent, { pair: ["x", "y"], url: 3 }))
    assert.isFalse(accepts(sent, { pair: ["x", 1, 2], url: 3 }))
    assert.isFalse(accepts(sent, { pair: ["x", 1] }))
  })

  it("keeps draft-04 boolean bounds", () => {
    const sent = toInputSchema({
      $schema: "http://json-schema.org/draft-04/schema#",
      type: "object",
      properties: {
        a: { type: "number", minimum: 0, exclusiveMinimum: true },
        b: { type: "number", maximum: 9, exclusiveMaximum: false }
      }
    })
    assert.isFalse(accepts(sent, { a: 0 }))
    assert.isTrue(accepts(sent, { a: 1, b: 9 }))
    assert.isFalse(accepts(sent, { b: 10 }))
  })

  it("overflows the stack on a deep schema", () => {
    for (const wrap of [
      (inner: unknown) => ({ type: "object", properties: { a: inner } }),
      (inner: unknown) => ({ anyOf: [inner] }),
      (inner: unknown) => ({ allOf: [inner, { properties: { x: {} } }] }),
      (inner: unknown) => ({ items: inner }),
      (inner: unknown) => ({ items: [inner] }),
      (inner: unknown) => ({ not: inner }),
      (inner: unknown) => ({ dependencies: { a: inner } })
    ]) {
      const sent = toInputSchema(nested(20_000, wrap, { type: "string" }))
      assertRoot(sent)
      JSON.stringify(sent)
      compile(sent)
    }
  })

  it("takes time that doubles with each level", () => {
    const sent = toInputSchema(nested(24, (inner) => ({ items: [inner] }), { type: "string" }))
    assert.isBelow(JSON.stringify(sent).length, 10_000)
  })

  it.prop("changes the host's own schema", [Root], ([schema]) => {
    const before = JSON.stringify(schema)
    toInputSchema(schema)
    assert.strictEqual(JSON.stringify(schema), before)
  })

  it("changes a schema that every client takes already", () => {
    const schema = {
      type: "object",
      description: "d",
      properties: { a: { type: "string" }, b: { anyOf: [{ type: "string" }, { type: "null" }] } },
      required: ["a"],
      additionalProperties: false
    }
    assert.deepStrictEqual(toInputSchema(schema), schema)
  })
})
