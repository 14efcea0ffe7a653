/**
 * The host seam. omp parses this file's literal imports and gives them its own modules, so host symbols are imported
 * here and nowhere else; `src/` is loaded by a computed path, which omp does not parse (parsing Effect costs seconds).
 */
import { realpathSync } from "node:fs"
import { fileURLToPath, pathToFileURL } from "node:url"
import type { ExtensionAPI, ExtensionContext } from "@oh-my-pi/pi-coding-agent"
import { AgentRegistry, getAgentDir, VERSION } from "@oh-my-pi/pi-coding-agent"
import { expandPromptTemplate } from "@oh-my-pi/pi-coding-agent/config/prompt-templates"
import { buildSkillPromptMessage, getSkillSlashCommandName } from "@oh-my-pi/pi-coding-agent/extensibility/skills"
import { expandSlashCommand } from "@oh-my-pi/pi-coding-agent/extensibility/slash-commands"
import { MCPManager } from "@oh-my-pi/pi-coding-agent/mcp"
import {
  denyError,
  formatApprovalPrompt,
  resolveApproval,
  resolveApprovalFromContext
} from "@oh-my-pi/pi-coding-agent/tools/approval"
import { toolWireSchema, validateToolArguments } from "@oh-my-pi/pi-ai"
import { postmortem } from "@oh-my-pi/pi-utils"
import type { Bridge, bridge as start } from "../src/layers/Main.ts"
import type { OmpHost, OmpPrompt, OmpTool } from "../src/services/OmpHost.ts"

type Session = NonNullable<NonNullable<ReturnType<AgentRegistry["get"]>>["session"]>
type Tool = NonNullable<ReturnType<Session["getToolByName"]>>
type ToolEvent = Parameters<Session["agent"]["emitExternalEvent"]>[0]

const mainSession = (): Session | undefined => AgentRegistry.global().get("Main")?.session ?? undefined

const isMain = (ctx: ExtensionContext): boolean => mainSession()?.sessionManager === ctx.sessionManager

const stringProperty = (value: object, key: string): string | undefined => {
  const found = (value as Record<string, unknown>)[key]
  return typeof found === "string" ? found : undefined
}

const asTool = (tool: OmpTool): Tool => tool.handle as Tool

const describe = (tool: Tool): OmpTool => ({
  name: tool.name,
  label: tool.label ?? "",
  description: tool.description ?? "",
  tier: typeof tool.approval === "string" ? tool.approval : undefined,
  mcpServer: stringProperty(tool, "mcpServerName"),
  handle: tool
})

/** A prompt's `handle`: how to get its text. */
type Render = (args: string) => string | Promise<string>

const promptsOf = (session: Session): ReadonlyArray<OmpPrompt> => {
  const prompt = (name: string, description: string, argumentHint: string | undefined, handle: Render) => ({
    name,
    description,
    argumentHint,
    handle
  })
  return [
    ...session.skills.map((skill) =>
      prompt(getSkillSlashCommandName(skill), skill.description, undefined, async (args) =>
        buildSkillPromptMessage(skill, { args }).then(({ message }) => message)
      )
    ),
    ...session.slashCommands.map((command) =>
      prompt(command.name, command.description, command.argumentHint, (args) =>
        expandSlashCommand(`/${command.name} ${args}`.trimEnd(), [command])
      )
    ),
    ...session.promptTemplates.map((template) =>
      prompt(template.name, template.description, undefined, (args) =>
        expandPromptTemplate(`/${template.name} ${args}`.trimEnd(), [template])
      )
    )
  ]
}

const needSession = (): Session => {
  const session = mainSession()
  if (session === undefined) throw new Error("main session not available")
  return session
}

