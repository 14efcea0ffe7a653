import type { JsonObject } from "./HostTools.ts"
import { isRecord } from "./wire/JsonRpc.ts"

/**
 * omp's `read` and `write` reach every other tool a second time, as devices named `xd://<tool>`. Remote callers have
 * each tool under its own name, where exposure decides; this door stays shut to them. What stays open are the two
 * devices that are no tools: they apply or discard the preview that an edit has staged.
 */
const openDevices = new Set(["xd://resolve", "xd://reject"])

/** As omp reads it: any case, blanks around it, in the brackets of an edit's header. */
const address = /^[\s[]*(xd:[^\s\]#]*)/i

/** What a file is to hold may begin with anything. */
const isText = (key: string): boolean => key === "content"

/** The device that the arguments name, where it is one that remote callers may not reach. */
export const closedDevice = (args: JsonObject): string | undefined => {
  const find = (value: unknown, depth: number): string | undefined => {
    if (typeof value === "string") {
      const named = address.exec(value)?.[1]
      return named === undefined || openDevices.has(named.toLowerCase()) ? undefined : named.slice(0, 64)
    }
    if (depth > 8 || value === null || typeof value !== "object") return undefined
    const inner = isRecord(value)
      ? Object.entries(value).flatMap(([key, item]) => (isText(key) ? [] : [item]))
      : (value as ReadonlyArray<unknown>)
    for (const item of inner) {
      const found = find(item, depth + 1)
      if (found !== undefined) return found
    }
    return undefined
  }
  return find(args, 0)
}
