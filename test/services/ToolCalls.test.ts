import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import { ApprovalRefused, Approvals } from "../../src/services/Approvals.ts"
import type { AuditCall, AuditOutcome } from "../../src/services/Audit.ts"
import { Audit } from "../../src/services/Audit.ts"
import { PrincipalId } from "../../src/services/Auth.ts"
import type { BridgeConfig } from "../../src/services/Config.ts"
import { silent } from "../../src/services/Exchange.ts"
import type { HostTool, JsonObject, Policy, ToolResult } from "../../src/services/HostTools.ts"
import { ArgumentsInvalid, HostTools, HostUnavailable } from "../../src/services/HostTools.ts"
import { layer as toolCalls, ToolCalls } from "../../src/services/ToolCalls.ts"
import { forAll } from "../support/suites/arbitraries.ts"
import * as FakeConfig from "../support/suites/fakeConfig.ts"

const tool: HostTool = {
  name: "bash",
  wireName: "bash",
  title: "bash",
  description: "",
  inputSchema: { type: "object", properties: {} },
  annotations: { readOnlyHint: false },
  active: true,
  own: false
}
const ran: ToolResult = { content: [{ type: "text", text: "done" }], isError: false }
const calling = (name: string, args: JsonObject = { raw: 1 }) => ({
  callId: "call-1",
  principal: { id: PrincipalId.make("owner-1"), name: "owner" },
  sid: "sid-1",
  client: "test/1",
  name,
  args,
  exchange: silent
})

interface World {
  readonly settings?: Partial<BridgeConfig>
  readonly catalog?: () => ReadonlyArray<HostTool>
  readonly validate?: HostTools["Type"]["validate"]
  readonly policy?: Policy | (() => Policy)
  readonly decide?: Approvals["Type"]["decide"]
  readonly execute?: HostTools["Type"]["execute"]
}

/** Everything round ToolCalls, and what happened in order. */
const world = (options: World) =>
  Effect.gen(function* () {
    const log: Array<string> = []
    const started: Array<AuditCall> = []
    const outcomes: Array<AuditOutcome> = []
    const executed: Array<JsonObject> = []
    const config = yield* FakeConfig.make(options.settings)
    const host = Layer.mock(HostTools, {
      catalog: Effect.sync(() => options.catalog?.() ?? [tool]),
      changes: Stream.never,
      validate: (one, args) => {
        log.push("validate")
        return options.validate?.(one, args) ?? Effect.succeed({ ...args, normalized: true })
      },
      policy: () =>
        Effect.sync(() => {
          log.push("policy")
          return typeof options.policy === "function" ? options.policy() : (options.policy ?? { _tag: "Allow" })
        }),
      execute: (one, args, more) => {
        log.push("body")
        executed.push(args)
        return options.execute?.(one, args, more) ?? Effect.succeed(ran)
      }
    })
    const approvals = Layer.mock(Approvals, {
      decide: (request) => {
        log.push("ask")
        return options.decide?.(request) ?? Effect.void
      }
    })
    const audit = Layer.mock(Audit, {
      start: (call) =>
        Effect.sync(() => {
          log.push("start")
          started.push(call)
          return (outcome) =>
            Effect.sync(() => {
              log.push("done")
              outcomes.push(outcome)
            })
        }),
      flush: Effect.void
    })
    const layer = toolCalls.pipe(Layer.provide(Layer.mergeAll(host, approvals, audit, config.layer)))
    const calls = yield* Effect.provide(ToolCalls, layer)
    return { calls, config, log, started, outcomes, executed }
  })

const Answer = FastCheck.constantFrom<"yes" | ApprovalRefused["reason"]>("yes", "denied", "timeout", "nobody")
const Situation = FastCheck.record({
  exists: FastCheck.boolean(),
  own: FastCheck.boolean(),
  active: FastCheck.boolean(),
  expose: FastCheck.constantFrom("all" as const, "active" as const),
  deny: FastCheck.constantFrom<ReadonlyArray<string>>([], ["read"], ["bash"], ["b*"]),
  valid: FastCheck.boolean(),
  policy: FastCheck.constantFrom<Policy>(
    { _tag: "Allow" },
    { _tag: "Deny", reason: "no" },
    { _tag: "Prompt", prompt: "really?" }
  ),
  answer: Answer,
  result: FastCheck.constantFrom("ok", "error", "dies", "unavailable")
})
/** Most of the time one thing is wrong, so that each gate is the one that closes. */
const Biased = FastCheck.tuple(
  Situation,
  Situation,
  FastCheck.subarray(["exists", "own", "valid", "deny", "answer"])
).map(([situation, wild, changed]) => {
  const good = { ...situation, exists: true, own: false, active: true, deny: [], valid: true, answer: "yes" as const }
  return changed.reduce<typeof situation>((now, key) => ({ ...now, [key]: wild[key as keyof typeof wild] }), good)
})

