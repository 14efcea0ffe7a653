import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

/**
 * A clock that only a test moves, for thousands of steps: a step of TestClock waits for several real milliseconds.
 * Fibers go on in microtasks, so that after a macrotask each of them waits for something.
 */
export const make = () => {
  let now = 0
  const sleepers = new Set<{ readonly at: number; readonly wake: () => void }>()
  const clock: Clock.Clock = {
    [Clock.ClockTypeId]: Clock.ClockTypeId,
    unsafeCurrentTimeMillis: () => now,
    unsafeCurrentTimeNanos: () => BigInt(now) * 1_000_000n,
    currentTimeMillis: Effect.sync(() => now),
    currentTimeNanos: Effect.sync(() => BigInt(now) * 1_000_000n),
    sleep: (duration) =>
      Effect.async<void>((resume) => {
        const sleeper = { at: now + Duration.toMillis(duration), wake: () => resume(Effect.void) }
        sleepers.add(sleeper)
        return Effect.sync(() => sleepers.delete(sleeper))
      })
  }
  const settle = Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
  const next = (until: number) =>
    [...sleepers].filter(({ at }) => at <= until).toSorted((one, other) => one.at - other.at)[0]
  const adjust = Effect.fnUntraced(function* (duration: Duration.DurationInput) {
    const until = now + Duration.toMillis(duration)
    yield* settle
    for (let sleeper = next(until); sleeper !== undefined; sleeper = next(until)) {
      now = Math.max(now, sleeper.at)
      sleepers.delete(sleeper)
      sleeper.wake()
      yield* settle
    }
    now = until
  })
  return { clock, settle, adjust }
}
export type HandClock = ReturnType<typeof make>
