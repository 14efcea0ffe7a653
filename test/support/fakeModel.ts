/** An OpenAI-compatible chat model on loopback that does what a test scripts: speak, call a tool, or never answer. */

export interface ModelRequest {
  readonly messages: ReadonlyArray<{ readonly role: string; readonly content: unknown }>
  readonly tools: ReadonlyArray<string>
  /** Text of the last message. */
  readonly last: string
  readonly lastRole: string
}

export type Turn =
  | { readonly _tag: "Say"; readonly text: string }
  | { readonly _tag: "Call"; readonly tool: string; readonly args: unknown }
  /** The answer never comes; the turn lasts until omp ends. */
  | { readonly _tag: "Stall" }

export const say = (text: string): Turn => ({ _tag: "Say", text })
export const call = (tool: string, args: unknown): Turn => ({ _tag: "Call", tool, args })
export const stall: Turn = { _tag: "Stall" }

export interface FakeModel {
  /** For models.yml. */
  readonly baseUrl: string
  readonly requests: ReadonlyArray<ModelRequest>
  readonly close: () => Promise<void>
}

const textOf = (content: unknown): string =>
  typeof content === "string"
    ? content
    : Array.isArray(content)
      ? content.map((part: { readonly text?: string }) => part.text ?? "").join("")
      : ""

const deltas = (turn: Turn): ReadonlyArray<unknown> => {
  switch (turn._tag) {
    case "Say":
      return [{ role: "assistant", content: turn.text }]
    case "Call": {
      const tool = { name: turn.tool, arguments: JSON.stringify(turn.args) }
      const call = { index: 0, id: `call_${crypto.randomUUID().slice(0, 8)}`, type: "function", function: tool }
      return [{ role: "assistant", content: null, tool_calls: [call] }]
    }
    case "Stall":
      return [{ role: "assistant", content: "" }]
  }
}

const stream = (turn: Turn, model: string): Response => {
  const base = { id: crypto.randomUUID(), object: "chat.completion.chunk", created: 0, model }
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
  const encoder = new TextEncoder()
  return new Response(
    new ReadableStream({
      start: (controller) => {
        const send = (chunk: unknown) =>
          controller.enqueue(encoder.encode(`data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`))
        for (const delta of deltas(turn)) send({ ...base, choices: [{ index: 0, delta, finish_reason: null }] })
        if (turn._tag === "Stall") return
        const reason = turn._tag === "Call" ? "tool_calls" : "stop"
        send({ ...base, choices: [{ index: 0, delta: {}, finish_reason: reason }] })
        send({ ...base, choices: [], usage })
        send("[DONE]")
        controller.close()
      }
    }),
    { headers: { "content-type": "text/event-stream" } }
  )
}

/** `script` decides on every request; it may count on `requests` holding the earlier ones. */
export const fakeModel = (script: (request: ModelRequest, index: number) => Turn): FakeModel => {
  const requests: Array<ModelRequest> = []
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    fetch: async (request) => {
      const { pathname } = new URL(request.url)
      if (pathname.endsWith("/models")) {
        return Response.json({ object: "list", data: [{ id: "fake-1", object: "model" }] })
      }
      if (!pathname.endsWith("/chat/completions")) return new Response("not here", { status: 404 })
      const body = (await request.json()) as {
        readonly model: string
        readonly messages: ModelRequest["messages"]
        readonly tools?: ReadonlyArray<{ readonly function: { readonly name: string } }>
      }
      const last = body.messages.at(-1)
      const seen: ModelRequest = {
        messages: body.messages,
        tools: (body.tools ?? []).map((tool) => tool.function.name),
        last: textOf(last?.content),
        lastRole: last?.role ?? ""
      }
      const index = requests.push(seen) - 1
      return stream(script(seen, index), body.model)
    }
  })
  return {
    baseUrl: `http://127.0.0.1:${server.port}/v1`,
    requests,
    close: () => server.stop(true)
  }
}
