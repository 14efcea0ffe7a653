import type { BridgeConfig } from "./Config.ts"

/**
 * Which pages and names may reach the bridge (MCP 2025-11-25, transports, security warning): a web page that rebinds
 * its own DNS name to a loopback address gives itself away in Host, any other page in Origin.
 */

/** Name part of a `host[:port]` or of a bare address, lower case, brackets of an IPv6 address removed. */
export const hostName = (authority: string): string => {
  const bracketed = /^\[([^\]]*)\](?::\d+)?$/.exec(authority)
  if (bracketed?.[1] !== undefined) return bracketed[1].toLowerCase()
  // Two colons without brackets are an IPv6 address, and no port.
  const isBareIpv6 = authority.indexOf(":") !== authority.lastIndexOf(":")
  return (isBareIpv6 ? authority : authority.replace(/:\d+$/, "")).toLowerCase()
}

export const isLoopback = (name: string): boolean =>
  name === "localhost" || name === "::1" || /^127(\.\d{1,3}){3}$/.test(name)

type Rules = Pick<BridgeConfig, "host" | "allowedHosts" | "allowedOrigins">

/** On a loopback bind, Host must name a loopback address or an allowed host. Elsewhere the operator's names are unknown. */
export const hostAllowed = (rules: Rules, host: string | undefined): boolean => {
  if (!isLoopback(hostName(rules.host))) return true
  if (host === undefined) return false
  const name = hostName(host)
  return isLoopback(name) || rules.allowedHosts.some((allowed) => hostName(allowed) === name)
}

const originHost = (origin: string): string | undefined => {
  const match = /^https?:\/\/([^/]+)$/i.exec(origin)
  return match?.[1]
}

/** No Origin is no browser. A browser's must be loopback (on a loopback bind), the bridge's own, or allowed. */
export const originAllowed = (rules: Rules, origin: string | undefined, host: string | undefined): boolean => {
  if (origin === undefined) return true
  if (rules.allowedOrigins.some((allowed) => allowed.toLowerCase() === origin.toLowerCase())) return true
  const authority = originHost(origin)
  if (authority === undefined) return false
  return isLoopback(hostName(rules.host))
    ? isLoopback(hostName(authority))
    : host !== undefined && authority.toLowerCase() === host.toLowerCase()
}
