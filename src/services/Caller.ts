import type { Principal } from "./Auth.ts"

/** Whose request it is. */
export interface Caller {
  readonly principal: Principal
  /** Session id, or `-`. */
  readonly sid: string
  /** The client's name as it gave it, for people to read. */
  readonly client: string
}
