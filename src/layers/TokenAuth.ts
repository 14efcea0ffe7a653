import { createHash, randomBytes, timingSafeEqual } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import type { Principal } from "../services/Auth.ts"
import { Auth, parseBearer, PrincipalId, Unauthorized } from "../services/Auth.ts"
import { Config } from "../services/Config.ts"

const digest = (token: string): Buffer => createHash("sha256").update(token, "utf8").digest()

/** 32 random bytes as base64url: 43 characters. */
export const generateToken: Effect.Effect<Redacted.Redacted> = Effect.sync(() =>
  Redacted.make(randomBytes(32).toString("base64url"))
)

interface Credential {
  readonly token: Redacted.Redacted
  readonly digest: Buffer
  readonly principal: Principal
}

const credentialOf = (token: Redacted.Redacted): Credential => {
  const hash = digest(Redacted.value(token))
  return {
    token,
    digest: hash,
    principal: { id: PrincipalId.make(`owner-${hash.toString("hex").slice(0, 12)}`), name: "owner" }
  }
}

const make = Effect.gen(function* () {
  const config = yield* Config
  const revoked = yield* PubSub.unbounded<PrincipalId>()
  let credential = credentialOf((yield* config.current).token)
  let rejected = 0

  /** The credential for the settings in force now. Whichever request or event sees a new token first retires the old. */
  const sync = Effect.map(config.current, ({ token }) => {
    if (token === credential.token) return credential
    const next = credentialOf(token)
    if (next.principal.id !== credential.principal.id) revoked.unsafeOffer(credential.principal.id)
    credential = next
    return credential
  })
  yield* config.changes.pipe(
    Stream.runForEach(() => sync),
    Effect.forkScoped
  )

  const refuse = (reason: Unauthorized["reason"]) =>
    Effect.suspend(() => {
      rejected++
      return new Unauthorized({ reason })
    })

  return Auth.of({
    authenticate: Effect.fnUntraced(function* (header) {
      if (header === undefined) return yield* refuse("missing")
      const presented = parseBearer(header)
      if (presented === undefined) return yield* refuse("malformed")
      const current = yield* sync
      // Digests have one length, so that neither content nor length of the token shows in the time taken.
      return timingSafeEqual(digest(presented), current.digest) ? current.principal : yield* refuse("mismatch")
    }),
    rotate: Effect.gen(function* () {
      const token = yield* generateToken
      yield* config.setToken(token)
      yield* sync
      return token
    }),
    revocations: Stream.fromPubSub(revoked),
    rejected: Effect.sync(() => rejected)
  })
})

export const layer = Layer.scoped(Auth, make)
