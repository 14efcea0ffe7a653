import type { JsonObject } from "./HostTools.ts"
import { isRecord } from "./wire/JsonRpc.ts"

/** Deeper schemas are cut to `true` there: no client needs them, and recursion must end. */
const maxDepth = 64

const schemaMaps = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]
const schemaLists = ["allOf", "anyOf", "oneOf", "prefixItems"]
const schemaValues = [
  "items",
  "additionalProperties",
  "unevaluatedProperties",
  "unevaluatedItems",
  "propertyNames",
  "contains",
  "not",
  "if",
  "then",
  "else"
]

const mapValues = (record: Record<string, unknown>, f: (value: unknown) => unknown): Record<string, unknown> =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, f(value)]))

/** Draft-04 and draft-07 forms, as MCP servers still send them, to their 2020-12 equals. */
const modernize = (schema: unknown, depth: number): unknown => {
  if (typeof schema === "boolean") return schema
  if (!isRecord(schema) || depth > maxDepth) return true
  const out: Record<string, unknown> = { ...schema }
  // A client that knows another dialect only would refuse the tool; 2020-12 is MCP's default.
  delete out["$schema"]
  // A reference into the network is never followed by anyone: what it would say stays open.
  if (typeof out["$ref"] === "string" && !out["$ref"].startsWith("#")) delete out["$ref"]
  for (const key of schemaMaps) {
    const value = out[key]
    if (isRecord(value)) out[key] = mapValues(value, (inner) => modernize(inner, depth + 1))
  }
  for (const key of schemaLists) {
    const value = out[key]
    if (Array.isArray(value)) out[key] = value.map((inner) => modernize(inner, depth + 1))
  }
  if (Array.isArray(out["items"])) {
    out["prefixItems"] = out["items"].map((inner) => modernize(inner, depth + 1))
    if (out["additionalItems"] === undefined) delete out["items"]
    else out["items"] = out["additionalItems"]
  }
  delete out["additionalItems"]
  for (const key of schemaValues) {
    if (out[key] !== undefined) out[key] = modernize(out[key], depth + 1)
  }
  for (const [exclusive, bound] of [
    ["exclusiveMinimum", "minimum"],
    ["exclusiveMaximum", "maximum"]
  ] as const) {
    if (typeof out[exclusive] !== "boolean") continue
    if (out[exclusive] && out[bound] !== undefined) {
      out[exclusive] = out[bound]
      delete out[bound]
    } else delete out[exclusive]
  }
  const dependencies = out["dependencies"]
  if (isRecord(dependencies)) {
    delete out["dependencies"]
    const entries = Object.entries(dependencies)
    const required = entries.filter(([, value]) => Array.isArray(value))
    const schemas = entries.filter(([, value]) => !Array.isArray(value))
    if (required.length > 0) out["dependentRequired"] = Object.fromEntries(required)
    if (schemas.length > 0) {
      out["dependentSchemas"] = Object.fromEntries(schemas.map(([key, value]) => [key, modernize(value, depth + 1)]))
    }
  }
  return out
}

const strings = (value: unknown): ReadonlyArray<string> =>
  Array.isArray(value) ? value.filter((item) => typeof item === "string") : []

/** One property that several branches describe: either description will do. */
const either = (a: unknown, b: unknown): unknown =>
  a === undefined || JSON.stringify(a) === JSON.stringify(b) ? b : { anyOf: [a, b] }

/**
 * Clients drop a tool whose schema has a combinator at the root. The branches are folded into one object that accepts
 * everything that they accept; the host's validator, which knows the original, still decides.
 */
const foldRoot = (schema: Record<string, unknown>): Record<string, unknown> => {
  const { allOf, anyOf, oneOf, ...rest } = schema
  if (allOf === undefined && anyOf === undefined && oneOf === undefined) return schema
  const properties: Record<string, unknown> = isRecord(rest["properties"]) ? { ...rest["properties"] } : {}
  let required = new Set(strings(rest["required"]))
  const branchesOf = (value: unknown) => (Array.isArray(value) ? value.filter(isRecord) : [])
  for (const branch of branchesOf(allOf).map(foldRoot)) {
    if (isRecord(branch["properties"])) {
      for (const [key, value] of Object.entries(branch["properties"])) properties[key] = either(properties[key], value)
    }
    required = new Set([...required, ...strings(branch["required"])])
  }
  for (const alternatives of [branchesOf(anyOf).map(foldRoot), branchesOf(oneOf).map(foldRoot)]) {
    if (alternatives.length === 0) continue
    for (const branch of alternatives) {
      if (!isRecord(branch["properties"])) continue
      for (const [key, value] of Object.entries(branch["properties"])) properties[key] = either(properties[key], value)
    }
    const common = strings(alternatives[0]?.["required"]).filter((key) =>
      alternatives.every((branch) => strings(branch["required"]).includes(key))
    )
    required = new Set([...required, ...common])
  }
  const folded: Record<string, unknown> = { ...rest, type: "object", properties }
  // A branch's properties would fall to the root's own `false`.
  delete folded["additionalProperties"]
  delete folded["unevaluatedProperties"]
  if (required.size > 0) folded["required"] = [...required]
  else delete folded["required"]
  return folded
}

/** Any schema of a host's tool as one that every MCP client takes: 2020-12, an object, no root combinator. */
export const toInputSchema = (schema: unknown): JsonObject => {
  const modern = modernize(isRecord(schema) ? schema : {}, 0)
  const root = foldRoot(isRecord(modern) ? modern : {})
  return { ...root, type: "object", properties: isRecord(root["properties"]) ? root["properties"] : {} }
}
