import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as TestClock from "effect/TestClock"
import { PrincipalId } from "../../../src/services/Auth.ts"
import * as RequestState from "../../../src/services/mcp/requestState.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

const alice = PrincipalId.make("alice")
const bob = PrincipalId.make("bob")
const call = "5ff10d9e-6e2c-4f0a-9d0e-0a64a31f6f77"
const binding = '["tools/call",{"name":"x"}]'

const states = RequestState.RequestState
const signed = Effect.flatMap(states, ({ sign }) => sign(call, alice, binding))
const rejected = (state: unknown, owner = alice, bound = binding) =>
  Effect.flatMap(states, ({ verify }) => Effect.flip(verify(state, owner, bound))).pipe(
    Effect.map(({ _tag }) => assert.strictEqual(_tag, "StateRejected"))
  )

describe("mcp/requestState", () => {
  it.effect("does not find its own call again", () =>
    Effect.gen(function* () {
      const { sign, verify } = yield* states
      yield* forAll(FastCheck.tuple(FastCheck.uuid(), FastCheck.string()), ([id, bound]) =>
        Effect.gen(function* () {
          assert.strictEqual(yield* verify(yield* sign(id, alice, bound), alice, bound), id)
        })
      )
    }).pipe(Effect.provide(RequestState.layer))
  )

  it.effect("is taken with any one of its characters changed, left out or put in", () =>
    Effect.gen(function* () {
      const state = yield* signed
      const Character = FastCheck.oneof(
        FastCheck.constantFrom(..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \n"),
        FastCheck.string({ minLength: 1, maxLength: 1 })
      )
      yield* forAll(
        FastCheck.tuple(FastCheck.nat(state.length), Character, FastCheck.constantFrom(0, 1)),
        ([at, character, removed]) => {
          const tampered = state.slice(0, at) + character + state.slice(at + removed)
          return tampered === state ? Effect.void : rejected(tampered)
        },
        1000
      )
      for (let at = 0; at < state.length; at++) yield* rejected(state.slice(0, at) + state.slice(at + 1))
      // Every character that the last one, which has two bits to spare, could be.
      for (const last of "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=") {
        if (!state.endsWith(last)) yield* rejected(state.slice(0, -1) + last)
      }
    }).pipe(Effect.provide(RequestState.layer))
  )

  it.effect("is taken from another principal, or for another request", () =>
    Effect.gen(function* () {
      const state = yield* signed
      yield* rejected(state, bob)
      yield* rejected(state, alice, '["prompts/get",{"name":"x"}]')
      yield* rejected(state, alice, "")
      const { verify } = yield* states
      assert.strictEqual(yield* verify(state, alice, binding), call)
    }).pipe(Effect.provide(RequestState.layer))
  )

  it.effect("has two readings: what is in one part could stand in the next", () =>
    Effect.gen(function* () {
      const { sign } = yield* states
      const state = yield* sign("a", PrincipalId.make("b"), "c")
      const [id, expires, mac] = state.split(".")
      yield* rejected(state, PrincipalId.make("bc"), "")
      yield* rejected(["", `${id}${expires}`, mac].join("."), PrincipalId.make("b"), "c")
    }).pipe(Effect.provide(RequestState.layer))
  )

  it.effect("is taken after 10 minutes, or refused before, or can have its time prolonged", () =>
    Effect.gen(function* () {
      const state = yield* signed
      const { verify } = yield* states
      yield* TestClock.adjust("599 seconds")
      assert.strictEqual(yield* verify(state, alice, binding), call)
      yield* TestClock.adjust("1001 millis")
      yield* rejected(state)
      const [id, expires, mac] = state.split(".")
      yield* rejected([id, String(Number(expires) + 60_000), mac].join("."))
    }).pipe(Effect.provide(RequestState.layer))
  )

  it.effect("is taken by another process, which has another key", () =>
    Effect.gen(function* () {
      const state = yield* Effect.provide(signed, RequestState.layer)
      yield* Effect.provide(rejected(state), RequestState.layer)
    })
  )

  it.effect("dies for what is no state at all", () =>
    forAll(FastCheck.anything(), (value) => rejected(value), 200).pipe(Effect.provide(RequestState.layer))
  )
})
