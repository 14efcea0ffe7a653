import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { OutMessage, StreamEvent } from "./reply.ts"

/** Events that a stream keeps for those who come back; older ones are gone. */
const maxEvents = 1024

/**
 * The events of one stream of a legacy session, numbered, so that a client that lost its connection can take it up
 * again where it was (MCP 2025-11-25, resumability). One reader at a time: a new one takes the place of the old.
 */
export class StreamLog {
  readonly id: string
  private readonly events: Array<{ readonly at: number; readonly message: OutMessage }> = []
  private last = 0
  /** Readers so far. */
  private readers = 0
  /** The reader whose turn it is, until it goes away. */
  private reader: number | undefined
  private changed: Deferred.Deferred<void> | undefined
  private turnsFirstAway = false
  /** No event will follow. */
  ended = false
  /** The last reader was sent away by the server, and told to come back. */
  detached = false

  constructor(id: string) {
    this.id = id
  }

  /** Number of the latest event. */
  get position(): number {
    return this.last
  }

  eventId(at: number): string {
    return `${this.id}_${at}`
  }

  append(message: OutMessage): void {
    this.events.push({ at: ++this.last, message })
    if (this.events.length > maxEvents) this.events.shift()
    this.wake()
  }

  /** No reader gets what it has not got by now. */
  forget(): void {
    this.events.length = 0
  }

  end(): void {
    this.ended = true
    this.wake()
  }

  /** Ends the reader's stream, not the log. Where nobody has come yet, that of the first who does. */
  detach(): void {
    this.reader = undefined
    this.turnsFirstAway = this.readers === 0
    this.detached = true
    this.wake()
  }

  /** Events after number `from`, until the log ends, the server detaches its reader, or another takes its place. */
  read(from: number): Stream.Stream<StreamEvent> {
    return Stream.suspend(() => {
      const mine = ++this.readers
      if (this.turnsFirstAway && mine === 1 && !this.ended) return Stream.empty
      this.reader = mine
      this.detached = false
      this.wake()
      let at = from
      const next: Effect.Effect<StreamEvent, Option.Option<never>> = Effect.suspend(() => {
        if (mine !== this.reader) return Effect.fail(Option.none())
        const event = this.events.find((candidate) => candidate.at > at)
        if (event !== undefined) {
          at = event.at
          return Effect.succeed({ id: this.eventId(at), message: event.message })
        }
        return this.ended ? Effect.fail(Option.none()) : Effect.zipRight(this.waited, next)
      })
      return Stream.ensuring(
        Stream.repeatEffectOption(next),
        Effect.sync(() => {
          if (this.reader === mine) this.reader = undefined
        })
      )
    })
  }

  /** Whether somebody reads now. */
  get isRead(): boolean {
    return this.reader !== undefined
  }

  /** Grows with each reader that comes. */
  get readersSoFar(): number {
    return this.readers
  }

  private readonly waited: Effect.Effect<void> = Effect.suspend(() =>
    Effect.flatMap(
      this.changed === undefined
        ? Effect.map(Deferred.make<void>(), (made) => (this.changed ??= made))
        : Effect.succeed(this.changed),
      Deferred.await
    )
  )

  private wake(): void {
    const changed = this.changed
    this.changed = undefined
    if (changed !== undefined) Deferred.unsafeDone(changed, Effect.void)
  }
}

/** `<stream>_<number>`, or `undefined`. */
export const parseEventId = (text: string): { readonly stream: string; readonly at: number } | undefined => {
  const match = /^([0-9a-f-]{36})_(\d{1,12})$/.exec(text)
  return match?.[1] === undefined ? undefined : { stream: match[1], at: Number(match[2]) }
}
