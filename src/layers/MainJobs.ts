import { homedir } from "node:os"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { BridgeConfig, WorkerCommand } from "../services/Config.ts"
import { Config } from "../services/Config.ts"
import type { EngineSettings } from "../services/jobs/EngineSettings.ts"
import { defaults } from "../services/jobs/EngineSettings.ts"
import * as JobTools from "../services/jobs/JobTools.ts"
import type { Worker } from "../services/jobs/Worker.ts"
import { Workers, WorkerUnknown } from "../services/jobs/Worker.ts"
import * as AcpWorker from "./jobs/AcpWorker.ts"
import * as CursorCliWorker from "./jobs/CursorCliWorker.ts"
import * as FilePrivateConfig from "./jobs/FilePrivateConfig.ts"
import * as FsWorktreeFolder from "./jobs/FsWorktreeFolder.ts"
import * as GitProcess from "./jobs/GitProcess.ts"
import * as GitWorkspace from "./jobs/GitWorkspace.ts"
import * as JobEngine from "./jobs/JobEngine.ts"
import * as ProcessTree from "./jobs/ProcessTree.ts"
import * as SdkAcpConnections from "./jobs/SdkAcpConnections.ts"
import * as SqlJobStore from "./jobs/SqlJobStore.ts"

export interface JobsOptions {
  /** Where jobs are kept unless the settings name another folder. */
  readonly stateDir: string
  /** The bridge's own environment. */
  readonly env: Readonly<Record<string, string | undefined>>
}

const dayMillis = 24 * 60 * 60 * 1000

const settingsOf = (config: BridgeConfig, stateDir: string): EngineSettings => ({
  ...defaults,
  roots: config.workspaceRoots,
  defaultTimeoutSeconds: config.defaultTimeoutSec,
  maxConcurrent: config.maxConcurrency,
  whenBusy: config.jobs.whenBusy,
  maxQueued: config.jobs.maxQueued,
  maxResultBytes: config.jobs.maxResultBytes,
  maxEventBytes: config.jobs.maxEventBytes,
  maxEventsPerJob: config.jobs.maxEvents,
  retention: { maxAge: config.jobs.keepDays * dayMillis, maxJobs: config.jobs.keepJobs },
  stateDir
})

/** What the settings name, over what is there anyway: Cursor's command line, and omp as a worker of its own. */
const commandsOf = ({ cursorBin, jobs }: BridgeConfig): Readonly<Record<string, WorkerCommand>> => ({
  cursor: { type: "cursor", command: [cursorBin] },
  "cursor-acp": { type: "acp", command: [cursorBin, "acp"] },
  omp: { type: "acp", command: ["omp", "acp"] },
  ...jobs.workers
})

/** Workers are made once: what the settings say of them applies from the next start on. */
const workers = (env: JobsOptions["env"]) =>
  Layer.effect(
    Workers,
    Effect.gen(function* () {
      const config = yield* Config
      const home = env["HOME"] ?? homedir()
      const started = yield* config.current
      const all = new Map<string, Worker>()
      for (const [name, { command, type }] of Object.entries(commandsOf(started))) {
        // Cursor's program has two names: left open, the one that is there is taken.
        const open = type === "cursor" && command.length === 1 && command[0] === "agent"
        const options = { name, env, home }
        all.set(
          name,
          type === "cursor"
            ? yield* CursorCliWorker.make(open ? options : { ...options, command })
            : yield* AcpWorker.make({ ...options, command })
        )
      }
      return Workers.of({
        all: Effect.sync(() => [...all.values()]),
        get: (name) =>
          Effect.flatMap(config.current, ({ jobs }) => {
            const wanted = name ?? jobs.worker
            const found = all.get(wanted)
            return found === undefined
              ? new WorkerUnknown({ worker: wanted, known: [...all.keys()] })
              : Effect.succeed(found)
          })
      })
    })
  )

/** The job engine with all that it stands on, and the nine tools over it. */
export const layer = (options: JobsOptions) =>
  Layer.unwrapEffect(
    Effect.gen(function* () {
      const config = yield* Config
      const started = yield* config.current
      const stateDir = started.stateDir ?? options.stateDir
      const settings = Effect.map(config.current, (current) => settingsOf(current, stateDir))
      const processes = ProcessTree.layer
      const workspace = GitWorkspace.layer({
        roots: Effect.map(config.current, ({ workspaceRoots }) => workspaceRoots),
        copyFiles: Effect.map(config.current, ({ jobs }) => jobs.copyFiles)
      }).pipe(
        Layer.provide(
          Layer.mergeAll(
            GitProcess.layer({ env: options.env }),
            FsWorktreeFolder.layer({ worktrees: join(stateDir, "worktrees") })
          )
        )
      )
      const engine = JobEngine.layer(settings).pipe(
        Layer.provide(
          Layer.mergeAll(
            SqlJobStore.layer(join(stateDir, "jobs.sqlite")),
            workspace,
            workers(options.env).pipe(
              Layer.provide(Layer.mergeAll(processes, FilePrivateConfig.layer, SdkAcpConnections.layer))
            ),
            processes
          )
        )
      )
      return JobTools.layer.pipe(Layer.provideMerge(engine))
    })
  )
