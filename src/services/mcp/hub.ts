import type * as Effect from "effect/Effect"
import type * as PubSub from "effect/PubSub"
import type { PrincipalId } from "../Auth.ts"
import type { Kind } from "./features.ts"
import type { Invocation } from "./Invocations.ts"

/** What happens at the host that clients may have asked to hear of. */
export type ServerEvent =
  | { readonly _tag: "List"; readonly kind: Kind }
  | { readonly _tag: "Resource"; readonly uri: string }
  | { readonly _tag: "Task"; readonly invocation: Invocation }

export interface Hub {
  readonly events: PubSub.PubSub<ServerEvent>
  /** Principals that are no longer valid. */
  readonly revocations: PubSub.PubSub<PrincipalId>
  /** Ends when the server does: streams are to be ended in good order. */
  readonly stopping: Effect.Effect<void>
}
