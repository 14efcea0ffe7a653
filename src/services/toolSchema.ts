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
  // Draft-04's `id`, which is no keyword any more.
  if (typeof out["id"] === "string") delete out["id"]
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

type Properties = Readonly<Record<string, unknown>>

const propertiesOf = (schema: Record<string, unknown>): Properties =>
  isRecord(schema["properties"]) ? schema["properties"] : {}

/** The schema of one property in a union: what any branch says of it, and anything where a branch leaves it open. */
const inUnion = (key: string, branches: ReadonlyArray<Record<string, unknown>>): unknown => {
  const said = branches.flatMap((branch) => {
    const properties = propertiesOf(branch)
    if (Object.hasOwn(properties, key)) return [properties[key]]
    return branch["additionalProperties"] === false ? [] : [{}]
  })
  const distinct = [...new Map(said.map((schema) => [JSON.stringify(schema), schema])).values()]
  return distinct.length === 1 ? distinct[0] : { anyOf: distinct }
}

/** Both must hold. */
const both = (a: unknown, b: unknown): unknown => (a === undefined ? b : { allOf: [a, b] })

/**
 * Clients drop a tool whose schema has a combinator at the root. The branches are folded into one object that accepts
 * everything that they accept; the host's validator, which knows the original, still decides.
 */
const foldRoot = (schema: Record<string, unknown>): Record<string, unknown> => {
  const { allOf, anyOf, oneOf, ...rest } = schema
  if (allOf === undefined && anyOf === undefined && oneOf === undefined) return schema
  const properties: Record<string, unknown> = { ...propertiesOf(rest) }
  const required = new Set(strings(rest["required"]))
  const add = (more: Properties, names: ReadonlyArray<string>) => {
    for (const [key, value] of Object.entries(more)) properties[key] = both(properties[key], value)
    for (const name of names) required.add(name)
  }
  const branchesOf = (value: unknown) =>
    Array.isArray(value)
      ? value.filter((branch) => branch !== false).map((branch) => (isRecord(branch) ? foldRoot(branch) : {}))
      : []
  for (const branch of branchesOf(allOf)) add(propertiesOf(branch), strings(branch["required"]))
  for (const alternatives of [branchesOf(anyOf), branchesOf(oneOf)]) {
    const keys = new Set(alternatives.flatMap((branch) => Object.keys(propertiesOf(branch))))
    const common = strings(alternatives[0]?.["required"]).filter((name) =>
      alternatives.every((branch) => strings(branch["required"]).includes(name))
    )
    add(Object.fromEntries([...keys].map((key) => [key, inUnion(key, alternatives)])), common)
  }
  const folded: Record<string, unknown> = { ...rest, type: "object", properties }
  // A branch's properties would fall to the root's own `false`.
  delete folded["additionalProperties"]
  delete folded["unevaluatedProperties"]
  if (required.size > 0) folded["required"] = [...required]
  else delete folded["required"]
  return folded
}

const combinators = ["allOf", "anyOf", "oneOf"] as const
const intoRoot = /^#\/(allOf|anyOf|oneOf)\/(\d+)(?=\/|$)/

/** References into the root's branches keep their target, under `$defs`, where the fold leaves it alone. */
const keepTargets = (schema: Record<string, unknown>): Record<string, unknown> => {
  let found = false
  const rewrite = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(rewrite)
    if (!isRecord(value)) return value
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => {
        if (key !== "$ref" || typeof inner !== "string" || !intoRoot.test(inner)) return [key, rewrite(inner)]
        found = true
        return [key, inner.replace(intoRoot, "#/$defs/$1-$2")]
      })
    )
  }
  const rewritten = rewrite(schema) as Record<string, unknown>
  if (!found) return schema
  const targets = combinators.flatMap((name) => {
    const branches = rewritten[name]
    return Array.isArray(branches) ? branches.map((branch, i) => [`${name}-${i}`, branch] as const) : []
  })
  return {
    ...rewritten,
    $defs: { ...(isRecord(rewritten["$defs"]) ? rewritten["$defs"] : {}), ...Object.fromEntries(targets) }
  }
}

/** Larger schemas are cut to their properties' names: no model reads more, and every client pays for it. */
const maxLength = 128 * 1024

/** Within {@link maxLength} UTF-16 units as JSON, whatever the host's MCP servers send. */
const bounded = (schema: JsonObject): JsonObject => {
  if (JSON.stringify(schema).length <= maxLength) return schema
  const names = Object.keys(propertiesOf(schema))
  const required = strings(schema["required"])
  const cut = {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, {}])),
    ...(required.length === 0 ? {} : { required })
  }
  return JSON.stringify(cut).length <= maxLength ? cut : { type: "object", properties: {} }
}

/** Any schema of a host's tool as one that every MCP client takes: 2020-12, an object, no root combinator. */
export const toInputSchema = (schema: unknown): JsonObject => {
  const modern = modernize(isRecord(schema) ? schema : {}, 0)
  const root = foldRoot(keepTargets(isRecord(modern) ? modern : {}))
  return bounded({ ...root, type: "object", properties: isRecord(root["properties"]) ? root["properties"] : {} })
}
