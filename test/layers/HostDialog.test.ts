import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/TestClock"
import * as HeadlessApprovals from "../../src/layers/HeadlessApprovals.ts"
import * as HostDialog from "../../src/layers/HostDialog.ts"
import { Approvals } from "../../src/services/Approvals.ts"
import { fakeHost } from "../support/fakeHost.ts"
import * as FakeConfig from "../support/suites/fakeConfig.ts"

interface Dialog {
  readonly title: string
  readonly choices: ReadonlyArray<string>
  readonly timeoutMs: number
  readonly signal: AbortSignal
  readonly answer: (choice: string | undefined) => void
  readonly fail: (error: unknown) => void
}

const setup = (timeoutSeconds = 30) =>
  Effect.gen(function* () {
    const dialogs: Array<Dialog> = []
    const host = fakeHost({
      agentDir: "/",
      tools: () => [],
      choose: (title, choices, { signal, timeoutMs }) =>
        new Promise((answer, fail) => void dialogs.push({ title, choices, timeoutMs, signal, answer, fail }))
    })
    const config = yield* FakeConfig.make({ approval: { timeoutSeconds } })
    const approvals = Context.get(
      yield* Layer.build(HostDialog.layer(host).pipe(Layer.provide(config.layer))),
      Approvals
    )
    const ask = (callId = "1") =>
      Effect.fork(Effect.either(approvals.decide({ callId, tool: "bash", client: "cli/1", prompt: `run ${callId}?` })))
    return { approvals, ask, config, dialogs }
  })
const settle = TestClock.adjust(0)
const reasonOf = (result: Either.Either<void, { readonly reason: string }>) =>
  Either.isLeft(result) ? result.left.reason : "allowed"

describe("HostDialog", () => {
  it.effect.each<readonly [choice: string | undefined, reason: string]>([
    ["Approve", "allowed"],
    ["Deny", "denied"],
    [undefined, "timeout"],
    ["approve", "timeout"],
    ["", "timeout"]
  ])("takes the answer %j for another than %s", ([choice, reason]) =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup()
      const asked = yield* ask()
      yield* settle
      dialogs[0]?.answer(choice)
      assert.strictEqual(reasonOf(yield* Fiber.join(asked)), reason)
    }).pipe(Effect.scoped)
  )

  it.scoped("shows a person less than who asks for what", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup(12)
      yield* ask()
      yield* settle
      assert.include(dialogs[0]?.title, "cli/1")
      assert.include(dialogs[0]?.title, "run 1?")
      assert.deepStrictEqual(dialogs[0]?.choices, ["Approve", "Deny"])
      assert.strictEqual(dialogs[0]?.timeoutMs, 12_000)
    })
  )

  it.scoped("waits other than timeoutSeconds for an answer, or leaves the dialog open after it", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup(12)
      const asked = yield* ask()
      yield* settle
      yield* TestClock.adjust("11999 millis")
      assert.isNull(yield* Fiber.poll(asked).pipe(Effect.map((exit) => (exit._tag === "None" ? null : exit.value))))
      assert.isFalse(dialogs[0]?.signal.aborted)
      yield* TestClock.adjust("1 millis")
      const result = yield* Fiber.join(asked)
      assert.deepStrictEqual(Either.isLeft(result) ? { ...result.left } : result, {
        _tag: "ApprovalRefused",
        tool: "bash",
        reason: "timeout",
        waitedSeconds: 12
      } as never)
      assert.isTrue(dialogs[0]?.signal.aborted)
    })
  )

  it.scoped("takes a late answer for one", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup(1)
      const asked = yield* ask("1")
      yield* settle
      yield* TestClock.adjust("1 second")
      dialogs[0]?.answer("Approve")
      assert.strictEqual(reasonOf(yield* Fiber.join(asked)), "timeout")
      // Nor is it the next question's answer.
      const next = yield* ask("2")
      yield* settle
      assert.lengthOf(dialogs, 2)
      dialogs[1]?.answer("Deny")
      assert.strictEqual(reasonOf(yield* Fiber.join(next)), "denied")
    })
  )

  it.scoped("does not take an edit of the time limit", () =>
    Effect.gen(function* () {
      const { ask, config, dialogs } = yield* setup(30)
      yield* config.edit({ approval: { timeoutSeconds: 2 } })
      const asked = yield* ask()
      yield* settle
      assert.strictEqual(dialogs[0]?.timeoutMs, 2000)
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(reasonOf(yield* Fiber.join(asked)), "timeout")
    })
  )

  it.scoped("leaves the dialog of a call that was cancelled", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup()
      const asked = yield* ask()
      yield* settle
      yield* Fiber.interrupt(asked)
      assert.isTrue(dialogs[0]?.signal.aborted)
    })
  )

  it.scoped("shows two questions at once, or never the second", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup()
      const one = yield* ask("1")
      yield* settle
      const two = yield* ask("2")
      const three = yield* ask("3")
      yield* settle
      assert.lengthOf(dialogs, 1)
      dialogs[0]?.answer("Approve")
      assert.strictEqual(reasonOf(yield* Fiber.join(one)), "allowed")
      yield* settle
      assert.lengthOf(dialogs, 2)
      assert.include(dialogs[1]?.title, "run 2?")
      // The one that is shown is cancelled: the next one's turn.
      yield* Fiber.interrupt(two)
      yield* settle
      assert.lengthOf(dialogs, 3)
      dialogs[2]?.answer("Deny")
      assert.strictEqual(reasonOf(yield* Fiber.join(three)), "denied")
    })
  )

  it.scoped("lets a question wait without end behind another", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup(10)
      const one = yield* ask("1")
      yield* settle
      yield* TestClock.adjust("4 seconds")
      const two = yield* ask("2")
      yield* settle
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(reasonOf(yield* Fiber.join(one)), "timeout")
      assert.strictEqual(reasonOf(yield* Fiber.join(two)), "timeout")
      assert.isTrue(dialogs.every((dialog) => dialog.signal.aborted))
    })
  )

  it.scoped("allows, or dies, where the dialog breaks", () =>
    Effect.gen(function* () {
      const { ask, dialogs } = yield* setup()
      const asked = yield* ask()
      yield* settle
      dialogs[0]?.fail(new Error("no screen"))
      assert.strictEqual(reasonOf(yield* Fiber.join(asked)), "timeout")
      // And the screen is free again.
      yield* ask("2")
      yield* settle
      assert.lengthOf(dialogs, 2)
    })
  )

  it.scoped("allows, or dies, where the host throws at once", () =>
    Effect.gen(function* () {
      const host = fakeHost({
        agentDir: "/",
        tools: () => [],
        choose: () => {
          throw new Error("no screen")
        }
      })
      const config = yield* FakeConfig.make()
      const approvals = Context.get(
        yield* Layer.build(HostDialog.layer(host).pipe(Layer.provide(config.layer))),
        Approvals
      )
      const refused = yield* Effect.flip(approvals.decide({ callId: "1", tool: "bash", client: "c", prompt: "?" }))
      assert.strictEqual(refused._tag, "ApprovalRefused")
    })
  )
})

describe("HeadlessApprovals", () => {
  it.effect("waits for nobody, or allows", () =>
    Effect.gen(function* () {
      const approvals = yield* Approvals
      const refused = yield* Effect.flip(approvals.decide({ callId: "1", tool: "bash", client: "c", prompt: "?" }))
      assert.deepStrictEqual([refused.tool, refused.reason, refused.waitedSeconds], ["bash", "nobody", undefined])
    }).pipe(Effect.provide(HeadlessApprovals.layer))
  )
})
