import { join } from "node:path"
import * as Chunk from "effect/Chunk"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as Cursor from "../../services/jobs/cursorStream.ts"
import { forWorker } from "../../services/jobs/environment.ts"
import type { Tier, WorkerEvent } from "../../services/jobs/Job.ts"
import { JobId } from "../../services/jobs/Job.ts"
import * as Lines from "../../services/jobs/lines.ts"
import type { Environment, Running } from "../../services/jobs/Processes.ts"
import { Processes } from "../../services/jobs/Processes.ts"
import { PrivateConfig } from "../../services/jobs/PrivateConfig.ts"
import { promptOf, questionOf } from "../../services/jobs/prompts.ts"
import type { Turn, TurnEnd, Worker, WorkerFailure, WorkerHealth } from "../../services/jobs/Worker.ts"
import { BinaryMissing, NotLoggedIn, SessionLost, WorkerRefused } from "../../services/jobs/Worker.ts"
import { complaintOf, withoutResult } from "../../services/jobs/workerFailures.ts"

export interface Options {
  readonly name: string
  /** Program, and arguments that stand before all others. Left out: the first of Cursor's names that PATH knows. */
  readonly command?: ReadonlyArray<string> | undefined
  /** The bridge's own environment. */
  readonly env: Environment
  /** The user's home. */
  readonly home: string
  /** How long the program may take to end by itself after its result. */
  readonly resultPatience?: Duration.DurationInput
  /**
   * How long a turn may stand still after a last message without a result, as it does while a shell that it started
   * lives, until that message counts as the answer.
   */
  readonly quietPatience?: Duration.DurationInput
}

const programs: ReadonlyArray<string> =
  process.platform === "win32" ? ["agent.exe", "cursor-agent.exe", "agent", "cursor-agent"] : ["agent", "cursor-agent"]

/** An edit's event holds the whole file. */
const lineBytes = 32 << 20
/** How often a program that has said nothing yet is looked at: it may wait for a person. */
const startPoll = "250 millis"

const tierArgs: { readonly [T in Tier]: ReadonlyArray<string> } = {
  consult: ["--mode", "ask"],
  plan: ["--mode", "plan"],
  execute: ["--force"]
}

/** A value that no parser of arguments takes for an option. */
const plainWord = /^[A-Za-z0-9][\w.:/@+,=[\]-]*$/

const argsOf = (turn: Turn): ReadonlyArray<string> => [
  "-p",
  "--output-format",
  "stream-json",
  "--stream-partial-output",
  "--trust",
  "--workspace",
  turn.cwd,
  ...tierArgs[turn.tier],
  ...(turn.model === undefined ? [] : ["--model", turn.model]),
  ...(turn.session === undefined ? [] : ["--resume", turn.session])
]

const endOf = (text: string): TurnEnd => {
  const question = questionOf(text)
  return question === undefined ? { _tag: "Answered", text } : { _tag: "Question", question }
}

type Item = WorkerEvent | TurnEnd

/** The events of a running program, up to the turn's end. */
const listen = Effect.fnUntraced(function* (turn: Turn, child: Running, options: Options) {
  const resultPatience = options.resultPatience ?? "2 seconds"
  const quietPatience = options.quietPatience ?? "30 seconds"
  const scope = yield* Effect.scope
  const pull = yield* Stream.toPull(child.stdout)
  let heard = Cursor.silence
  let unfinished = Lines.nothing
  let dropped = 0
  let reading: Fiber.RuntimeFiber<Chunk.Chunk<Uint8Array>, Option.Option<never>> | undefined
  let phase: "reading" | "ending" | "over" = "reading"

  const take = (split: Lines.Split): ReadonlyArray<WorkerEvent> => {
    unfinished = split.unfinished
    dropped += split.dropped
    return split.lines.flatMap((line) => {
      const [after, events] = Cursor.hear(heard, line)
      heard = after
      return events
    })
  }

  const complaints = Effect.map(child.stderr, (stderr) => `${heard.noise}${stderr}`.trim())

  const over = (...items: ReadonlyArray<Item>): ReadonlyArray<Item> => {
    phase = "over"
    return [...Cursor.warningsOf(heard, dropped), ...items]
  }

  const read = Effect.gen(function* () {
    // Kept when the wait for it is given up: what it reads must not be lost.
    reading ??= yield* Effect.forkIn(pull, scope)
    const silent = heard.understood === 0
    const done = heard.last !== undefined && heard.open.size === 0
    const got = yield* silent || done
      ? Effect.timeoutOption(Fiber.await(reading), silent ? startPoll : quietPatience)
      : Effect.asSome(Fiber.await(reading))
    if (Option.isNone(got)) {
      if (heard.last !== undefined) {
        const text =
          "the worker said no result: what it said last counts as its answer, and what it left running is ended"
        return over({ _tag: "Warning", text }, endOf(heard.last))
      }
      const said = yield* complaints
      if (complaintOf(said) === undefined) return []
      return yield* withoutResult(turn.session, said, undefined, "stands still")
    }
    reading = undefined
    const events = Exit.isSuccess(got.value)
      ? Chunk.toReadonlyArray(got.value.value).flatMap((bytes) => take(Lines.split(unfinished, bytes, lineBytes)))
      : take(Lines.rest(unfinished))
    if (Exit.isFailure(got.value) || heard.result !== undefined) phase = "ending"
    const lost = events.some(
      (event) => event._tag === "Session" && turn.session !== undefined && event.sessionId !== turn.session
    )
    if (lost) return yield* new SessionLost({ sessionId: turn.session ?? "" })
    return events
  })

  const end = Effect.gen(function* () {
    const exit = yield* Effect.timeoutOption(child.exit, resultPatience)
    if (heard.result === undefined) {
      const how = Option.isSome(exit) ? "ended without a result" : "closed its output without a result"
      return yield* withoutResult(turn.session, yield* complaints, Option.getOrUndefined(exit), how)
    }
    const { isError, text } = heard.result
    if (isError) {
      return yield* complaintOf(text) === "not-logged-in"
        ? new NotLoggedIn({ detail: text })
        : new WorkerRefused({ detail: text })
    }
    const hung = { _tag: "Warning", text: "the worker did not end after its result, and was ended" } as const
    return over(...(Option.isNone(exit) ? [hung] : []), endOf(text))
  })

  return Stream.repeatEffectChunkOption(
    Effect.suspend(() =>
      phase === "over" ? Effect.fail(Option.none()) : Effect.mapError(phase === "reading" ? read : end, Option.some)
    ).pipe(Effect.map((items: ReadonlyArray<Item>) => Chunk.fromIterable(items)))
  )
})

