import { assert, describe, it } from "@effect/vitest"
import { PrincipalId } from "../../src/services/Auth.ts"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Ref from "effect/Ref"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as OmpHostTools from "../../src/layers/OmpHostTools.ts"
import type { ProgressUpdate } from "../../src/services/Exchange.ts"
import { silent } from "../../src/services/Exchange.ts"
import { HostTools } from "../../src/services/HostTools.ts"
import type { OmpHost, OmpJobResult } from "../../src/services/OmpHost.ts"
import type { FakeTool } from "../support/fakeHost.ts"
import { echo, fakeHost, text } from "../support/fakeHost.ts"
import { suite } from "../support/suites/hostTools.ts"

const own = { instance: "this-one", isOwnUrl: (url: string) => url === "http://127.0.0.1:4711/mcp" }
/** The type of fakeHost's `tools` is also that of the port, which no list of fakes has. */
const hostWith = (tools: () => ReadonlyArray<FakeTool>, overrides: Partial<OmpHost> = {}) =>
  fakeHost({ agentDir: "/", ...overrides, tools: tools as never })
const options = {
  callId: "call-1",
  client: "test/1",
  sid: "-",
  principal: { id: PrincipalId.make("owner"), name: "owner" },
  exchange: silent
}

suite("OmpHostTools", (tools) => {
  const fakes = (): ReadonlyArray<FakeTool> =>
    (tools() ?? []).map(({ run, ...tool }) => ({
      ...tool,
      run: async (args, signal) => {
        const { isError, text: said } = await run(args, signal)
        return text(said, isError)
      }
    }))
  const host = hostWith(fakes)
  return OmpHostTools.layer({ ...host, tools: () => (tools() === undefined ? undefined : host.tools()) }, own)
})

const setup = (tools: ReadonlyArray<FakeTool>, overrides: Partial<OmpHost> = {}) =>
  Effect.gen(function* () {
    const host = hostWith(() => tools, overrides)
    const port = yield* Effect.provide(HostTools, OmpHostTools.layer(host, own))
    const [tool] = yield* port.catalog
    if (tool === undefined) return yield* Effect.dieMessage("no tool")
    return { host, port, tool }
  })

