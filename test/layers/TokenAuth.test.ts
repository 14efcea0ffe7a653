import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as TokenAuth from "../../src/layers/TokenAuth.ts"
import type { PrincipalId } from "../../src/services/Auth.ts"
import { Auth } from "../../src/services/Auth.ts"
import { Config, TokenPinned } from "../../src/services/Config.ts"
import * as FakeConfig from "../support/suites/fakeConfig.ts"

const token = Redacted.value(FakeConfig.defaults.token)
const other = "another-token-0123456789"
const bearer = (text: string) => `Bearer ${text}`

const setup = Effect.gen(function* () {
  const config = yield* FakeConfig.make()
  const auth = Context.get(yield* Layer.build(TokenAuth.layer.pipe(Layer.provide(config.layer))), Auth)
  const revoked = yield* Queue.unbounded<PrincipalId>()
  yield* auth.revocations.pipe(
    Stream.runForEach((id) => Queue.offer(revoked, id)),
    Effect.forkScoped
  )
  yield* TestClock.adjust("0 seconds")
  return { auth, config, revoked: Effect.map(Queue.takeAll(revoked), (all) => [...all]) }
})

describe("TokenAuth", () => {
  it.scoped("refuses the right token, or calls its owner by the token", () =>
    Effect.gen(function* () {
      const { auth } = yield* setup
      const principal = yield* auth.authenticate(bearer(token))
      assert.deepStrictEqual(yield* auth.authenticate(`bEARER   ${token} `), principal)
      assert.notInclude(JSON.stringify(principal), token.slice(0, 12))
      assert.strictEqual(yield* auth.rejected, 0)
    })
  )

  it.effect.each<readonly [header: string | undefined, reason: string]>([
    [undefined, "missing"],
    ["", "malformed"],
    [token, "malformed"],
    [`Basic ${token}`, "malformed"],
    [`Bearer ${token} ${token}`, "malformed"],
    [`Bearer ${token}, Bearer ${token}`, "malformed"],
    [bearer(other), "mismatch"],
    [bearer(token.slice(0, -1)), "mismatch"],
    [bearer(`${token}x`), "mismatch"],
    [bearer(token.toUpperCase()), "mismatch"]
  ])("lets %j in, or refuses it for another reason than %s", ([header, reason]) =>
    Effect.gen(function* () {
      const { auth } = yield* setup
      const refused = yield* Effect.flip(auth.authenticate(header))
      assert.deepStrictEqual({ ...refused }, { ...refused, _tag: "Unauthorized", reason: reason as "missing" })
      assert.notInclude(JSON.stringify(refused), token)
      assert.strictEqual(yield* auth.rejected, 1)
    }).pipe(Effect.scoped)
  )

  it.effect.prop(
    "lets some other token in, dies for some header, or counts wrong",
    [
      FastCheck.array(
        FastCheck.oneof(FastCheck.string(), FastCheck.string().map(bearer), FastCheck.constant(bearer(token))),
        { maxLength: 5 }
      )
    ],
    ([headers]) =>
      Effect.gen(function* () {
        const { auth } = yield* setup
        for (const header of headers) {
          assert.strictEqual(Either.isRight(yield* Effect.either(auth.authenticate(header))), header === bearer(token))
        }
        assert.strictEqual(yield* auth.rejected, headers.filter((header) => header !== bearer(token)).length)
      }).pipe(Effect.scoped),
    { timeout: 30_000, fastCheck: { numRuns: 40 } }
  )

  it.scoped("leaves the old token alive after a rotation, refuses the new one, or does not revoke", () =>
    Effect.gen(function* () {
      const { auth, revoked } = yield* setup
      const before = yield* auth.authenticate(bearer(token))
      const fresh = yield* auth.rotate
      assert.match(Redacted.value(fresh), /^[A-Za-z0-9_-]{43}$/)
      assert.strictEqual((yield* Effect.flip(auth.authenticate(bearer(token)))).reason, "mismatch")
      const after = yield* auth.authenticate(bearer(Redacted.value(fresh)))
      assert.notStrictEqual(after.id, before.id)
      yield* TestClock.adjust("0 seconds")
      assert.deepStrictEqual(yield* revoked, [before.id])
    })
  )

  it.scoped("gives out the same token twice", () =>
    Effect.gen(function* () {
      const { auth } = yield* setup
      const tokens = yield* Effect.replicateEffect(auth.rotate, 20)
      assert.strictEqual(new Set(tokens.map(Redacted.value)).size, 20)
    })
  )

  it.scoped("leaves the old token alive after an edit of the file", () =>
    Effect.gen(function* () {
      const { auth, config, revoked } = yield* setup
      const before = yield* auth.authenticate(bearer(token))
      yield* config.edit({ token: Redacted.make(other) })
      assert.strictEqual((yield* Effect.flip(auth.authenticate(bearer(token)))).reason, "mismatch")
      yield* auth.authenticate(bearer(other))
      yield* TestClock.adjust("0 seconds")
      assert.deepStrictEqual(yield* revoked, [before.id])
    })
  )

  it.scoped("revokes an edited token only when the next request comes", () =>
    Effect.gen(function* () {
      const { auth, config, revoked } = yield* setup
      const before = yield* auth.authenticate(bearer(token))
      yield* config.edit({ token: Redacted.make(other) })
      yield* TestClock.adjust("0 seconds")
      assert.deepStrictEqual(yield* revoked, [before.id])
    })
  )

  it.scoped("lets a request in with a token that is no longer in force, where nobody told it", () =>
    Effect.gen(function* () {
      const { auth, config, revoked } = yield* setup
      const before = yield* auth.authenticate(bearer(token))
      yield* config.assign({ token: Redacted.make(other) })
      yield* Effect.flip(auth.authenticate(bearer(token)))
      yield* TestClock.adjust("0 seconds")
      assert.deepStrictEqual(yield* revoked, [before.id])
    })
  )

  it.scoped("revokes a principal for an edit of another field, or for the same token read again", () =>
    Effect.gen(function* () {
      const { auth, config, revoked } = yield* setup
      const before = yield* auth.authenticate(bearer(token))
      yield* config.edit({ deny: ["bash"] })
      yield* config.edit({ token: Redacted.make(token) })
      yield* TestClock.adjust("0 seconds")
      assert.deepStrictEqual(yield* revoked, [])
      assert.strictEqual((yield* auth.authenticate(bearer(token))).id, before.id)
    })
  )

  it.scoped("rotates in memory what cannot be rotated", () =>
    Effect.gen(function* () {
      const pinned = new TokenPinned({ variable: "A2A_BRIDGE_TOKEN" })
      const config = Layer.mock(Config, {
        file: "",
        current: Effect.succeed(FakeConfig.defaults),
        changes: Stream.never,
        setToken: () => pinned
      })
      const auth = Context.get(yield* Layer.build(TokenAuth.layer.pipe(Layer.provide(config))), Auth)
      assert.strictEqual(yield* Effect.flip(auth.rotate), pinned)
      yield* auth.authenticate(bearer(token))
    })
  )
})