/** Cursor's command line as a worker: one run of `agent -p` a turn, its prompt on stdin, its stream-json read. */
export const make = Effect.fnUntraced(function* (options: Options) {
  const processes = yield* Processes
  const configs = yield* PrivateConfig
  const base = forWorker(options.env)

  const commandOf = Effect.gen(function* () {
    const [program, ...args] = options.command ?? []
    const wanted = program === undefined ? programs : [program]
    const found = yield* processes.find(wanted, base)
    if (Option.isNone(found)) {
      return yield* new BinaryMissing({ command: wanted.join(", "), detail: "not found on PATH" })
    }
    return { program: found.value, args }
  })

  const run = (turn: Turn): Stream.Stream<Item, WorkerFailure> =>
    Stream.unwrapScoped(
      Effect.gen(function* () {
        for (const word of [turn.model, turn.session]) {
          if (word !== undefined && !plainWord.test(word)) {
            return yield* new WorkerRefused({ detail: `not a name of a model or session: ${word}` })
          }
        }
        const { args, program } = yield* commandOf
        const configDir = join(turn.stateDir, "cursor")
        const from = options.env["CURSOR_CONFIG_DIR"] ?? join(options.home, ".cursor")
        const warnings = yield* configs.prepare(from, configDir, ["cli-config.json", "auth.json"])
        const child = yield* processes.spawn({
          jobId: turn.jobId,
          program,
          args: [...args, ...argsOf(turn)],
          cwd: turn.cwd,
          // No browser opens on the desktop of whoever runs the bridge.
          env: { ...base, CURSOR_CONFIG_DIR: configDir, NO_OPEN_BROWSER: "1" }
        })
        const prompt = new TextEncoder().encode(promptOf(turn.tier, turn.cwd, turn.prompt))
        yield* Effect.forkScoped(Effect.zipRight(child.write(prompt), child.endInput))
        const first: WorkerEvent = { _tag: "Process", pid: child.pid, startedAt: child.startedAt }
        return Stream.concat(Stream.make<Array<Item>>(first, ...warnings), yield* listen(turn, child, options))
      })
    )

  const health: Effect.Effect<WorkerHealth> = Effect.gen(function* () {
    const { args, program } = yield* commandOf
    const child = yield* processes.spawn({
      jobId: JobId.make(crypto.randomUUID()),
      program,
      args: [...args, "--version"],
      cwd: options.home,
      env: base
    })
    yield* child.endInput
    const output = yield* Stream.mkString(Stream.decodeText(child.stdout))
    const { code } = yield* child.exit
    return code === 0
      ? { ok: true, detail: output.trim() }
      : { ok: false, detail: `${program} --version: ${(yield* child.stderr).trim()}` }
  }).pipe(
    Effect.scoped,
    Effect.timeout("10 seconds"),
    Effect.catchTags({
      BinaryMissing: ({ command }) => Effect.succeed({ ok: false, detail: `${command}: not found on PATH` }),
      WorkerExited: ({ stderr }) => Effect.succeed({ ok: false, detail: stderr }),
      TimeoutException: () => Effect.succeed({ ok: false, detail: "did not tell its version within 10 seconds" })
    })
  )

  const worker: Worker = { name: options.name, run, health }
  return worker
})
