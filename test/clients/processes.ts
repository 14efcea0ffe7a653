import { readdirSync, readFileSync } from "node:fs"

const environ = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8")
  } catch {
    // It ended meanwhile.
    return ""
  }
}

/** Processes with that HOME: those that a client's row started, however they were handed on. */
const processesOf = (home: string): ReadonlyArray<number> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && environ(name).split("\0").includes(`HOME=${home}`))
    .map(Number)

/** Waits for their own end, then ends those that are left. Gives how many those were. */
export const endAll = async (home: string, graceMillis: number): Promise<number> => {
  const deadline = performance.now() + graceMillis
  let left = processesOf(home)
  while (left.length > 0 && performance.now() < deadline) {
    await Bun.sleep(50)
    left = processesOf(home)
  }
  const many = left.length
  while (left.length > 0) {
    for (const pid of left) {
      try {
        process.kill(pid, "SIGKILL")
      } catch {
        // It went by itself.
      }
    }
    await Bun.sleep(50)
    left = processesOf(home)
  }
  return many
}
