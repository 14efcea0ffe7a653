import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { ConfigEvent } from "../services/Config.ts"
import { Config, restartFields, tokenHint } from "../services/Config.ts"
import { Listening } from "../services/Listening.ts"
import { McpServer } from "../services/mcp/McpServer.ts"
import type { OmpHost } from "../services/OmpHost.ts"
import { hostName, isLoopback } from "../services/originRules.ts"
import { plural } from "../services/plural.ts"

/** What the person at the host is told of an edit of the settings; `undefined` where there is nothing to tell. */
export const configNotice = (
  event: ConfigEvent
): { readonly text: string; readonly level: "info" | "warning" | "error" } | undefined => {
  if (event._tag === "Rejected") {
    return { text: `A2A bridge: settings not changed: ${event.error.message}`, level: "error" }
  }
  const { changed } = event
  const later = changed.filter((field) => (restartFields as ReadonlyArray<string>).includes(field))
  const now = changed.filter((field) => !later.includes(field))
  const parts = [
    ...(now.length > 0 ? [`in force now: ${now.join(", ")}`] : []),
    ...(later.length > 0 ? [`in force when omp starts again: ${later.join(", ")}`] : [])
  ]
  return parts.length === 0
    ? undefined
    : { text: `A2A bridge settings changed; ${parts.join("; ")}`, level: later.length > 0 ? "warning" : "info" }
}

/** Says where the bridge listens, keeps the status line, and tells of edits of the settings, until the scope ends. */
export const announce = Effect.fnUntraced(function* (host: OmpHost) {
  const config = yield* Config
  const mcp = yield* McpServer
  const { taken, url } = yield* Listening
  const settings = yield* config.current
  host.notify(`A2A bridge listening on ${url} (token ${tokenHint(settings.token)})`, "info")
  if (taken !== undefined) {
    host.notify(
      `A2A bridge: port ${taken} is in use, so it listens on another one; clients must use ${url} this time`,
      "warning"
    )
  }
  if (!isLoopback(hostName(settings.host))) {
    host.notify(
      `A2A bridge: listening on ${settings.host}, not only on this machine. Whoever has the token can run commands ` +
        `here, and the connection is not encrypted: use a firewall and a tunnel`,
      "warning"
    )
  }
  yield* config.changes.pipe(
    Stream.runForEach((event) =>
      Effect.sync(() => {
        const notice = configNotice(event)
        if (notice !== undefined) host.notify(notice.text, notice.level)
      })
    ),
    Effect.forkScoped
  )
  yield* mcp.activity.pipe(
    // A burst of short calls is one change to a person's eye.
    Stream.debounce("100 millis"),
    Stream.runForEach(({ calls, sessions }) =>
      Effect.sync(() => host.setStatus(`a2a ${url} · ${plural(sessions, "client")} · ${plural(calls, "call")}`))
    ),
    Effect.forkScoped
  )
  yield* Effect.addFinalizer(() => Effect.sync(() => host.setStatus(undefined)))
})
