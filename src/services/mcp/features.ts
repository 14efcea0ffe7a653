import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { PrincipalId } from "../Auth.ts"
import type { Caller } from "../Caller.ts"
import type { CapabilityMissing, Exchange } from "../Exchange.ts"
import type { JsonObject, ToolResult } from "../HostTools.ts"
import { HostInfo } from "../HostInfo.ts"
import { Prompts } from "../Prompts.ts"
import { Resources } from "../Resources.ts"
import { Results, resultScheme, resultTemplate } from "../Results.ts"
import type { Fault, Refusal } from "../ToolCalls.ts"
import { ToolCalls } from "../ToolCalls.ts"
import type { Params } from "../wire/JsonRpc.ts"
import { isRecord } from "../wire/JsonRpc.ts"
import * as Wire from "../wire/Mcp.ts"
import type { McpFailure } from "./failures.ts"
import { CallFailed, ParamsInvalid, Refused } from "./failures.ts"
import { page } from "./pages.ts"
import { refusalText } from "./refusals.ts"

export type Result = Readonly<Record<string, unknown>>

/** Lists whose change a client may want to hear of. */
export type Kind = "tools" | "prompts" | "resources"

/**
 * What the server offers, without an era: each method's parameters in, its result out. Does not know of sessions,
 * `_meta` or streams.
 */
export class Features extends Context.Tag("pi-a2a-ext/services/mcp/Features")<
  Features,
  {
    /** `ServerCapabilities` that both eras share. */
    readonly capabilities: Result
    readonly serverInfo: { readonly name: string; readonly title: string; readonly version: string }
    /** For the client's model: what this host is. */
    readonly instructions: string
    /** Methods that end at once. `undefined` where there is no such method. */
    readonly query: (
      method: string,
      params: Params | undefined,
      owner: PrincipalId
    ) => Effect.Effect<Result, McpFailure> | undefined
    /** Methods that may take their time, report, and ask. `undefined` where there is no such method. */
    readonly invoke: (
      method: string,
      params: Params | undefined,
      caller: Caller
    ) => ((exchange: Exchange) => Effect.Effect<Result, McpFailure>) | undefined
    /** The schema of a tool's arguments, as it is listed. */
    readonly inputSchema: (tool: string) => Effect.Effect<JsonObject | undefined>
    readonly listChanged: Stream.Stream<Kind>
    readonly resourceUpdated: Stream.Stream<string>
  }
>() {}

export const decodeParams =
  <A, I>(schema: Schema.Schema<A, I>) =>
  (method: string, params: Params | undefined): Either.Either<A, ParamsInvalid> =>
    Either.mapLeft(
      Schema.decodeUnknownEither(schema)(params ?? {}),
      (error) =>
        new ParamsInvalid({
          method,
          detail: ParseResult.ArrayFormatter.formatErrorSync(error)
            .map((issue) => `params.${issue.path.join(".")}: ${issue.message}`)
            .join("; ")
        })
    )

const decodeCall = decodeParams(Wire.CallToolParams)
const decodePrompt = decodeParams(Wire.GetPromptParams)
const decodeRead = decodeParams(Wire.ReadResourceParams)
const decodeComplete = decodeParams(Wire.CompleteParams)

const isFault = (error: Refusal | Fault): error is Fault =>
  error._tag === "ToolFault" || error._tag === "CapabilityMissing"

/** Values of one completion (MCP, completion: at most 100). */
const maxCompletions = 100

