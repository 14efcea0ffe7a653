import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import * as JsonRpc from "../../../src/services/wire/JsonRpc.ts"
import { Json, JsonRecord } from "../../support/suites/arbitraries.ts"

const Id = FastCheck.oneof(FastCheck.string(), FastCheck.maxSafeInteger())
/** JSON that is no id: MCP takes strings and integers, and refuses null. */
const NoId = FastCheck.constantFrom(null, 1.5, 2 ** 53, -(2 ** 53), 1e300, true, false, {}, [], [1])
const HalfValid = FastCheck.record(
  {
    jsonrpc: FastCheck.oneof({ weight: 4, arbitrary: FastCheck.constant("2.0") }, Json),
    id: FastCheck.oneof(Id, NoId, Json),
    method: FastCheck.oneof(FastCheck.string(), Json),
    params: FastCheck.oneof(JsonRecord, Json),
    result: Json,
    error: Json
  },
  { requiredKeys: [] }
)

describe("JsonRpc.classify", () => {
  it.prop("throws or invents a fifth kind for some body", [FastCheck.oneof(Json, HalfValid)], ([body]) => {
    assert.include(["Request", "Notification", "Response", "Malformed"], JsonRpc.classify(body)._tag)
  })

  it.prop("changes the id or the params of a request", [Id, FastCheck.string(), JsonRecord], ([id, method, params]) => {
    const message = JsonRpc.classify({ jsonrpc: "2.0", id, method, params })
    assert.strictEqual(message._tag, "Request")
    if (message._tag !== "Request") return
    assert.isTrue(Object.is(message.id, id))
    assert.strictEqual(message.method, method)
    assert.strictEqual(message.params, params)
  })

  it.each([0, -1, 1, 2 ** 53 - 1, -(2 ** 53 - 1), "", "0", "null", "é\ud83d\ude00"])("loses the id %j", (id) => {
    const message = JsonRpc.classify({ jsonrpc: "2.0", id, method: "ping" })
    assert.deepStrictEqual(message, { _tag: "Request", id, method: "ping", params: undefined })
  })

  it.prop("takes for an id what is none, or takes a request with it for a notification", [NoId], ([id]) => {
    const message = JsonRpc.classify({ jsonrpc: "2.0", id, method: "ping" })
    assert.strictEqual(message._tag, "Malformed")
    if (message._tag === "Malformed") assert.isNull(message.id)
  })

  it.prop(
    "lets params pass that are no object, or answers them without the id",
    [Id, FastCheck.oneof(FastCheck.constantFrom(null, "x", 5, true, []), FastCheck.array(Json), FastCheck.string())],
    ([id, params]) => {
      const message = JsonRpc.classify({ jsonrpc: "2.0", id, method: "ping", params })
      assert.strictEqual(message._tag, "Malformed")
      if (message._tag === "Malformed") assert.isTrue(Object.is(message.id, id))
      assert.strictEqual(JsonRpc.classify({ jsonrpc: "2.0", method: "ping", params })._tag, "Malformed")
    }
  )

  it.prop("takes another version of JSON-RPC", [Json, Id], ([jsonrpc, id]) => {
    FastCheck.pre(jsonrpc !== "2.0")
    const message = JsonRpc.classify({ jsonrpc, id, method: "ping" })
    assert.strictEqual(message._tag, "Malformed")
    if (message._tag === "Malformed") assert.isTrue(Object.is(message.id, id))
  })

  it("takes a message without an id for a request", () => {
    assert.deepStrictEqual(JsonRpc.classify({ jsonrpc: "2.0", method: "a", params: {} }), {
      _tag: "Notification",
      method: "a",
      params: {}
    })
  })

  it.prop(
    "takes an answer for a request, or both or neither of result and error for an answer",
    [Id, Json],
    ([id, value]) => {
      assert.deepStrictEqual(JsonRpc.classify({ jsonrpc: "2.0", id, result: value }), {
        _tag: "Response",
        id,
        result: value,
        error: undefined
      })
      assert.deepStrictEqual(JsonRpc.classify({ jsonrpc: "2.0", id, error: value }), {
        _tag: "Response",
        id,
        result: undefined,
        error: value
      })
      assert.strictEqual(JsonRpc.classify({ jsonrpc: "2.0", id, result: value, error: value })._tag, "Malformed")
      assert.strictEqual(JsonRpc.classify({ jsonrpc: "2.0", id })._tag, "Malformed")
      assert.strictEqual(JsonRpc.classify({ jsonrpc: "2.0", result: value })._tag, "Malformed")
    }
  )

  it("finds a method in what is inherited", () => {
    const body: unknown = JSON.parse('{"jsonrpc":"2.0","__proto__":{"method":"ping","id":1}}')
    assert.strictEqual(JsonRpc.classify(body)._tag, "Malformed")
  })
})
