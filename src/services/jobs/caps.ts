import type { WorkerEvent } from "./Job.ts"
import type { EngineSettings } from "./EngineSettings.ts"

const encoder = new TextEncoder()

/** Length in UTF-8. */
export const byteLength = (text: string): number => encoder.encode(text).byteLength

/** The longest start of the text that fits, no character broken. */
export const cut = (text: string, maxBytes: number): string => {
  // A UTF-16 unit has three bytes at most.
  if (text.length * 3 <= maxBytes) return text
  const room = encoder.encodeInto(text, new Uint8Array(Math.max(0, maxBytes)))
  if (room.read === text.length) return text
  return text.slice(0, room.read)
}

type Delta = Extract<WorkerEvent, { readonly _tag: "Text" | "Thought" }>

/** Pieces of a text that is still growing: they can wait for each other. */
export const isDelta = (event: WorkerEvent): event is Delta => event._tag === "Text" || event._tag === "Thought"

/** Adds an event to those that wait. A piece joins the piece of the same text before it, while both together fit. */
export const push = (waiting: Array<WorkerEvent>, event: WorkerEvent, maxEventBytes: number): void => {
  const last = waiting.at(-1)
  if (isDelta(event) && last?._tag === event._tag && (last.text.length + event.text.length) * 3 <= maxEventBytes) {
    waiting[waiting.length - 1] = { ...last, text: last.text + event.text }
  } else {
    waiting.push(event)
  }
}

/** The event with all its texts together within the limit. Ids stay whole: a part of one names something else. */
const fitOne = (event: WorkerEvent, maxBytes: number): { readonly event: WorkerEvent; readonly lost: number } => {
  let room = maxBytes
  let lost = 0
  const take = (text: string): string => {
    const kept = cut(text, room)
    const bytes = byteLength(kept)
    room -= bytes
    if (kept.length < text.length) lost += byteLength(text) - bytes
    return kept
  }
  const fitted = ((): WorkerEvent => {
    switch (event._tag) {
      case "Session":
      case "Process":
      case "Usage":
        return event
      case "Text":
      case "Thought":
      case "Warning":
        return { ...event, text: take(event.text) }
      case "ToolStarted":
        return {
          ...event,
          callId: take(event.callId),
          title: take(event.title),
          ...(event.kind === undefined ? {} : { kind: take(event.kind) })
        }
      case "ToolEnded":
        return {
          ...event,
          callId: take(event.callId),
          ...(event.detail === undefined ? {} : { detail: take(event.detail) })
        }
      case "Denied":
        return { ...event, what: take(event.what), reason: take(event.reason) }
      case "Plan": {
        const entries = event.entries.map(({ status, text }) => {
          // Each costs something, however short.
          room = Math.max(0, room - 16)
          return { text: take(text), status: take(status) }
        })
        return { ...event, entries: entries.filter(({ status, text }) => status !== "" || text !== "") }
      }
    }
  })()
  return { event: fitted, lost }
}

/** What a restart, a reply or the operator needs to know, however much else was said. */
const essential: ReadonlySet<WorkerEvent["_tag"]> = new Set(["Session", "Process", "Usage", "Denied"])

/**
 * What is stored of a worker's events: each within the size limit, and no more than the job may have; beyond that only
 * what is essential, up to as many again. `used` events are stored already. A Warning says what was cut, and once
 * (`full` was not said before) that no more is stored.
 */
export const fit = (
  events: ReadonlyArray<WorkerEvent>,
  used: number,
  limits: Pick<EngineSettings, "maxEventBytes" | "maxEventsPerJob">,
  full: boolean
): { readonly events: ReadonlyArray<WorkerEvent>; readonly full: boolean } => {
  const kept: Array<WorkerEvent> = []
  let isFull = full
  for (const event of events) {
    const count = used + kept.length
    if (count >= limits.maxEventsPerJob && !(essential.has(event._tag) && count < 2 * limits.maxEventsPerJob)) {
      if (!isFull)
        kept.push({
          _tag: "Warning",
          text: `the job has said ${limits.maxEventsPerJob} things: what comes now is not recorded, but for its end`
        })
      isFull = true
      continue
    }
    const fitted = fitOne(event, limits.maxEventBytes)
    kept.push(fitted.event)
    if (fitted.lost > 0)
      kept.push({ _tag: "Warning", text: `${fitted.lost} bytes of an event of kind ${event._tag} were cut` })
  }
  return { events: kept, full: isFull }
}

/** The worker's last word within the limit, with a warning where it was cut. */
export const fitResult = (
  text: string,
  maxBytes: number
): { readonly text: string; readonly warning: string | undefined } => {
  const kept = cut(text, maxBytes)
  return {
    text: kept,
    warning:
      kept.length === text.length
        ? undefined
        : `the result was cut from ${byteLength(text)} to ${byteLength(kept)} bytes`
  }
}

/** The first line, for lists. */
export const titleOf = (prompt: string): string => {
  const line =
    prompt
      .split(/\r?\n/u, 50)
      .find((text) => text.trim() !== "")
      ?.trim() ?? ""
  const short = cut(line, 120)
  return short.length === line.length ? line : `${short}...`
}
