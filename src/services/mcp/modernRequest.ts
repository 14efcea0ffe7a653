import * as Either from "effect/Either"
import type { ClientCapabilities, LogLevel } from "../Exchange.ts"
import { isLogLevel, logLevels } from "../Exchange.ts"
import type { JsonObject } from "../HostTools.ts"
import type { Params } from "../wire/JsonRpc.ts"
import { isRecord } from "../wire/JsonRpc.ts"
import { HeaderMismatch, MetaInvalid, ParamsInvalid, UnsupportedProtocolVersion } from "./failures.ts"
import { isModern, supportedVersions } from "./versions.ts"

/** The headers of one request, as HTTP compares names: in lower case. Transports without headers leave it out. */
export type Headers = Readonly<Record<string, string | undefined>>

const prefix = "io.modelcontextprotocol/"
const versionKey = `${prefix}protocolVersion`
const capabilitiesKey = `${prefix}clientCapabilities`
const clientKey = `${prefix}clientInfo`
const logLevelKey = `${prefix}logLevel`
export const serverInfoKey = `${prefix}serverInfo`
export const subscriptionKey = `${prefix}subscriptionId`

/** What a request of 2026-07-28 says about itself. */
export interface Meta {
  readonly protocolVersion: string
  readonly capabilities: ClientCapabilities
  readonly client: string
  readonly logLevel: LogLevel | undefined
  readonly progressToken: string | number | undefined
}

export const progressTokenOf = (params: Params | undefined): string | number | undefined => {
  const meta = params?.["_meta"]
  const token = isRecord(meta) ? meta["progressToken"] : undefined
  return typeof token === "string" || (typeof token === "number" && Number.isInteger(token)) ? token : undefined
}

export const clientName = (info: unknown): string => {
  const parts = isRecord(info) ? [info["name"], info["version"]] : []
  const text = parts.filter((part) => typeof part === "string" && part !== "").join("/")
  return (text === "" ? "unknown" : text).toWellFormed().slice(0, 128)
}

/**
 * A request is of the modern era when it says so in its body, or by a header that no legacy client sends.
 * 2026-07-28, versioning: a dual-era server tells the two apart request by request.
 */
export const isModernRequest = (params: Params | undefined, headers: Headers | undefined): boolean => {
  const meta = params?.["_meta"]
  if (isRecord(meta) && Object.hasOwn(meta, versionKey)) return true
  const version = headers?.["mcp-protocol-version"]
  return version !== undefined && isModern(version)
}

export const decodeMeta = (params: Params | undefined): Either.Either<Meta, MetaInvalid> => {
  const meta = params?.["_meta"]
  const invalid = (detail: string) => Either.left(new MetaInvalid({ detail }))
  if (!isRecord(meta)) return invalid("params._meta is missing")
  const version = meta[versionKey]
  if (typeof version !== "string") return invalid(`params._meta["${versionKey}"] must be a string`)
  const capabilities = meta[capabilitiesKey]
  if (!isRecord(capabilities)) return invalid(`params._meta["${capabilitiesKey}"] must be an object`)
  const level = meta[logLevelKey]
  return Either.right({
    protocolVersion: version,
    capabilities,
    client: clientName(meta[clientKey]),
    logLevel: isLogLevel(level) ? level : undefined,
    progressToken: progressTokenOf(params)
  })
}

/** 2026-07-28, logging: a level that does not exist is refused. */
export const checkLogLevel = (method: string, params: Params | undefined): Either.Either<void, ParamsInvalid> => {
  const meta = params?.["_meta"]
  const level = isRecord(meta) ? meta[logLevelKey] : undefined
  return level === undefined || isLogLevel(level)
    ? Either.right(undefined)
    : Either.left(
        new ParamsInvalid({ method, detail: `params._meta["${logLevelKey}"] must be one of ${logLevels.join(", ")}` })
      )
}

const sentinel = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/

