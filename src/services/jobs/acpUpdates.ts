import type { Usage, WorkerEvent } from "./Job.ts"

/** What an ACP agent's `session/update`s have said in a turn so far. Passes over what it does not know. */
export interface Told {
  /** Tool calls by id, ended or not: a permission request names one by its id alone. */
  readonly calls: ReadonlyMap<string, { readonly title: string; readonly kind: string; readonly ended: boolean }>
  /** The message since the last tool call; the one before, where it is still empty. */
  readonly message: string
  readonly fresh: boolean
}

export const nothing: Told = { calls: new Map(), message: "", fresh: false }

type Fields = Readonly<Record<string, unknown>>

const detailLength = 500

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)
export const fieldsOf = (value: unknown): Fields => (isFields(value) ? value : {})
export const stringOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined)
const listOf = (value: unknown): ReadonlyArray<Fields> => (Array.isArray(value) ? value.map(fieldsOf) : [])
const short = (text: string): string => (text.length > detailLength ? `${text.slice(0, detailLength)}…` : text)

/** A JSON-RPC message; nothing where the line is none. */
export const messageOf = (line: string): Fields | undefined => {
  try {
    const value: unknown = JSON.parse(line)
    return isFields(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Text of a tool call's content blocks. */
const contentText = (content: unknown): string =>
  listOf(content)
    .map((block) => stringOf(fieldsOf(block["content"])["text"]) ?? "")
    .join("")

const toolCall = (told: Told, update: Fields): readonly [Told, ReadonlyArray<WorkerEvent>] => {
  const callId = stringOf(update["toolCallId"])
  if (callId === undefined) return [told, []]
  const before = told.calls.get(callId)
  const title = stringOf(update["title"]) ?? before?.title ?? "tool"
  const kind = stringOf(update["kind"]) ?? before?.kind ?? "other"
  const status = update["status"]
  const ends = before?.ended !== true && (status === "completed" || status === "failed")
  const ended = before?.ended === true || ends
  const after: Told = { ...told, calls: new Map([...told.calls, [callId, { title, kind, ended }]]), fresh: true }
  const started: ReadonlyArray<WorkerEvent> =
    before === undefined ? [{ _tag: "ToolStarted", callId, title: short(title), kind }] : []
  if (!ends) return [after, started]
  const ok = status === "completed"
  const detail = ok ? "" : short(contentText(update["content"]))
  return [after, [...started, { _tag: "ToolEnded", callId, ok, ...(detail === "" ? {} : { detail }) }]]
}

/** Entries of a plan, `{content, status}` each; Cursor's to-dos have the same fields, or a title. */
export const planOf = (entries: unknown): ReadonlyArray<{ readonly text: string; readonly status: string }> =>
  listOf(entries).flatMap((entry) => {
    const text = stringOf(entry["content"]) ?? stringOf(entry["title"]) ?? ""
    return text === "" ? [] : [{ text, status: stringOf(entry["status"]) ?? "pending" }]
  })

/** Folds one `update` of a `session/update`. */
export const fold = (told: Told, value: unknown): readonly [Told, ReadonlyArray<WorkerEvent>] => {
  const update = fieldsOf(value)
  switch (update["sessionUpdate"]) {
    case "agent_message_chunk": {
      const text = stringOf(fieldsOf(update["content"])["text"]) ?? ""
      if (text === "") return [told, []]
      return [{ ...told, message: told.fresh ? text : told.message + text, fresh: false }, [{ _tag: "Text", text }]]
    }
    case "agent_thought_chunk": {
      const text = stringOf(fieldsOf(update["content"])["text"]) ?? ""
      return [told, text === "" ? [] : [{ _tag: "Thought", text }]]
    }
    case "tool_call":
    case "tool_call_update":
      return toolCall(told, update)
    case "plan": {
      const entries = planOf(update["entries"])
      return [told, entries.length === 0 ? [] : [{ _tag: "Plan", entries }]]
    }
    default:
      return [told, []]
  }
}

/** Tokens, as agents put them into the answer to `session/prompt`. */
export const usageOf = (value: unknown): Usage | undefined => {
  const usage = fieldsOf(value)
  const count = (name: string): number | undefined => {
    const number = usage[name]
    return typeof number === "number" && Number.isFinite(number) && number >= 0 ? number : undefined
  }
  const inputTokens = count("inputTokens")
  const outputTokens = count("outputTokens")
  if (inputTokens === undefined || outputTokens === undefined) return undefined
  const cacheReadTokens = count("cachedReadTokens")
  const cacheWriteTokens = count("cachedWriteTokens")
  return {
    inputTokens,
    outputTokens,
    ...(cacheReadTokens === undefined ? {} : { cacheReadTokens }),
    ...(cacheWriteTokens === undefined ? {} : { cacheWriteTokens })
  }
}

/** Cursor's `cursor/ask_question`, as one question for whoever asked: each with its options. */
export const askedOf = (params: unknown): string => {
  const { questions, title } = fieldsOf(params)
  const lines = listOf(questions).flatMap((question) => [
    stringOf(question["prompt"]) ?? "",
    ...listOf(question["options"]).map((option) => `- ${stringOf(option["label"]) ?? stringOf(option["id"]) ?? ""}`)
  ])
  const heading = stringOf(title)
  return [...(heading === undefined ? [] : [heading]), ...lines].filter((line) => line !== "").join("\n")
}
