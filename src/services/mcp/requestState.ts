import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { PrincipalId } from "../Auth.ts"
import { StateRejected } from "./failures.ts"
import { parkedFor } from "./Invocations.ts"

/**
 * `requestState` of 2026-07-28 (multi round-trip requests): names a parked call, signed, bound to the principal and to
 * the request that it was given out for, with an end. The client can read it and do nothing else with it.
 */
export class RequestState extends Context.Tag("pi-a2a-ext/services/mcp/RequestState")<
  RequestState,
  {
    readonly sign: (call: string, owner: PrincipalId, binding: string) => Effect.Effect<string>
    /** Ends in the id of the call. */
    readonly verify: (state: unknown, owner: PrincipalId, binding: string) => Effect.Effect<string, StateRejected>
  }
>() {}

const encoder = new TextEncoder()
const toText = (bytes: ArrayBuffer): string =>
  btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
const toBytes = (text: string): Uint8Array<ArrayBuffer> => {
  try {
    return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0))
  } catch {
    return new Uint8Array()
  }
}

/** One key a process: nothing that it signs outlives the process, since the calls do not. */
const make = Effect.gen(function* () {
  const key = yield* Effect.promise(() =>
    crypto.subtle.importKey(
      "raw",
      crypto.getRandomValues(new Uint8Array(32)),
      { name: "HMAC", hash: "SHA-256" },
      false,
      ["sign", "verify"]
    )
  )
  const signed = (call: string, expires: string, owner: PrincipalId, binding: string) =>
    encoder.encode(JSON.stringify([call, expires, owner, binding]))

  return RequestState.of({
    sign: Effect.fnUntraced(function* (call, owner, binding) {
      const expires = String((yield* Clock.currentTimeMillis) + Duration.toMillis(parkedFor))
      const mac = yield* Effect.promise(() => crypto.subtle.sign("HMAC", key, signed(call, expires, owner, binding)))
      return [call, expires, toText(mac)].join(".")
    }),
    verify: Effect.fnUntraced(function* (state, owner, binding) {
      const rejected = (reason: string) => new StateRejected({ reason })
      const [call, expires, mac, ...rest] = typeof state === "string" ? state.split(".") : []
      if (call === undefined || expires === undefined || mac === undefined || rest.length > 0) {
        return yield* rejected("it is not one of this server")
      }
      const bytes = toBytes(mac)
      const genuine = yield* Effect.promise(() =>
        crypto.subtle.verify("HMAC", key, bytes, signed(call, expires, owner, binding))
      )
      // One signature has one writing: base64 would leave two bits open, and skip white space.
      if (!genuine || toText(bytes.buffer) !== mac)
        return yield* rejected("it was changed, or belongs to another request or client")
      if ((yield* Clock.currentTimeMillis) > Number(expires)) return yield* rejected("its time is over")
      return call
    })
  })
})

export const layer = Layer.effect(RequestState, make)