const makeHost = (pi: ExtensionAPI, ctx: ExtensionContext): OmpHost => {
  const quietly = (action: () => void): void => {
    try {
      action()
    } catch (error) {
      pi.logger.debug("[a2a-bridge] host call failed", { error: String(error) })
    }
  }
  return {
    version: VERSION,
    agentDir: getAgentDir(),
    mode: ctx.mode,
    hasUI: ctx.hasUI,
    cwd: ctx.cwd,
    env: process.env,
    tools: () => {
      const session = mainSession()
      if (session === undefined) return undefined
      return session.getAllToolNames().flatMap((name) => {
        const tool = session.getToolByName(name)
        return tool === undefined ? [] : [describe(tool)]
      })
    },
    activeToolNames: () => mainSession()?.getActiveToolNames() ?? [],
    wireSchema: (tool) => toolWireSchema(asTool(tool)),
    validate: (tool, id, args) => {
      const raw = { ...args }
      try {
        return validateToolArguments(asTool(tool), { type: "toolCall", id, name: tool.name, arguments: raw })
      } catch (error) {
        if (asTool(tool).lenientArgValidation === true) return raw
        throw error
      }
    },
    policy: (tool, args) => {
      const { approvalMode, userPolicies } = resolveApprovalFromContext({ settings: needSession().settings })
      const resolved = resolveApproval(asTool(tool), args, approvalMode, userPolicies)
      switch (resolved.policy) {
        case "allow":
          return { _tag: "Allow" }
        case "deny":
          return { _tag: "Deny", reason: denyError(resolved, tool.name).message }
        case "prompt":
          return { _tag: "Prompt", prompt: formatApprovalPrompt(asTool(tool), args, resolved.reason) }
      }
    },
    execute: async (tool, callId, args, signal, onUpdate) => {
      const session = needSession()
      // The approval was given for exactly these arguments: the host asks again where a hook changes them.
      const context = {
        sessionManager: session.sessionManager,
        modelRegistry: session.modelRegistry,
        model: session.model,
        settings: session.settings,
        isIdle: ctx.isIdle,
        hasQueuedMessages: ctx.hasPendingMessages,
        abort: ctx.abort,
        ui: ctx.ui,
        hasUI: ctx.hasUI,
        acpApprovedArgs: args
      }
      const result = await asTool(tool).execute(
        callId,
        args,
        signal,
        onUpdate === undefined ? undefined : (partial) => onUpdate(partial.content),
        context as unknown as Parameters<Tool["execute"]>[4]
      )
      const details = result.details as
        | { readonly async?: { readonly state: string; readonly jobId: string } }
        | undefined
      const running = details?.async?.state === "running" ? details.async.jobId : undefined
      return {
        content: result.content,
        isError: result.isError === true,
        backgroundJob: running,
        details: result.details
      }
    },
    awaitJob: async (jobId) => {
      const jobs = needSession().asyncJobManager
      const job = jobs?.getJob(jobId)
      if (jobs === undefined || job === undefined) throw new Error(`the host lost track of background job ${jobId}`)
      jobs.acknowledgeDeliveries([jobId])
      await job.promise
      return { text: job.resultText ?? job.errorText ?? "", isError: job.status !== "completed" }
    },
    cancelJob: (jobId) => {
      mainSession()?.asyncJobManager?.cancel(jobId)
    },
    mcpServer: (name) => {
      const manager = MCPManager.instance()
      const config = manager?.getServerConfig(name)
      const url = config === undefined ? undefined : stringProperty(config, "url")
      return { url, capabilities: manager?.getConnection(name)?.capabilities }
    },
    registerTool: (tool) =>
      pi.registerTool({
        name: tool.name,
        label: tool.label,
        description: tool.description,
        parameters: tool.parameters as never,
        approval: tool.tier,
        loadMode: "essential",
        execute: async (_id, args, signal) => {
          const { isError, text } = await tool.execute(args as Record<string, unknown>, signal)
          return { content: [{ type: "text", text }], isError, details: {} }
        }
      }),
    prompts: () => {
      const session = mainSession()
      return session === undefined ? [] : promptsOf(session)
    },
    renderPrompt: async (prompt, args) => (prompt.handle as Render)(args),
    artifactsDir: () => mainSession()?.sessionManager.getArtifactsDir() ?? undefined,
    present: (event) => {
      // In rpc mode these would go to stdout, a line each, with nobody to draw them.
      if (ctx.mode !== "tui") return
      quietly(() => {
        const shown =
          event._tag === "Start"
            ? {
                type: "tool_execution_start",
                toolCallId: event.callId,
                toolName: event.tool,
                args: event.args,
                intent: `remote call from ${event.client}`
              }
            : {
                type: "tool_execution_end",
                toolCallId: event.callId,
                toolName: event.tool,
                result: { content: event.content },
                isError: event.isError
              }
        mainSession()?.agent.emitExternalEvent(shown as ToolEvent)
      })
    },
    choose: (title, choices, { signal, timeoutMs }) =>
      ctx.ui.select(title, [...choices], { signal, timeout: timeoutMs }),
    notify: (text, level) => quietly(() => ctx.ui.notify(text, level)),
    setStatus: (text) => quietly(() => ctx.ui.setStatus("a2a-bridge", text)),
    log: (level, message, fields) => pi.logger[level](message, { ...fields })
  }
}

