import * as Cause from "effect/Cause"
import * as HashMap from "effect/HashMap"
import type * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import type * as LogLevel from "effect/LogLevel"
import type { OmpHost } from "../services/OmpHost.ts"

const levelOf = (level: LogLevel.LogLevel): Parameters<OmpHost["log"]>[0] =>
  level._tag === "Fatal" || level._tag === "Error"
    ? "error"
    : level._tag === "Warning"
      ? "warn"
      : level._tag === "Info"
        ? "info"
        : "debug"

const textOf = (part: unknown): string => (typeof part === "string" ? part : (JSON.stringify(part) ?? String(part)))

/** Everything that Effect logs goes to the host's log file; stdout and stderr belong to the host's protocol and TUI. */
export const layer = (host: OmpHost): Layer.Layer<never> =>
  Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ annotations, cause, logLevel, message }) => {
      const parts = Array.isArray(message) ? message : [message]
      const fields: Record<string, unknown> = Object.fromEntries(HashMap.toEntries(annotations))
      if (!Cause.isEmpty(cause)) fields["cause"] = Cause.pretty(cause)
      try {
        host.log(levelOf(logLevel), `[a2a-bridge] ${parts.map(textOf).join(" ")}`, fields)
      } catch {
        // A log that cannot be written must not end what it tells of.
      }
    })
  )
