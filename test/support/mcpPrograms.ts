import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import { isRecord } from "../../src/services/wire/JsonRpc.ts"
import type { Connection, Order, Seen } from "./mcpWorld.ts"
import {
  isAnswer,
  isInputRequired,
  isProgress,
  isSignOfLife,
  isQuestion,
  inWorld,
  modernMeta,
  principal,
  questionKey,
  resultOf,
  tagOf
} from "./mcpWorld.ts"

/** Two principals, each with a legacy and a modern client. All use the same few ids, progress tokens and questions. */
const one = principal("one")
const two = principal("two")
const tasksExtension = { extensions: { "io.modelcontextprotocol/tasks": {} } }
const clients = {
  anna: { who: one, era: "2025-11-25" },
  bert: { who: two, era: "2025-06-18" },
  carl: { who: one, era: "modern", capabilities: { elicitation: {} } },
  dora: { who: two, era: "modern", capabilities: { elicitation: {}, ...tasksExtension } }
} as const
export type ClientName = keyof typeof clients
const names = Object.keys(clients) as ReadonlyArray<ClientName>
const isModern = (client: ClientName): boolean => clients[client].era === "modern"

type Id = string | number

/** What happens to one call: `call` counts the calls of a program. */
type Step =
  | { readonly _tag: "Order"; readonly order: Order }
  /** Legacy. */
  | { readonly _tag: "Cancel" }
  | { readonly _tag: "CancelTask" }
  | { readonly _tag: "Drop" }
  /** Legacy: GET with the last event's id. */
  | { readonly _tag: "Resume" }
  /** A lost connection, and the client back after a while. */
  | { readonly _tag: "Blink"; readonly millis: number }
  /** Legacy: a response to a question. */
  | { readonly _tag: "Answer" }
  /** Modern: the request again, with answers or without; of a task, `tasks/update`. */
  | { readonly _tag: "Retry"; readonly id: Id; readonly answers: boolean }
  /** Of the call's session. */
  | { readonly _tag: "Delete" }
  /** Of the call's token. */
  | { readonly _tag: "Revoke" }
  | { readonly _tag: "Wait"; readonly millis: number }
  /** Another client uses what belongs to this call: one of the ways that there are at that moment. */
  | { readonly _tag: "Trespass"; readonly other: number; readonly way: number }

interface Call {
  readonly _tag: "Call"
  readonly client: ClientName
  readonly id: Id
  readonly token: Id | undefined
  readonly stream: boolean
}
export type Action = (Step | Call) & { readonly call: number }

const AnyId = FastCheck.constantFrom<Id>(1, "1", 2)
const constant = <const A extends string>(tag: A) => FastCheck.constant(tag)
const plain = <const A extends string>(tag: A) => FastCheck.record({ _tag: constant(tag) })

const Calling: FastCheck.Arbitrary<Call> = FastCheck.record({
  _tag: constant("Call"),
  client: FastCheck.constantFrom(...names),
  id: AnyId,
  token: FastCheck.constantFrom<Id | undefined>(1, "1", 1, undefined),
  stream: FastCheck.constantFrom(true, true, true, true, true, false)
})
const Ordering: FastCheck.Arbitrary<Step> = FastCheck.record({
  _tag: constant("Order"),
  order: FastCheck.constantFrom<Order>(
    "progress",
    "progress",
    "progress",
    "progress",
    "again",
    "log",
    "ask",
    "ask",
    "detach",
    "escalate",
    "finish"
  )
})
const Waiting: FastCheck.Arbitrary<Step> = FastCheck.record({
  _tag: constant("Wait"),
  millis: FastCheck.constantFrom(0, 100, 900, 1100, 2500, 6000, 31_000, 400_000)
})
const always: ReadonlyArray<FastCheck.WeightedArbitrary<Step>> = [
  { weight: 9, arbitrary: Ordering },
  { weight: 2, arbitrary: Waiting },
  { weight: 2, arbitrary: plain("Drop") },
  {
    weight: 1,
    arbitrary: FastCheck.oneof({ weight: 4, arbitrary: plain("Delete") }, { weight: 1, arbitrary: plain("Revoke") })
  }
]
const legacy: ReadonlyArray<FastCheck.WeightedArbitrary<Step>> = [
  ...always,
  { weight: 2, arbitrary: plain("Cancel") },
  { weight: 4, arbitrary: plain("Resume") },
  {
    weight: 3,
    arbitrary: FastCheck.record({ _tag: constant("Blink"), millis: FastCheck.constantFrom(0, 500, 990, 1200) })
  },
  { weight: 4, arbitrary: plain("Answer") }
]
const modern: ReadonlyArray<FastCheck.WeightedArbitrary<Step>> = [
  ...always,
  { weight: 1, arbitrary: plain("CancelTask") },
  {
    weight: 6,
    arbitrary: FastCheck.record({
      _tag: constant("Retry"),
      id: AnyId,
      answers: FastCheck.constantFrom(true, true, true, false)
    })
  }
]
const trespassing: FastCheck.WeightedArbitrary<Step> = {
  weight: 8,
  arbitrary: FastCheck.record({ _tag: constant("Trespass"), other: FastCheck.nat(2), way: FastCheck.nat(6) })
}

