import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type { JobId } from "./Job.ts"
import type { BinaryMissing, WorkerExited } from "./Worker.ts"

export type Environment = Readonly<Record<string, string | undefined>>

/** A program to run for a job, in a session and process group of its own. */
export interface Command {
  readonly jobId: JobId
  readonly program: string
  readonly args: ReadonlyArray<string>
  readonly cwd: string
  /** The whole environment, but for the mark by which everything that descends from it is found. */
  readonly env: Environment
}

/** How a process ended: one of the two, or neither where nobody knows. */
export interface Exit {
  readonly code: number | undefined
  readonly signal: string | undefined
}

/** What identifies a process on this machine, whatever has its number later. */
export interface ProcessIdentity {
  readonly pid: number
  /** Opaque; differs for every process that has had this number, across restarts of the machine too. */
  readonly startedAt: string
}

export interface Running extends ProcessIdentity {
  /** May be read once. Ends with the output, or soon after the process's end where a child of it holds the pipe open. */
  readonly stdout: Stream.Stream<Uint8Array>
  /** The last 8 KiB of what it wrote to stderr so far. */
  readonly stderr: Effect.Effect<string>
  /** Waits until the process took it. What a process that is gone does not take is dropped: its end says more. */
  readonly write: (bytes: Uint8Array) => Effect.Effect<void>
  readonly endInput: Effect.Effect<void>
  /** Of the process itself, not of what it started; `stderr` is complete then. */
  readonly exit: Effect.Effect<Exit>
}

/** Processes of jobs, as trees: what is started here and all that descends from it, wherever that went. */
export class Processes extends Context.Tag("pi-a2a-ext/services/jobs/Processes")<
  Processes,
  {
    /**
     * Closing the scope ends the process and everything that descends from it, politely first, and waits until all are
     * gone (at most some two seconds).
     */
    readonly spawn: (command: Command) => Effect.Effect<Running, BinaryMissing | WorkerExited, Scope.Scope>
    /** The first of these programs that there is: a path, or a name that the environment's PATH resolves. */
    readonly find: (programs: ReadonlyArray<string>, env: Environment) => Effect.Effect<Option.Option<string>>
    /**
     * Kills what another run of the bridge left of a job: its recorded process, the group and all that descends from it,
     * and whatever carries the job's mark, recorded or not. A process that merely has the same number is not touched.
     * Returns whether something was killed, once it is gone.
     */
    readonly reap: (jobId: JobId, recorded: ProcessIdentity | undefined) => Effect.Effect<boolean>
  }
>() {}