const make = Effect.gen(function* () {
  const tools = yield* ToolCalls
  const resources = yield* Resources
  const prompts = yield* Prompts
  const results = yield* Results
  const info = yield* HostInfo

  const listed = <A>(method: string, key: string, params: Params | undefined, items: Effect.Effect<ReadonlyArray<A>>) =>
    Effect.flatMap(items, (all) =>
      Either.map(page(method, all, params?.["cursor"]), ({ items: shown, ...rest }): Result => ({
        [key]: shown,
        ...rest
      }))
    )

  const complete = Effect.fnUntraced(function* (params: Params | undefined) {
    const { argument, ref } = yield* decodeComplete("completion/complete", params)
    const values =
      ref.type === "ref/prompt"
        ? yield* prompts.complete(ref.name, argument)
        : yield* resources.complete(ref.uri, argument)
    return {
      completion: {
        values: values.slice(0, maxCompletions),
        total: values.length,
        hasMore: values.length > maxCompletions
      }
    }
  })

  const callTool = (params: Params | undefined, caller: Caller) =>
    Effect.fnUntraced(function* (exchange: Exchange) {
      const { arguments: given, name } = yield* decodeCall("tools/call", params)
      const args = given === undefined ? {} : given
      if (!isRecord(args)) {
        return Wire.encodeToolResult(
          Wire.textResult(`'arguments' of ${name} must be a JSON object, or be left out`, true)
        )
      }
      const outcome = yield* tools.call({ ...caller, callId: crypto.randomUUID(), name, args, exchange }).pipe(
        Effect.catchAll((error): Effect.Effect<ToolResult, CallFailed | CapabilityMissing> => {
          if (!isFault(error)) return Effect.succeed(Wire.textResult(refusalText(error), true))
          return error._tag === "ToolFault" ? new CallFailed({ detail: error.detail }) : error
        })
      )
      return Wire.encodeToolResult(yield* results.fit(caller.principal.id, name, outcome))
    })

  const refused = (refusal: Refusal) => new Refused({ detail: refusalText(refusal) })
  const refusals = {
    ToolNotExposed: refused,
    ArgumentsInvalid: refused,
    PolicyDenied: refused,
    ApprovalRefused: refused,
    HostUnavailable: refused
  }

  const getPrompt = (params: Params | undefined, caller: Caller) =>
    Effect.fnUntraced(function* (exchange: Exchange) {
      const { arguments: args, name } = yield* decodePrompt("prompts/get", params)
      const invalid = (detail: string) => new ParamsInvalid({ method: "prompts/get", detail })
      const prompt = yield* prompts.get(name, args ?? {}, caller, exchange).pipe(
        Effect.catchTags({
          ...refusals,
          PromptNotFound: () => invalid(`params.name: no prompt '${name}'`),
          PromptArgumentsInvalid: (error) => invalid(`params.arguments: ${error.detail}`),
          AskFailed: (error) => new CallFailed({ detail: error.reason })
        })
      )
      return { ...prompt }
    })

  const readResource = (params: Params | undefined, caller: Caller) =>
    Effect.fnUntraced(function* (_exchange: Exchange) {
      const { uri } = yield* decodeRead("resources/read", params)
      const contents = uri.startsWith(resultScheme)
        ? results.read(uri, caller.principal.id)
        : Effect.catchTags(resources.read(uri, caller), refusals)
      return { contents: yield* contents }
    })

  return Features.of({
    capabilities: {
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { listChanged: true, subscribe: true },
      completions: {},
      logging: {},
      experimental: { [Wire.instanceKey]: { id: info.instance } }
    },
    serverInfo: { name: info.name, title: info.title, version: info.version },
    instructions: info.instructions,
    query: (method, params, owner) => {
      switch (method) {
        case "tools/list":
          return listed(
            method,
            "tools",
            params,
            Effect.map(tools.list, (all) => all.map(Wire.encodeTool))
          )
        case "prompts/list":
          return listed(method, "prompts", params, prompts.list)
        case "resources/list":
          return listed(
            method,
            "resources",
            params,
            Effect.zipWith(resources.list(owner), results.list(owner), (hosts, kept) => [...hosts, ...kept])
          )
        case "resources/templates/list":
          return listed(method, "resourceTemplates", params, Effect.succeed([...resources.templates, resultTemplate]))
        case "completion/complete":
          return complete(params)
        default:
          return undefined
      }
    },
    invoke: (method, params, caller) => {
      switch (method) {
        case "tools/call":
          return callTool(params, caller)
        case "prompts/get":
          return getPrompt(params, caller)
        case "resources/read":
          return readResource(params, caller)
        default:
          return undefined
      }
    },
    inputSchema: (name) => Effect.map(tools.list, (all) => all.find(({ wireName }) => wireName === name)?.inputSchema),
    listChanged: Stream.mergeAll(
      [
        Stream.as(tools.changes, "tools" as const),
        Stream.as(prompts.changes, "prompts" as const),
        Stream.as(resources.changes, "resources" as const)
      ],
      { concurrency: "unbounded" }
    ),
    resourceUpdated: resources.updates
  })
})

export const layer = Layer.effect(Features, make)
