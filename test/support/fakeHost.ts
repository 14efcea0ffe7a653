import type { JsonObject, Policy } from "../../src/services/HostTools.ts"
import type { OmpHost, OmpTool, OmpToolResult } from "../../src/services/OmpHost.ts"

export interface FakeTool {
  readonly name: string
  readonly label?: string
  readonly description?: string
  readonly tier?: OmpTool["tier"]
  readonly mcpServer?: string
  readonly schema?: unknown
  readonly policy?: Policy
  readonly active?: boolean
  readonly run: (args: JsonObject, signal: AbortSignal) => Promise<OmpToolResult>
}

export const text = (text: string, isError = false): OmpToolResult => ({
  content: [{ type: "text", text }],
  isError,
  backgroundJob: undefined
})

export const echo: FakeTool = {
  name: "echo",
  tier: "read",
  schema: { type: "object", properties: { text: { type: "string" } } },
  run: async (args) => text(String(args["text"] ?? ""))
}

export interface FakeHost extends OmpHost {
  readonly notices: Array<{ readonly text: string; readonly level: string }>
  readonly logs: Array<{ readonly level: string; readonly message: string; readonly fields: JsonObject }>
  readonly presented: Array<Parameters<OmpHost["present"]>[0]>
  readonly statuses: Array<string | undefined>
}

/** An OmpHost without an omp: what a test does not name is harmless. */
export const fakeHost = (
  options: { readonly agentDir: string; readonly tools: () => ReadonlyArray<FakeTool> } & Partial<
    Omit<OmpHost, "tools">
  >
): FakeHost => {
  const { tools, ...overrides } = options
  const find = (tool: OmpTool): FakeTool => {
    const found = tools().find(({ name }) => name === tool.name)
    if (found === undefined) throw new Error(`no fake tool ${tool.name}`)
    return found
  }
  const notices: FakeHost["notices"] = []
  const logs: FakeHost["logs"] = []
  const presented: FakeHost["presented"] = []
  const statuses: FakeHost["statuses"] = []
  const handles = new Map<string, object>()
  return {
    version: "0.0.0",
    mode: "rpc",
    hasUI: false,
    cwd: "/",
    env: {},
    activeToolNames: () =>
      tools()
        .filter(({ active }) => active !== false)
        .map(({ name }) => name),
    wireSchema: (tool) => find(tool).schema ?? { type: "object" },
    validate: (_tool, _id, args) => args,
    policy: (tool) => find(tool).policy ?? { _tag: "Allow" },
    execute: (tool, _id, args, signal) => find(tool).run(args, signal),
    awaitJob: async () => ({ text: "", isError: false }),
    cancelJob: () => undefined,
    mcpServer: () => undefined,
    registerTool: () => undefined,
    prompts: () => [],
    renderPrompt: async () => "",
    artifactsDir: () => undefined,
    choose: async () => undefined,
    present: (event) => void presented.push(event),
    notify: (text, level) => void notices.push({ text, level }),
    setStatus: (text) => void statuses.push(text),
    log: (level, message, fields) => void logs.push({ level, message, fields }),
    ...overrides,
    tools: () =>
      tools().map((tool) => {
        const handle = handles.get(tool.name) ?? {}
        handles.set(tool.name, handle)
        return {
          name: tool.name,
          label: tool.label ?? tool.name,
          description: tool.description ?? `The tool ${tool.name}.`,
          tier: tool.tier,
          mcpServer: tool.mcpServer,
          handle
        }
      }),
    notices,
    logs,
    presented,
    statuses
  }
}
