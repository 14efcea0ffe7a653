import type { BridgeConfig } from "./Config.ts"
import * as Glob from "./glob.ts"
import type { HostTool } from "./HostTools.ts"

/** Whether remote parties may see and call a tool. The one rule behind list and call. */
export const exposed = (
  config: Pick<BridgeConfig, "deny" | "denyMCPTools" | "expose">,
  tool: Pick<HostTool, "name" | "wireName" | "active" | "own">
): boolean =>
  !tool.own &&
  (config.expose === "all" || tool.active) &&
  !(config.denyMCPTools && tool.name.startsWith("mcp__")) &&
  !config.deny.some((pattern) => Glob.matches(pattern, tool.name) || Glob.matches(pattern, tool.wireName))

const safeName = /^[A-Za-z0-9_-]{1,64}$/

/** FNV-1a, 32 bit: enough to keep apart the few names of one host that need an alias. */
const fingerprint = (text: string): string => {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, "0")
}

/**
 * The name under which a tool goes over the wire. Model APIs refuse other characters and more than 64 of them,
 * so any other name gets an alias that depends on that name alone.
 */
export const wireName = (name: string): string =>
  safeName.test(name) ? name : `${name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 55)}_${fingerprint(name)}`
