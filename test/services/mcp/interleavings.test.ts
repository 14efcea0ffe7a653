import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as TestClock from "effect/TestClock"
import { forAll } from "../../support/suites/arbitraries.ts"
import type { Connection, Order, Seen } from "../../support/mcpWorld.ts"
import {
  isAnswer,
  isInputRequired,
  isProgress,
  isQuestion,
  makeWorld,
  modernMeta,
  principal,
  tagOf
} from "../../support/mcpWorld.ts"

/** Two legacy clients of two principals, and a modern one of the first: all use the same few ids. */
const one = principal("one")
const clients = {
  anna: { who: one, modern: false },
  bert: { who: principal("two"), modern: false },
  carl: { who: one, modern: true }
} as const
type ClientName = keyof typeof clients
const names = Object.keys(clients) as ReadonlyArray<ClientName>

type Action =
  | { readonly _tag: "Call"; readonly client: ClientName; readonly id: string | number; readonly progress: boolean }
  | { readonly _tag: "Order"; readonly call: number; readonly order: Order }
  | { readonly _tag: "Cancel"; readonly client: ClientName; readonly id: string | number }
  | { readonly _tag: "Drop"; readonly call: number }
  | { readonly _tag: "Resume"; readonly call: number }
  /** A lost connection, and the client back after a while. */
  | { readonly _tag: "Blink"; readonly call: number; readonly millis: number }
  | { readonly _tag: "Answer"; readonly client: ClientName; readonly question: number }
  | { readonly _tag: "Delete"; readonly client: ClientName }
  | { readonly _tag: "Revoke"; readonly client: ClientName }
  | { readonly _tag: "Wait"; readonly millis: number }

const Client = FastCheck.constantFrom(...names)
const Id = FastCheck.constantFrom<string | number>(1, "1", 2)
const Call = FastCheck.nat(30)
const Action: FastCheck.Arbitrary<Action> = FastCheck.oneof(
  {
    weight: 6,
    arbitrary: FastCheck.record({
      _tag: FastCheck.constant("Call" as const),
      client: Client,
      id: Id,
      progress: FastCheck.constantFrom(true, true, false)
    })
  },
  {
    weight: 8,
    arbitrary: FastCheck.record({
      _tag: FastCheck.constant("Order" as const),
      call: Call,
      order: FastCheck.constantFrom<Order>("progress", "progress", "again", "ask", "finish")
    })
  },
  { weight: 3, arbitrary: FastCheck.record({ _tag: FastCheck.constant("Cancel" as const), client: Client, id: Id }) },
  { weight: 4, arbitrary: FastCheck.record({ _tag: FastCheck.constant("Drop" as const), call: Call }) },
  { weight: 2, arbitrary: FastCheck.record({ _tag: FastCheck.constant("Resume" as const), call: Call }) },
  {
    weight: 5,
    arbitrary: FastCheck.record({
      _tag: FastCheck.constant("Blink" as const),
      call: Call,
      millis: FastCheck.constantFrom(0, 500, 990, 1200)
    })
  },
  {
    weight: 3,
    arbitrary: FastCheck.record({
      _tag: FastCheck.constant("Answer" as const),
      client: Client,
      question: FastCheck.nat(5)
    })
  },
  { weight: 1, arbitrary: FastCheck.record({ _tag: FastCheck.constant("Delete" as const), client: Client }) },
  { weight: 1, arbitrary: FastCheck.record({ _tag: FastCheck.constant("Revoke" as const), client: Client }) },
  {
    weight: 5,
    arbitrary: FastCheck.record({
      _tag: FastCheck.constant("Wait" as const),
      millis: FastCheck.constantFrom(0, 100, 900, 1100, 2500, 6000)
    })
  }
)

/** In milliseconds (docs/protocol.md, going away). */
const grace = 1000

/** A call as its client knows it. */
interface Known {
  readonly tag: string
  readonly client: ClientName
  readonly id: string | number
  readonly session: string | undefined
  connection: Connection
  dropped: boolean
  droppedAt: number
  /** The client, its session or its token said that it is over. */
  over: boolean
  /** How much the client had seen when it cancelled. */
  seenAtCancel: number | undefined
}

