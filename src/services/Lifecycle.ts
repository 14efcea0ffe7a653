import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

/** The bridge's own end, as far as its services may cause it. */
export class Lifecycle extends Context.Tag("pi-a2a-ext/services/Lifecycle")<
  Lifecycle,
  {
    /** Ends the bridge once what is being answered is out. Returns at once. */
    readonly stop: (reason: string) => Effect.Effect<void>
  }
>() {}
