import type { Exit } from "./Processes.ts"
import type { WorkerFailure } from "./Worker.ts"
import { FolderUntrusted, NotLoggedIn, ProtocolBroken, SessionLost, WorkerExited } from "./Worker.ts"

/** What a program that ended, or stands still, before it did its work says of why. */
export const complaintOf = (text: string): "not-logged-in" | "folder-untrusted" | "session-lost" | undefined => {
  if (/workspace trust|not trusted|untrusted|do you trust/i.test(text)) return "folder-untrusted"
  if (
    /auth(entication)?[ _]required|not (yet )?logged in|not authenticated|unauthenticated|please (run|log ?in).*\blogin\b|invalid api key|\b401\b/i.test(
      text
    )
  ) {
    return "not-logged-in"
  }
  if (/(chat|session|conversation)\b.*\bnot found|no (such )?(chat|session|conversation)\b/i.test(text)) {
    return "session-lost"
  }
  return undefined
}

/** Why a program's turn has no result. `text` is what it said beside its protocol; `exit` is absent where it still runs. */
export const withoutResult = (
  session: string | undefined,
  text: string,
  exit: Exit | undefined,
  otherwise: string
): WorkerFailure => {
  switch (complaintOf(text)) {
    case "not-logged-in":
      return new NotLoggedIn({ detail: text })
    case "folder-untrusted":
      return new FolderUntrusted({ detail: text })
    case "session-lost":
      if (session !== undefined) return new SessionLost({ sessionId: session })
  }
  if (exit !== undefined && exit.code !== 0) return new WorkerExited({ ...exit, stderr: text })
  return new ProtocolBroken({ detail: text === "" ? otherwise : `${otherwise}: ${text}` })
}