const run = (actions: ReadonlyArray<Action>, end: "patience" | "shutdown"): Effect.Effect<void> =>
  Effect.gen(function* () {
    const world = yield* makeWorld
    const sessions = new Map<ClientName, string>()
    const calls: Array<Known> = []
    const answered = new Set<unknown>()
    const seenBy = (client: ClientName): ReadonlyArray<Seen> => world.seen.get(client) ?? []

    const sessionOf = (client: ClientName) =>
      Effect.gen(function* () {
        if (clients[client].modern) return undefined
        const session = sessions.get(client) ?? (yield* world.open(clients[client].who))
        sessions.set(client, session)
        return session
      })
    const endAll = (which: (call: Known) => boolean) => {
      for (const call of calls) {
        if (!which(call) || call.over) continue
        call.over = true
        call.seenAtCancel ??= seenBy(call.client).length
      }
    }
    /** Recent calls are the ones in which something still goes on. */
    const nth = (n: number): Known | undefined => calls.at(-1 - (n % Math.min(4, Math.max(1, calls.length))))
    const isRunning = (call: Known) => world.runs.get(call.tag)?.ended === "running"

    const perform = (action: Action): Effect.Effect<void, never, Scope.Scope> =>
      Effect.gen(function* () {
        switch (action._tag) {
          case "Call": {
            const { client, id } = action
            const { modern, who } = clients[client]
            const session = yield* sessionOf(client)
            const tag = `tag:${client}:${calls.length}`
            const token = action.progress ? { progressToken: "same" } : {}
            const params = { name: "tool", arguments: { tag } }
            const body = {
              jsonrpc: "2.0",
              id,
              method: "tools/call",
              params: modern ? { ...params, ...modernMeta(token, { elicitation: {} }) } : { ...params, _meta: token }
            }
            const connection = yield* world.post(client, who, session, body)
            calls.push({
              tag,
              client,
              id,
              session,
              connection,
              dropped: false,
              droppedAt: 0,
              over: false,
              seenAtCancel: undefined
            })
            return
          }
          case "Order": {
            const call = nth(action.call)
            const orders = call === undefined ? undefined : world.runs.get(call.tag)?.orders
            if (orders !== undefined) yield* Queue.offer(orders, action.order)
            return
          }
          case "Cancel": {
            const { client, id } = action
            const session = sessions.get(client)
            if (session === undefined) return
            const message = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } }
            yield* world.post(client, clients[client].who, session, message)
            yield* world.settle
            endAll((call) => call.session === session && call.id === id)
            return
          }
          case "Drop": {
            const call = nth(action.call)
            if (call === undefined || call.dropped || call.connection.over) return
            yield* Fiber.interrupt(call.connection.fiber)
            call.dropped = true
            call.droppedAt = yield* Clock.currentTimeMillis
            if (clients[call.client].modern) endAll((one) => one === call)
            return
          }
          case "Resume": {
            const call = nth(action.call)
            const from = call?.connection.lastEventId
            if (call?.session === undefined || from === undefined || sessions.get(call.client) !== call.session) return
            const connection = yield* world.listen(call.client, clients[call.client].who, call.session, from)
            yield* world.settle
            call.connection = connection
            // One who comes back after the grace comes back to a call that has ended.
            const away = (yield* Clock.currentTimeMillis) - call.droppedAt
            call.dropped = call.dropped && away >= grace
            return
          }
          case "Blink":
            yield* perform({ _tag: "Drop", call: action.call })
            yield* TestClock.adjust(action.millis)
            return yield* perform({ _tag: "Resume", call: action.call })
          case "Answer": {
            const { client } = action
            const session = sessions.get(client)
            const questions = seenBy(client).filter((one) => isQuestion(one) && !answered.has(one.message["id"]))
            const question = questions[action.question % Math.max(1, questions.length)]
            if (session === undefined || question === undefined) return
            const { id } = question.message
            answered.add(id)
            const result = { to: tagOf(question.message) }
            yield* world.post(client, clients[client].who, session, { jsonrpc: "2.0", id, result })
            return
          }
          case "Delete": {
            const session = sessions.get(action.client)
            if (session === undefined) return
            sessions.delete(action.client)
            yield* world.close(clients[action.client].who, session)
            yield* world.settle
            endAll((call) => call.session === session)
            return
          }
          case "Revoke": {
            const { who } = clients[action.client]
            yield* world.revoke(who)
            yield* world.settle
            for (const name of names) if (clients[name].who === who) sessions.delete(name)
            endAll((call) => clients[call.client].who === who)
            return
          }
          case "Wait":
            yield* TestClock.adjust(action.millis)
        }
      })

    for (const action of actions) {
      yield* perform(action)
      yield* world.settle
    }
    if (end === "shutdown") yield* world.shutdown
    // Past every grace: of a dropped connection, of a stream that the server ended, of a question.
    yield* TestClock.adjust("11 minutes")
    yield* world.settle

    for (const call of calls) {
      const started = world.runs.has(call.tag)
      if (call.over || end === "shutdown") {
        assert.isFalse(isRunning(call), `${call.tag} runs on although it is over`)
      } else if (call.connection.over || call.dropped) {
        assert.isFalse(isRunning(call), `${call.tag} runs on with nobody to hear of it`)
        const heard = seenBy(call.client).some((one) => isAnswer(one) && tagOf(one.message) === call.tag)
        assert.isTrue(call.dropped || heard, `${call.tag} was ended without a word`)
      } else {
        assert.isTrue(started && isRunning(call), `${call.tag} was ended although its client waits for it`)
      }
    }
    for (const client of names) {
      const all = seenBy(client)
      const mine = calls.filter((call) => call.client === client)
      for (const one of all) {
        const tag = tagOf(one.message)
        if (tag !== undefined)
          assert.include(
            mine.map((call) => call.tag),
            tag,
            `${client} saw another's message`
          )
      }
      for (const call of mine) {
        const about = all.flatMap((one, at) => (tagOf(one.message) === call.tag ? [{ ...one, at }] : []))
        const late = about.filter(({ at }) => call.seenAtCancel !== undefined && at >= call.seenAtCancel)
        assert.deepStrictEqual(late, [], `${call.tag} was heard of after it was over`)
        const answers = about.filter((one) => isAnswer(one) && !isInputRequired(one))
        assert.isAtMost(answers.length, 1, `${call.tag} was answered twice`)
        const answerAt = answers[0]?.at ?? Infinity
        assert.isTrue(
          about.every(({ at }) => at <= answerAt),
          `${call.tag} was heard of after its answer`
        )
        for (const answer of answers) assert.isTrue(Object.is(answer.message["id"], call.id), `${call.tag}: another id`)
        const steps = about.filter(isProgress).map((one) => (one.message["params"] as { progress: number }).progress)
        assert.deepStrictEqual(
          steps,
          [...new Set(steps)].toSorted((a, b) => a - b),
          `${call.tag}: progress that does not grow`
        )
        const ids = about.flatMap(({ eventId }) => (eventId === undefined ? [] : [eventId]))
        assert.strictEqual(new Set(ids).size, ids.length, `${call.tag}: an event came twice`)
      }
    }
  }).pipe(Effect.scoped) as Effect.Effect<void>

describe("any interleaving of calls, orders, cancels, drops, resumptions, ends of sessions and tokens, and time", () => {
  it.effect(
    "leaves a tool that nobody owns, ends one that somebody waits for, crosses messages, or says something after the end",
    () => forAll(FastCheck.array(Action, { minLength: 1, maxLength: 40 }), (actions) => run(actions, "patience"), 300),
    120_000
  )

  it.effect(
    "outlives a shutdown",
    () => forAll(FastCheck.array(Action, { minLength: 1, maxLength: 25 }), (actions) => run(actions, "shutdown"), 60),
    60_000
  )
})
