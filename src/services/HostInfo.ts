import * as Context from "effect/Context"

/** Who this host is, to those that call it. */
export class HostInfo extends Context.Tag("pi-a2a-ext/services/HostInfo")<
  HostInfo,
  {
    readonly name: string
    readonly title: string
    readonly version: string
    /** Tells this very process from every other bridge, so that a host that connects to itself notices. */
    readonly instance: string
    /** For the client's model: what the host is, where it works, what its policy is. */
    readonly instructions: string
  }
>() {}
