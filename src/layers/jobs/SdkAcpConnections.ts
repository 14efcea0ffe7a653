import { constants, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import type * as Sdk from "@agentclientprotocol/sdk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Runtime from "effect/Runtime"
import * as Stream from "effect/Stream"
import type { AcpConnection, OpenSession } from "../../services/jobs/AcpConnections.ts"
import { AcpConnections, AcpRequestFailed } from "../../services/jobs/AcpConnections.ts"
import type { Told } from "../../services/jobs/acpUpdates.ts"
import * as Acp from "../../services/jobs/acpUpdates.ts"
import type { Usage, WorkerEvent } from "../../services/jobs/Job.ts"
import * as Lines from "../../services/jobs/lines.ts"
import { decide, refusalOf } from "../../services/jobs/permissions.ts"
import type { Running } from "../../services/jobs/Processes.ts"
import type { Turn, TurnEnd } from "../../services/jobs/Worker.ts"

const messageBytes = 32 << 20
const noiseLength = 4096

// Some 80 ms and 20 MB that a bridge without such a worker does not pay.
const loadSdk = Effect.promise(() => import("@agentclientprotocol/sdk"))

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const requestFailed = (error: unknown): AcpRequestFailed => {
  const { code, data } = Acp.fieldsOf(error instanceof Error ? { ...error } : error)
  const more = data === undefined || data === null ? "" : ` ${JSON.stringify(data)}`
  return new AcpRequestFailed({
    code: typeof code === "number" ? code : undefined,
    detail: `${reasonOf(error)}${more}`
  })
}

/** The real path of a file that may not exist yet. */
const realPath = (path: string): string => {
  try {
    return realpathSync(path)
  } catch {
    const parent = dirname(path)
    return parent === path ? path : join(realPath(parent), basename(path))
  }
}

const clientCapabilities: Sdk.ClientCapabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: false }

const sessionOf = (
  sessionId: string,
  { configOptions, modes }: Pick<Sdk.NewSessionResponse, "configOptions" | "modes">
): OpenSession => ({
  sessionId,
  modes: modes?.availableModes.map(({ id }) => id) ?? [],
  models: (configOptions ?? []).flatMap((option) =>
    option.category === "model" && option.type === "select"
      ? option.options
          .flatMap((one) => ("options" in one ? one.options : [one]))
          .map(({ name, value }) => ({ configId: option.id, value, name }))
      : []
  )
})

