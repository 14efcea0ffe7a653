import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Stream from "effect/Stream"
import { parseJson } from "../../services/mcp/parseJson.ts"
import { BodyBroken, BodyTooLarge, BodyTooSlow } from "./httpFailures.ts"

/** Seconds in which a body must have arrived, however slowly its bytes trickle in. */
const patience = 30

const concat = (chunks: Chunk.Chunk<Uint8Array>): string =>
  Buffer.concat(Chunk.toReadonlyArray(chunks)).toString("utf8")

/** Counted as it comes in, for a body without a length (chunked). */
const readStream = (request: HttpServerRequest.HttpServerRequest, limit: number) => {
  let size = 0
  return request.stream.pipe(
    Stream.mapError(() => new BodyBroken()),
    Stream.mapEffect((chunk) => {
      size += chunk.length
      return size > limit ? new BodyTooLarge({ limit }) : Effect.succeed(chunk)
    }),
    Stream.runCollect,
    Effect.map(concat)
  )
}

const readText = (request: HttpServerRequest.HttpServerRequest, limit: number) => {
  const length = request.headers["content-length"]
  if (length !== undefined && Number(length) > limit) return new BodyTooLarge({ limit })
  if (length === undefined && request.headers["transfer-encoding"] === undefined) return Effect.succeed("")
  return length === undefined ? readStream(request, limit) : Effect.mapError(request.text, () => new BodyBroken())
}

/** Bun's own server, for the one thing that @effect/platform-bun gives no way to: the timeout of one request. */
interface BunBacked {
  readonly source: globalThis.Request
  readonly bunServer?: { readonly timeout: (request: globalThis.Request, seconds: number) => void }
}

/** From here on the connection may be silent for as long as the call takes. */
export const liftIdleTimeout = (request: HttpServerRequest.HttpServerRequest): void => {
  const { bunServer, source } = request as unknown as BunBacked
  bunServer?.timeout(source, 0)
}

/** The body as JSON, within `limit` bytes. */
export const readJson = (request: HttpServerRequest.HttpServerRequest, limit: number) =>
  readText(request, limit).pipe(
    Effect.timeoutFail({ duration: `${patience} seconds`, onTimeout: () => new BodyTooSlow({ seconds: patience }) }),
    Effect.flatMap((text) => {
      liftIdleTimeout(request)
      return Either.match(parseJson(text), { onLeft: Effect.fail, onRight: Effect.succeed })
    })
  )
