import * as Schema from "effect/Schema"
import type { Job, StoredEvent } from "./Job.ts"
import { Diffstat, FailureReason, State, Tier, Usage } from "./Job.ts"

/** A job as callers see it. */
export const JobView = Schema.Struct({
  jobId: Schema.String,
  threadId: Schema.String,
  state: State,
  tier: Tier,
  worker: Schema.String,
  workspace: Schema.String,
  title: Schema.String,
  createdAt: Schema.String,
  updatedAt: Schema.String,
  startedAt: Schema.optional(Schema.String),
  endedAt: Schema.optional(Schema.String),
  question: Schema.optional(Schema.String).annotations({
    description: "What the worker must know before it goes on; answer with cursor_reply"
  }),
  result: Schema.optional(Schema.String).annotations({ description: "The worker's last word" }),
  failure: Schema.optional(Schema.Struct({ reason: FailureReason, message: Schema.String })),
  diffstat: Schema.optional(Diffstat),
  usage: Schema.optional(Usage),
  lastSeq: Schema.Int.annotations({ description: "Number of the newest event: `since` of the next cursor_status" })
})
export type JobView = typeof JobView.Type

const encodeView = Schema.encodeSync(JobView)

/** What the owner may know: not the bridge's own paths, nor the worker's session. */
export const viewOf = (job: Job): JobView => encodeView({ ...job, jobId: job.id, threadId: job.thread })

/** An event as callers see it: `type` is its tag in lower case. */
export const EventView = Schema.Struct(
  { seq: Schema.Int, at: Schema.String, type: Schema.String },
  { key: Schema.String, value: Schema.Unknown }
)
export type EventView = typeof EventView.Type

const kebab = (tag: string): string => tag.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => `-${letter}`).toLowerCase()

/** Not for callers: numbers of the host's processes, the worker's session. */
const internal = new Set<StoredEvent["event"]["_tag"]>(["Process", "Session"])

/** Pieces of one text that follow on each other are one event here, under the number of the last. */
export const eventViews = (events: ReadonlyArray<StoredEvent>): ReadonlyArray<EventView> => {
  const views: Array<EventView> = []
  for (const { at, event, seq } of events) {
    if (internal.has(event._tag)) continue
    const { _tag, ...fields } = event
    const type = kebab(_tag)
    const last = views.at(-1)
    if ((_tag === "Text" || _tag === "Thought") && last?.type === type && "text" in event) {
      views[views.length - 1] = { ...last, seq, at, text: `${String(last["text"])}${event.text}` }
    } else {
      views.push({ seq, at, type, ...fields })
    }
  }
  return views
}