describe("OmpHostTools", () => {
  it.effect("drops content that is neither text nor image", () =>
    Effect.gen(function* () {
      const { port, tool } = yield* setup([
        {
          name: "t",
          run: async () => ({
            content: [
              { type: "text", text: "a", extra: 1 },
              { type: "image", data: "QQ==", mimeType: "image/png" },
              { type: "image", data: 5 },
              { type: "audio", data: "QQ==" },
              "bare",
              null,
              undefined,
              7
            ],
            isError: false,
            backgroundJob: undefined
          })
        }
      ])
      const { content } = yield* port.execute(tool, {}, options)
      assert.deepStrictEqual(content, [
        { type: "text", text: "a" },
        { type: "image", data: "QQ==", mimeType: "image/png" },
        { type: "text", text: '{"type":"image","data":5}' },
        { type: "text", text: '{"type":"audio","data":"QQ=="}' },
        { type: "text", text: '"bare"' },
        { type: "text", text: "null" },
        { type: "text", text: "undefined" },
        { type: "text", text: "7" }
      ])
    })
  )

  it.effect.each<unknown>([new Error("broke"), "broke", { message: "broke", toString: () => "broke" }])(
    "loses the message of what a tool throws",
    (thrown) =>
      Effect.gen(function* () {
        const { host, port, tool } = yield* setup([{ name: "t", run: () => Promise.reject(thrown) }])
        assert.deepStrictEqual(yield* port.execute(tool, {}, options), {
          content: [{ type: "text", text: "broke" }],
          isError: true
        })
        assert.deepStrictEqual(
          host.presented.map((event) => [event._tag, event._tag === "End" ? event.isError : undefined]),
          [
            ["Start", undefined],
            ["End", true]
          ]
        )
      })
  )

  it.effect("answers before a command that went to the background has ended", () =>
    Effect.gen(function* () {
      let finish: (job: OmpJobResult) => void = () => {}
      const { port, tool } = yield* setup(
        [{ name: "bash", run: async () => ({ ...text("moved to the background"), backgroundJob: "job-1" }) }],
        {
          awaitJob: (id) => {
            assert.strictEqual(id, "job-1")
            return new Promise((resolve) => {
              finish = resolve
            })
          }
        }
      )
      const fiber = yield* Effect.fork(port.execute(tool, {}, options))
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual((yield* Fiber.poll(fiber))._tag, "None")
      finish({ text: "exit 1", isError: true })
      assert.deepStrictEqual(yield* Fiber.join(fiber), { content: [{ type: "text", text: "exit 1" }], isError: true })
    })
  )

  it.effect.each(["while it runs", "while the tool still starts it"])(
    "leaves a background job running whose call was interrupted %s",
    (when) =>
      Effect.gen(function* () {
        const cancelled: Array<string> = []
        let end: (job: OmpJobResult) => void = () => {}
        let started = () => {}
        const early = when === "while it runs"
        const { port, tool } = yield* setup(
          [
            {
              name: "bash",
              run: async () => {
                if (!early) await new Promise<void>((resolve) => (started = resolve))
                return { ...text(""), backgroundJob: "job-1" }
              }
            }
          ],
          {
            awaitJob: () =>
              new Promise((resolve) => {
                end = resolve
                if (cancelled.length > 0) resolve({ text: "killed", isError: true })
              }),
            cancelJob: (id) => {
              cancelled.push(id)
              end({ text: "killed", isError: true })
            }
          }
        )
        const fiber = yield* Effect.fork(port.execute(tool, {}, options))
        yield* TestClock.adjust(0)
        const interruption = yield* Effect.fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(0)
        started()
        yield* Fiber.join(interruption)
        assert.deepStrictEqual([...new Set(cancelled)], ["job-1"])
      })
  )

  it.effect("fails other than with a result where the host loses a background job", () =>
    Effect.gen(function* () {
      const { port, tool } = yield* setup(
        [{ name: "bash", run: async () => ({ ...text(""), backgroundJob: "job-1" }) }],
        { awaitJob: () => Promise.reject(new Error("lost track")) }
      )
      assert.deepStrictEqual(yield* port.execute(tool, {}, options), {
        content: [{ type: "text", text: "lost track" }],
        isError: true
      })
    })
  )

  it.effect("draws no end under a call that was interrupted", () =>
    Effect.gen(function* () {
      const { host, port, tool } = yield* setup([{ name: "t", run: () => new Promise(() => {}) }])
      const fiber = yield* Effect.fork(port.execute(tool, { a: 1 }, options))
      yield* TestClock.adjust(0)
      const interruption = yield* Effect.fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(interruption)
      assert.deepStrictEqual(
        host.presented.map(({ _tag, callId, tool }) => [_tag, callId, tool]),
        [
          ["Start", "call-1", "t"],
          ["End", "call-1", "t"]
        ]
      )
    })
  )

  it.effect("exports what the host has from this very bridge, or hides what it has from another", () =>
    Effect.gen(function* () {
      const servers: Record<string, ReturnType<OmpHost["mcpServer"]>> = {
        byMark: {
          url: "http://tunnel.example/mcp",
          capabilities: { tools: {}, experimental: { "pi-a2a-ext/instance": { id: "this-one" } } }
        },
        byUrl: { url: "http://127.0.0.1:4711/mcp", capabilities: undefined },
        another: {
          url: "http://127.0.0.1:4712/mcp",
          capabilities: { experimental: { "pi-a2a-ext/instance": { id: "another-one" } } }
        },
        stdio: { url: undefined, capabilities: { tools: {} } },
        odd: { url: undefined, capabilities: { experimental: { "pi-a2a-ext/instance": "this-one" } } },
        gone: undefined
      }
      const { port } = yield* setup(
        [echo, ...Object.keys(servers).map((mcpServer) => ({ ...echo, name: `mcp__${mcpServer}_echo`, mcpServer }))],
        { mcpServer: (name) => servers[name] }
      )
      assert.deepStrictEqual(
        (yield* port.catalog).filter((tool) => tool.own).map((tool) => tool.name),
        ["mcp__byMark_echo", "mcp__byUrl_echo"]
      )
    })
  )

  it.effect("drops a tool whose schema cannot be converted, or says nothing of it", () =>
    Effect.gen(function* () {
      const { host, port, tool } = yield* setup([echo], {
        wireSchema: () => {
          throw new Error("no JSON Schema for this")
        }
      })
      assert.deepStrictEqual(tool.inputSchema, { type: "object", properties: {} })
      yield* port.catalog
      assert.lengthOf(host.logs, 1)
      assert.strictEqual(host.logs[0]?.level, "warn")
      assert.include(JSON.stringify(host.logs[0]?.fields), "no JSON Schema for this")
    })
  )

  it.effect("converts a schema again for each list", () =>
    Effect.gen(function* () {
      let conversions = 0
      const { port } = yield* setup([echo], {
        wireSchema: () => {
          conversions++
          return {}
        }
      })
      yield* port.catalog
      yield* port.catalog
      assert.strictEqual(conversions, 1)
    })
  )

  it.effect("says of a tool that changes things that it only reads", () =>
    Effect.gen(function* () {
      const { port } = yield* setup([
        { ...echo, name: "read", tier: undefined as never },
        { ...echo, name: "looks", tier: "read" },
        { ...echo, name: "edit", tier: "write" },
        { ...echo, name: "bash", tier: "exec" },
        { name: "unknown", run: echo.run },
        { ...echo, name: "mcp__x_y", tier: "exec", mcpServer: "x" }
      ])
      const hints = (yield* port.catalog).map(({ annotations }) => [
        annotations.readOnlyHint,
        annotations.destructiveHint,
        annotations.openWorldHint
      ])
      assert.deepStrictEqual(hints, [
        [true, false, false],
        [true, false, false],
        [false, true, false],
        [false, true, true],
        [false, true, false],
        [false, true, true]
      ])
    })
  )

  it.effect("answers what the host's validator refuses as anything but ArgumentsInvalid with its message", () =>
    Effect.gen(function* () {
      const { port, tool } = yield* setup([echo], {
        validate: (_tool, _id, args) => {
          if (args["text"] === undefined) throw new Error("text: required")
          return { ...args, filled: true }
        }
      })
      assert.deepStrictEqual(yield* port.validate(tool, { text: "a" }), { text: "a", filled: true })
      const failed = yield* Effect.flip(port.validate(tool, {}))
      assert.strictEqual(failed._tag, "ArgumentsInvalid")
      if (failed._tag === "ArgumentsInvalid")
        assert.deepStrictEqual([failed.tool, failed.detail], ["echo", "text: required"])
    })
  )

  it.effect("allows a call where the host's policy breaks", () =>
    Effect.gen(function* () {
      const { port, tool } = yield* setup([echo], {
        policy: () => {
          throw new Error("no settings")
        }
      })
      const policy = yield* port.policy(tool, {})
      assert.strictEqual(policy._tag, "Deny")
      assert.include(JSON.stringify(policy), "no settings")
    })
  )

  it.effect("repeats output that the client has, or drops what was rewritten, or lets progress fall back", () =>
    Effect.gen(function* () {
      const seen: Array<ProgressUpdate> = []
      const { port, tool } = yield* setup([echo], {
        execute: async (_tool, _id, _args, _signal, onUpdate) => {
          for (const so of ["one", "one", "one two", "10%", "done, and more than that"])
            onUpdate?.([{ type: "text", text: so }])
          return text("whole")
        }
      })
      yield* port.execute(tool, {}, { ...options, exchange: { ...silent, progress: (update) => seen.push(update) } })
      assert.deepStrictEqual(
        seen.map(({ message }) => message),
        ["one", " two", "10%", "done, and more than that"]
      )
      for (const [i, { progress }] of seen.entries()) assert.isTrue(i === 0 || progress > (seen[i - 1]?.progress ?? 0))
    })
  )

  it.effect("does not tick when a tool comes or goes, or ticks when none does", () =>
    Effect.gen(function* () {
      const tools = [echo]
      const { port } = yield* setup(tools)
      const ticks = yield* Ref.make(0)
      const fiber = yield* Effect.fork(Stream.runForEach(port.changes, () => Ref.update(ticks, (n) => n + 1)))
      yield* TestClock.adjust("20 seconds")
      assert.strictEqual(yield* Ref.get(ticks), 0)
      tools.push({ ...echo, name: "more" })
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(yield* Ref.get(ticks), 1)
      tools.pop()
      yield* TestClock.adjust("20 seconds")
      assert.strictEqual(yield* Ref.get(ticks), 2)
      yield* Fiber.interrupt(fiber)
    })
  )

  it.effect("runs the tool of a session that is no longer the host's", () =>
    Effect.gen(function* () {
      const tools = [{ ...echo, run: async () => text("old session") }]
      const { port, tool } = yield* setup(tools)
      tools[0] = { ...echo, run: async () => text("new session") }
      assert.deepStrictEqual((yield* port.execute(tool, {}, options)).content, [{ type: "text", text: "new session" }])
    })
  )
})
