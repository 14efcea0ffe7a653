import { writeSync } from "node:fs"
import { Console } from "node:console"
import * as Effect from "effect/Effect"

const libc = { linux: "libc.so.6", darwin: "libSystem.B.dylib" } as const

/**
 * Takes stdout for the protocol alone: from here on whatever else writes there, in this process or in a child that
 * inherits it, reaches stderr. Returns the way to the real stdout.
 */
export const claimStdout = Effect.promise(async () => {
  const name = process.platform === "linux" || process.platform === "darwin" ? libc[process.platform] : undefined
  let descriptor = 1
  if (name !== undefined) {
    const { dlopen, FFIType } = await import("bun:ffi")
    const { symbols } = dlopen(name, {
      dup: { args: [FFIType.i32], returns: FFIType.i32 },
      dup2: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 }
    })
    const copy = symbols.dup(1)
    if (copy >= 0 && symbols.dup2(2, 1) >= 0) descriptor = copy
  }
  // Where descriptors cannot be moved, what goes through JavaScript can.
  if (descriptor === 1) {
    Object.assign(globalThis.console, new Console(process.stderr, process.stderr))
    process.stdout.write = process.stderr.write.bind(process.stderr)
  }
  return (line: string): Effect.Effect<void> =>
    Effect.sync(() => {
      const bytes = Buffer.from(`${line}\n`)
      for (let at = 0; at < bytes.length;) {
        try {
          at += writeSync(descriptor, bytes, at)
        } catch (error) {
          const code = (error as { readonly code?: string }).code
          // A full pipe drains; a reader that is gone wants nothing more.
          if (code === "EPIPE") return
          if (code !== "EAGAIN") throw error
          Bun.sleepSync(1)
        }
      }
    })
})
