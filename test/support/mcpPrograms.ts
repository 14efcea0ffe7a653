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

export type Action =
  | {
      readonly _tag: "Call"
      readonly client: ClientName
      readonly id: Id
      readonly token: Id | undefined
      readonly stream: boolean
    }
  | { readonly _tag: "Order"; readonly call: number; readonly order: Order }
  | { readonly _tag: "Cancel"; readonly client: ClientName; readonly id: Id }
  | { readonly _tag: "CancelTask"; readonly call: number }
  | { readonly _tag: "Drop"; readonly call: number }
  /** Legacy: GET with the last event's id. */
  | { readonly _tag: "Resume"; readonly call: number }
  /** A lost connection, and the client back after a while. */
  | { readonly _tag: "Blink"; readonly call: number; readonly millis: number }
  /** Legacy: a response to a question. */
  | { readonly _tag: "Answer"; readonly client: ClientName; readonly question: number }
  /** Modern: the request again, with answers or without; of a task, `tasks/update`. */
  | { readonly _tag: "Retry"; readonly call: number; readonly id: Id; readonly answers: boolean }
  | { readonly _tag: "Delete"; readonly client: ClientName }
  | { readonly _tag: "Revoke"; readonly client: ClientName }
  | { readonly _tag: "Wait"; readonly millis: number }
  /** A client uses what belongs to another. */
  | { readonly _tag: "Trespass"; readonly client: ClientName; readonly call: number; readonly way: Way }

const ways = ["answer", "cancel", "resume", "session", "delete", "state", "task"] as const
type Way = (typeof ways)[number]

const Client = FastCheck.constantFrom(...names)
const AnyId = FastCheck.constantFrom<Id>(1, "1", 2)
/** Counted from the latest: most of what happens is about one call. */
const Call = FastCheck.constantFrom(0, 0, 0, 0, 0, 1, 1, 2, 3)
const constant = <const A extends string>(tag: A) => FastCheck.constant(tag)

const calling: FastCheck.Arbitrary<Action> = FastCheck.record({
  _tag: constant("Call"),
  client: Client,
  id: AnyId,
  token: FastCheck.constantFrom<Id | undefined>(1, "1", 1, undefined),
  stream: FastCheck.constantFrom(true, true, true, true, false)
})
const ordering: FastCheck.Arbitrary<Action> = FastCheck.record({
  _tag: constant("Order"),
  call: Call,
  order: FastCheck.constantFrom<Order>(
    "progress",
    "progress",
    "progress",
    "again",
    "log",
    "ask",
    "ask",
    "detach",
    "escalate",
    "partingWords",
    "finish",
    "finish"
  )
})
const cancelling: FastCheck.Arbitrary<Action> = FastCheck.record({
  _tag: constant("Cancel"),
  client: Client,
  id: AnyId
})
const answering: FastCheck.Arbitrary<Action> = FastCheck.oneof(
  FastCheck.record({ _tag: constant("Answer"), client: Client, question: FastCheck.nat(5) }),
  FastCheck.record({
    _tag: constant("Retry"),
    call: Call,
    id: AnyId,
    answers: FastCheck.constantFrom(true, true, true, false)
  })
)
const waiting: FastCheck.Arbitrary<Action> = FastCheck.record({
  _tag: constant("Wait"),
  millis: FastCheck.constantFrom(0, 100, 900, 1100, 2500, 6000, 31_000, 400_000)
})

const programs = (action: FastCheck.Arbitrary<Action>) =>
  FastCheck.array(action, { minLength: 1, maxLength: 30, size: "max" })

/** Everything that may happen to calls. */
export const AnyProgram = programs(
  FastCheck.oneof(
    { weight: 6, arbitrary: calling },
    { weight: 10, arbitrary: ordering },
    { weight: 3, arbitrary: cancelling },
    { weight: 1, arbitrary: FastCheck.record({ _tag: constant("CancelTask"), call: Call }) },
    { weight: 4, arbitrary: FastCheck.record({ _tag: constant("Drop"), call: Call }) },
    { weight: 3, arbitrary: FastCheck.record({ _tag: constant("Resume"), call: Call }) },
    {
      weight: 4,
      arbitrary: FastCheck.record({
        _tag: constant("Blink"),
        call: Call,
        millis: FastCheck.constantFrom(0, 500, 990, 1200)
      })
    },
    { weight: 6, arbitrary: answering },
    { weight: 1, arbitrary: FastCheck.record({ _tag: constant("Delete"), client: Client }) },
    { weight: 1, arbitrary: FastCheck.record({ _tag: constant("Revoke"), client: Client }) },
    { weight: 4, arbitrary: waiting }
  )
)

