import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Layer from "effect/Layer"
import * as TestClock from "effect/TestClock"
import { PrincipalId } from "../../../src/services/Auth.ts"
import type { JsonObject, Policy } from "../../../src/services/HostTools.ts"
import { silent } from "../../../src/services/Exchange.ts"
import { HostTools } from "../../../src/services/HostTools.ts"

/** A tool as the suite scripts it; the implementation under test makes its host have it. */
export interface Scripted {
  readonly name: string
  readonly active?: boolean
  readonly schema?: unknown
  readonly policy?: Policy
  readonly run: (args: JsonObject, signal: AbortSignal) => Promise<{ readonly text: string; readonly isError: boolean }>
}

const options = {
  callId: "call-1",
  client: "test/1",
  sid: "-",
  principal: { id: PrincipalId.make("owner"), name: "owner" },
  exchange: silent
}
const says =
  (text: string): Scripted["run"] =>
  async () => ({ text, isError: false })
const tools = (...names: ReadonlyArray<string>): ReadonlyArray<Scripted> =>
  names.map((name) => ({ name, run: says(name) }))

export const suite = (
  name: string,
  layer: (tools: () => ReadonlyArray<Scripted> | undefined) => Layer.Layer<HostTools>
) => {
  const on = <A, E>(
    tools: ReadonlyArray<Scripted> | (() => ReadonlyArray<Scripted> | undefined),
    effect: Effect.Effect<A, E, HostTools>
  ) => Effect.provide(effect, layer(typeof tools === "function" ? tools : () => tools))
  const first = Effect.gen(function* () {
    const host = yield* HostTools
    const [tool] = yield* host.catalog
    if (tool === undefined) return yield* Effect.dieMessage("no tool")
    return { host, tool }
  })

  describe(`${name} as HostTools`, () => {
    it.effect("gives the catalog in another order each time", () =>
      Effect.gen(function* () {
        const host = yield* HostTools
        const listed = yield* host.catalog
        assert.deepStrictEqual(
          listed.map((tool) => tool.name),
          ["write", "bash", "read", "a.b"]
        )
        assert.deepStrictEqual(yield* host.catalog, listed)
      }).pipe((effect) => on(tools("write", "bash", "read", "a.b"), effect))
    )

    it.effect("gives names and schemas that clients refuse, or two tools one name", () =>
      Effect.gen(function* () {
        const listed = yield* (yield* HostTools).catalog
        for (const tool of listed) {
          assert.match(tool.wireName, /^[A-Za-z0-9_-]{1,64}$/)
          assert.strictEqual(tool.inputSchema["type"], "object")
          assert.isNotEmpty(tool.title)
          assert.isNotEmpty(tool.description)
        }
        assert.strictEqual(new Set(listed.map((tool) => tool.wireName)).size, listed.length)
        assert.strictEqual(listed.find((tool) => tool.name === "plain_name")?.wireName, "plain_name")
      }).pipe((effect) =>
        on(
          [
            ...tools("plain_name", "a.b", "a/b", "x".repeat(100), `${"x".repeat(99)}y`, "grün"),
            { name: "odd", schema: { anyOf: [{ type: "object" }, { type: "string" }] }, run: says("") },
            { name: "odder", schema: 5, run: says("") }
          ],
          effect
        )
      )
    )

    it.effect("does not say which tools the host's model may use", () =>
      Effect.gen(function* () {
        const listed = yield* (yield* HostTools).catalog
        assert.deepStrictEqual(
          listed.map((tool) => tool.active),
          [true, false]
        )
      }).pipe((effect) =>
        on(
          [
            { name: "on", run: says("") },
            { name: "off", active: false, run: says("") }
          ],
          effect
        )
      )
    )

    it.effect("dies without a session, or runs in one that is gone", () => {
      let session: ReadonlyArray<Scripted> | undefined = tools("bash")
      return Effect.gen(function* () {
        const { host, tool } = yield* first
        session = undefined
        assert.deepStrictEqual(yield* host.catalog, [])
        for (const failed of [
          yield* Effect.flip(host.validate(tool, {})),
          yield* Effect.flip(host.policy(tool, {})),
          yield* Effect.flip(host.execute(tool, {}, options))
        ]) {
          assert.strictEqual(failed._tag, "HostUnavailable")
        }
      }).pipe((effect) => on(() => session, effect))
    })

    it.effect("changes the result of a tool", () =>
      Effect.gen(function* () {
        const { host, tool } = yield* first
        assert.deepStrictEqual(yield* host.execute(tool, { text: "hi" }, options), {
          content: [{ type: "text", text: 'got {"text":"hi"}' }],
          isError: true
        })
      }).pipe((effect) =>
        on([{ name: "t", run: async (args) => ({ text: `got ${JSON.stringify(args)}`, isError: true }) }], effect)
      )
    )

    it.effect("takes a tool that throws for a fault of ours, or loses what it says", () =>
      Effect.gen(function* () {
        const { host, tool } = yield* first
        const result = yield* host.execute(tool, {}, options)
        assert.isTrue(result.isError)
        assert.include(JSON.stringify(result.content), "no such file")
      }).pipe((effect) =>
        on(
          [
            {
              name: "t",
              run: () => {
                throw new Error("no such file")
              }
            }
          ],
          effect
        )
      )
    )

    it.effect("does not hand on the host's policy", () =>
      Effect.gen(function* () {
        const { host, tool } = yield* first
        assert.deepStrictEqual(yield* host.policy(tool, {}), { _tag: "Prompt", prompt: "sure?" })
      }).pipe((effect) => on([{ name: "t", policy: { _tag: "Prompt", prompt: "sure?" }, run: says("") }], effect))
    )

    it.effect("goes on running a tool that was interrupted, or does not wait for its end", () => {
      const order: Array<string> = []
      let finish = () => {}
      const ended = new Promise<void>((resolve) => {
        finish = resolve
      })
      return Effect.gen(function* () {
        const { host, tool } = yield* first
        const fiber = yield* Effect.fork(host.execute(tool, {}, options))
        yield* TestClock.adjust(0)
        const interruption = yield* Effect.fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(0)
        assert.deepStrictEqual(order, ["aborted"])
        assert.strictEqual((yield* Fiber.poll(interruption))._tag, "None")
        finish()
        yield* Fiber.join(interruption)
        assert.deepStrictEqual(order, ["aborted", "ended"])
      }).pipe((effect) =>
        on(
          [
            {
              name: "t",
              run: async (_args, signal) => {
                signal.addEventListener("abort", () => order.push("aborted"))
                await ended
                order.push("ended")
                throw new Error("aborted")
              }
            }
          ],
          effect
        )
      )
    })

    it.effect("waits without end for a tool that does not heed its signal", () =>
      Effect.gen(function* () {
        const { host, tool } = yield* first
        const fiber = yield* Effect.fork(host.execute(tool, {}, options))
        yield* TestClock.adjust(0)
        const interruption = yield* Effect.fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust("2 seconds")
        yield* Fiber.join(interruption)
      }).pipe((effect) => on([{ name: "t", run: () => new Promise(() => {}) }], effect))
    )

    it.effect("aborts one call for another", () => {
      const aborted: Array<unknown> = []
      return Effect.gen(function* () {
        const { host, tool } = yield* first
        const one = yield* Effect.fork(host.execute(tool, { n: 1 }, options))
        yield* Effect.fork(host.execute(tool, { n: 2 }, { ...options, callId: "call-2" }))
        yield* TestClock.adjust(0)
        yield* Fiber.interrupt(one)
        assert.deepStrictEqual(aborted, [1])
      }).pipe((effect) =>
        on(
          [
            {
              name: "t",
              run: ({ n }, signal) =>
                new Promise((_, reject) => {
                  signal.addEventListener("abort", () => {
                    aborted.push(n)
                    reject(new Error("aborted"))
                  })
                })
            }
          ],
          effect
        )
      )
    })
  })
}
