import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { Usage, WorkerEvent } from "./Job.ts"
import type { Running } from "./Processes.ts"
import type { Turn, TurnEnd } from "./Worker.ts"

/** The agent answered with an error; or, without a code, not at all: it is silent, or gone. */
export class AcpRequestFailed extends Schema.TaggedError<AcpRequestFailed>()("AcpRequestFailed", {
  code: Schema.optional(Schema.Number),
  detail: Schema.String
}) {
  /** The protocol's "authentication required". */
  get wantsLogin(): boolean {
    return this.code === -32000
  }
}

export interface AgentInfo {
  /** Of the protocol. */
  readonly version: number
  /** Name and release of the agent, where it says them. */
  readonly name: string | undefined
  /** Ways in which it goes on with an earlier session. */
  readonly resumes: boolean
  readonly loads: boolean
}

export interface OpenSession {
  readonly sessionId: string
  /** Ids of the modes that it offers. */
  readonly modes: ReadonlyArray<string>
  readonly models: ReadonlyArray<{ readonly configId: string; readonly value: string; readonly name: string }>
}

type Answer<A> = Effect.Effect<A, AcpRequestFailed>

/** One agent, for one turn. What it asks for meanwhile is answered by the turn's tier. */
export interface AcpConnection {
  readonly initialize: Answer<AgentInfo>
  readonly authenticate: (method: string) => Answer<void>
  readonly newSession: (cwd: string) => Answer<OpenSession>
  readonly continueSession: (how: "resume" | "load", sessionId: string, cwd: string) => Answer<OpenSession>
  readonly setMode: (sessionId: string, mode: string) => Answer<void>
  readonly setConfigOption: (sessionId: string, configId: string, value: string) => Answer<void>
  /** The turn itself: what happens in it is emitted before this answers, with the last message and why it stopped. */
  readonly prompt: (
    sessionId: string,
    text: string
  ) => Answer<{ readonly stopReason: string; readonly message: string; readonly usage: Usage | undefined }>
  /** Tells the agent to stop its turn, and waits until it has, whatever became of whoever called `prompt`. */
  readonly cancel: (sessionId: string) => Effect.Effect<void>
  /** How the turn ends by what the agent asked for, if it does: a question for the requester, a plan where one was wanted. */
  readonly asked: Effect.Effect<TurnEnd>
  /** Lines of the agent's output that were none of the protocol's. */
  readonly misunderstood: Effect.Effect<number>
  /** The beginning of those, and what it wrote to stderr. */
  readonly complaints: Effect.Effect<string>
}

export class AcpConnections extends Context.Tag("pi-a2a-ext/services/jobs/AcpConnections")<
  AcpConnections,
  {
    /** `emit` may suspend: then the agent's output is not read on. */
    readonly open: (
      child: Running,
      turn: Pick<Turn, "tier" | "cwd">,
      emit: (events: ReadonlyArray<WorkerEvent>) => Effect.Effect<unknown>
    ) => Effect.Effect<AcpConnection, never, Scope.Scope>
  }
>() {}
