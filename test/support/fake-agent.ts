/**
 * A fake Cursor CLI, `agent`: its flags, its stream-json, its ways to fail. What it does is chosen by words in the
 * prompt, `[edit:a.txt]`, or in the environment (FAKE_AGENT, read as if it stood before the prompt):
 *
 *   say:TEXT  think:TEXT  remember:WORD  recall  ask:QUESTION  read:FILE  edit:FILE  shell:COMMAND  parallel-tools
 *   measure (a digest of the request)  env:NAME  tell:TEXT (says it before the next tool call)
 *   commit  slow:MILLISECONDS  error:TEXT  exit:CODE  usage-missing
 *   hang  hang-after-result  no-result  background (a shell that lives: no result)  detached-child  child
 *   ignore-sigterm  malformed  garbage  unknown-events  flood:MEGABYTES  cut-off
 *   not-logged-in  untrusted (exits 0)  untrusted-hang  rogue (edits whatever the mode)  resume-new
 *
 * `agent acp` is the same over the Agent Client Protocol: fake-acp.ts.
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { digest, forever, stay, switchesOf } from "./switches.ts"

const fail = (text: string, code = 1): never => {
  process.stderr.write(`${text}\n`)
  process.exit(code)
}

const trustRequired = `⚠ Workspace Trust Required

  Cursor Agent can execute code and access files in this directory.

  To proceed, you can either:
    • Run 'agent' interactively to decide
    • Pass --trust, --yolo, or -f if you trust this directory`

const configDir = process.env["CURSOR_CONFIG_DIR"] ?? join(process.env["HOME"] ?? homedir(), ".cursor")
const configFile = join(configDir, "cli-config.json")

/** Rewritten at every start through one temporary name, so that two at once take it from each other. */
const rewriteConfig = async (): Promise<Record<string, unknown>> => {
  mkdirSync(configDir, { recursive: true })
  const config = existsSync(configFile) ? (JSON.parse(readFileSync(configFile, "utf8")) as Record<string, unknown>) : {}
  writeFileSync(`${configFile}.tmp`, JSON.stringify({ version: 1, permissions: { allow: [], deny: [] }, ...config }))
  await Bun.sleep(50)
  try {
    renameSync(`${configFile}.tmp`, configFile)
  } catch (error) {
    fail(`Error: ${String((error as Error).message)}`)
  }
  return config
}

const loggedIn = (config: Record<string, unknown>): boolean =>
  config["authInfo"] !== undefined ||
  process.env["CURSOR_API_KEY"] !== undefined ||
  existsSync(join(configDir, "auth.json"))

interface Chat {
  readonly id: string
  readonly prompts: ReadonlyArray<string>
}

const chatFile = (id: string): string => join(configDir, "chats", `${id}.json`)
const readChat = (id: string): Chat | undefined =>
  existsSync(chatFile(id)) ? (JSON.parse(readFileSync(chatFile(id), "utf8")) as Chat) : undefined

