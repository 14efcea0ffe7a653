import { assert } from "vitest"
import { until } from "./bridge.ts"

/** One server-sent event, or a comment. */
export interface SseEvent {
  readonly id?: string
  readonly retry?: number
  readonly comment?: string
  /** The JSON-RPC message, where there is one. */
  readonly message?: Record<string, unknown>
}

export interface SseStream extends AsyncDisposable {
  readonly response: Response
  /** All that has come so far. */
  readonly events: ReadonlyArray<SseEvent>
  /** Waits for the first event, of those so far and to come, for which `wanted` holds. */
  readonly find: (what: string, wanted: (event: SseEvent) => boolean, millis?: number) => Promise<SseEvent>
  readonly messages: () => ReadonlyArray<Record<string, unknown>>
  /** Waits until the server has ended it. */
  readonly ended: (millis?: number) => Promise<void>
  readonly isOpen: () => boolean
  /** Goes away without a word. */
  readonly drop: () => void
}

const parse = (block: string): SseEvent => {
  const event: { id?: string; retry?: number; comment?: string; message?: Record<string, unknown> } = {}
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":")
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "")
    if (field === "") event.comment = value
    else if (field === "id") event.id = value
    else if (field === "retry") event.retry = Number(value)
    else if (field === "data" && value !== "") event.message = JSON.parse(value) as Record<string, unknown>
  }
  return event
}

/** An answer of type text/event-stream, read as it comes. */
export const openStream = async (url: string, init: RequestInit): Promise<SseStream> => {
  const control = new AbortController()
  const response = await fetch(url, { ...init, signal: control.signal })
  assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/, `status ${response.status}`)
  assert(response.body !== null)
  const events: Array<SseEvent> = []
  let open = true
  const reading = (async () => {
    let buffer = ""
    const decoder = new TextDecoder()
    try {
      for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
        buffer += decoder.decode(chunk, { stream: true })
        for (let at = buffer.indexOf("\n\n"); at >= 0; at = buffer.indexOf("\n\n")) {
          events.push(parse(buffer.slice(0, at)))
          buffer = buffer.slice(at + 2)
        }
      }
    } catch {
      // Dropped by either side: what came before counts.
    } finally {
      open = false
    }
  })()
  return {
    response,
    events,
    find: (what, wanted, millis) => until(what, () => events.find(wanted), millis),
    messages: () => events.flatMap(({ message }) => (message === undefined ? [] : [message])),
    ended: async (millis) => void (await until("the stream has ended", () => !open, millis)),
    isOpen: () => open,
    drop: () => control.abort(),
    [Symbol.asyncDispose]: async () => {
      control.abort()
      await reading
    }
  }
}
