import * as Cause from "effect/Cause"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Approvals from "./Approvals.ts"
import type { AuditOutcome } from "./Audit.ts"
import { Audit } from "./Audit.ts"
import type { Caller } from "./Caller.ts"
import { Config } from "./Config.ts"
import type { CapabilityMissing, Exchange } from "./Exchange.ts"
import { exposed } from "./exposure.ts"
import type { HostTool, JsonObject, ToolFault, ToolResult } from "./HostTools.ts"
import { ArgumentsInvalid, HostTools, HostUnavailable } from "./HostTools.ts"

/** Unknown, denied or hidden: one answer for the three, so that nobody can probe for what is hidden. */
export class ToolNotExposed extends Schema.TaggedError<ToolNotExposed>()("ToolNotExposed", { tool: Schema.String }) {}

/** The host's own policy forbids this call. */
export class PolicyDenied extends Schema.TaggedError<PolicyDenied>()("PolicyDenied", {
  tool: Schema.String,
  reason: Schema.String
}) {}

/** Nothing ran. */
export type Refusal = ToolNotExposed | ArgumentsInvalid | PolicyDenied | Approvals.ApprovalRefused | HostUnavailable

/** The call began, and broke off without a result. */
export type Fault = ToolFault | CapabilityMissing

/** What a tool is to be called with, and for whom. */
export interface Call extends Caller {
  /** Unique per call. */
  readonly callId: string
  /** The tool's name on the wire. */
  readonly name: string
  readonly args: JsonObject
}

export interface ToolCall extends Call {
  readonly exchange: Exchange
}

/**
 * The way of every remote tool call, whatever the protocol: exposure, validation, policy, approval, execution, with
 * the audit round all of it. No tool body runs unless each of them said yes.
 */
export class ToolCalls extends Context.Tag("pi-a2a-ext/services/ToolCalls")<
  ToolCalls,
  {
    /** What remote parties may see, in the host's order. The same rule decides on `call`. */
    readonly list: Effect.Effect<ReadonlyArray<HostTool>>
    /** Ticks when `list` really became another one: a late tool, an edit of the settings. */
    readonly changes: Stream.Stream<void>
    readonly call: (call: ToolCall) => Effect.Effect<ToolResult, Refusal | Fault>
    /** Runs what the tool could have done as well, under all that goes for a call of it. */
    readonly inPlaceOf: <A, E>(call: Call, run: Effect.Effect<A, E>) => Effect.Effect<A, Refusal | E>
  }
>() {}

const isRefusal: (error: unknown) => error is Refusal = Schema.is(
  Schema.Union(ToolNotExposed, ArgumentsInvalid, PolicyDenied, Approvals.ApprovalRefused, HostUnavailable)
)

const outcomeOf = <A, E>(exit: Exit.Exit<A, E>, isError: (value: A) => boolean): AuditOutcome => {
  if (Exit.isSuccess(exit)) return { _tag: "Ran", isError: isError(exit.value) }
  if (Cause.isInterrupted(exit.cause)) return { _tag: "Cancelled" }
  const error = Option.getOrUndefined(Cause.failureOption(exit.cause))
  return isRefusal(error) ? { _tag: "Refused", reason: error._tag } : { _tag: "Failed" }
}

const make = Effect.gen(function* () {
  const config = yield* Config
  const host = yield* HostTools
  const approvals = yield* Approvals.Approvals
  const audit = yield* Audit

  const list = Effect.gen(function* () {
    const settings = yield* config.current
    const catalog = yield* host.catalog
    return catalog.filter((tool) => exposed(settings, tool))
  })

  const admit = Effect.fnUntraced(function* (call: Call, tool: HostTool) {
    const args = yield* host.validate(tool, call.args)
    const policy = yield* host.policy(tool, args)
    if (policy._tag === "Deny") return yield* new PolicyDenied({ tool: call.name, reason: policy.reason })
    if (policy._tag === "Prompt") {
      yield* approvals.decide({ callId: call.callId, tool: tool.name, client: call.client, prompt: policy.prompt })
      // The answer took its time: what could be asked for then may be hidden by now.
      const still = (yield* list).some((candidate) => candidate.wireName === tool.wireName)
      if (!still) return yield* new ToolNotExposed({ tool: call.name })
    }
    return args
  })

  const bracket = <A, E>(
    call: Call,
    run: (tool: HostTool, args: JsonObject) => Effect.Effect<A, E>,
    isError: (value: A) => boolean
  ): Effect.Effect<A, Refusal | E> =>
    Effect.gen(function* () {
      const tool = (yield* list).find((candidate) => candidate.wireName === call.name)
      return yield* Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const done = yield* audit.start({
            id: call.callId,
            sid: call.sid,
            client: call.client,
            tool: call.name.slice(0, 128),
            args: call.args,
            durable: tool?.annotations.readOnlyHint !== true
          })
          const admitted =
            tool === undefined
              ? Effect.fail(new ToolNotExposed({ tool: call.name }))
              : Effect.flatMap(admit(call, tool), (args) => run(tool, args))
          const exit = yield* Effect.exit(restore(admitted))
          yield* done(outcomeOf(exit, isError))
          return yield* exit
        })
      )
    })

  const call = (call: ToolCall) =>
    bracket(
      call,
      (tool, args) => host.execute(tool, args, call),
      ({ isError }) => isError
    )

  const inPlaceOf = <A, E>(call: Call, run: Effect.Effect<A, E>) =>
    bracket(
      call,
      () => run,
      () => false
    )

  const shape = Effect.map(list, (tools) =>
    JSON.stringify(
      tools.map(({ annotations, description, title, wireName }) => [wireName, title, description, annotations])
    )
  )
  const changes = Stream.merge(host.changes, Stream.as(config.changes, undefined)).pipe(
    Stream.prepend(Chunk.of(undefined)),
    Stream.mapEffect(() => shape),
    Stream.changes,
    Stream.drop(1),
    Stream.as(undefined)
  )

  return { list, changes, call, inPlaceOf }
})

export const layer = Layer.effect(ToolCalls, make)
