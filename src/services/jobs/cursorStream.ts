import type { WorkerEvent } from "./Job.ts"

/**
 * What Cursor's `--output-format stream-json` has said so far. Takes what it knows and passes over what it does not: the
 * stream drifts from version to version.
 */
export interface Heard {
  readonly session: string | undefined
  /** Lines that were understood. */
  readonly understood: number
  /** Lines that were no event at all, and the beginning of them: what the program prints before it speaks the protocol. */
  readonly malformed: number
  readonly noise: string
  /** Text since the last whole message, which repeats it. */
  readonly segment: string
  /** All text, as long as it is not too much to compare with. */
  readonly spoken: string
  /** Tool calls that have not ended, with their titles. */
  readonly open: ReadonlyMap<string, string>
  /** The last message, where nothing came after it: what the turn ends with, though no `result` says so. */
  readonly last: string | undefined
  readonly result: { readonly isError: boolean; readonly text: string } | undefined
}

export const silence: Heard = {
  session: undefined,
  understood: 0,
  malformed: 0,
  noise: "",
  segment: "",
  spoken: "",
  open: new Map(),
  last: undefined,
  result: undefined
}

const noiseLength = 4096
const detailLength = 500
const spokenLength = 1 << 20

type Fields = Readonly<Record<string, unknown>>

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)
const fieldsOf = (value: unknown): Fields => (isFields(value) ? value : {})
const stringOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined)
const short = (text: string): string => (text.length > detailLength ? `${text.slice(0, detailLength)}…` : text)

const parse = (line: string): Fields | undefined => {
  try {
    const value: unknown = JSON.parse(line)
    return isFields(value) && typeof value["type"] === "string" ? value : undefined
  } catch {
    return undefined
  }
}

const textOf = (message: unknown): string => {
  const content = fieldsOf(message)["content"]
  if (typeof content === "string") return content
  if (!Array.isArray(content)) return ""
  return content.map((part) => stringOf(fieldsOf(part)["text"]) ?? "").join("")
}

/** What of a whole message was not said in deltas before. */
const unsaid = (whole: string, { segment, spoken }: Heard): string => {
  if (whole === spoken) return ""
  if (segment === "") return whole
  if (spoken.length <= spokenLength && whole.startsWith(spoken)) return whole.slice(spoken.length)
  if (whole.startsWith(segment)) return whole.slice(segment.length)
  return segment.endsWith(whole) ? "" : whole
}

const say = (heard: Heard, text: string): Heard => ({
  ...heard,
  spoken: heard.spoken.length > spokenLength ? heard.spoken : heard.spoken + text
})

const assistant = (heard: Heard, line: Fields): readonly [Heard, ReadonlyArray<WorkerEvent>] => {
  const text = textOf(line["message"])
  if (text === "") return [heard, []]
  const ofCall = typeof line["model_call_id"] === "string"
  const isDelta = !ofCall && line["timestamp_ms"] !== undefined
  if (isDelta) {
    return [{ ...say(heard, text), segment: heard.segment + text, last: undefined }, [{ _tag: "Text", text }]]
  }
  const rest = unsaid(text, heard)
  const after = { ...say(heard, rest), segment: "", last: ofCall ? undefined : text }
  return [after, rest === "" ? [] : [{ _tag: "Text", text: rest }]]
}

/** `{readToolCall: {args, result}, toolCallId, ...}`: the one member that is named for a tool. */
const toolOf = (value: unknown): { readonly kind: string; readonly args: Fields; readonly result: Fields } => {
  for (const [name, call] of Object.entries(fieldsOf(value))) {
    if (name.endsWith("ToolCall") && isFields(call)) {
      return { kind: name.slice(0, -"ToolCall".length), args: fieldsOf(call["args"]), result: fieldsOf(call["result"]) }
    }
  }
  return { kind: "tool", args: {}, result: {} }
}

const titleOf = (kind: string, args: Fields): string => {
  for (const name of ["command", "path", "pattern", "globPattern", "query", "url", "name"]) {
    const value = stringOf(args[name])
    if (value !== undefined && value !== "") return short(`${kind} ${value}`)
  }
  return kind
}

