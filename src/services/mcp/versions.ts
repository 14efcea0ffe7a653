/** Protocol revisions with `initialize` and sessions, newest first. */
export const legacyVersions = ["2025-11-25", "2025-06-18", "2025-03-26"] as const
export type LegacyVersion = (typeof legacyVersions)[number]

/** Revisions in which every request says all about itself in `_meta`. */
export const modernVersions = ["2026-07-28"] as const
export type ModernVersion = (typeof modernVersions)[number]

export const supportedVersions: ReadonlyArray<string> = [...modernVersions, ...legacyVersions]

export const latestLegacy: LegacyVersion = "2025-11-25"

export const isLegacy = (version: string): version is LegacyVersion =>
  (legacyVersions as ReadonlyArray<string>).includes(version)

export const isModern = (version: string): version is ModernVersion =>
  (modernVersions as ReadonlyArray<string>).includes(version)

/**
 * MCP 2025-11-25, lifecycle, version negotiation: a supported version is answered with itself, any other with the
 * latest that the server supports. `initialize` exists in the legacy revisions only.
 */
export const negotiate = (requested: string): LegacyVersion => (isLegacy(requested) ? requested : latestLegacy)

/** Only 2025-03-26 has JSON-RPC batches; 2025-06-18 removed them. */
export const hasBatches = (version: string): boolean => version === "2025-03-26"

/** 2025-06-18 introduced `resource_link` among a result's content; clients before it refuse the whole result. */
export const hasResourceLinks = (version: string): boolean => version >= "2025-06-18"

/** 2025-11-25 introduced the priming event and server-side disconnection of a stream. */
export const hasPolling = (version: string): boolean => version >= "2025-11-25"
