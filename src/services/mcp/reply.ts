import type * as Stream from "effect/Stream"
import type { SessionId } from "../SessionStore.ts"
import type { RequestId } from "../wire/JsonRpc.ts"
import type { McpFailure } from "./failures.ts"

export type Answer =
  | { readonly _tag: "Result"; readonly id: RequestId; readonly result: unknown }
  | { readonly _tag: "Failure"; readonly id: RequestId | null; readonly error: McpFailure }

export type OutMessage =
  | { readonly _tag: "Notification"; readonly method: string; readonly params?: Readonly<Record<string, unknown>> }
  | {
      readonly _tag: "Request"
      readonly id: string
      readonly method: string
      readonly params: Readonly<Record<string, unknown>>
    }
  | { readonly _tag: "Answer"; readonly answer: Answer }

/** What one server-sent event carries, before it is text. */
export interface StreamEvent {
  /** Where a client may take up the stream again. */
  readonly id?: string
  /** How long a client should wait before it does, in milliseconds. */
  readonly retry?: number
  /** Left out of the priming event. */
  readonly message?: OutMessage
}

export type Reply =
  /** Taken, and nothing to say: a notification, a response, a request that its sender cancelled. */
  | { readonly _tag: "Accepted" }
  | { readonly _tag: "Single"; readonly answer: Answer; readonly opened?: SessionId }
  | { readonly _tag: "Batch"; readonly answers: ReadonlyArray<Answer> }
  /** Ends with the answer, or not at all. Running it is following the call; interrupting it is going away. */
  | {
      readonly _tag: "Stream"
      readonly events: Stream.Stream<StreamEvent>
      /** After its end: whether there is a rest that can be taken up. Left out where there never is. */
      readonly goesOn?: () => boolean
    }

export const failure = (id: RequestId | null, error: McpFailure): Answer => ({ _tag: "Failure", id, error })
export const result = (id: RequestId, value: unknown): Answer => ({ _tag: "Result", id, result: value })
export const single = (answer: Answer): Reply => ({ _tag: "Single", answer })
export const failed = (id: RequestId | null, error: McpFailure): Reply => single(failure(id, error))
export const accepted: Reply = { _tag: "Accepted" }