/** What clients do that use the same ids, and each other's. */
export const CrossedProgram = programs(
  FastCheck.oneof(
    { weight: 6, arbitrary: calling },
    { weight: 8, arbitrary: ordering },
    { weight: 3, arbitrary: cancelling },
    { weight: 5, arbitrary: answering },
    {
      weight: 8,
      arbitrary: FastCheck.record({
        _tag: constant("Trespass"),
        client: Client,
        call: Call,
        way: FastCheck.constantFrom(...ways)
      })
    },
    { weight: 1, arbitrary: waiting }
  )
)

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
      const nth = (n: number): Known | undefined => calls.at(-1 - n)
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
          const sentAway = connection.over && call.away === undefined && !call.over && call.session !== undefined
          if (sentAway && finalAnswer(call) === undefined) call.away = { since: now, grace: sentAwayGrace }
        }
      })

      const trespass = (client: ClientName, call: Known, way: Way): Effect.Effect<void, never, Scope.Scope> =>
        Effect.gen(function* () {
          const { who } = clients[client]
          const foreign = clients[call.client].who !== who
          const mine = yield* sessionOf(client)
          switch (way) {
            case "answer": {
              const question = seenBy(call.client).findLast(isQuestion)
              if (mine === undefined || question === undefined) return
              yield* send(client, mine, { id: question.message["id"], result: { to: "somebody else" } })
              return
            }
            case "cancel":
              if (mine === undefined || call.session === undefined || !foreign) return
              for (const { id } of call.connections) {
                yield* send(client, call.session, { method: "notifications/cancelled", params: { requestId: id } })
              }
              return
            case "resume":
              if (mine === undefined || call.lastEventId === undefined) return
              yield* world.listen(client, who, mine, call.lastEventId)
              return
            case "session": {
              if (call.session === undefined || !foreign) return
              const { number } = yield* world.listen(client, who, call.session, call.lastEventId)
              yield* world.settle
              const got = seenBy(client).filter((seen) => seen.connection === number)
              assert.deepStrictEqual(
                got.map(({ message }) => message["error"]),
                ["SessionNotFound"],
                `${client} took up the stream of ${call.tag}`
              )
              return
            }
            case "delete":
              if (call.session !== undefined && foreign) yield* world.close(who, call.session)
              return
            case "state": {
              const told = about(call).findLast(isInputRequired)
              if (told === undefined || !foreign || !isModern(client)) return
              const { requestState } = resultOf(told)
              const got = yield* ask(client, "tools/call", {
                ...call.params,
                requestState,
                inputResponses: { [questionKey]: { to: "somebody else" } }
              })
              assert.deepStrictEqual(
                got.map(({ message }) => message["error"]),
                ["StateRejected"],
                `${client} went on with ${call.tag}`
              )
              return
            }
            case "task": {
              const taskId = taskOf(call)
              if (taskId === undefined || !foreign || !isModern(client)) return
              const inputResponses = { [questionKey]: { to: "somebody else" } }
              for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
                const got = yield* ask(client, method, { taskId, inputResponses })
                assert.deepStrictEqual(
                  got.map(({ message }) => message["error"]),
                  ["TaskNotFound"],
                  `${client} sent ${method} for ${call.tag}`
                )
              }
            }
          }
        })

      const perform = (action: Action): Effect.Effect<void, never, Scope.Scope> =>
        Effect.gen(function* () {
          switch (action._tag) {
            case "Call": {
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
                away: undefined,
                over: false,
                seenAtEnd: undefined,
                parkedAt: new Map(),
                retried: new Set()
              })
              return
            }
            case "Order": {
              const call = nth(action.call)
              const orders = call === undefined ? undefined : runOf(call)?.orders
              if (orders !== undefined) yield* Queue.offer(orders, action.order)
              return
            }
            case "Cancel": {
              const { client, id } = action
              const session = sessions.get(client)
              if (session === undefined) return
              endAll((call) => call.session === session && call.connections[0]?.id === id)
              yield* send(client, session, { method: "notifications/cancelled", params: { requestId: id } })
              return
            }
            case "CancelTask": {
              const call = nth(action.call)
              const taskId = call === undefined ? undefined : taskOf(call)
              if (call === undefined || taskId === undefined) return
              finish(call)
              yield* ask(call.client, "tasks/cancel", { taskId })
              return
            }
            case "Drop": {
              const call = nth(action.call)
              if (call === undefined || call.away !== undefined || current(call).over) return
              yield* Fiber.interrupt(current(call).fiber)
              call.away = { since: yield* Clock.currentTimeMillis, grace: droppedGrace }
              if (isModern(call.client)) finish(call)
              return
            }
            case "Resume": {
              const call = nth(action.call)
              if (call?.session === undefined || call.lastEventId === undefined) return
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
              const { client } = action
              const session = sessions.get(client)
              const questions = seenBy(client).filter((seen) => isQuestion(seen) && !answered.has(seen.message["id"]))
              const question = questions[action.question % Math.max(1, questions.length)]
              if (session === undefined || question === undefined) return
              const { id } = question.message
              answered.add(id)
              yield* send(client, session, { id, result: { to: tagOf(question.message) } })
              return
            }
            case "Retry": {
              const call = nth(action.call)
              if (call === undefined || call.over) return
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
              const session = sessions.get(action.client)
              if (session === undefined) return
              sessions.delete(action.client)
              endAll((call) => call.session === session)
              yield* world.close(clients[action.client].who, session)
              return
            }
            case "Revoke": {
              const { who } = clients[action.client]
              endAll((call) => clients[call.client].who === who)
              for (const name of names) if (clients[name].who === who) sessions.delete(name)
              yield* world.revoke(who)
              return
            }
            case "Wait":
              yield* world.adjust(action.millis)
              return
            case "Trespass": {
              const call = nth(action.call)
              if (call !== undefined && call.client !== action.client) yield* trespass(action.client, call, action.way)
            }
          }
        })

      for (const action of actions) {
        yield* perform(action)
        yield* world.settle
        yield* notice
      }
      if (end === "shutdown") yield* world.shutdown
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