/** `../src` next to this very file, through whatever links lead here. */
const sourcePath = (): string =>
  new URL("../src/layers/Main.ts", pathToFileURL(realpathSync(fileURLToPath(import.meta.url)))).href

interface State {
  /** Settles when the bridge is up, or has said why it is not. */
  running: Promise<Bridge | undefined> | undefined
  bridge: Bridge | undefined
  /** Main's, as it was at the start: at shutdown the registry may have let go of it. */
  owner: ExtensionContext["sessionManager"] | undefined
}

/**
 * One bridge a process: session_start also fires for every subagent, and the extension may be loaded twice (linked and
 * installed), each time as a module of its own.
 */
const state = ((globalThis as Record<symbol, unknown>)[Symbol.for("pi-a2a-ext")] ??= {
  running: undefined,
  bridge: undefined,
  owner: undefined
}) as State

const launch = async (host: OmpHost): Promise<Bridge | undefined> => {
  const fail = (reason: string): undefined => {
    host.notify(`A2A bridge not started: ${reason}`, "error")
    host.log("error", "[a2a-bridge] not started", { reason })
    return undefined
  }
  try {
    const main = (await import(sourcePath())) as { readonly bridge: typeof start }
    const started = await main.bridge(host)
    return started._tag === "Started" ? started.bridge : fail(started.reason)
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error))
  }
}

const stop = async (): Promise<void> => {
  const bridge = await state.running
  state.running = undefined
  state.bridge = undefined
  await bridge?.close()
}

export default function a2aBridge(pi: ExtensionAPI): void {
  pi.on("session_start", (_event, ctx) => {
    if (state.running !== undefined || !isMain(ctx)) return
    state.owner = ctx.sessionManager
    state.running = launch(makeHost(pi, ctx)).then((bridge) => (state.bridge = bridge))
    // Signals and fatal errors end omp without session_shutdown.
    postmortem.register("a2a-bridge", stop)
  })
  pi.on("session_shutdown", async (_event, ctx) => {
    if (ctx.sessionManager === state.owner) await stop()
  })
  pi.registerCommand("a2a", {
    description: "Remote access to this omp: status, token, rotate, connect",
    getArgumentCompletions: (prefix) =>
      state.bridge?.completions(prefix).map((item) => ({ ...item, label: item.value })) ?? null,
    handler: async (args, ctx) => {
      const bridge = await state.running
      const notice =
        bridge === undefined
          ? { text: "A2A bridge not running", level: "warning" as const }
          : await bridge.command(args)
      ctx.ui.notify(notice.text, notice.level)
    }
  })
}
