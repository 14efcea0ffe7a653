import * as Context from "effect/Context"

/** Where the bridge listens. Exists only while it does. */
export class Listening extends Context.Tag("pi-a2a-ext/services/Listening")<
  Listening,
  {
    /** `http://<address>:<port>`, without a path. */
    readonly url: string
    readonly port: number
    /** The configured port, where it was taken and a free one is used instead. */
    readonly taken: number | undefined
  }
>() {}
