import { homedir } from "node:os"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { BridgeConfig } from "../services/Config.ts"
import { Config } from "../services/Config.ts"
import type { EngineSettings } from "../services/jobs/EngineSettings.ts"
import { defaults } from "../services/jobs/EngineSettings.ts"
import * as JobTools from "../services/jobs/JobTools.ts"
import type { WorkerSpec } from "../services/jobs/workerSpecs.ts"
import { known } from "../services/jobs/workerSpecs.ts"
import * as AcpWorker from "./jobs/AcpWorker.ts"
import * as ConfiguredWorkers from "./jobs/ConfiguredWorkers.ts"
import * as CursorCliWorker from "./jobs/CursorCliWorker.ts"
import * as FilePrivateConfig from "./jobs/FilePrivateConfig.ts"
import * as FsWorktreeFolder from "./jobs/FsWorktreeFolder.ts"
import * as GitProcess from "./jobs/GitProcess.ts"
import * as GitWorkspace from "./jobs/GitWorkspace.ts"
import * as JobEngine from "./jobs/JobEngine.ts"
import * as JsonlEvents from "./jobs/JsonlEvents.ts"
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

/** Those that are known, with Cursor's program as the settings name it, then those of the settings. */
const specsOf = ({ cursorBin, jobs }: BridgeConfig): ReadonlyArray<WorkerSpec> => {
  // Cursor's program has two names: where nothing else is said, the one that is there is taken.
  if (cursorBin === "agent") return [...known, ...jobs.workers]
  const named = known.map((spec): WorkerSpec => {
    if (spec.kind === "cursor-cli") return { ...spec, command: [cursorBin] }
    return spec.command[0] === "agent" ? { ...spec, command: [cursorBin, ...spec.command.slice(1)] } : spec
  })
  return [...named, ...jobs.workers]
}

/** The job engine with all that it stands on, and the nine tools over it. */
export const layer = (options: JobsOptions) =>
  Layer.unwrapEffect(
    Effect.gen(function* () {
      const config = yield* Config
      const started = yield* config.current
      const stateDir = started.stateDir ?? options.stateDir
      const settings = Effect.map(config.current, (current) => settingsOf(current, stateDir))
      const eventDir = started.eventLogDir ?? (started.persistEvents ? join(stateDir, "events") : undefined)
      const processes = ProcessTree.layer
      const shared = { env: options.env, home: options.env["HOME"] ?? homedir() }
      const workers = ConfiguredWorkers.layerWith({
        specs: specsOf(started),
        default: started.jobs.worker,
        make: {
          acp: ({ kind: _kind, config: folder, ...spec }) =>
            AcpWorker.make({
              ...spec,
              ...shared,
              config: folder && { ...folder, from: folder.from.replace(/^~(?=\/|$)/, shared.home) }
            }),
          "cursor-cli": ({ kind: _kind, ...spec }) => CursorCliWorker.make({ ...spec, ...shared })
        }
      })
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
            workers.pipe(Layer.provide(Layer.mergeAll(processes, FilePrivateConfig.layer, SdkAcpConnections.layer))),
            processes
          )
        )
      )
      const log =
        eventDir === undefined
          ? Layer.empty
          : JsonlEvents.layer(eventDir, (trouble) =>
              trouble === undefined
                ? Effect.logInfo("job events are being copied again")
                : Effect.logError(`cannot copy job events to ${trouble.file}: ${trouble.reason}`)
            )
      return Layer.merge(JobTools.layer, log).pipe(Layer.provideMerge(engine))
    })
  )