/** Calls with what happens to each, in one of the orders that keep the order of every call's own steps. */
const programs = (
  more: ReadonlyArray<FastCheck.WeightedArbitrary<Step>>
): FastCheck.Arbitrary<ReadonlyArray<Action>> => {
  const Scene = Calling.chain((call) =>
    FastCheck.record({
      call: FastCheck.constant(call),
      steps: FastCheck.array(FastCheck.oneof(...(isModern(call.client) ? modern : legacy), ...more), {
        maxLength: 12,
        size: "max"
      })
    })
  )
  return FastCheck.tuple(
    FastCheck.array(Scene, { minLength: 1, maxLength: 4, size: "max" }),
    FastCheck.array(FastCheck.nat(3), { maxLength: 52, size: "max" })
  ).map(([scenes, turns]) => {
    const waiting = scenes.map(({ call, steps }) => [call, ...steps])
    const numbers = new Map<number, number>()
    const actions: Array<Action> = []
    for (let at = 0; waiting.some((steps) => steps.length > 0); at++) {
      const left = waiting.flatMap((steps, scene) => (steps.length > 0 ? [scene] : []))
      const scene = left[(turns[at] ?? 0) % left.length] ?? 0
      const step = waiting[scene]?.shift()
      if (!numbers.has(scene)) numbers.set(scene, numbers.size)
      if (step !== undefined) actions.push({ ...step, call: numbers.get(scene) ?? 0 })
    }
    return actions
  })
}

/** Everything that may happen to calls. */
export const AnyProgram = programs([])

/** The same, by clients that use each other's ids, states and tasks as well. */
export const CrossedProgram = programs([trespassing])

/** In milliseconds (docs/protocol.md, going away; questions to the client). */
const droppedGrace = 1000
const sentAwayGrace = 30_000
const parkedFor = 600_000

/** A call as its client knows it. */
interface Known {
  readonly tag: string
  readonly client: ClientName
  readonly session: string | undefined
  readonly stream: boolean
  readonly params: Readonly<Record<string, unknown>>
  /** Those that it was sent on, and taken up again on. */
  readonly connections: Array<{ readonly connection: Connection; readonly id: Id; readonly token: Id | undefined }>
  lastEventId: string | undefined
  /** Since when there is nobody on its stream, and for how long that is all right. */
  /** How often its server sent its client away. */
  sentAway: number
  away: { readonly since: number; readonly grace: number } | undefined
  /** The client, its session or its token said that it is over. */
  over: boolean
  /** How much the client had seen when it was over. */
  seenAtEnd: number | undefined
  /** When it was told to come back with answers. */
  readonly parkedAt: Map<Seen, number>
  readonly retried: Set<Seen>
}

/**
 * Runs a program against the real server, with what docs/protocol.md says of it beside: who may hear what, which tools
 * may still run. `patience` ends past every grace but a task's.
 */
