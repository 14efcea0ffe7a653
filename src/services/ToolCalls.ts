import * as Cause from "effect/Cause"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Approvals from "./Approvals.ts"
import type { AuditOutcome } from "./Audit.ts"
import { Audit } from "./Audit.ts"
import type { Principal } from "./Auth.ts"
import { Config } from "./Config.ts"
import type { CapabilityMissing, Exchange } from "./Exchange.ts"
import { exposed } from "./exposure.ts"
import type { ArgumentsInvalid, HostTool, HostUnavailable, JsonObject, ToolFault, ToolResult } from "./HostTools.ts"
import { HostTools } from "./HostTools.ts"

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

export interface ToolCall {
  /** Unique per call. */
  readonly callId: string
  readonly principal: Principal
  /** Session id, or `-`. */
  readonly sid: string
  /** The client's name as it gave it. */
  readonly client: string
  /** The name on the wire. */
  readonly name: string
  readonly args: JsonObject
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
  }
>() {}

const outcomeOf = (exit: Exit.Exit<ToolResult, Refusal | Fault>): AuditOutcome => {
  if (Exit.isSuccess(exit)) return { _tag: "Ran", isError: exit.value.isError }
  if (Cause.isInterrupted(exit.cause)) return { _tag: "Cancelled" }
  const failure = Cause.failureOption(exit.cause)
  if (failure._tag === "None" || failure.value._tag === "ToolFault" || failure.value._tag === "CapabilityMissing") {
    return { _tag: "Failed" }
  }
  return { _tag: "Refused", reason: failure.value._tag }
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

  const admit = Effect.fnUntraced(function* (call: ToolCall, tool: HostTool) {
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

  const call = Effect.fnUntraced(function* (call: ToolCall) {
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
        const run =
          tool === undefined
            ? Effect.fail(new ToolNotExposed({ tool: call.name }))
            : Effect.flatMap(admit(call, tool), (args) =>
                host.execute(tool, args, {
                  callId: call.callId,
                  client: call.client,
                  exchange: call.exchange
                })
              )
        const exit = yield* Effect.exit(restore(run))
        yield* done(outcomeOf(exit))
        return yield* exit
      })
    )
  })

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

  return { list, changes, call }
})

export const layer = Layer.effect(ToolCalls, make)
