import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/TestClock"
import * as MemorySessionStore from "../../src/layers/MemorySessionStore.ts"
import { PrincipalId } from "../../src/services/Auth.ts"
import { SessionStore } from "../../src/services/SessionStore.ts"
import { suite } from "../support/suites/sessionStore.ts"

suite("MemorySessionStore", MemorySessionStore.layerWith)

it.effect("MemorySessionStore.layer has other limits than 64 sessions and 24 hours", () =>
  Effect.gen(function* () {
    const store = yield* SessionStore
    const opening = { owner: PrincipalId.make("alice"), protocolVersion: "2025-11-25", client: "test" }
    const first = yield* store.open(opening)
    yield* TestClock.adjust("24 hours")
    yield* store.touch(first.id, opening.owner)
    for (let count = 1; count < 64; count++) yield* store.open(opening)
    yield* store.touch(first.id, opening.owner)
    assert.strictEqual(yield* store.size, 64)
    yield* TestClock.adjust("1 second")
    yield* store.touch(first.id, opening.owner)
    yield* store.open(opening)
    assert.strictEqual(yield* store.size, 64)
    yield* store.touch(first.id, opening.owner)
    yield* TestClock.adjust("24 hours")
    yield* TestClock.adjust("1 millis")
    assert.strictEqual(yield* store.size, 0)
  }).pipe(Effect.provide(MemorySessionStore.layer))
)
