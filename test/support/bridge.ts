import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createConnection } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll } from "vitest"
import * as Main from "../../src/layers/Main.ts"
import type { OmpHost } from "../../src/services/OmpHost.ts"
import type { FakeHost, FakeTool } from "./fakeHost.ts"
import { echo, fakeHost } from "./fakeHost.ts"

type Headers = Readonly<Record<string, string>>
type Fields = Readonly<Record<string, unknown>>

/** One HTTP answer, however it was fetched. Header names are lower case. */
export interface HttpAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

export interface RpcError {
  readonly code: number
  readonly message: string
}

/** A JSON-RPC answer. */
export interface Rpc {
  readonly jsonrpc: unknown
  readonly id: unknown
  readonly result?: Fields
  readonly error?: RpcError
}

export interface CallResult {
  readonly content: ReadonlyArray<{
    readonly type: string
    readonly text?: string
    readonly data?: string
    readonly mimeType?: string
  }>
  readonly isError: boolean
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value)

/** Checks that a value is a whole JSON-RPC answer: version, id, and either a result or a well-formed error. */
export const asRpc = (value: unknown): Rpc => {
  assert(isRecord(value), `not a JSON-RPC object: ${JSON.stringify(value)}`)
  assert.strictEqual(value["jsonrpc"], "2.0")
  assert(Object.hasOwn(value, "id"), "an answer without id")
  assert.notStrictEqual(Object.hasOwn(value, "result"), Object.hasOwn(value, "error"), "result and error, or neither")
  if (Object.hasOwn(value, "error")) {
    const error = value["error"]
    assert(isRecord(error))
    assert(Number.isInteger(error["code"]), "code is no integer")
    assert.isString(error["message"])
    assert.isNotEmpty(error["message"])
  }
  return value as unknown as Rpc
}

/** The JSON-RPC body of an answer, whatever its status. */
export const rpcOf = (answer: HttpAnswer): Rpc => {
  assert.match(answer.headers["content-type"] ?? "", /^application\/json\b/, answer.text)
  return asRpc(JSON.parse(answer.text))
}

/** Status, code and id of a failed request, for comparing in one line. */
export const failure = (answer: HttpAnswer) => {
  const { error, id } = rpcOf(answer)
  return { status: answer.status, code: error?.code, id }
}

export const resultOf = (answer: HttpAnswer): Fields => {
  assert.strictEqual(answer.status, 200, answer.text)
  const { result } = rpcOf(answer)
  assert(result !== undefined, answer.text)
  return result
}

export const callResultOf = (answer: HttpAnswer): CallResult => resultOf(answer) as unknown as CallResult

/** Texts of a tools/call answer. */
export const saidBy = (answer: HttpAnswer): string =>
  callResultOf(answer)
    .content.map(({ text }) => text ?? "")
    .join("")

/** Looks until there is something to see. Fails at the deadline, by name. */
export const until = async <A>(
  what: string,
  look: () => A | undefined | false | Promise<A | undefined | false>,
  deadlineMillis = 3000
): Promise<A> => {
  const end = performance.now() + deadlineMillis
  for (;;) {
    const seen = await look()
    if (seen !== undefined && seen !== false) return seen
    assert.isBelow(performance.now(), end, `not within ${deadlineMillis} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** Fails where `promise` takes longer. */
export const within = <A>(what: string, millis: number, promise: Promise<A>): Promise<A> => {
  let timer: ReturnType<typeof setTimeout>
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${millis} ms: ${what}`)), millis)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

const endOfHead = Buffer.from("\r\n\r\n")

const dechunk = (bytes: Buffer): { readonly text: string; readonly rest: Buffer } | undefined => {
  const parts: Array<Buffer> = []
  let at = 0
  for (;;) {
    const line = bytes.indexOf("\r\n", at)
    if (line < 0) return undefined
    const size = Number.parseInt(bytes.toString("latin1", at, line), 16)
    const next = line + 2 + size + 2
    if (bytes.length < next) return undefined
    if (size === 0) return { text: Buffer.concat(parts).toString("utf8"), rest: bytes.subarray(next) }
    parts.push(bytes.subarray(line + 2, line + 2 + size))
    at = next
  }
}

/** The first whole answer in the bytes, and what follows it. */
const takeAnswer = (
  bytes: Buffer,
  head: boolean
): { readonly answer: HttpAnswer; readonly rest: Buffer } | undefined => {
  const at = bytes.indexOf(endOfHead)
  if (at < 0) return undefined
  const [first = "", ...lines] = bytes.toString("latin1", 0, at).split("\r\n")
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(first)?.[1])
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(":")
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const
    })
  )
  const body = bytes.subarray(at + endOfHead.length)
  if (head || status === 204 || status < 200) return { answer: { status, headers, text: "" }, rest: body }
  if (headers["transfer-encoding"] === "chunked") {
    const whole = dechunk(body)
    return whole === undefined ? undefined : { answer: { status, headers, text: whole.text }, rest: whole.rest }
  }
  const length = Number(headers["content-length"] ?? 0)
  if (body.length < length) return undefined
  return { answer: { status, headers, text: body.toString("utf8", 0, length) }, rest: body.subarray(length) }
}

