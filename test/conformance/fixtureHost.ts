/**
 * What the official conformance suite wants to find on a server: tools, resources and prompts by the names that it
 * calls. Only the ports are filled in; every line of protocol is the product's.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PubSub from "effect/PubSub"
import * as Stream from "effect/Stream"
import type { Exchange, InputRequest } from "../../src/services/Exchange.ts"
import type { HostTool, JsonObject, ToolContent, ToolResult } from "../../src/services/HostTools.ts"
import { HostTools, ToolFault } from "../../src/services/HostTools.ts"
import type { Prompt, PromptMessage } from "../../src/services/Prompts.ts"
import { PromptArgumentsInvalid, PromptNotFound, Prompts } from "../../src/services/Prompts.ts"
import { ResourceNotFound, Resources } from "../../src/services/Resources.ts"

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
const wav = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

const text = (text: string): ToolContent => ({ type: "text", text })
const said = (...content: ReadonlyArray<ToolContent>): ToolResult => ({ content, isError: false })

const elicit = (message: string, properties: JsonObject, required: ReadonlyArray<string>): InputRequest => ({
  method: "elicitation/create",
  params: { mode: "form", message, requestedSchema: { type: "object", properties, required } }
})
const sample = (prompt: string): InputRequest => ({
  method: "sampling/createMessage",
  params: { messages: [{ role: "user", content: { type: "text", text: prompt } }], maxTokens: 100 }
})
const roots: InputRequest = { method: "roots/list", params: {} }

const at = (value: unknown, ...path: ReadonlyArray<string>): unknown =>
  path.reduce<unknown>(
    (here, key) => (typeof here === "object" && here !== null ? (here as JsonObject)[key] : undefined),
    value
  )

type Run = (
  args: JsonObject,
  exchange: Exchange,
  touch: (kind: "tools" | "prompts") => Effect.Effect<void>
) => Effect.Effect<ToolResult, ToolFault | Effect.Effect.Error<ReturnType<Exchange["ask"]>>>

interface Fixture {
  readonly schema?: JsonObject
  readonly run: Run
}

const object = (properties: JsonObject = {}, required: ReadonlyArray<string> = []): JsonObject => ({
  type: "object",
  properties,
  ...(required.length > 0 ? { required } : {})
})
const string = { type: "string" }

const just = (...content: ReadonlyArray<ToolContent>): Fixture => ({ run: () => Effect.succeed(said(...content)) })

/** A tool that asks and says what it was told. */
const asking = (requests: Record<string, InputRequest>): Fixture => ({
  run: (_args, exchange) =>
    Effect.map(exchange.ask(requests), (answers) => said(text(`answered: ${JSON.stringify(answers)}`)))
})

const pause = Effect.sleep("50 millis")

