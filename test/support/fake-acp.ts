/**
 * A fake agent behind the Agent Client Protocol: `agent acp`. Words in the prompt as in fake-agent.ts, and
 *
 *   permission:KIND PATH (asks for it, answers with the outcome)  write-fs:FILE  read-fs:FILE  question:TEXT  plan  todos
 *   stop:REASON  ignore-cancel  request:METHOD (answers with the error's code)  always (offers no `once`)
 *
 * FAKE_AGENT holds words for what comes before a prompt: no-load, resume-only, auth (asks for authenticate), version:N,
 * not-logged-in, silent (answers nothing).
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join } from "node:path"
import { Readable, Writable } from "node:stream"
import * as acp from "@agentclientprotocol/sdk"
import { digest, forever, stay, switchesOf } from "./switches.ts"

interface Session {
  readonly cwd: string
  readonly prompts: Array<string>
  cancelled: () => void
}

const outside = switchesOf(process.env["FAKE_AGENT"] ?? "")
const set = (name: string): boolean => outside.some((entry) => entry.name === name)
const notes = process.env["FAKE_AGENT_DIR"] ?? "."
const configDir = process.env["CURSOR_CONFIG_DIR"] ?? join(process.env["HOME"] ?? homedir(), ".cursor")
const sessions = new Map<string, Session>()
const sessionFile = (id: string): string => join(notes, "sessions", `${id}.json`)
let authenticated = !set("auth")

const loggedIn = (): boolean => {
  const file = join(configDir, "cli-config.json")
  if (set("not-logged-in") || !existsSync(file)) return false
  return (JSON.parse(readFileSync(file, "utf8")) as { authInfo?: unknown }).authInfo !== undefined
}
const guard = (): void => {
  if (!authenticated || !loggedIn()) throw acp.RequestError.authRequired()
}

const modes = {
  currentModeId: "agent",
  availableModes: [
    { id: "agent", name: "Agent" },
    { id: "plan", name: "Plan" }
  ]
}
const configOptions: Array<acp.SessionConfigOption> = [
  {
    id: "m",
    name: "Model",
    category: "model",
    type: "select",
    currentValue: "one",
    options: [
      { value: "one", name: "One" },
      { value: "two", name: "Two" }
    ]
  }
]
let model = "one"
let mode = "agent"

const remember = (id: string): void => {
  mkdirSync(join(notes, "sessions"), { recursive: true })
  writeFileSync(sessionFile(id), JSON.stringify(sessions.get(id)?.prompts ?? []))
}
const reopen = (id: string, cwd: string): Session => {
  if (!existsSync(sessionFile(id))) throw acp.RequestError.resourceNotFound(id)
  const prompts = JSON.parse(readFileSync(sessionFile(id), "utf8")) as Array<string>
  const session = { cwd, prompts, cancelled: () => undefined }
  sessions.set(id, session)
  return session
}

const prompt = async ({ client, params }: acp.AgentRequestContext<acp.PromptRequest>): Promise<acp.PromptResponse> => {
  const session = sessions.get(params.sessionId)
  if (session === undefined) throw acp.RequestError.resourceNotFound(params.sessionId)
  const { cwd } = session
  const text = params.prompt.map((block) => (block.type === "text" ? block.text : "")).join("")
  const earlier = [...session.prompts]
  session.prompts.push(text)
  remember(params.sessionId)
  const switches = switchesOf(text)
  const has = (name: string): boolean => switches.some((entry) => entry.name === name)
  if (has("ignore-sigterm")) process.on("SIGTERM", () => undefined)
  const cancelled = new Promise<"cancelled">((resolve) => {
    session.cancelled = () => {
      // Late, so that who does not wait for it sees nothing.
      const late = has("ignore-cancel") ? 0 : 300
      setTimeout(() => {
        writeFileSync(join(notes, "cancelled"), "")
        if (late > 0) resolve("cancelled")
      }, late)
    }
  })

  const update = (value: unknown): Promise<void> =>
    client.notify("session/update", { sessionId: params.sessionId, update: value as acp.SessionUpdate })
  const speak = async (words: string): Promise<void> => {
    for (const piece of words.match(/.{1,7}/gs) ?? []) {
      await update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: piece } })
    }
  }
  let calls = 0
  const tool = async (kind: string, title: string, path?: string) => {
    const toolCallId = `call_${++calls}`
    const locations = path === undefined ? [] : [{ path }]
    await update({ sessionUpdate: "tool_call", toolCallId, kind, title, status: "pending", locations })
    return {
      toolCallId,
      end: (ok: boolean, why = ""): Promise<void> =>
        update({
          sessionUpdate: "tool_call_update",
          toolCallId,
          status: ok ? "completed" : "failed",
          content: [{ type: "content", content: { type: "text", text: why } }]
        })
    }
  }
  const once: ReadonlyArray<acp.PermissionOption> = [
    { optionId: "yes", name: "Allow", kind: "allow_once" },
    { optionId: "no", name: "Reject", kind: "reject_once" }
  ]
  const permit = async (toolCallId: string, more: Partial<acp.ToolCallUpdate> = {}): Promise<string> => {
    const { outcome } = await client.request("session/request_permission", {
      sessionId: params.sessionId,
      toolCall: { toolCallId, ...more },
      options: [
        { optionId: "ever", name: "Always", kind: "allow_always" },
        ...(has("always") ? [] : once),
        { optionId: "never", name: "Never", kind: "reject_always" }
      ]
    })
    return outcome.outcome === "selected" ? outcome.optionId : outcome.outcome
  }
  const place = (path: string): string => (isAbsolute(path) ? path : join(cwd, path))

  let answer = "done"
  let stopReason = "end_turn" as acp.StopReason
  const shell = async (command: string): Promise<void> => {
    const call = await tool("execute", command)
    if ((await permit(call.toolCallId)) !== "yes") return call.end(false, "rejected")
    const { status, stderr } = spawnSync("bash", ["--norc", "-c", command], { cwd, encoding: "utf8" })
    await call.end(status === 0, stderr)
  }
  const step: Record<string, (argument: string) => unknown> = {
    say: (words) => void (answer = words),
    tell: speak,
    think: (words) => update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: words } }),
    recall: () => {
      const words = earlier.flatMap((before) => switchesOf(before))
      answer = words.find(({ name }) => name === "remember")?.argument ?? "nothing"
    },
    ask: (question) => void (answer = `I am stuck.\n\nINPUT REQUIRED: ${question}`),
    measure: () => void (answer = digest(text)),
    env: (name) => void (answer = process.env[name] ?? "unset"),
    model: () => void (answer = model),
    mode: () => void (answer = mode),
    read: async (file) => {
      const call = await tool("read", `Read ${file}`, place(file))
      const found = existsSync(place(file))
      if (found) answer = readFileSync(place(file), "utf8")
      await call.end(found, found ? "" : "File not found")
    },
    edit: async (file) => {
      const call = await tool("edit", `Edit ${file}`, place(file))
      // The kind is told once, as omp and others do.
      const allowed = has("rogue") || (await permit(call.toolCallId, { locations: [{ path: place(file) }] })) === "yes"
      if (allowed)
        writeFileSync(
          place(file),
          `${existsSync(place(file)) ? readFileSync(place(file), "utf8") : ""}changed by the agent\n`
        )
      await call.end(allowed, allowed ? "" : "rejected")
    },
    shell,
    commit: () => shell("git -c user.name=agent -c user.email=agent@example.invalid commit -qam agent || true"),
    "parallel-tools": async () => {
      const first = await tool("read", "a")
      const second = await tool("search", "b")
      await second.end(true)
      await first.end(false, "no")
    },
    permission: async (argument) => {
      const [kind, path] = argument.split(" ")
      answer = await permit("asked", {
        kind: kind as acp.ToolKind,
        title: argument,
        ...(path === undefined ? {} : { locations: [{ path: path === "." ? cwd : path }] })
      })
    },
    "write-fs": async (path) => {
      const call = await tool("edit", `Write ${path}`, place(path))
      try {
        await client.request("fs/write_text_file", {
          sessionId: params.sessionId,
          path: place(path),
          content: "by client\n"
        })
        await call.end(true)
        answer = "written"
      } catch (error) {
        await call.end(false, String(error))
        answer = `refused: ${(error as Error).message}`
      }
    },
    "read-fs": async (argument) => {
      const [path = "", line, limit] = argument.split(" ")
      try {
        const { content } = await client.request("fs/read_text_file", {
          sessionId: params.sessionId,
          path: place(path),
          ...(line === undefined ? {} : { line: Number(line), limit: Number(limit) })
        })
        answer = content
      } catch (error) {
        answer = `refused: ${(error as Error).message}`
      }
    },
    question: async (words) => {
      const options = [
        { id: "1", label: "left" },
        { id: "2", label: "right" }
      ]
      const reply = await client.request<{ outcome: { outcome: string } }>("cursor/ask_question", {
        toolCallId: "q",
        title: "Choose",
        questions: [{ id: "q", prompt: words, options }]
      })
      writeFileSync(join(notes, "asked"), reply.outcome.outcome)
      await Promise.race([forever(), cancelled])
      stopReason = "cancelled"
    },
    plan: async () => {
      const reply = await client.request<{ outcome: { outcome: string } }>("cursor/create_plan", {
        toolCallId: "p",
        name: "The plan",
        plan: "# The plan\n1. Do it",
        todos: [{ id: "1", content: "Do it", status: "pending" }]
      })
      answer = reply.outcome.outcome
    },
    todos: async () => {
      await client.notify("cursor/update_todos", {
        toolCallId: "t",
        todos: [{ id: "1", content: "One", status: "completed" }],
        merge: false
      })
      await update({ sessionUpdate: "plan", entries: [{ content: "Two", status: "in_progress", priority: "high" }] })
    },
    request: async (method) => {
      try {
        await client.request(method, {})
        answer = "answered"
      } catch (error) {
        answer = String((error as acp.RequestError).code)
      }
    },
    slow: (millis) => Bun.sleep(Number(millis)),
    error: (words) => {
      throw new acp.RequestError(-32603, words)
    },
    stop: (reason) => void (stopReason = reason as acp.StopReason),
    exit: async (code) => {
      await Bun.write(Bun.stderr, "Error: connection lost\n")
      process.exit(Number(code))
    },
    malformed: () => Bun.write(Bun.stdout, '{"jsonrpc":"2.0","method":"session/upd\n'),
    garbage: () =>
      Bun.write(
        Bun.stdout,
        'Warning: this is not JSON\n\u0000\u0001\n42\nnull\n[]\n{"jsonrpc":"2.0","id":77777,"result":{}}\n'
      ),
    "unknown-events": async () => {
      await update({ sessionUpdate: "something_new", value: 1 })
      await update({ sessionUpdate: "tool_call", toolCallId: 7 })
      await update({ sessionUpdate: "agent_message_chunk", content: { type: "image" } })
      await client.notify("agent/news", {})
      await client.notify("session/update", {
        sessionId: "another",
        update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "not ours" } }
      })
    },
    child: () => stay("child", false),
    "detached-child": () => stay("detached", true),
    hang: () => Promise.race([forever(), cancelled.then(() => void (stopReason = "cancelled"))])
  }
  for (const { argument, name } of switches) await step[name]?.(argument)
  if (stopReason !== "cancelled") await speak(answer)
  return {
    stopReason,
    ...(has("usage-missing")
      ? {}
      : { usage: { inputTokens: 11, outputTokens: 7, totalTokens: 21, cachedReadTokens: 3 } })
  } as acp.PromptResponse
}

if (set("silent")) await forever()

const connection = acp
  .agent({ name: "fake" })
  .onRequest("initialize", () => ({
    protocolVersion: Number(outside.find(({ name }) => name === "version")?.argument ?? 1),
    agentInfo: { name: "fake", version: "1" },
    authMethods: [{ id: "cursor_login", name: "Log in" }],
    agentCapabilities: {
      loadSession: !set("no-load") && !set("resume-only"),
      sessionCapabilities: set("resume-only") ? { resume: {} } : {}
    }
  }))
  .onRequest("authenticate", ({ params }) => {
    if (params.methodId !== "cursor_login" || !loggedIn()) {
      throw new acp.RequestError(-32602, "Failed to open browser for login")
    }
    authenticated = true
    return {}
  })
  .onRequest("session/new", ({ params }) => {
    guard()
    const sessionId = crypto.randomUUID()
    sessions.set(sessionId, { cwd: params.cwd, prompts: [], cancelled: () => undefined })
    return { sessionId, modes, configOptions }
  })
  .onRequest("session/load", async ({ client, params }) => {
    guard()
    for (const text of reopen(params.sessionId, params.cwd).prompts) {
      for (const sessionUpdate of ["user_message_chunk", "agent_message_chunk"] as const) {
        await client.notify("session/update", {
          sessionId: params.sessionId,
          update: { sessionUpdate, content: { type: "text", text } }
        })
      }
    }
    return { modes, configOptions }
  })
  .onRequest("session/resume", ({ params }) => {
    guard()
    reopen(params.sessionId, params.cwd)
    return { modes, configOptions }
  })
  .onRequest("session/set_mode", ({ params }) => {
    mode = params.modeId
    return {}
  })
  .onRequest("session/set_config_option", ({ params }) => {
    model = String(params.value)
    return { configOptions }
  })
  .onRequest("session/prompt", prompt)
  .onNotification("session/cancel", ({ params }) => sessions.get(params.sessionId)?.cancelled())
  .connect(
    acp.ndJsonStream(
      Writable.toWeb(process.stdout) as WritableStream<Uint8Array>,
      Readable.toWeb(process.stdin) as unknown as ReadableStream<Uint8Array>
    )
  )
// Its input's end is its own.
await connection.closed
process.exit(0)
