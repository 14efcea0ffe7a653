import * as Schema from "effect/Schema"

/** Why a path is not one that remote parties may work in. */
export const PathRefusal = Schema.Literal(
  "no-roots",
  "not-absolute",
  "nul",
  "dot-dot",
  "device-name",
  "short-name",
  "unc",
  "outside",
  "link-escape",
  "absent",
  "not-a-folder"
)
export type PathRefusal = typeof PathRefusal.Type