describe("ToolCalls.call", () => {
  it.effect(
    "runs a tool's body without every yes, or not with them, or leaves a call out of the log",
    () =>
      forAll(
        FastCheck.oneof(Situation, Biased),
        (situation) =>
          Effect.gen(function* () {
            const { calls, log, outcomes, started } = yield* world({
              settings: { expose: situation.expose, deny: situation.deny },
              catalog: () => (situation.exists ? [{ ...tool, own: situation.own, active: situation.active }] : []),
              validate: (one, args) =>
                situation.valid ? Effect.succeed(args) : new ArgumentsInvalid({ tool: one.name, detail: "wrong" }),
              policy: situation.policy,
              decide: ({ tool }) =>
                situation.answer === "yes" ? Effect.void : new ApprovalRefused({ tool, reason: situation.answer }),
              execute: () =>
                situation.result === "dies"
                  ? Effect.die(new Error("tool broke"))
                  : situation.result === "unavailable"
                    ? new HostUnavailable()
                    : Effect.succeed({ ...ran, isError: situation.result === "error" })
            })
            const visible =
              situation.exists &&
              !situation.own &&
              (situation.expose === "all" || situation.active) &&
              !situation.deny.some((rule) => rule.startsWith("b"))
            const allowed =
              visible &&
              situation.valid &&
              (situation.policy._tag === "Allow" || (situation.policy._tag === "Prompt" && situation.answer === "yes"))
            const exit = yield* Effect.exit(calls.call(calling("bash")))

            assert.strictEqual(log.includes("body"), allowed)
            assert.strictEqual(log.filter((entry) => entry === "body").length, allowed ? 1 : 0)
            assert.strictEqual(log[0], "start")
            assert.strictEqual(log.at(-1), "done")
            assert.lengthOf(started, 1)
            assert.lengthOf(outcomes, 1)
            const [outcome] = outcomes
            if (!allowed) {
              assert.isTrue(Exit.isFailure(exit))
              assert.strictEqual(outcome?._tag, "Refused")
              // What is hidden is not told from what is not there, and nobody is asked about it.
              if (!visible) {
                assert.deepStrictEqual(outcome, { _tag: "Refused", reason: "ToolNotExposed" })
                assert.deepStrictEqual(log, ["start", "done"])
              }
            } else if (situation.result === "dies") assert.deepStrictEqual(outcome, { _tag: "Failed" })
            else if (situation.result === "unavailable") {
              assert.deepStrictEqual(outcome, { _tag: "Refused", reason: "HostUnavailable" })
            } else assert.deepStrictEqual(outcome, { _tag: "Ran", isError: situation.result === "error" })
            // The list and the call follow one rule.
            assert.strictEqual((yield* calls.list).length === 1, visible)
          }),
        300
      ),
    30_000
  )

  it.effect("runs the raw arguments, or asks about others than it runs", () =>
    Effect.gen(function* () {
      const { calls, executed } = yield* world({})
      yield* calls.call(calling("bash", { raw: 1 }))
      assert.deepStrictEqual(executed, [{ raw: 1, normalized: true }])
    })
  )

  it.effect("writes the wrong call into the log, or a durable one as if it could wait", () =>
    Effect.gen(function* () {
      const reader = { ...tool, name: "read", wireName: "read", annotations: { readOnlyHint: true } }
      const { calls, started } = yield* world({ catalog: () => [tool, reader] })
      yield* calls.call(calling("bash"))
      yield* calls.call(calling("read"))
      yield* Effect.exit(calls.call(calling("x".repeat(5000))))
      assert.deepStrictEqual(
        started.map(({ durable }) => durable),
        [true, false, true]
      )
      assert.deepStrictEqual(started[0], {
        id: "call-1",
        sid: "sid-1",
        client: "test/1",
        tool: "bash",
        args: { raw: 1 },
        durable: true
      })
      assert.lengthOf(started[2]?.tool ?? "", 128)
    })
  )

  it.effect("finds a tool by the host's name where that is not the name on the wire", () =>
    Effect.gen(function* () {
      const { calls, log } = yield* world({ catalog: () => [{ ...tool, name: "a.b", wireName: "a_b_1" }] })
      yield* calls.call(calling("a_b_1"))
      const refused = yield* Effect.flip(calls.call(calling("a.b")))
      assert.strictEqual(refused._tag, "ToolNotExposed")
      assert.lengthOf(
        log.filter((entry) => entry === "body"),
        1
      )
    })
  )

  it.effect("leaves the question open, or the log without an end, where the caller goes away", () =>
    Effect.gen(function* () {
      const withdrawn = yield* Deferred.make<void>()
      const { calls, log, outcomes } = yield* world({
        policy: { _tag: "Prompt", prompt: "?" },
        decide: () => Effect.onInterrupt(Effect.never, () => Deferred.succeed(withdrawn, undefined))
      })
      const fiber = yield* Effect.fork(calls.call(calling("bash")))
      yield* TestClock.adjust(0)
      assert.include(log, "ask")
      const exit = yield* Fiber.interrupt(fiber)
      assert.isTrue(Exit.isFailure(exit) && Cause.isInterrupted(exit.cause))
      assert.isTrue(yield* Deferred.isDone(withdrawn))
      assert.notInclude(log, "body")
      assert.deepStrictEqual(outcomes, [{ _tag: "Cancelled" }])
    })
  )

  it.effect("does not interrupt the tool, or logs the end of a call before its tool has ended", () =>
    Effect.gen(function* () {
      const order: Array<string> = []
      const { calls, log, outcomes } = yield* world({
        execute: () =>
          Effect.onInterrupt(Effect.never, () =>
            Effect.zipRight(
              Effect.sleep("500 millis"),
              Effect.sync(() => {
                order.push("tool ended")
                assert.notInclude(log, "done")
              })
            )
          )
      })
      const fiber = yield* Effect.fork(calls.call(calling("bash")))
      yield* TestClock.adjust(0)
      const interruption = yield* Effect.fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(interruption)
      assert.deepStrictEqual(order, ["tool ended"])
      assert.deepStrictEqual(outcomes, [{ _tag: "Cancelled" }])
    })
  )

  const pending = (
    options: Omit<World, "decide">,
    meanwhile: (config: {
      readonly edit: (change: Partial<BridgeConfig>) => Effect.Effect<void>
    }) => Effect.Effect<void>
  ) =>
    Effect.gen(function* () {
      const answer = yield* Deferred.make<void>()
      const ready = yield* world({
        policy: { _tag: "Prompt", prompt: "?" },
        ...options,
        decide: () => Deferred.await(answer)
      })
      const fiber = yield* Effect.fork(Effect.either(ready.calls.call(calling("bash"))))
      yield* TestClock.adjust(0)
      assert.include(ready.log, "ask")
      yield* meanwhile(ready.config)
      yield* Deferred.succeed(answer, undefined)
      return { ...ready, result: yield* Fiber.join(fiber) }
    })
  const tagOf = (result: Either.Either<ToolResult, { readonly _tag: string }>) =>
    Either.isLeft(result) ? result.left._tag : "ran"

  it.effect("runs a tool that was denied while its approval was pending", () =>
    Effect.gen(function* () {
      const { log, outcomes, result } = yield* pending({}, (config) => config.edit({ deny: ["bash"] }))
      assert.strictEqual(tagOf(result), "ToolNotExposed")
      assert.notInclude(log, "body")
      assert.deepStrictEqual(outcomes, [{ _tag: "Refused", reason: "ToolNotExposed" }])
    })
  )

  it.effect("runs a tool that the host switched off while its approval was pending", () =>
    Effect.gen(function* () {
      let active = true
      const { log, result } = yield* pending(
        { settings: { expose: "active" }, catalog: () => [{ ...tool, active }] },
        () =>
          Effect.sync(() => {
            active = false
          })
      )
      assert.strictEqual(tagOf(result), "ToolNotExposed")
      assert.notInclude(log, "body")
    })
  )

  it.effect("does not run an approved call where other settings changed meanwhile", () =>
    Effect.gen(function* () {
      const { result } = yield* pending({}, (config) => config.edit({ deny: ["read"], maxBodyBytes: 2048 }))
      assert.strictEqual(tagOf(result), "ran")
    })
  )

  it.effect("hands a request to approval that lacks the whole action", () =>
    Effect.gen(function* () {
      const asked: Array<unknown> = []
      const { calls } = yield* world({
        policy: { _tag: "Prompt", prompt: "rm -rf build" },
        decide: (request) => Effect.sync(() => void asked.push(request))
      })
      yield* calls.call(calling("bash"))
      assert.deepStrictEqual(asked, [{ callId: "call-1", tool: "bash", client: "test/1", prompt: "rm -rf build" }])
    })
  )
})
