import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"

/** What omp's rpc mode asks of the program that runs it (its `extension_ui_request` frames), as far as it is used here. */
export type Frame =
  | { readonly _tag: "Notify"; readonly text: string; readonly level: "info" | "warning" | "error" }
  | { readonly _tag: "Select"; readonly id: string; readonly title: string; readonly options: ReadonlyArray<string> }
  /** Takes back the select with this id. */
  | { readonly _tag: "Withdraw"; readonly id: string }

/** omp ended by itself, or could not be started. */
export class OmpExited extends Data.TaggedError("OmpExited")<{
  readonly code: number | undefined
  readonly stderr: string
}> {
  override get message(): string {
    const why = this.stderr.trim()
    return `omp ended${this.code === undefined ? "" : ` with code ${this.code}`}${why === "" ? "" : `: ${why}`}`
  }
}

export interface OmpRpcProcess {
  readonly frames: Stream.Stream<Frame, OmpExited>
  /** Runs a slash command of an extension. */
  readonly command: (line: string) => Effect.Effect<void>
  readonly answer: (id: string, choice: string | undefined) => Effect.Effect<void>
}

export interface Options {
  /** Command line up to and without `--mode rpc`. */
  readonly command: ReadonlyArray<string>
  readonly args: ReadonlyArray<string>
  readonly cwd: string
  readonly env: Readonly<Record<string, string | undefined>>
}

/** How long omp may take to end by itself once its stdin is closed. */
const patienceMillis = 8000

const toFrame = (line: string): ReadonlyArray<Frame> => {
  let frame: Record<string, unknown>
  try {
    frame = JSON.parse(line) as Record<string, unknown>
  } catch {
    return []
  }
  if (frame["type"] !== "extension_ui_request") return []
  switch (frame["method"]) {
    case "notify": {
      const level = frame["notifyType"]
      return [
        {
          _tag: "Notify",
          text: String(frame["message"]),
          level: level === "warning" || level === "error" ? level : "info"
        }
      ]
    }
    case "select":
      return [
        {
          _tag: "Select",
          id: String(frame["id"]),
          title: String(frame["title"]),
          options: Array.isArray(frame["options"]) ? frame["options"].map(String) : []
        }
      ]
    case "cancel":
      return [{ _tag: "Withdraw", id: String(frame["targetId"]) }]
    default:
      return []
  }
}

/** A headless omp. Closing the scope closes its stdin, which ends it cleanly; one that does not end is killed. */
export const start = (options: Options) =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.try({
        try: () =>
          Bun.spawn([...options.command, "--mode", "rpc", ...options.args], {
            cwd: options.cwd,
            env: { ...options.env },
            stdin: "pipe",
            stdout: "pipe",
            stderr: "pipe",
            // Its own process group: a Ctrl-C in the terminal is ours to pass on, as the end of its stdin.
            detached: true
          }),
        catch: (error) =>
          new OmpExited({ code: undefined, stderr: error instanceof Error ? error.message : String(error) })
      }),
      (child) =>
        Effect.promise(async () => {
          await child.stdin.end()
          const exited = await Promise.race([
            child.exited.then(() => true),
            Bun.sleep(patienceMillis).then(() => false)
          ])
          if (!exited) child.kill("SIGKILL")
          await child.exited
        })
    )
    const stderr = new Response(child.stderr).text()
    const send = (message: unknown) =>
      Effect.promise(async () => {
        child.stdin.write(`${JSON.stringify(message)}\n`)
        await child.stdin.flush()
      })
    const exited = Effect.flatMap(
      Effect.promise(async () => ({ code: await child.exited, stderr: await stderr })),
      (end) => new OmpExited(end)
    )
    const frames = Stream.fromReadableStream(
      () => child.stdout,
      () => new OmpExited({ code: undefined, stderr: "its output could not be read" })
    ).pipe(Stream.decodeText(), Stream.splitLines, Stream.mapConcat(toFrame), Stream.concat(Stream.fromEffect(exited)))
    const process: OmpRpcProcess = {
      frames,
      command: (line) => send({ type: "prompt", message: line }),
      answer: (id, choice) =>
        send({
          type: "extension_ui_response",
          id,
          ...(choice === undefined ? { cancelled: true } : { value: choice })
        })
    }
    return process
  })
