import { connect, createServer } from "node:net"
import type { Server, Socket } from "node:net"

type Headers = Readonly<Record<string, string>>

/** One HTTP message, as far as it came. */
interface Message {
  readonly first: string
  readonly headers: Headers
  readonly body: string
}

/** One request and what was answered to it; no status where the connection ended before. */
export interface Exchange {
  readonly method: string
  readonly requestHeaders: Headers
  readonly request: string
  readonly status: number | undefined
  readonly responseHeaders: Headers
  readonly response: string
  readonly restarts: number
}

export interface Tap {
  readonly port: number
  /** Listens, and hands every connection on to that port. */
  readonly open: (target: number) => Promise<void>
  /** Stops listening, as the bridge behind it does. */
  readonly close: () => Promise<void>
  readonly exchanges: () => ReadonlyArray<Exchange>
}

const endOfHead = Buffer.from("\r\n\r\n")

const parse = (bytes: Buffer): ReadonlyArray<Message> => {
  const out: Array<Message> = []
  let at = 0
  for (;;) {
    const end = bytes.indexOf(endOfHead, at)
    if (end < 0) return out
    const [first = "", ...lines] = bytes.toString("latin1", at, end).split("\r\n")
    const headers = Object.fromEntries(
      lines.map((line) => {
        const colon = line.indexOf(":")
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const
      })
    )
    at = end + endOfHead.length
    const parts: Array<Buffer> = []
    if (headers["transfer-encoding"] === "chunked") {
      for (;;) {
        const line = bytes.indexOf("\r\n", at)
        const size = line < 0 ? Number.NaN : Number.parseInt(bytes.toString("latin1", at, line), 16)
        if (Number.isNaN(size)) {
          at = bytes.length
          break
        }
        parts.push(bytes.subarray(line + 2, line + 2 + size))
        at = line + 2 + size + 2
        if (size === 0) break
      }
    } else {
      const length = Number(headers["content-length"] ?? 0)
      parts.push(bytes.subarray(at, at + length))
      at += length
    }
    if (!first.startsWith("HTTP/1.1 100")) out.push({ first, headers, body: Buffer.concat(parts).toString("utf8") })
  }
}

/**
 * A TCP relay that keeps what went both ways. It knows HTTP only to read its records, not to pass bytes on, and it passes
 * on ends and broken connections: to a client that cancels by hanging up, the bridge looks as it would without it.
 */
export const makeTap = async (): Promise<Tap> => {
  const connections: Array<{ readonly up: Array<Buffer>; readonly down: Array<Buffer>; readonly restarts: number }> = []
  const sockets = new Set<Socket>()
  let target = 0
  let restarts = -1
  let port = 0
  let server: Server | undefined
  const listen = () =>
    new Promise<void>((resolve, reject) => {
      restarts++
      server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
        const record = { up: [] as Array<Buffer>, down: [] as Array<Buffer>, restarts }
        connections.push(record)
        const bridge = connect({ port: target, host: "127.0.0.1", allowHalfOpen: true, noDelay: true })
        for (const [from, to, kept] of [
          [client, bridge, record.up],
          [bridge, client, record.down]
        ] as const) {
          sockets.add(from)
          from.on("data", (bytes: Buffer) => void kept.push(bytes))
          from.pipe(to)
          from.on("error", () => to.destroy())
          from.on("close", () => {
            sockets.delete(from)
            to.destroy()
          })
        }
      })
      server.once("error", reject)
      server.listen(port, "127.0.0.1", () => {
        const address = server?.address()
        port = typeof address === "object" && address !== null ? address.port : 0
        resolve()
      })
    })
  const close = () =>
    new Promise<void>((resolve) => {
      if (server === undefined) return resolve()
      server.close(() => resolve())
      server = undefined
      for (const socket of sockets) socket.destroy()
    })
  await listen()
  await close()
  restarts = -1
  return {
    get port() {
      return port
    },
    open: (bridge) => {
      target = bridge
      return listen()
    },
    close,
    exchanges: () =>
      connections.flatMap(({ down, restarts, up }) => {
        const answers = parse(Buffer.concat(down))
        return parse(Buffer.concat(up)).map((request, index) => {
          const answer = answers[index]
          return {
            method: request.first.split(" ")[0] ?? "",
            requestHeaders: request.headers,
            request: request.body,
            status: answer === undefined ? undefined : Number(answer.first.split(" ")[1]),
            responseHeaders: answer?.headers ?? {},
            response: answer?.body ?? "",
            restarts
          }
        })
      })
  }
}
