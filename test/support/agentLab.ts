/** A fake agent on PATH, a home that is logged in, and a folder to work in. */
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import type { Tier } from "../../src/services/jobs/Job.ts"
import type { Turn } from "../../src/services/jobs/Worker.ts"
import { folder, newJobId } from "./processes.ts"

const fakeAgent = fileURLToPath(new URL("fake-agent.ts", import.meta.url))
const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))

export interface Lab {
  readonly home: string
  readonly work: string
  /** Where fake agents put what they want to show: numbers of processes, for one. */
  readonly notes: string
  readonly env: Readonly<Record<string, string>>
  readonly turn: (prompt: string, more?: Partial<Turn> & { readonly tier?: Tier }) => Turn
}

/** Writes `agent` into a folder: the fake, under Cursor's name. */
export const installFakeAgent = (bin: string): void => {
  mkdirSync(bin, { recursive: true })
  writeFileSync(join(bin, "agent"), `#!/bin/sh\nexec "${bun}" "${fakeAgent}" "$@"\n`)
  chmodSync(join(bin, "agent"), 0o755)
}

export const lab = Effect.map(folder, (dir): Lab => {
  const inside = (name: string): string => {
    const path = join(dir, name)
    mkdirSync(path, { recursive: true, mode: 0o700 })
    return path
  }
  const home = inside("home")
  const notes = inside("notes")
  mkdirSync(join(home, ".cursor"))
  writeFileSync(join(home, ".cursor/cli-config.json"), JSON.stringify({ version: 1, authInfo: { email: "x" } }))
  installFakeAgent(join(dir, "bin"))
  const work = inside("work")
  if (!existsSync(join(work, "a.txt"))) writeFileSync(join(work, "a.txt"), "alpha\n")
  return {
    home,
    work,
    notes,
    env: { PATH: `${join(dir, "bin")}:${process.env["PATH"]}`, HOME: home, FAKE_AGENT_DIR: notes },
    turn: (prompt, more) => {
      const jobId = newJobId()
      return {
        jobId,
        tier: "execute",
        cwd: work,
        prompt,
        session: undefined,
        stateDir: inside(`state/${jobId}`),
        model: undefined,
        ...more
      }
    }
  }
})
