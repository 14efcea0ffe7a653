import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Effect from "effect/Effect"

/** A folder of its own, gone when the scope ends. */
export const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "pi-a2a-unit-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)