const fixtures: Readonly<Record<string, Fixture>> = {
  test_simple_text: just(text("This is a simple text response for testing.")),
  test_image_content: just({ type: "image", data: png, mimeType: "image/png" }),
  test_audio_content: just({ type: "audio", data: wav, mimeType: "audio/wav" }),
  test_embedded_resource: just({
    type: "resource",
    resource: {
      uri: "test://embedded-resource",
      mimeType: "text/plain",
      text: "This is an embedded resource content."
    }
  }),
  test_multiple_content_types: just(
    text("Multiple content types test:"),
    { type: "image", data: png, mimeType: "image/png" },
    {
      type: "resource",
      resource: {
        uri: "test://mixed-content-resource",
        mimeType: "application/json",
        text: '{"test":"data","value":123}'
      }
    }
  ),
  test_tool_with_logging: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
          exchange.log({ level: "info", data })
          yield* pause
        }
        return said(text("logged"))
      })
  },
  test_logging_tool: {
    run: (_args, exchange) =>
      Effect.sync(() => {
        exchange.log({ level: "info", data: "a message" })
        return said(text("logged"))
      })
  },
  test_tool_with_progress: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        for (const progress of [0, 50, 100]) {
          exchange.progress({ progress, total: 100, message: `step ${progress} of 100` })
          yield* pause
        }
        return said(text("done"))
      })
  },
  test_error_handling: {
    run: () => Effect.succeed({ ...said(text("This tool intentionally returns an error for testing")), isError: true })
  },
  test_reconnection: {
    run: (_args, exchange) =>
      Effect.as(Effect.zipRight(exchange.detach, Effect.sleep("100 millis")), said(text("you came back")))
  },
  test_sampling: {
    schema: object({ prompt: string }, ["prompt"]),
    run: ({ prompt }, exchange) =>
      Effect.map(exchange.ask({ sample: sample(String(prompt)) }), (answers) =>
        said(text(`LLM response: ${String(at(answers, "sample", "content", "text"))}`))
      )
  },
  test_elicitation: {
    schema: object({ message: string }, ["message"]),
    run: ({ message }, exchange) =>
      Effect.map(
        exchange.ask({
          user: elicit(String(message), { username: string, email: string }, ["username", "email"])
        }),
        ({ user }) =>
          said(
            text(`User response: action=${String(at(user, "action"))}, content=${JSON.stringify(at(user, "content"))}`)
          )
      )
  },
  test_elicitation_sep1034_defaults: {
    run: (_args, exchange) =>
      Effect.map(
        exchange.ask({
          user: elicit(
            "Please review the defaults",
            {
              name: { type: "string", default: "John Doe" },
              age: { type: "integer", default: 30 },
              score: { type: "number", default: 95.5 },
              status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
              verified: { type: "boolean", default: true }
            },
            []
          )
        }),
        ({ user }) => said(text(`Elicitation completed: ${JSON.stringify(user)}`))
      )
  },
  test_elicitation_sep1330_enums: {
    run: (_args, exchange) =>
      Effect.map(
        exchange.ask({
          user: elicit(
            "Please choose",
            {
              untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
              titledSingle: {
                type: "string",
                oneOf: [
                  { const: "value1", title: "First Option" },
                  { const: "value2", title: "Second Option" },
                  { const: "value3", title: "Third Option" }
                ]
              },
              legacyEnum: {
                type: "string",
                enum: ["opt1", "opt2", "opt3"],
                enumNames: ["Option One", "Option Two", "Option Three"]
              },
              untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
              titledMulti: {
                type: "array",
                items: {
                  anyOf: [
                    { const: "value1", title: "First Choice" },
                    { const: "value2", title: "Second Choice" },
                    { const: "value3", title: "Third Choice" }
                  ]
                }
              }
            },
            []
          )
        }),
        ({ user }) => said(text(`Elicitation completed: ${JSON.stringify(user)}`))
      )
  },
  json_schema_2020_12_tool: {
    schema: {
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      $defs: {
        address: { $anchor: "addressDef", type: "object", properties: { street: string, city: string } }
      },
      properties: {
        name: string,
        address: { $ref: "#/$defs/address" },
        contactMethod: { type: "string", enum: ["phone", "email"] },
        phone: string,
        email: string
      },
      allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
      if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
      // oxlint-disable-next-line unicorn/no-thenable -- JSON Schema's own keyword
      then: { required: ["phone"] },
      else: { required: ["email"] },
      additionalProperties: false
    },
    run: (args) => Effect.succeed(said(text(JSON.stringify(args))))
  },
  test_x_mcp_header: {
    schema: object({ region: { type: "string", "x-mcp-header": "Region" }, query: string }, []),
    run: (args) => Effect.succeed(said(text(JSON.stringify(args))))
  },
  test_missing_capability: {
    run: (_args, exchange) => Effect.as(exchange.ask({ sample: sample("hello") }), said(text("sampled")))
  },
  test_streaming_elicitation: asking({ user_name: elicit("What is your name?", { name: string }, ["name"]) }),
  test_trigger_tool_change: { run: (_args, _exchange, touch) => Effect.as(touch("tools"), said(text("changed"))) },
  test_trigger_prompt_change: { run: (_args, _exchange, touch) => Effect.as(touch("prompts"), said(text("changed"))) },
  test_input_required_result_elicitation: {
    run: (_args, exchange) =>
      Effect.map(exchange.ask({ user_name: elicit("What is your name?", { name: string }, ["name"]) }), (answers) =>
        said(text(`Hello, ${String(at(answers, "user_name", "content", "name"))}!`))
      )
  },
  test_input_required_result_sampling: asking({ capital_question: sample("What is the capital of France?") }),
  test_input_required_result_list_roots: asking({ client_roots: roots }),
  test_input_required_result_request_state: {
    run: (_args, exchange) =>
      Effect.map(exchange.ask({ confirm: elicit("Please confirm", { ok: { type: "boolean" } }, ["ok"]) }), (answers) =>
        said(text(`state-ok: ${JSON.stringify(answers)}`))
      )
  },
  test_input_required_result_tampered_state: asking({
    confirm: elicit("Please confirm", { ok: { type: "boolean" } }, ["ok"])
  }),
  test_input_required_result_multiple_inputs: asking({
    user_name: elicit("What is your name?", { name: string }, ["name"]),
    greeting: sample("Write a greeting"),
    client_roots: roots
  }),
  test_input_required_result_multi_round: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        const first = yield* exchange.ask({ step1: elicit("Step 1: your name?", { name: string }, ["name"]) })
        const second = yield* exchange.ask({ step2: elicit("Step 2: your colour?", { color: string }, ["color"]) })
        return said(text(JSON.stringify({ ...first, ...second })))
      })
  },
  test_input_required_result_capabilities: {
    // Asks for what this client can give, and for nothing else.
    run: (_args, exchange) =>
      exchange.ask({ sampled: sample("hello") }).pipe(
        Effect.catchTag("CapabilityMissing", () =>
          exchange.ask({ confirm: elicit("Please confirm", { ok: { type: "boolean" } }, ["ok"]) })
        ),
        Effect.map((answers) => said(text(JSON.stringify(answers))))
      )
  },
  greet: {
    schema: object({ name: string }, ["name"]),
    run: ({ name }) => Effect.succeed(said(text(`Hello, ${String(name)}!`)))
  },
  slow_compute: {
    schema: object({ seconds: { type: "number" }, label: string }),
    run: ({ label, seconds }, exchange) =>
      Effect.gen(function* () {
        if (Number(seconds ?? 0) > 0) yield* exchange.escalate(false)
        yield* Effect.sleep(Number(seconds ?? 0) * 1000)
        return said(text(`computed ${String(label ?? "")}`))
      })
  },
  failing_job: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        yield* exchange.escalate(true)
        yield* Effect.sleep("1 second")
        return { ...said(text("the job failed")), isError: true }
      })
  },
  protocol_error_job: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        yield* exchange.escalate(false)
        yield* pause
        return yield* new ToolFault({ detail: "the job broke down" })
      })
  },
  confirm_delete: {
    schema: object({ filename: string }),
    run: ({ filename }, exchange) =>
      Effect.gen(function* () {
        yield* exchange.escalate(false)
        const answers = yield* exchange.ask({
          confirm: elicit(`Delete ${String(filename)}?`, { confirm: { type: "boolean" } }, ["confirm"])
        })
        return said(text(`deleted: ${JSON.stringify(answers)}`))
      })
  },
  multi_input: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        yield* exchange.escalate(false)
        const answers = yield* exchange.ask({
          first: elicit("First?", { value: string }, ["value"]),
          second: elicit("Second?", { value: string }, ["value"])
        })
        return said(text(JSON.stringify(answers)))
      })
  },
  test_tool_with_task: {
    run: (_args, exchange) =>
      Effect.gen(function* () {
        const answers = yield* exchange.ask({ user_name: elicit("What is your name?", { name: string }, ["name"]) })
        yield* exchange.escalate(true)
        yield* pause
        return said(text(`Hello, ${String(at(answers, "user_name", "content", "name"))}!`))
      })
  }
}

