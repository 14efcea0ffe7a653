import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"

/**
 * An unbounded line from one writer to one reader at a time. Waiting takes nothing out: a wait that loses a race, or
 * a reader that goes away, loses no signal.
 */
export class Signals<A> {
  private readonly items: Array<A> = []
  private waiter: Deferred.Deferred<void> | undefined

  readonly offer = (item: A): void => {
    this.items.push(item)
    const waiter = this.waiter
    this.waiter = undefined
    if (waiter !== undefined) Deferred.unsafeDone(waiter, Effect.void)
  }

  readonly peek = (): A | undefined => this.items[0]

  readonly poll = (): A | undefined => this.items.shift()

  /** Ends as soon as there is something to poll. */
  readonly ready: Effect.Effect<void> = Effect.suspend(() => {
    if (this.items.length > 0) return Effect.void
    return Effect.flatMap(
      this.waiter === undefined
        ? Effect.map(Deferred.make<void>(), (made) => (this.waiter ??= made))
        : Effect.succeed(this.waiter),
      Deferred.await
    )
  })

  readonly take: Effect.Effect<A> = Effect.suspend(() =>
    Effect.flatMap(this.ready, () => {
      const item = this.items.shift()
      return item === undefined ? this.take : Effect.succeed(item)
    })
  )
}