const open = Effect.fnUntraced(function* (
  child: Running,
  turn: Pick<Turn, "tier" | "cwd">,
  emit: (events: ReadonlyArray<WorkerEvent>) => Effect.Effect<unknown>
) {
  const sdk = yield* loadSdk
  const runtime = yield* Effect.runtime()
  const promise = Runtime.runPromise(runtime)
  const root = realPath(turn.cwd)
  const asked = yield* Deferred.make<TurnEnd>()
  const sent = new Map<unknown, string>()
  let told: Told = Acp.nothing
  let session: string | undefined
  let usage: Usage | undefined
  /** The turn's end, as the agent tells it. */
  let prompted: Promise<void> = Promise.resolve()
  let noise = ""
  let misunderstood = 0
  let unfinished = Lines.nothing

  const misread = (text: string): ReadonlyArray<Sdk.AnyMessage> => {
    misunderstood++
    noise = `${noise}${text}\n`.slice(0, noiseLength)
    return []
  }

  const todos = (params: unknown): ReadonlyArray<WorkerEvent> => {
    const entries = Acp.planOf(Acp.fieldsOf(params)["todos"])
    return entries.length === 0 ? [] : [{ _tag: "Plan", entries }]
  }

  /** Notifications are heard here, in their order; the SDK gets requests, and the answers that it waits for. */
  const receive = Effect.fnUntraced(function* (line: string) {
    if (line.trim() === "") return []
    const message = Acp.messageOf(line)
    if (message === undefined) return misread(line)
    if (typeof message["method"] === "string") {
      if ("id" in message) return [message as unknown as Sdk.AnyMessage]
      const params = Acp.fieldsOf(message["params"])
      if (message["method"] === "cursor/update_todos") yield* emit(todos(params))
      // What comes before the prompt is the history of one that is loaded.
      if (message["method"] !== "session/update" || session === undefined || params["sessionId"] !== session) return []
      const [after, events] = Acp.fold(told, params["update"])
      told = after
      yield* emit(events)
      return []
    }
    if (!sent.has(message["id"])) return misread(line)
    if (sent.get(message["id"]) === "session/prompt") {
      usage = Acp.usageOf(Acp.fieldsOf(message["result"])["usage"])
    }
    sent.delete(message["id"])
    return [message as unknown as Sdk.AnyMessage]
  })

  const readable = yield* child.stdout.pipe(
    Stream.mapConcatEffect((bytes) => {
      const split = Lines.split(unfinished, bytes, messageBytes)
      unfinished = split.unfinished
      misunderstood += split.dropped
      return Effect.map(Effect.forEach(split.lines, receive), (messages) => messages.flat())
    }),
    Stream.toReadableStreamEffect()
  )
  const writable = new WritableStream<Sdk.AnyMessage>({
    write: (message) => {
      if ("method" in message && "id" in message) sent.set(message.id, message.method)
      return promise(child.write(new TextEncoder().encode(`${JSON.stringify(message)}\n`)))
    }
  })

  const denied = (what: string, reason: string) => emit([{ _tag: "Denied", what, reason }])
  const located = (path: string): string => realPath(resolve(root, path))

  const permission = Effect.fnUntraced(function* (params: Sdk.RequestPermissionRequest) {
    const call = told.calls.get(params.toolCall.toolCallId)
    const { optionId, refused } = decide({
      tier: turn.tier,
      root,
      kind: params.toolCall.kind ?? call?.kind ?? "other",
      locations: (params.toolCall.locations ?? []).map(({ path }) => located(path)),
      options: params.options
    })
    if (refused !== undefined) yield* denied(params.toolCall.title ?? call?.title ?? "tool", refused)
    const outcome: Sdk.RequestPermissionOutcome =
      optionId === undefined ? { outcome: "cancelled" } : { outcome: "selected", optionId }
    return { outcome }
  })

  /** A file for a method of the client; an answer to the agent where the tier or the worktree's edge forbids it. */
  const file = Effect.fnUntraced(function* (kind: "read" | "edit", path: string) {
    const real = located(path)
    const refused = refusalOf({ tier: turn.tier, root, kind, locations: [real] })
    if (refused === undefined) return real
    yield* denied(`${kind} ${path}`, refused)
    return yield* Effect.fail(new sdk.RequestError(-32602, refused))
  })
  const onDisk = <A>(work: () => A) =>
    Effect.try({
      try: work,
      catch: (error) => {
        const missing = (error as NodeJS.ErrnoException).code === "ENOENT"
        return new sdk.RequestError(missing ? -32002 : -32603, reasonOf(error))
      }
    })
  const readFile = Effect.fnUntraced(function* ({ limit, line, path }: Sdk.ReadTextFileRequest) {
    const real = yield* file("read", path)
    const text = yield* onDisk(() => readFileSync(real, "utf8"))
    if (typeof line !== "number" && typeof limit !== "number") return { content: text }
    const from = Math.max(0, (line ?? 1) - 1)
    const lines = text.split("\n").slice(from, typeof limit === "number" ? from + limit : undefined)
    return { content: lines.join("\n") }
  })
  const writeFile = Effect.fnUntraced(function* ({ content, path }: Sdk.WriteTextFileRequest) {
    const real = yield* file("edit", path)
    yield* onDisk(() => {
      mkdirSync(dirname(real), { recursive: true })
      // A link that leads nowhere yet looks like no file.
      const { O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants
      writeFileSync(real, content, { flag: (O_WRONLY | O_CREAT | O_TRUNC | (O_NOFOLLOW ?? 0)) as never })
    })
    return {}
  })

  const question = Effect.fnUntraced(function* (params: unknown) {
    yield* Deferred.succeed(asked, { _tag: "Question", question: Acp.askedOf(params) })
    return { outcome: { outcome: "cancelled" } }
  })
  const plan = Effect.fnUntraced(function* (params: unknown) {
    yield* emit(todos(params))
    if (turn.tier === "execute") return { outcome: { outcome: "accepted" } }
    // The plan is what was asked for.
    const text = Acp.stringOf(Acp.fieldsOf(params)["plan"]) ?? ""
    if (turn.tier === "plan" && text !== "") yield* Deferred.succeed(asked, { _tag: "Answered", text })
    return { outcome: { outcome: "cancelled" } }
  })

  /** An effect as the SDK wants it. */
  const handle =
    <P, A>(handler: (params: P) => Effect.Effect<A, Sdk.RequestError>) =>
    async ({ params }: { readonly params: P }): Promise<A> => {
      const answer = await promise(Effect.either(handler(params)))
      if (Either.isLeft(answer)) throw answer.left
      return answer.right
    }
  const raw = (params: unknown): unknown => params
  const { client: methods } = sdk.methods
  const connection = yield* Effect.acquireRelease(
    Effect.sync(() =>
      sdk
        .client({ name: "pi-a2a" })
        .onRequest(methods.session.requestPermission, handle(permission))
        .onRequest(methods.fs.readTextFile, handle(readFile))
        .onRequest(methods.fs.writeTextFile, handle(writeFile))
        .onRequest("cursor/ask_question", raw, handle(question))
        .onRequest("cursor/create_plan", raw, handle(plan))
        .onRequest(
          "cursor/update_todos",
          raw,
          handle((params: unknown) => Effect.as(emit(todos(params)), { outcome: { outcome: "accepted" } }))
        )
        .connect({ readable, writable })
    ),
    (connection) => Effect.sync(() => connection.close())
  )

  const request = <M extends Sdk.AgentRequestMethod>(method: M, params: Sdk.AgentRequestParamsByMethod[M]) =>
    Effect.tryPromise({ try: () => connection.agent.request(method, params), catch: requestFailed })

  const connected: AcpConnection = {
    initialize: Effect.map(
      request("initialize", { protocolVersion: 1, clientCapabilities }),
      ({ agentCapabilities, agentInfo, protocolVersion }) => ({
        version: protocolVersion,
        name: agentInfo ? `${agentInfo.name} ${agentInfo.version}` : undefined,
        resumes: Boolean(agentCapabilities?.sessionCapabilities?.resume),
        loads: agentCapabilities?.loadSession === true
      })
    ),
    authenticate: (methodId) => Effect.asVoid(request("authenticate", { methodId })),
    newSession: (cwd) =>
      Effect.map(request("session/new", { cwd, mcpServers: [] }), (opened) => sessionOf(opened.sessionId, opened)),
    continueSession: (how, sessionId, cwd) =>
      Effect.map(request(`session/${how}`, { sessionId, cwd, mcpServers: [] }), (opened) =>
        sessionOf(sessionId, opened)
      ),
    setMode: (sessionId, modeId) => Effect.asVoid(request("session/set_mode", { sessionId, modeId })),
    setConfigOption: (sessionId, configId, value) =>
      Effect.asVoid(request("session/set_config_option", { sessionId, configId, value })),
    prompt: (sessionId, text) =>
      Effect.tryPromise({
        try: () => {
          session = sessionId
          const answer = connection.agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] })
          const settle = (): void => undefined
          prompted = answer.then(settle, settle)
          return answer
        },
        catch: requestFailed
      }).pipe(Effect.map(({ stopReason }) => ({ stopReason, message: told.message, usage }))),
    cancel: (sessionId) =>
      Effect.promise(async () => {
        await connection.agent.notify("session/cancel", { sessionId }).catch(() => undefined)
        await prompted
      }),
    asked: Deferred.await(asked),
    misunderstood: Effect.sync(() => misunderstood),
    complaints: Effect.map(child.stderr, (stderr) => `${noise}${stderr}`.trim())
  }
  return connected
})

/** The Agent Client Protocol by its own SDK. */
export const layer: Layer.Layer<AcpConnections> = Layer.succeed(AcpConnections, { open })
