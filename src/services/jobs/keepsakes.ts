import * as Effect from "effect/Effect"
import type { Job, JobId } from "./Job.ts"
import type { JobStore } from "./JobStore.ts"
import { render, told } from "./report.ts"
import type { Changes } from "./Workspace.ts"

/** What is kept of every job that had a worktree. */
export const patchName = "patch"
export const diffstatName = "diffstat"
export const reportName = "report"

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
/** Events that a report tells of, at most. */
const toldEvents = 1000

/** The patch last: where it is, the rest is. */
export const keepChanges = (store: JobStore["Type"], id: JobId, changes: Changes) =>
  Effect.zipRight(
    store.putArtifact(id, diffstatName, "application/json", bytes(`${JSON.stringify(changes.diffstat)}\n`)),
    store.putArtifact(id, patchName, "text/x-diff", changes.patch)
  )

/** Of a job as it will stand. */
export const keepReport = (store: JobStore["Type"], job: Job) =>
  Effect.flatMap(store.events(job.id, 0, toldEvents, told), (events) =>
    store.putArtifact(job.id, reportName, "text/markdown", bytes(render(job, events)))
  )

export const hasPatch = (store: JobStore["Type"], id: JobId) =>
  Effect.map(store.artifacts(id), (artifacts) => artifacts.some(({ name }) => name === patchName))