export const play = (actions: ReadonlyArray<Action>, end: "patience" | "shutdown"): Effect.Effect<void> =>
  inWorld(
    Effect.fnUntraced(function* (world) {
      const sessions = new Map<ClientName, string>()
      const calls: Array<Known> = []
      const answered = new Set<unknown>()
      const seenBy = (client: ClientName): ReadonlyArray<Seen> => world.seen.get(client) ?? []
      const runOf = (call: Known) => world.runs.get(call.tag)
      const isRunning = (call: Known) => runOf(call)?.ended === "running"
      const current = (call: Known): Connection => {
        const last = call.connections.at(-1)
        assert(last !== undefined)
        return last.connection
      }
      const heardOn = (call: Known, connection: Connection) =>
        seenBy(call.client).filter((seen) => seen.connection === connection.number)
      /** All that its connections said. */
      const about = (call: Known) => {
        const numbers = new Set(call.connections.map(({ connection }) => connection.number))
        return seenBy(call.client).flatMap((seen, at) => (numbers.has(seen.connection) ? [{ ...seen, at }] : []))
      }
      const lastOf = (call: Known): Seen => about(call).at(-1) ?? { connection: 0, eventId: undefined, message: {} }
      const taskOf = (call: Known): string | undefined => {
        const created = about(call).find((seen) => resultOf(seen)["resultType"] === "task")
        return created === undefined ? undefined : String(resultOf(created)["taskId"])
      }
      const finalAnswer = (call: Known) => about(call).find((seen) => isAnswer(seen) && !isInputRequired(seen))

      const sessionOf = (client: ClientName) =>
        Effect.gen(function* () {
          const { era, who } = clients[client]
          if (era === "modern") return undefined
          const session = sessions.get(client) ?? (yield* world.open(who, era))
          sessions.set(client, session)
          return session
        })
      const finish = (call: Known) => {
        call.over = true
        call.seenAtEnd ??= seenBy(call.client).length
      }
      const endAll = (which: (call: Known) => boolean) => {
        for (const call of calls) if (which(call) && !call.over) finish(call)
      }
      const send = (client: ClientName, session: string | undefined, body: object, stream = true) =>
        world.post(client, clients[client].who, session, { jsonrpc: "2.0", ...body }, stream)
      /** A request beside the calls. */
      const ask = (client: ClientName, method: string, params: object) =>
        Effect.gen(function* () {
          const { number } = yield* send(client, undefined, {
            id: "beside",
            method,
            params: { ...params, ...modernMeta({}, tasksExtension) }
          })
          yield* world.settle
          return seenBy(client).filter((seen) => seen.connection === number)
        })
      const answersTo = (seen: Seen) => {
        const requests = resultOf(seen)["inputRequests"]
        const to = tagOf(seen.message)
        return Object.fromEntries(Object.keys(isRecord(requests) ? requests : {}).map((key) => [key, { to }]))
      }

      const notice = Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        for (const call of calls) {
          const connection = current(call)
          call.lastEventId = connection.lastEventId ?? call.lastEventId
          for (const seen of heardOn(call, connection)) {
            if (isInputRequired(seen) && !call.parkedAt.has(seen)) call.parkedAt.set(seen, now)
          }
          const run = runOf(call)
          const sentAway = call.session !== undefined && call.sentAway < (run?.detached ?? 0)
          if (sentAway && connection.over && call.away === undefined) call.away = { since: now, grace: sentAwayGrace }
          call.sentAway = run?.detached ?? 0
          // Who has neither given up nor been away for too long still has its call.
          const parked = Math.max(-Infinity, ...call.parkedAt.values())
          const patient = call.away === undefined || now - call.away.since < call.away.grace
          const late = call.parkedAt.size > 0 && isInputRequired(lastOf(call)) && now - parked >= parkedFor
          if (!call.over && patient && !late) {
            assert.notStrictEqual(run?.ended, "interrupted", `${call.tag} was ended although its client wants it`)
          }
        }
      })

      type Way = () => Effect.Effect<void, never, Scope.Scope>
      /** What `client` can try with what belongs to `call`, as it is now. */
      const waysTo = (client: ClientName, call: Known): ReadonlyArray<Way> => {
        const { who } = clients[client]
        const foreign = clients[call.client].who !== who
        const mine = sessions.get(client)
        const { session, lastEventId } = call
        const question = about(call).findLast(isQuestion)
        const told = about(call).findLast(isInputRequired)
        const taskId = taskOf(call)
        const wrong = { [questionKey]: { to: "somebody else" } }
        const refused = (got: ReadonlyArray<Seen>, tag: string) =>
          assert.deepStrictEqual(
            got.map(({ message }) => message["error"]),
            [tag],
            `${client} got at ${call.tag}`
          )
        const ways: Array<Way> = []
        if (mine !== undefined && question !== undefined) {
          ways.push(() => send(client, mine, { id: question.message["id"], result: wrong[questionKey] }))
        }
        if (mine !== undefined && lastEventId !== undefined) {
          ways.push(() => world.listen(client, who, mine, lastEventId))
        }
        if (session !== undefined && foreign) {
          ways.push(
            Effect.fnUntraced(function* () {
              const { number } = yield* world.listen(client, who, session, lastEventId)
              yield* world.settle
              refused(
                seenBy(client).filter((seen) => seen.connection === number),
                "SessionNotFound"
              )
            }),
            () => world.close(who, session),
            () =>
              Effect.forEach(
                call.connections,
                ({ id }) => send(client, session, { method: "notifications/cancelled", params: { requestId: id } }),
                { discard: true }
              )
          )
        }
        if (told !== undefined && foreign && isModern(client)) {
          const body = { ...call.params, requestState: resultOf(told)["requestState"], inputResponses: wrong }
          ways.push(() => Effect.map(ask(client, "tools/call", body), (got) => refused(got, "StateRejected")))
        }
        if (taskId !== undefined && foreign && isModern(client)) {
          ways.push(() =>
            Effect.forEach(
              ["tasks/get", "tasks/update", "tasks/cancel"],
              (method) =>
                Effect.map(ask(client, method, { taskId, inputResponses: wrong }), (got) =>
                  refused(got, "TaskNotFound")
                ),
              { discard: true }
            )
          )
        }
        return ways
      }

      const begin = (action: Call) =>
        Effect.gen(function* () {
          const { client, id, stream, token } = action
          const session = yield* sessionOf(client)
          const tag = `tag:${client}:${calls.length}`
          const params = { name: "tool", arguments: { tag } }
          const progress = token === undefined ? {} : { progressToken: token }
          const { era } = clients[client]
          const meta =
            era === "modern"
              ? modernMeta(
                  { ...progress, "io.modelcontextprotocol/logLevel": "info" },
                  "capabilities" in clients[client] ? clients[client].capabilities : {}
                )
              : { _meta: progress }
          const body = { id, method: "tools/call", params: { ...params, ...meta } }
          const connection = yield* send(client, session, body, stream)
          calls.push({
            tag,
            client,
            session,
            stream,
            params,
            connections: [{ connection, id, token }],
            lastEventId: undefined,
            sentAway: 0,
            away: undefined,
            over: false,
            seenAtEnd: undefined,
            parkedAt: new Map(),
            retried: new Set()
          })
        })

      const perform = (action: Action): Effect.Effect<void, never, Scope.Scope> =>
        Effect.gen(function* () {
          if (action._tag === "Call") return yield* begin(action)
          const call = calls[action.call]
          assert(call !== undefined)
          switch (action._tag) {
            case "Order": {
              const orders = runOf(call)?.orders
              if (orders !== undefined) yield* Queue.offer(orders, action.order)
              return
            }
            case "Cancel": {
              const { client, connections, session } = call
              const id = connections[0]?.id
              if (session === undefined || sessions.get(client) !== session) return
              endAll((one) => one.session === session && one.connections[0]?.id === id)
              yield* send(client, session, { method: "notifications/cancelled", params: { requestId: id } })
              return
            }
            case "CancelTask": {
              const taskId = taskOf(call)
              if (taskId === undefined) return
              finish(call)
              yield* ask(call.client, "tasks/cancel", { taskId })
              return
            }
            case "Drop": {
              if (call.away !== undefined || current(call).over) return
              yield* Fiber.interrupt(current(call).fiber)
              call.away = { since: yield* Clock.currentTimeMillis, grace: droppedGrace }
              if (isModern(call.client)) finish(call)
              return
            }
            case "Resume": {
              if (call.session === undefined || call.lastEventId === undefined) return
              if (sessions.get(call.client) !== call.session) return
              // One who comes back after the grace comes back to a call that has ended.
              const late =
                call.away !== undefined && (yield* Clock.currentTimeMillis) - call.away.since >= call.away.grace
              if (late && runOf(call)?.ended === "interrupted") finish(call)
              const { who } = clients[call.client]
              const connection = yield* world.listen(call.client, who, call.session, call.lastEventId)
              const first = call.connections[0]
              assert(first !== undefined)
              call.connections.push({ ...first, connection })
              if (!late) call.away = undefined
              return
            }
            case "Blink":
              yield* perform({ _tag: "Drop", call: action.call })
              yield* world.adjust(action.millis)
              return yield* perform({ _tag: "Resume", call: action.call })
            case "Answer": {
              const { client, session } = call
              if (session === undefined || sessions.get(client) !== session) return
              const question = about(call).find((seen) => isQuestion(seen) && !answered.has(seen.message["id"]))
              if (question === undefined) return
              const { id } = question.message
              answered.add(id)
              yield* send(client, session, { id, result: { to: tagOf(question.message) } })
              return
            }
            case "Retry": {
              if (call.over) return
              const taskId = taskOf(call)
              if (taskId !== undefined) {
                const [state] = yield* ask(call.client, "tasks/get", { taskId })
                assert(state !== undefined)
                yield* ask(call.client, "tasks/update", { taskId, inputResponses: answersTo(state) })
                return
              }
              const told = heardOn(call, current(call)).find(isInputRequired)
              const parkedAt = told === undefined ? undefined : call.parkedAt.get(told)
              if (told === undefined || parkedAt === undefined || call.retried.has(told)) return
              if ((yield* Clock.currentTimeMillis) - parkedAt >= parkedFor) return
              call.retried.add(told)
              const previous = call.connections.at(-1)?.token
              // As the SDKs do, which make a token of each request's id.
              const token = previous === undefined ? undefined : `again-${calls.length}-${call.connections.length}`
              const connection = yield* send(
                call.client,
                undefined,
                {
                  id: action.id,
                  method: "tools/call",
                  params: {
                    ...call.params,
                    requestState: resultOf(told)["requestState"],
                    ...(action.answers ? { inputResponses: answersTo(told) } : {}),
                    ...modernMeta(
                      token === undefined ? {} : { progressToken: token },
                      "capabilities" in clients[call.client]
                        ? { elicitation: {}, ...(call.client === "dora" ? tasksExtension : {}) }
                        : {}
                    )
                  }
                },
                call.stream
              )
              call.connections.push({ connection, id: action.id, token })
              return
            }
            case "Delete": {
              const { client, session } = call
              if (session === undefined || sessions.get(client) !== session) return
              sessions.delete(client)
              endAll((one) => one.session === session)
              yield* world.close(clients[client].who, session)
              return
            }
            case "Revoke": {
              const { who } = clients[call.client]
              endAll((one) => clients[one.client].who === who)
              for (const name of names) if (clients[name].who === who) sessions.delete(name)
              yield* world.revoke(who)
              return
            }
            case "Wait":
              yield* world.adjust(action.millis)
              return
            case "Trespass": {
              const others = names.filter((name) => name !== call.client)
              const client = others[action.other]
              if (client === undefined) return
              yield* sessionOf(client)
              const ways = waysTo(client, call)
              const way = ways[action.way % Math.max(1, ways.length)]
              if (way !== undefined) yield* way()
            }
          }
        })

      for (const action of actions) {
        yield* perform(action)
        yield* world.settle
        yield* notice
      }
      if (end === "shutdown") {
        endAll(() => true)
        yield* world.shutdown
      }
      // Past every grace: of a dropped connection, of a stream that the server ended, of a question.
      yield* world.adjust("11 minutes")
      yield* world.settle
      yield* notice

      // Who runs.
      for (const call of calls) {
        const task = taskOf(call)
        const answer = finalAnswer(call)
        if (call.over || end === "shutdown") {
          assert.isFalse(isRunning(call), `${call.tag} runs on although it is over`)
        } else if (task !== undefined) {
          const [state] = yield* ask(call.client, "tasks/get", { taskId: task })
          assert(state !== undefined)
          assert.notStrictEqual(runOf(call)?.ended, "interrupted", `${call.tag} was ended although it is a task`)
          if (isRunning(call)) assert.include(["working", "input_required"], resultOf(state)["status"])
          else assert.strictEqual(resultOf(state)["status"], "completed")
        } else if (answer !== undefined) {
          assert.isFalse(isRunning(call), `${call.tag} runs on after its answer`)
        } else if (call.away !== undefined || current(call).over) {
          assert.isFalse(isRunning(call), `${call.tag} runs on with nobody to hear of it`)
          const parked = call.parkedAt.size > 0
          assert.isTrue(call.away !== undefined || parked, `${call.tag} was ended without a word`)
        } else {
          assert.isTrue(isRunning(call), `${call.tag} was ended although its client waits for it`)
        }
        assert.isFalse(runOf(call)?.again ?? false, `${call.tag} ran twice`)
        assert.strictEqual(runOf(call)?.misled ?? 0, 0, `${call.tag} got another's answer`)
      }
      // Who hears what.
      for (const client of names) {
        for (const { message } of seenBy(client)) {
          const tag = tagOf(message)
          if (tag !== undefined) assert.strictEqual(tag.split(":")[1], client, `${client} hears of ${tag}`)
        }
      }
      for (const call of calls) {
        const all = about(call)
        for (const seen of all) {
          const tag = tagOf(seen.message)
          if (tag !== undefined) assert.strictEqual(tag, call.tag, "another call's message on this call's connection")
        }
        const late = all.filter(({ at }) => call.seenAtEnd !== undefined && at >= call.seenAtEnd)
        assert.deepStrictEqual(late, [], `${call.tag} was heard of after it was over`)

        const answers = all.filter((seen) => isAnswer(seen) && !isInputRequired(seen))
        assert.isAtMost(answers.length, 1, `${call.tag} was answered twice`)
        const answerAt = answers[0]?.at ?? Infinity
        assert.isTrue(
          all.every(({ at }) => at <= answerAt),
          `${call.tag} was heard of after its answer`
        )
        for (const { connection, id, token } of call.connections) {
          const heard = all.filter((seen) => seen.connection === connection.number)
          for (const seen of heard.filter(isAnswer)) {
            assert.isTrue(Object.is(seen.message["id"], id), `${call.tag}: answered under another id`)
          }
          for (const seen of heard.filter(isProgress)) {
            const { progressToken } = seen.message["params"] as { progressToken: unknown }
            assert.isTrue(Object.is(progressToken, token), `${call.tag}: progress with another token`)
          }
          if (!call.stream)
            assert.notStrictEqual(connection.reply, "Stream", `${call.tag}: a stream that it cannot take`)
        }
        const steps = all.filter(isProgress).map((seen) => (seen.message["params"] as { progress: number }).progress)
        assert.deepStrictEqual(
          steps,
          [...new Set(steps)].toSorted((a, b) => a - b),
          `${call.tag}: progress that does not grow`
        )
        const wantsAll = call.stream && call.connections[0]?.token !== undefined && taskOf(call) === undefined
        if (answers.length > 0 && wantsAll) {
          const said = all.filter((seen) => isProgress(seen) && !isSignOfLife(seen))
          assert.strictEqual(said.length, runOf(call)?.steps, `${call.tag}: progress was lost on the way`)
        }
        const numbers = all.flatMap(({ eventId }) => (eventId === undefined ? [] : [Number(eventId.split("_")[1])]))
        assert.deepStrictEqual(
          numbers,
          numbers.map((_, index) => index + 1),
          `${call.tag}: an event that came twice, out of order, or not at all`
        )
      }
    })
  )
