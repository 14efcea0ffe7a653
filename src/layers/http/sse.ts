import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Chunk from "effect/Chunk"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"

const encoder = new TextEncoder()

/** One server-sent event (HTML standard, §9.2). `data` is one line of JSON, or nothing in an event that only has an id. */
export interface ServerSentEvent {
  readonly id?: string
  readonly retry?: number
  readonly data: string
}

export const encodeEvent = (event: ServerSentEvent): string =>
  (event.id === undefined ? "" : `id: ${event.id}\n`) +
  (event.retry === undefined ? "" : `retry: ${event.retry}\n`) +
  (event.data === "" ? "data:\n\n" : `event: message\ndata: ${event.data}\n\n`)

/** A comment, which clients skip and proxies count as life. */
const comment = ": keep-alive\n\n"

/** Shorter than any idle timeout between client and server that was met. */
const keepAlive = "15 seconds"

const headers = {
  "cache-control": "no-store, no-transform",
  "x-accel-buffering": "no",
  "x-content-type-options": "nosniff"
}

/**
 * Events as they come, with a comment whenever nothing else was to say for a while. The first comment goes out at
 * once: without a byte of body, the response's head would wait as well.
 */
export const response = (events: Stream.Stream<ServerSentEvent>): HttpServerResponse.HttpServerResponse => {
  const text = Stream.merge(
    Stream.map(events, encodeEvent),
    Stream.as(Stream.fromSchedule(Schedule.spaced(keepAlive)), comment),
    {
      haltStrategy: "left"
    }
  )
  return HttpServerResponse.stream(
    Stream.map(Stream.prepend(text, Chunk.of(": ok\n\n")), (chunk) => encoder.encode(chunk)),
    { contentType: "text/event-stream", headers }
  )
}