const toTool = (name: string, { schema }: Fixture, description = `The fixture ${name}.`): HostTool => ({
  name,
  wireName: name,
  title: name,
  description,
  inputSchema: schema ?? object(),
  annotations: { readOnlyHint: true },
  active: true,
  own: false
})

const message = (...content: ReadonlyArray<ToolContent>): ReadonlyArray<PromptMessage> =>
  content.map((block) => ({ role: "user", content: block }))

const promptList: ReadonlyArray<Prompt> = [
  { name: "test_simple_prompt", description: "A prompt without arguments" },
  {
    name: "test_prompt_with_arguments",
    description: "A prompt with two arguments",
    arguments: [
      { name: "arg1", description: "First", required: true },
      { name: "arg2", description: "Second", required: true }
    ]
  },
  {
    name: "test_prompt_with_embedded_resource",
    description: "A prompt with a resource",
    arguments: [{ name: "resourceUri", description: "URI", required: true }]
  },
  { name: "test_prompt_with_image", description: "A prompt with an image" },
  { name: "test_input_required_result_prompt", description: "A prompt that asks" }
]

const texts: Readonly<Record<string, string>> = {
  "test://static-text": "This is the content of the static text resource.",
  "test://watched-resource": "Watched resource content"
}

export const layer = Layer.unwrapEffect(
  Effect.gen(function* () {
    const touched = yield* PubSub.unbounded<"tools" | "prompts">()
    let generation = 0
    const changes = (kind: "tools" | "prompts") =>
      Stream.fromPubSub(touched).pipe(
        Stream.filter((one) => one === kind),
        Stream.map(() => undefined)
      )
    const touch = (kind: "tools" | "prompts") =>
      Effect.suspend(() => {
        generation++
        return Effect.asVoid(PubSub.publish(touched, kind))
      })

    const tools = Layer.succeed(HostTools, {
      catalog: Effect.sync(() => [
        ...Object.entries(fixtures).map(([name, fixture]) => toTool(name, fixture)),
        ...(generation % 2 === 1 ? [toTool("test_late_tool", just(text("late")))] : [])
      ]),
      changes: changes("tools"),
      validate: (_tool, args) => Effect.succeed(args),
      policy: () => Effect.succeed({ _tag: "Allow" as const }),
      execute: (tool, args, { exchange }) =>
        (fixtures[tool.name]?.run(args, exchange, touch) ?? Effect.succeed(said(text("late")))).pipe(
          Effect.catchTag("AskFailed", ({ reason }) => Effect.succeed({ ...said(text(reason)), isError: true }))
        )
    })

    const prompts = Layer.succeed(Prompts, {
      list: Effect.succeed(promptList),
      get: (name, args, _caller, exchange) =>
        Effect.gen(function* () {
          switch (name) {
            case "test_simple_prompt":
              return { messages: message(text("This is a simple prompt for testing.")) }
            case "test_prompt_with_arguments": {
              if (args["arg1"] === undefined || args["arg2"] === undefined) {
                return yield* new PromptArgumentsInvalid({ name, detail: "arg1 and arg2 are required" })
              }
              return {
                messages: message(text(`Prompt with arguments: arg1='${args["arg1"]}', arg2='${args["arg2"]}'`))
              }
            }
            case "test_prompt_with_embedded_resource":
              return {
                messages: message(
                  {
                    type: "resource",
                    resource: {
                      uri: args["resourceUri"] ?? "",
                      mimeType: "text/plain",
                      text: "Embedded resource content for testing."
                    }
                  },
                  text("Please process the embedded resource above.")
                )
              }
            case "test_prompt_with_image":
              return {
                messages: message(
                  { type: "image", data: png, mimeType: "image/png" },
                  text("Please analyze the image above.")
                )
              }
            case "test_input_required_result_prompt": {
              const answers = yield* exchange.ask({
                user_context: elicit("What context should the prompt use?", { context: string }, ["context"])
              })
              return {
                messages: message(text(`Context: ${String(at(answers, "user_context", "content", "context"))}`))
              }
            }
            default:
              return yield* new PromptNotFound({ name })
          }
        }),
      complete: (_name, { value }) => Effect.succeed(["paris", "park", "party"].filter((one) => one.startsWith(value))),
      changes: changes("prompts")
    })

    const resources = Layer.succeed(Resources, {
      list: () =>
        Effect.succeed([
          { uri: "test://static-text", name: "static-text", description: "Static text", mimeType: "text/plain" },
          { uri: "test://static-binary", name: "static-binary", description: "Static image", mimeType: "image/png" },
          { uri: "test://watched-resource", name: "watched-resource", description: "Watched", mimeType: "text/plain" }
        ]),
      templates: [
        {
          uriTemplate: "test://template/{id}/data",
          name: "template",
          description: "A template",
          mimeType: "application/json"
        }
      ],
      read: (uri) => {
        const known = texts[uri]
        if (known !== undefined) return Effect.succeed([{ uri, mimeType: "text/plain", text: known }])
        if (uri === "test://static-binary") return Effect.succeed([{ uri, mimeType: "image/png", blob: png }])
        const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1]
        return id === undefined
          ? new ResourceNotFound({ uri })
          : Effect.succeed([
              {
                uri,
                mimeType: "application/json",
                text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` })
              }
            ])
      },
      complete: () => Effect.succeed([]),
      changes: Stream.never,
      updates: Stream.never
    })

    return Layer.mergeAll(tools, prompts, resources)
  })
)
