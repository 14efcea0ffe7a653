/** A terminal for omp's interactive mode: a tmux server of its own, on a socket of its own. */
import { spawnSync } from "node:child_process"
import type { Home } from "./omp.ts"
import { bunBinary, ompBinary, until } from "./omp.ts"

export interface Terminal {
  /** What the screen shows now, without colours. */
  readonly screen: () => string
  readonly keys: (...keys: ReadonlyArray<string>) => void
  readonly type: (text: string) => void
  /** Runs a slash command. Its menu of completions may take an Enter or two. */
  readonly command: (line: string) => Promise<void>
  /** Waits for the screen to show something. */
  readonly shows: (pattern: RegExp, timeoutMillis?: number) => Promise<string>
  /** Whether the program still runs. */
  readonly alive: () => boolean
  readonly close: () => void
}

const quote = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`

/** Runs omp in `home.work` on a fresh screen. The caller closes it. */
export const openTerminal = (home: Home, args: ReadonlyArray<string> = []): Terminal => {
  const socket = `a2a-${crypto.randomUUID().slice(0, 8)}`
  const tmux = (...command: ReadonlyArray<string>) =>
    spawnSync("tmux", ["-L", socket, "-f", "/dev/null", ...command], {
      encoding: "utf8",
      cwd: home.work,
      env: { ...home.env, TMUX_TMPDIR: home.dir }
    })
  const command = [bunBinary, ompBinary, ...args].map(quote).join(" ")
  const started = tmux("new-session", "-d", "-x", "140", "-y", "50", "-s", "omp", `exec ${command}`)
  if (started.status !== 0) throw new Error(`tmux: ${started.stderr}`)
  const screen = () => tmux("capture-pane", "-p", "-J", "-t", "omp").stdout
  const keys: Terminal["keys"] = (...names) => void tmux("send-keys", "-t", "omp", ...names)
  const type: Terminal["type"] = (text) => void tmux("send-keys", "-t", "omp", "-l", text)
  // The editor's line; other boxes end in a line without a gap.
  const edited = () => /^╰─(?: (.*))?$/m.exec(screen())?.[1]?.trim() ?? ""
  return {
    screen,
    keys,
    type,
    command: async (line) => {
      type(line)
      await until(
        () => `${line} in the editor:\n${screen()}`,
        () => edited() === line
      )
      let pressedAt = Number.NEGATIVE_INFINITY
      await until(
        () => `${line} to be run:\n${screen()}`,
        () => {
          if (!edited().startsWith(line)) return true
          // One at a time: the screen lags behind the keys.
          if (performance.now() - pressedAt < 1000) return false
          pressedAt = performance.now()
          keys("Enter")
          return false
        }
      )
    },
    shows: (pattern, timeoutMillis = 45_000) =>
      until(
        () => `${pattern} on the screen:\n${screen()}`,
        () => {
          const text = screen()
          return pattern.test(text) ? text : undefined
        },
        timeoutMillis
      ),
    alive: () => tmux("has-session", "-t", "omp").status === 0,
    close: () => void tmux("kill-server")
  }
}