/** Undoes the value encoding (Streamable HTTP, value encoding). `undefined` where the encoding is broken. */
export const decodeHeaderValue = (value: string): string | undefined => {
  const trimmed = value.replace(/^[ \t]+|[ \t]+$/g, "")
  const match = sentinel.exec(trimmed)
  if (match === null) {
    if (trimmed.startsWith("=?base64?") && trimmed.endsWith("?=")) return undefined
    return /^[\t\x20-\x7e]*$/.test(trimmed) ? trimmed : undefined
  }
  const encoded = match[1] ?? ""
  if (encoded.length % 4 !== 0) return undefined
  try {
    const bytes = Uint8Array.from(atob(encoded), (char) => char.charCodeAt(0))
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** Which parameter `Mcp-Name` repeats. */
const nameSource: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId"
}

const mismatch = (header: string, detail: string) => Either.left(new HeaderMismatch({ header, detail }))

/** Streamable HTTP, server validation: what the headers say and what the body says is the same. */
export const checkHeaders = (
  method: string,
  params: Params | undefined,
  meta: Meta,
  headers: Headers
): Either.Either<void, HeaderMismatch | UnsupportedProtocolVersion> => {
  const version = headers["mcp-protocol-version"]?.trim()
  if (version === undefined) return mismatch("MCP-Protocol-Version", "is missing")
  if (version !== meta.protocolVersion) {
    return mismatch("MCP-Protocol-Version", `says ${version}, the body says ${meta.protocolVersion}`)
  }
  if (!isModern(version)) {
    return Either.left(new UnsupportedProtocolVersion({ requested: version, supported: supportedVersions }))
  }
  const named = headers["mcp-method"]?.trim()
  if (named === undefined) return mismatch("Mcp-Method", "is missing")
  if (named !== method) return mismatch("Mcp-Method", `says ${named}, the body says ${method}`)
  const source = nameSource[method]
  const name = source === undefined ? undefined : params?.[source]
  if (source === undefined || typeof name !== "string") return Either.right(undefined)
  const header = headers["mcp-name"]
  if (header === undefined) return mismatch("Mcp-Name", `is missing; the body has params.${source}`)
  const decoded = decodeHeaderValue(header)
  if (decoded === undefined) return mismatch("Mcp-Name", "is not encoded as the specification wants it")
  return decoded === name ? Either.right(undefined) : mismatch("Mcp-Name", `differs from params.${source}`)
}

/** For a transport without headers: the version alone. */
export const checkVersion = (meta: Meta): Either.Either<void, UnsupportedProtocolVersion> =>
  isModern(meta.protocolVersion)
    ? Either.right(undefined)
    : Either.left(new UnsupportedProtocolVersion({ requested: meta.protocolVersion, supported: supportedVersions }))

interface MirroredParam {
  readonly header: string
  readonly path: ReadonlyArray<string>
}

/** Properties that a tool's schema marks with `x-mcp-header`; reachable by `properties` alone. */
export const mirroredParams = (schema: JsonObject): ReadonlyArray<MirroredParam> => {
  const walk = (here: unknown, path: ReadonlyArray<string>): ReadonlyArray<MirroredParam> => {
    if (!isRecord(here) || !isRecord(here["properties"]) || path.length > 16) return []
    return Object.entries(here["properties"]).flatMap(([key, value]) => {
      const inner = [...path, key]
      const mark = isRecord(value) ? value["x-mcp-header"] : undefined
      return [
        ...(isRecord(value) && typeof mark === "string" ? [{ header: mark, path: inner }] : []),
        ...walk(value, inner)
      ]
    })
  }
  return walk(schema, [])
}

const valueAt = (args: unknown, path: ReadonlyArray<string>): unknown =>
  path.reduce<unknown>((here, key) => (isRecord(here) && Object.hasOwn(here, key) ? here[key] : undefined), args)

const decimal = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i

/** Numbers are compared as numbers, but for those that have neighbours of the same value. */
const sameValue = (value: unknown, header: string): boolean => {
  switch (typeof value) {
    case "number":
      return header === String(value) || (decimal.test(header) && Number(header) === value && Math.abs(value) < 2 ** 53)
    case "string":
    case "boolean":
      return header === String(value)
    default:
      return false
  }
}

/** Streamable HTTP, server behavior for custom headers. */
export const checkParamHeaders = (
  schema: JsonObject,
  args: unknown,
  headers: Headers
): Either.Either<void, HeaderMismatch> => {
  for (const param of mirroredParams(schema)) {
    const name = `Mcp-Param-${param.header}`
    const header = headers[name.toLowerCase()]
    const value = valueAt(args, param.path)
    const decoded = header === undefined ? undefined : decodeHeaderValue(header)
    if (header !== undefined && decoded === undefined)
      return mismatch(name, "is not encoded as the specification wants it")
    if (value === undefined || value === null) {
      if (header !== undefined) return mismatch(name, `is there, but arguments.${param.path.join(".")} is not`)
      continue
    }
    if (decoded === undefined) return mismatch(name, `is missing; the body has arguments.${param.path.join(".")}`)
    if (!sameValue(value, decoded)) return mismatch(name, `differs from arguments.${param.path.join(".")}`)
  }
  return Either.right(undefined)
}
