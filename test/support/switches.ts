/** What a prompt asks of a fake agent: words in brackets, `[edit:notes.md]`, in order. */
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { join } from "node:path"

export interface Switch {
  readonly name: string
  readonly argument: string
}

export const switchesOf = (text: string): ReadonlyArray<Switch> =>
  [...text.matchAll(/\[([a-z][a-z-]*)(?::([^\]]*))?\]/g)].map(([, name, argument]) => ({
    name: name!,
    argument: argument ?? ""
  }))

/**
 * A process that ignores SIGTERM and stays; its number is in `<name>.pid` of FAKE_AGENT_DIR. With `session` it leaves
 * session, group and parent.
 */
export const stay = async (name: string, session: boolean): Promise<void> => {
  const file = join(process.env["FAKE_AGENT_DIR"] ?? ".", `${name}.pid`)
  const script = `trap '' TERM HUP INT; echo $$ > ${JSON.stringify(`${file}.part`)}; mv ${JSON.stringify(`${file}.part`)} ${JSON.stringify(file)}; exec sleep 1000`
  const child = session
    ? spawn("bash", ["--norc", "-c", `(setsid bash --norc -c ${JSON.stringify(script).replaceAll("$", "\\$")} &)`], {
        detached: true,
        stdio: "ignore"
      })
    : spawn("bash", ["--norc", "-c", script], { stdio: ["ignore", "inherit", "inherit"] })
  child.unref()
  const deadline = performance.now() + 10_000
  while (!existsSync(file) && performance.now() < deadline) await Bun.sleep(10)
}

export const forever = (): Promise<never> => new Promise(() => setInterval(() => undefined, 1 << 30))

/** Of the request itself: what stands before the first rule is what the bridge says. */
export const digest = (prompt: string): string => String(Bun.hash(prompt.slice(prompt.indexOf("\n\n---\n\n") + 7)))