const toolCall = (heard: Heard, line: Fields): readonly [Heard, ReadonlyArray<WorkerEvent>] => {
  const callId = stringOf(line["call_id"])
  if (callId === undefined) return [heard, []]
  const { args, kind, result } = toolOf(line["tool_call"])
  const title = heard.open.get(callId) ?? titleOf(kind, args)
  const opened: ReadonlyArray<WorkerEvent> = heard.open.has(callId)
    ? []
    : [{ _tag: "ToolStarted", callId, title, kind }]
  const moved: Heard = { ...heard, segment: "", last: undefined }
  if (line["subtype"] === "started") return [{ ...moved, open: new Map([...heard.open, [callId, title]]) }, opened]
  if (line["subtype"] !== "completed") return [heard, []]
  const open = new Map(heard.open)
  open.delete(callId)
  const [outcome, value] = Object.entries(result)[0] ?? ["success", {}]
  const fields = fieldsOf(value)
  const exitCode = fields["exitCode"]
  const ok = outcome === "success" && (typeof exitCode !== "number" || exitCode === 0)
  const why = ["reason", "message", "errorMessage", "error", "stderr", "interleavedOutput"]
    .map((name) => stringOf(fields[name]))
    .find((text) => text !== undefined && text !== "")
  const detail = ok ? undefined : short([outcome, ...(why === undefined ? [] : [why])].join(": "))
  const denied: ReadonlyArray<WorkerEvent> =
    outcome === "rejected" ? [{ _tag: "Denied", what: title, reason: why ?? outcome }] : []
  return [
    { ...moved, open },
    [...opened, { _tag: "ToolEnded", callId, ok, ...(detail === undefined ? {} : { detail }) }, ...denied]
  ]
}

const usageOf = (value: unknown): ReadonlyArray<WorkerEvent> => {
  const fields = fieldsOf(value)
  const count = (name: string): number | undefined => {
    const number = fields[name]
    return typeof number === "number" && Number.isFinite(number) && number >= 0 ? number : undefined
  }
  const inputTokens = count("inputTokens")
  const outputTokens = count("outputTokens")
  if (inputTokens === undefined || outputTokens === undefined) return []
  const cacheReadTokens = count("cacheReadTokens")
  const cacheWriteTokens = count("cacheWriteTokens")
  return [
    {
      _tag: "Usage",
      inputTokens,
      outputTokens,
      ...(cacheReadTokens === undefined ? {} : { cacheReadTokens }),
      ...(cacheWriteTokens === undefined ? {} : { cacheWriteTokens })
    }
  ]
}

const result = (heard: Heard, line: Fields): readonly [Heard, ReadonlyArray<WorkerEvent>] => {
  const isError = line["is_error"] === true
  const text = stringOf(line["result"]) ?? (isError ? (stringOf(line["error"]) ?? "") : (heard.last ?? heard.spoken))
  return [{ ...heard, result: { isError, text } }, usageOf(line["usage"])]
}

/** Hears one line. What comes after the `result` belongs to no turn. */
export const hear = (heard: Heard, line: string): readonly [Heard, ReadonlyArray<WorkerEvent>] => {
  if (line.trim() === "" || heard.result !== undefined) return [heard, []]
  const fields = parse(line)
  if (fields === undefined) {
    return [{ ...heard, malformed: heard.malformed + 1, noise: `${heard.noise}${line}\n`.slice(0, noiseLength) }, []]
  }
  const session = stringOf(fields["session_id"]) ?? heard.session
  const known: Heard = { ...heard, session, understood: heard.understood + 1 }
  const first: ReadonlyArray<WorkerEvent> =
    session === undefined || session === heard.session ? [] : [{ _tag: "Session", sessionId: session }]
  const [after, events] = ((): readonly [Heard, ReadonlyArray<WorkerEvent>] => {
    switch (fields["type"]) {
      case "thinking": {
        const text = stringOf(fields["text"]) ?? ""
        return text === "" ? [known, []] : [{ ...known, last: undefined }, [{ _tag: "Thought", text }]]
      }
      case "assistant":
        return assistant(known, fields)
      case "tool_call":
        return toolCall(known, fields)
      case "result":
        return result(known, fields)
      default:
        return [known, []]
    }
  })()
  return [after, [...first, ...events]]
}

/** One warning for all the lines that were none. */
export const warningsOf = ({ malformed }: Heard, dropped: number): ReadonlyArray<WorkerEvent> =>
  malformed + dropped === 0
    ? []
    : [{ _tag: "Warning", text: `${malformed + dropped} lines of the worker's output were not understood` }]
