import * as JsonRpc from "../wire/JsonRpc.ts"
import { toErrorObject } from "./errorObjects.ts"
import type { Answer, OutMessage } from "./reply.ts"

/** An answer as it stands on the wire, whatever the transport. */
export const encodeAnswer = (answer: Answer) =>
  answer._tag === "Result"
    ? JsonRpc.success(answer.id, answer.result)
    : JsonRpc.failure(answer.id, toErrorObject(answer.error))

export const encodeMessage = (message: OutMessage): unknown => {
  switch (message._tag) {
    case "Answer":
      return encodeAnswer(message.answer)
    case "Request":
      return { jsonrpc: "2.0", id: message.id, method: message.method, params: message.params }
    case "Notification":
      return {
        jsonrpc: "2.0",
        method: message.method,
        ...(message.params === undefined ? {} : { params: message.params })
      }
  }
}
