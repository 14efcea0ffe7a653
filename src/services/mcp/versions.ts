/** Protocol revisions with `initialize` and sessions, newest first. */
export const legacyVersions = ["2025-11-25", "2025-06-18", "2025-03-26"] as const
export type LegacyVersion = (typeof legacyVersions)[number]

export const latestLegacy: LegacyVersion = "2025-11-25"

export const isLegacy = (version: string): version is LegacyVersion =>
  (legacyVersions as ReadonlyArray<string>).includes(version)

/**
 * MCP 2025-11-25, lifecycle, version negotiation: a supported version is answered with itself, any other with the
 * latest that the server supports.
 */
export const negotiate = (requested: string): LegacyVersion => (isLegacy(requested) ? requested : latestLegacy)

/** Only 2025-03-26 has JSON-RPC batches; 2025-06-18 removed them. */
export const hasBatches = (version: string): boolean => version === "2025-03-26"