const print = async (): Promise<void> => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      print: { type: "boolean", short: "p" },
      "output-format": { type: "string", default: "text" },
      "stream-partial-output": { type: "boolean", default: false },
      mode: { type: "string" },
      force: { type: "boolean", short: "f", default: false },
      trust: { type: "boolean", default: false },
      "approve-mcps": { type: "boolean" },
      sandbox: { type: "string" },
      resume: { type: "string" },
      model: { type: "string" },
      workspace: { type: "string" },
      version: { type: "boolean", short: "v" }
    }
  })
  if (values.version) {
    process.stdout.write("2026.09.18-fake\n")
    return
  }
  if (!values.print) fail("error: this fake has no interactive mode")
  if (values["output-format"] !== "stream-json") fail("error: this fake speaks stream-json")
  if (values.mode !== undefined && values.mode !== "ask" && values.mode !== "plan") fail("error: no such mode")
  const prompt = positionals.join(" ") || (await Bun.stdin.text())
  const switches = switchesOf(`${process.env["FAKE_AGENT"] ?? ""} ${prompt}`)
  const has = (name: string): boolean => switches.some((entry) => entry.name === name)
  const cwd = values.workspace ?? process.cwd()
  const partial = values["stream-partial-output"]

  if (has("ignore-sigterm")) process.on("SIGTERM", () => undefined)
  if (has("untrusted-hang")) {
    process.stderr.write(`${trustRequired}\n`)
    await forever()
  }
  if (has("untrusted")) {
    process.stdout.write(`${trustRequired}\n`)
    return
  }
  if (!values.trust && !values.force) fail(trustRequired)
  const config = await rewriteConfig()
  if (has("not-logged-in") || !loggedIn(config)) {
    fail("Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY environment variable.")
  }
  const resumed = values.resume === undefined ? undefined : readChat(values.resume)
  if (values.resume !== undefined && resumed === undefined && !has("resume-new")) {
    fail(`Error: No chat found with ID ${values.resume}`)
  }
  const session = resumed !== undefined && !has("resume-new") ? resumed.id : crypto.randomUUID()
  mkdirSync(join(configDir, "chats"), { recursive: true })
  writeFileSync(chatFile(session), JSON.stringify({ id: session, prompts: [...(resumed?.prompts ?? []), prompt] }))

  const emit = (line: Record<string, unknown>): void => {
    process.stdout.write(`${JSON.stringify({ ...line, session_id: session })}\n`)
  }
  const now = (): number => Math.round(performance.timeOrigin + performance.now())
  const message = (text: string) => ({ role: "assistant", content: [{ type: "text", text }] })
  /** Of one model call: deltas, then (where a tool call follows) the whole again under the call's id. */
  const speak = (text: string, last: boolean): void => {
    if (partial) {
      for (const piece of text.match(/.{1,7}/gs) ?? []) {
        emit({ type: "assistant", message: message(piece), timestamp_ms: now() })
      }
    }
    emit({
      type: "assistant",
      message: message(text),
      ...(last ? {} : { model_call_id: crypto.randomUUID(), timestamp_ms: now() })
    })
  }
  let calls = 0
  const tool = (kind: string, args: Record<string, unknown>) => {
    const toolCallId = `tool_${++calls}`
    const call_id = `${toolCallId}\nfc_${crypto.randomUUID()}`
    const line = (subtype: string, result?: Record<string, unknown>): void =>
      emit({
        type: "tool_call",
        subtype,
        call_id,
        tool_call: {
          [`${kind}ToolCall`]: result === undefined ? { args } : { args, result },
          toolCallId,
          startedAtMs: now()
        },
        model_call_id: "m",
        timestamp_ms: now()
      })
    line("started")
    return { end: (result: Record<string, unknown>) => line("completed", result) }
  }
  const shell = (command: string): void => {
    const call = tool("shell", { command })
    const { status, stderr, stdout } = spawnSync("bash", ["--norc", "-c", command], { cwd, encoding: "utf8" })
    call.end({
      [status === 0 ? "success" : "failure"]: { exitCode: status, stdout, stderr, interleavedOutput: stdout + stderr }
    })
  }

  emit({
    type: "system",
    subtype: "init",
    apiKeySource: process.env["CURSOR_API_KEY"] === undefined ? "login" : "env",
    cwd,
    model: values.model ?? "Auto",
    permissionMode: values.force ? "force" : "default"
  })
  emit({ type: "user", message: { role: "user", content: [{ type: "text", text: prompt }] } })

  let answer = "done"
  let error: string | undefined
  const step: Record<string, (argument: string) => void | Promise<void>> = {
    say: (text) => void (answer = text),
    think: (text) => {
      emit({ type: "thinking", subtype: "delta", text, timestamp_ms: now() })
      emit({ type: "thinking", subtype: "completed", timestamp_ms: now() })
    },
    recall: () => {
      const words = (resumed?.prompts ?? []).flatMap((earlier) => switchesOf(earlier))
      answer = words.find(({ name }) => name === "remember")?.argument ?? "nothing"
    },
    ask: (question) => void (answer = `I am stuck.\n\nINPUT REQUIRED: ${question}`),
    measure: () => void (answer = digest(prompt)),
    env: (name) => void (answer = process.env[name] ?? "unset"),
    tell: (text) => speak(text, false),
    read: (file) => {
      const call = tool("read", { path: join(cwd, file) })
      try {
        answer = readFileSync(join(cwd, file), "utf8")
        call.end({ success: { content: answer, totalLines: answer.split("\n").length } })
      } catch {
        call.end({ error: { errorMessage: "File not found" } })
      }
    },
    edit: (file) => {
      const path = join(cwd, file)
      const call = tool("edit", { path })
      if (values.mode !== undefined && !has("rogue")) {
        call.end({ rejected: { reason: `not in ${values.mode} mode` } })
        return
      }
      const before = existsSync(path) ? readFileSync(path, "utf8") : ""
      const after = `${before}changed by the agent\n`
      writeFileSync(path, after)
      call.end({
        success: {
          path,
          linesAdded: 1,
          linesRemoved: 0,
          diffString: "+changed",
          afterFullFileContent: after,
          message: "ok"
        }
      })
    },
    shell: shell,
    commit: () => shell("git -c user.name=agent -c user.email=agent@example.invalid commit -qam agent || true"),
    "parallel-tools": () => {
      const first = tool("read", { path: "a" })
      const second = tool("grep", { pattern: "b" })
      second.end({ success: { matches: [] } })
      first.end({ failure: { message: "no" } })
    },
    slow: (millis) => Bun.sleep(Number(millis)),
    error: (text) => void (error = text),
    exit: (code) => fail("Error: connection lost", Number(code)),
    malformed: () => void process.stdout.write('{"type":"assistant","message":{"role":\n'),
    garbage: () => void process.stdout.write("Warning: this is not JSON\n\u0000\u0001\n42\nnull\n[]\n"),
    "unknown-events": () => {
      emit({ type: "interaction_query", subtype: "request", query: {} })
      emit({ type: "retry", subtype: "starting" })
      emit({ type: "assistant" })
      emit({ type: "tool_call", subtype: "progress", call_id: 7 })
    },
    flood: (megabytes) => {
      const text = "x".repeat(1 << 20)
      for (let count = 0; count < Number(megabytes); count++) speak(text, false)
    },
    child: () => stay("child", false),
    "detached-child": () => stay("detached", true),
    hang: forever
  }
  for (const { argument, name } of switches) await step[name]?.(argument)

  if (has("cut-off")) {
    process.stdout.write('{"type":"result","subt')
    return
  }
  speak(answer, true)
  if (has("background")) {
    await stay("background", false)
    await forever()
  }
  if (has("no-result")) return
  emit({
    type: "result",
    subtype: error === undefined ? "success" : "error",
    is_error: error !== undefined,
    duration_ms: 12,
    duration_api_ms: 12,
    result: error ?? answer,
    request_id: crypto.randomUUID(),
    ...(has("usage-missing")
      ? {}
      : { usage: { inputTokens: 11, outputTokens: 7, cacheReadTokens: 3, cacheWriteTokens: 2 } })
  })
  if (has("hang-after-result")) await forever()
}

if (process.argv[2] === "acp") await import("./fake-acp.ts")
else await print()
