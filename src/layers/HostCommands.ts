import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { Auth } from "../services/Auth.ts"
import { Config, tokenHint } from "../services/Config.ts"
import { clients, instructions, isClient } from "../services/connect.ts"
import { Listening } from "../services/Listening.ts"
import { McpServer } from "../services/mcp/McpServer.ts"
import { plural } from "../services/plural.ts"

export interface Notice {
  readonly text: string
  readonly level: "info" | "warning" | "error"
}

const subcommands = {
  "": "where the bridge listens, and who is using it",
  token: "show the whole token",
  rotate: "replace the token: the old one and its sessions are dead at once",
  connect: "the lines that connect a client"
} as const

/** `/a2a <args>`. Always ends in something to show. */
export const run = (args: string): Effect.Effect<Notice, never, Auth | Config | Listening | McpServer> =>
  Effect.gen(function* () {
    const [subcommand = "", argument] = args.trim().split(/\s+/)
    const config = yield* Config
    const { url } = yield* Listening
    const settings = yield* config.current
    const target = { url, token: Redacted.value(settings.token), name: "omp-host" }
    switch (subcommand) {
      case "": {
        const mcp = yield* McpServer
        const auth = yield* Auth
        const activity = Option.getOrElse(yield* Stream.runHead(mcp.activity), () => ({ sessions: 0, calls: 0 }))
        const rejected = yield* auth.rejected
        return {
          level: "info",
          text:
            `A2A bridge listening on ${url} (token ${tokenHint(settings.token)})\n` +
            `${plural(activity.sessions, "client")}, ${plural(activity.calls, "call")} in flight, ` +
            `${plural(rejected, "unauthorized attempt")} since start\n` +
            `settings: ${config.file}\n` +
            `/a2a connect shows how to connect; /a2a token shows the token; /a2a rotate replaces it`
        }
      }
      case "token":
        return { level: "info", text: `A2A token: ${target.token}` }
      case "rotate": {
        const auth = yield* Auth
        return yield* Effect.match(auth.rotate, {
          onFailure: (error): Notice => ({ level: "error", text: `A2A bridge: token not rotated: ${error.message}` }),
          onSuccess: (token): Notice => ({
            level: "info",
            text: `A2A token rotated (now ${tokenHint(token)}); /a2a connect shows the new lines for every client`
          })
        })
      }
      case "connect": {
        if (argument !== undefined && !isClient(argument)) {
          return { level: "error", text: `A2A bridge: no client '${argument}'; one of ${clients.join(", ")}` }
        }
        const chosen = argument === undefined ? clients : [argument]
        return { level: "info", text: chosen.map((client) => instructions[client](target)).join("\n\n") }
      }
      default:
        return {
          level: "error",
          text: `A2A bridge: no command '${subcommand}'; use /a2a, ${Object.keys(subcommands)
            .filter((name) => name !== "")
            .map((name) => `/a2a ${name}`)
            .join(", ")}`
        }
    }
  })

/** What may follow `/a2a `, for the part that is typed. */
export const completions = (
  prefix: string
): ReadonlyArray<{ readonly value: string; readonly description: string }> => {
  const words = prefix.trimStart().split(/\s+/)
  if (words.length <= 1) {
    return Object.entries(subcommands)
      .filter(([name]) => name !== "" && name.startsWith(words[0] ?? ""))
      .map(([value, description]) => ({ value, description }))
  }
  if (words[0] !== "connect" || words.length > 2) return []
  return clients
    .filter((client) => client.startsWith(words[1] ?? ""))
    .map((client) => ({ value: `connect ${client}`, description: `the lines that connect ${client}` }))
}
