import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/TestClock"
import { PrincipalId } from "../../../src/services/Auth.ts"
import * as RequestState from "../../../src/services/mcp/requestState.ts"
import { forAll } from "../../support/suites/arbitraries.ts"

const alice = PrincipalId.make("alice")
const bob = PrincipalId.make("bob")

const rejected = (effect: Effect.Effect<string, { readonly _tag: string }>) =>
  Effect.map(Effect.flip(effect), ({ _tag }) => assert.strictEqual(_tag, "StateRejected"))

const withStates = <A, E>(use: (states: RequestState.RequestState["Type"]) => Effect.Effect<A, E>) =>
  Effect.provide(Effect.flatMap(RequestState.RequestState, use), Layer.fresh(RequestState.layer))

describe("requestState", () => {
  it.effect("loses what it signed", () =>
    withStates((states) =>
      Effect.gen(function* () {
        const state = yield* states.sign("id-1", alice, "a request")
        assert.strictEqual(yield* states.verify(state, alice, "a request"), "id-1")
        yield* TestClock.adjust("9 minutes")
        assert.strictEqual(yield* states.verify(state, alice, "a request"), "id-1")
      })
    )
  )

  it.effect("takes a state that was changed in any place", () =>
    withStates((states) =>
      Effect.gen(function* () {
        const state = yield* states.sign("id-1", alice, "a request")
        yield* forAll(
          FastCheck.tuple(FastCheck.nat(state.length - 1), FastCheck.constantFrom(..."ABab01-_.=x ")),
          ([at, char]) => {
            const changed = state.slice(0, at) + char + state.slice(at + 1)
            return changed === state ? Effect.void : rejected(states.verify(changed, alice, "a request"))
          },
          300
        )
        for (const last of "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
          const changed = state.slice(0, -1) + last
          if (changed !== state) yield* rejected(states.verify(changed, alice, "a request"))
        }
        for (const other of [undefined, null, 5, "", {}, state.slice(1), `${state}A`, state.slice(0, -1)]) {
          yield* rejected(states.verify(other, alice, "a request"))
        }
      })
    )
  )

  it.effect("takes another principal's, or that of another request, or one of more than ten minutes ago", () =>
    withStates((states) =>
      Effect.gen(function* () {
        const state = yield* states.sign("id-1", alice, "a request")
        yield* rejected(states.verify(state, bob, "a request"))
        yield* rejected(states.verify(state, alice, "another request"))
        yield* TestClock.adjust("11 minutes")
        yield* rejected(states.verify(state, alice, "a request"))
      })
    )
  )

  it.effect("takes a state of another process, with another key", () =>
    Effect.gen(function* () {
      const state = yield* withStates((states) => states.sign("id-1", alice, "a request"))
      yield* withStates((states) => rejected(states.verify(state, alice, "a request")))
    })
  )
})
