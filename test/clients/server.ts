import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Main from "../../src/layers/Main.ts"
import type { JsonObject } from "../../src/services/HostTools.ts"
import type { FakeTool } from "../support/fakeHost.ts"
import { fakeHost, text } from "../support/fakeHost.ts"
import { makeTap } from "./wire.ts"
import type { Exchange } from "./wire.ts"

export const token = "client-matrix-token-0123456789"

/** One run of a tool, as the host saw it. */
export interface Run {
  readonly tool: string
  readonly args: JsonObject
  readonly restarts: number
  ended: "no" | "result" | "signal"
}

/** A record of the bridge's own log. */
export interface AuditRecord {
  readonly phase: "start" | "done"
  readonly sid: string
  readonly client: string
  readonly tool: string
  readonly isError?: boolean
  readonly outcome?: string
}

export interface Fixture {
  readonly url: string
  /** HOME of the client, and the folder of the bridge's settings and log. */
  readonly dir: string
  readonly runs: ReadonlyArray<Run>
  readonly exchanges: () => ReadonlyArray<Exchange>
  readonly audit: () => ReadonlyArray<AuditRecord>
  /** Another bridge on the same port, with the same folder. */
  readonly restart: () => Promise<void>
  readonly close: () => Promise<void>
  readonly remove: () => void
}

const schema = (properties: JsonObject, required: ReadonlyArray<string> = []) => ({
  type: "object",
  properties,
  required
})

export const toolNames = ["echo", "hold", "big"]

/** The product's own bridge over a host that is not omp, behind a tap. */
export const startFixture = async (): Promise<Fixture> => {
  const dir = mkdtempSync(join(tmpdir(), "pi-a2a-client-"))
  const runs: Array<Run> = []
  let restarts = 0
  const recorded = (tool: FakeTool): FakeTool => ({
    ...tool,
    tier: "read",
    run: async (args, signal) => {
      const run: Run = { tool: tool.name, args, restarts, ended: "no" }
      runs.push(run)
      try {
        return await tool.run(args, signal)
      } finally {
        // A tool that goes on after its signal has not ended.
        run.ended = signal.aborted ? "signal" : "result"
      }
    }
  })
  const tools = [
    recorded({
      name: "echo",
      description: "Says the text again.",
      schema: schema({ text: { type: "string" } }, ["text"]),
      run: async (args) => text(String(args["text"]))
    }),
    recorded({
      name: "hold",
      description: "Runs until it is cancelled.",
      schema: schema({}),
      run: (_args, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(new Error("aborted")))
        })
    }),
    recorded({
      name: "big",
      description: "Numbers from 0 on, so many, of eight hexadecimal digits each.",
      schema: schema({ numbers: { type: "integer" } }, ["numbers"]),
      run: async (args) => {
        const numbers = Array.from({ length: Number(args["numbers"]) }, (_, number) =>
          number.toString(16).padStart(8, "0")
        )
        return text(numbers.join(""))
      }
    })
  ]
  const configure = (port: number) =>
    writeFileSync(join(dir, "a2a-bridge.json"), JSON.stringify({ token, port, maxBodyBytes: 4 * 1024 * 1024 }), {
      mode: 0o600
    })
  const start = async () => {
    const started = await Main.bridge(fakeHost({ agentDir: dir, tools: () => tools }))
    if (started._tag === "Failed") throw new Error(started.reason)
    return started.bridge
  }
  configure(0)
  let bridge = await start()
  const own = bridge.url
  const port = Number(new URL(own).port)
  configure(port)
  const tap = await makeTap()
  await tap.open(port)
  return {
    url: `http://127.0.0.1:${tap.port}/mcp`,
    dir,
    runs,
    exchanges: tap.exchanges,
    audit: () => {
      const file = join(dir, "a2a-bridge.log")
      // There is none before the first call.
      const log = existsSync(file) ? readFileSync(file, "utf8") : ""
      return log
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as AuditRecord)
    },
    restart: async () => {
      await bridge.close()
      await tap.close()
      restarts++
      bridge = await start()
      if (bridge.url !== own) throw new Error(`the bridge came back at ${bridge.url}, not at ${own}`)
      await tap.open(port)
    },
    close: async () => {
      await bridge.close()
      await tap.close()
    },
    remove: () => rmSync(dir, { recursive: true, force: true })
  }
}