export interface RawConnection extends AsyncDisposable {
  readonly send: (bytes: string | Uint8Array) => Promise<void>
  /** The next answer on this connection, 100 Continue left out. Rejects where the connection ends before it. */
  readonly next: (options?: { readonly millis?: number; readonly head?: boolean }) => Promise<HttpAnswer>
  /** Sends no more, and goes on reading. */
  readonly halfClose: () => void
  /** Gone without a word (RST or FIN, as the kernel likes). */
  readonly destroy: () => void
  readonly closed: () => boolean
}

/** A TCP connection on which a test says every byte itself. */
export const rawConnection = async (port: number, hostname = "127.0.0.1"): Promise<RawConnection> => {
  const socket = createConnection({ port, host: hostname, noDelay: true, allowHalfOpen: true })
  let buffer: Buffer = Buffer.alloc(0)
  let closed = false
  socket.on("data", (bytes: Buffer) => {
    buffer = Buffer.concat([buffer, bytes])
  })
  socket.on("error", () => {
    closed = true
  })
  socket.on("end", () => {
    closed = true
  })
  socket.on("close", () => {
    closed = true
  })
  await new Promise<void>((resolve, reject) => {
    socket.once("connect", () => resolve())
    socket.once("error", reject)
  })
  const next: RawConnection["next"] = async ({ head = false, millis = 3000 } = {}) => {
    for (;;) {
      const found = await until(
        "an HTTP answer",
        () => {
          const taken = takeAnswer(buffer, head)
          assert(
            taken !== undefined || !closed,
            `closed with no whole answer: ${buffer.toString("utf8").slice(0, 200)}`
          )
          return taken
        },
        millis
      )
      buffer = found.rest
      if (found.answer.status !== 100) return found.answer
    }
  }
  return {
    send: (bytes) =>
      new Promise((resolve) => {
        // A server that has answered may close while the rest is being sent: that is no failure of the sender.
        socket.write(bytes, () => resolve())
      }),
    next,
    halfClose: () => void socket.end(),
    destroy: () => void socket.destroy(),
    closed: () => closed,
    [Symbol.asyncDispose]: async () => {
      socket.destroy()
      await until("the socket is closed", () => closed)
    }
  }
}

