import type { JsonObject, Policy, ToolContent } from "./HostTools.ts"

/** A tool as omp has it. `handle` is the host's own object, opaque here. */
export interface OmpTool {
  readonly name: string
  readonly label: string
  readonly description: string
  /** The declared tier, where it does not depend on the arguments. */
  readonly tier: "read" | "write" | "exec" | undefined
  /** Set where the host has the tool from an MCP server. */
  readonly mcpServer: string | undefined
  readonly handle: unknown
}

export interface OmpToolResult {
  readonly content: ReadonlyArray<unknown>
  readonly isError: boolean
  /** Set where the host moved the command to the background and returned early. */
  readonly backgroundJob: string | undefined
  /** The tool's own record of how it ran. */
  readonly details?: unknown
}

/** How a background job ended. */
export interface OmpJobResult {
  readonly text: string
  readonly isError: boolean
}

/** What a person at the host runs as a slash command, and what is only text: a skill, a command file, a template. */
export interface OmpPrompt {
  /** Without the slash. */
  readonly name: string
  readonly description: string
  readonly argumentHint: string | undefined
  readonly handle: unknown
}

/** A tool that the bridge adds to omp's own, for the host's model and for its user. */
export interface OmpOwnTool {
  readonly name: string
  readonly label: string
  readonly description: string
  /** JSON Schema. */
  readonly parameters: JsonObject
  readonly tier: "read" | "write" | "exec"
  /** Never rejects but when it is aborted. */
  readonly execute: (
    args: JsonObject,
    signal: AbortSignal | undefined
  ) => Promise<{ readonly text: string; readonly isError: boolean }>
}

export interface OmpMcpServer {
  readonly url: string | undefined
  /** `capabilities` of its initialize result, as received. */
  readonly capabilities: unknown
}

export interface OmpDialogOptions {
  readonly signal: AbortSignal
  readonly timeoutMs: number
}

/**
 * The running omp, as much of it as the bridge uses. Handed over by the extension's entry, which alone knows the
 * host's modules: importing them from here would load a second copy of the host.
 * Everything may throw what the host throws, unless it says otherwise.
 */
export interface OmpHost {
  readonly version: string
  /** Where omp keeps the user's settings (`~/.omp/agent`). */
  readonly agentDir: string
  readonly mode: "tui" | "rpc" | "print" | "json"
  /** Whether a person, or a program in a person's place, can be asked. */
  readonly hasUI: boolean
  readonly cwd: string
  readonly env: Readonly<Record<string, string | undefined>>

  /** Tools of the Main session; `undefined` where there is none now. */
  readonly tools: () => ReadonlyArray<OmpTool> | undefined
  readonly activeToolNames: () => ReadonlyArray<string>
  readonly wireSchema: (tool: OmpTool) => unknown
  /** Throws an Error with a message for a model. */
  readonly validate: (tool: OmpTool, callId: string, args: JsonObject) => JsonObject
  readonly policy: (tool: OmpTool, args: JsonObject) => Policy
  /** Rejects where the tool throws, which is how most omp tools fail. */
  readonly execute: (
    tool: OmpTool,
    callId: string,
    args: JsonObject,
    signal: AbortSignal,
    onUpdate: ((content: ReadonlyArray<unknown>) => void) | undefined
  ) => Promise<OmpToolResult>
  /** Waits for a background job and keeps its end from the host's model. */
  readonly awaitJob: (jobId: string) => Promise<OmpJobResult>
  readonly cancelJob: (jobId: string) => void
  readonly mcpServer: (name: string) => OmpMcpServer | undefined

  /** From here on omp has it. There is no way back. */
  readonly registerTool: (tool: OmpOwnTool) => void
  readonly prompts: () => ReadonlyArray<OmpPrompt>
  /** The text that the command puts into the conversation. */
  readonly renderPrompt: (prompt: OmpPrompt, args: string) => Promise<string>
  /** Where the Main session keeps outputs that were too long, `<number>.<tool>.log`. May not exist yet. */
  readonly artifactsDir: () => string | undefined

  /** Draws a remote call in the transcript as it draws a local one, where there is one to draw in. Never throws. */
  readonly present: (
    event:
      | {
          readonly _tag: "Start"
          readonly callId: string
          readonly tool: string
          readonly args: JsonObject
          readonly client: string
        }
      | {
          readonly _tag: "End"
          readonly callId: string
          readonly tool: string
          readonly content: ReadonlyArray<ToolContent>
          readonly isError: boolean
        }
  ) => void
  /** A dialog with two answers. `undefined` is no answer: dismissed, timed out or withdrawn. */
  readonly choose: (
    title: string,
    choices: ReadonlyArray<string>,
    options: OmpDialogOptions
  ) => Promise<string | undefined>
  /** Never throws. */
  readonly notify: (text: string, level: "info" | "warning" | "error") => void
  /** One line under the editor. Never throws. */
  readonly setStatus: (text: string | undefined) => void
  readonly log: (level: "debug" | "info" | "warn" | "error", message: string, fields: JsonObject) => void
}