/** Text of one HTTP/1.1 request. A body gets its Content-Length unless the headers speak of its length. */
export const rawRequest = (method: string, path: string, headers: Headers, body = ""): string => {
  const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()))
  const sized = names.has("content-length") || names.has("transfer-encoding") || (body === "" && method !== "POST")
  const all = sized ? headers : { ...headers, "content-length": String(Buffer.byteLength(body)) }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body}`
}

export interface TestBridge extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly agentDir: string
  readonly host: FakeHost
  /** The token in force when the bridge started. */
  readonly token: string
  readonly command: Main.Bridge["command"]
  /** As it is given: no header is added. */
  readonly fetch: (path: string, init: RequestInit) => Promise<HttpAnswer>
  /** POST to /mcp with the bearer. A string goes as it is, anything else as its JSON. */
  readonly post: (body: unknown, headers?: Headers, signal?: AbortSignal) => Promise<HttpAnswer>
  /** POST of one request; the id is 1 unless given. */
  readonly rpc: (method: string, params?: unknown, headers?: Headers) => Promise<HttpAnswer>
  /** tools/call, its id taken from `id`. */
  readonly call: (session: Headers, name: string, args?: unknown, id?: unknown) => Promise<HttpAnswer>
  /** A new session as the header that names it. */
  readonly open: (protocolVersion?: string) => Promise<{ readonly "mcp-session-id": string }>
  /** One request on a connection of its own; `host` and `authorization` are added where not given. */
  readonly raw: (method: string, path: string, headers?: Headers, body?: string) => Promise<HttpAnswer>
  readonly connect: (hostname?: string) => Promise<RawConnection>
  /** Headers of a good raw request. */
  readonly good: { readonly host: string; readonly authorization: string }
  /** Merges fields into a2a-bridge.json. */
  readonly configure: (fields: Fields) => void
  /** Records of the audit log so far. */
  readonly audit: () => ReadonlyArray<Fields>
  readonly close: () => Promise<void>
}

export interface BridgeOptions {
  readonly tools?: () => ReadonlyArray<FakeTool>
  readonly config?: Fields
  readonly host?: Partial<Omit<OmpHost, "tools">>
}

const ownToken = "test-token-0123456789"

/** A folder with a2a-bridge.json, and a fake host over it. */
export const makeHost = ({ config = {}, host = {}, tools = () => [echo] }: BridgeOptions = {}) => {
  const agentDir = mkdtempSync(join(tmpdir(), "pi-a2a-http-"))
  const file = join(agentDir, "a2a-bridge.json")
  writeFileSync(file, JSON.stringify({ token: ownToken, ...config }), { mode: 0o600 })
  return {
    agentDir,
    file,
    host: fakeHost({ agentDir, tools, ...host }),
    remove: () => rmSync(agentDir, { recursive: true, force: true })
  }
}

const answerOf = async (response: Response): Promise<HttpAnswer> => ({
  status: response.status,
  headers: Object.fromEntries(response.headers),
  text: await response.text()
})

/** The whole bridge, as the host's entry starts it, on port 0 over a fake host in a folder of its own. */
export const startBridge = async (options: BridgeOptions = {}): Promise<TestBridge> => {
  const { agentDir, file, host, remove } = makeHost(options)
  const started = await Main.bridge(host)
  if (started._tag === "Failed") {
    remove()
    throw new Error(`the bridge did not start: ${started.reason}`)
  }
  const { bridge } = started
  const token = ownToken
  const port = Number(new URL(bridge.url).port)
  const authorization = `Bearer ${token}`
  const url = `http://127.0.0.1:${port}`
  const good = { host: `127.0.0.1:${port}`, authorization }
  const send: TestBridge["fetch"] = async (path, init) => answerOf(await fetch(`${url}${path}`, init))
  const post: TestBridge["post"] = (body, headers = {}, signal) =>
    send("/mcp", {
      method: "POST",
      headers: { authorization, "content-type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...(signal === undefined ? {} : { signal })
    })
  const rpc: TestBridge["rpc"] = (method, params, headers) => post({ jsonrpc: "2.0", id: 1, method, params }, headers)
  const connect: TestBridge["connect"] = (hostname) => rawConnection(port, hostname)
  const close = bridge.close
  return {
    url,
    port,
    agentDir,
    host,
    token,
    command: bridge.command,
    fetch: send,
    post,
    rpc,
    call: (session, name, args, id = 1) =>
      post({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: args } }, session),
    open: async (protocolVersion = "2025-11-25") => {
      const answer = await rpc("initialize", { protocolVersion, capabilities: {} })
      resultOf(answer)
      const id = answer.headers["mcp-session-id"]
      assert(id !== undefined, "initialize opened no session")
      return { "mcp-session-id": id }
    },
    raw: async (method, path, headers = {}, body = "") => {
      await using connection = await connect()
      await connection.send(rawRequest(method, path, { ...good, ...headers }, body))
      return await connection.next({ head: method === "HEAD" })
    },
    connect,
    good,
    configure: (fields) => {
      const before = JSON.parse(readFileSync(file, "utf8")) as Fields
      writeFileSync(file, JSON.stringify({ ...before, ...fields }))
    },
    audit: () => {
      try {
        return readFileSync(join(agentDir, "a2a-bridge.log"), "utf8")
          .split("\n")
          .filter((line) => line !== "")
          .map((line) => JSON.parse(line) as Fields)
      } catch {
        return []
      }
    },
    close,
    [Symbol.asyncDispose]: async () => {
      await close()
      remove()
    }
  }
}

/** Fails the file where anything in it left a rejection or an exception to nobody. */
export const noStrayErrors = (): void => {
  const stray: Array<unknown> = []
  const note = (error: unknown) => void stray.push(error)
  beforeAll(() => {
    process.on("unhandledRejection", note)
    process.on("uncaughtException", note)
  })
  afterAll(async () => {
    await new Promise((resolve) => setImmediate(resolve))
    process.off("unhandledRejection", note)
    process.off("uncaughtException", note)
    assert.deepStrictEqual(stray.map(String), [])
  })
}

/** A tool that runs until it is told to end, and knows what happened to it. */
export const makeGate = (name = "hold") => {
  const started: Array<Fields> = []
  const aborted: Array<number> = []
  const releases: Array<() => void> = []
  const tool: FakeTool = {
    name,
    tier: "read",
    run: (args, signal) =>
      new Promise((resolve, reject) => {
        started.push(args)
        releases.push(() =>
          resolve({ content: [{ type: "text", text: "released" }], isError: false, backgroundJob: undefined })
        )
        signal.addEventListener("abort", () => {
          aborted.push(performance.now())
          reject(new Error("aborted"))
        })
      })
  }
  return {
    tool,
    /** Arguments of the runs so far. */
    started,
    /** Moments (performance.now) at which a run's signal fired. */
    aborted,
    /** Ends every run so far. */
    release: () => {
      for (const release of releases.splice(0)) release()
    },
    /** Ends the oldest run. */
    releaseOne: () => releases.shift()?.()
  }
}
