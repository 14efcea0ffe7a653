import { createHash, timingSafeEqual } from "node:crypto"
import * as HttpRouter from "@effect/platform/HttpRouter"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { parseBearer, PrincipalId, Unauthorized } from "../../services/Auth.ts"
import { Config } from "../../services/Config.ts"
import { HostInfo } from "../../services/HostInfo.ts"
import { Jobs } from "../../services/jobs/Jobs.ts"
import { viewOf } from "../../services/jobs/views.ts"
import { Lifecycle } from "../../services/Lifecycle.ts"
import * as Guard from "./guard.ts"
import { NotFound, Unavailable } from "./httpFailures.ts"

type Request = HttpServerRequest.HttpServerRequest

const nobody = { id: PrincipalId.make("nobody"), name: "nobody" }
const admin = { id: PrincipalId.make("admin"), name: "admin" }

/** Of one length, whatever was sent: neither content nor length shows in the time taken. */
const digest = (text: string): Buffer => createHash("sha256").update(text, "utf8").digest()

/** What `X-Shutdown-Token` says, or a bearer. */
const presented = ({ headers }: Request): string | undefined =>
  headers["x-shutdown-token"] ?? parseBearer(headers["authorization"] ?? "")

/** Jobs on one page of `/jobs`. */
const pageSize = 100

/** For those who watch over a bridge: whether it lives, what it is, how its jobs do, and how to end it. */
export const make = Effect.fn("OpsRoutes.make")(function* (guarded: Guard.Guard) {
  const config = yield* Config
  const info = yield* HostInfo
  const lifecycle = yield* Lifecycle
  const jobs = Option.getOrUndefined(yield* Effect.serviceOption(Jobs))

  const withJobs = (use: (jobs: Jobs["Type"]) => Effect.Effect<unknown, { readonly _tag: string }>) =>
    guarded(["GET"], (_principal, request) =>
      jobs === undefined
        ? new NotFound({ path: request.url.slice(0, 128) })
        : Effect.matchEffect(use(jobs), {
            onSuccess: (value) => Effect.succeed(Guard.json(200, value)),
            onFailure: ({ _tag }) => new Unavailable({ what: _tag })
          })
    )

  const health = guarded(
    ["GET"],
    () => Effect.succeed(Guard.json(200, { status: "ok" })),
    () => Effect.succeed(nobody)
  )
  const version = guarded(["GET"], () =>
    Effect.succeed(Guard.json(200, { name: info.name, version: info.version, instance: info.instance }))
  )
  const stats = withJobs((all) => all.stats)
  const list = withJobs((all) =>
    Effect.map(all.list({}, pageSize), ({ jobs: found, total }) => ({ jobs: found.map(viewOf), total }))
  )
  const shutdown = guarded(
    ["POST"],
    () =>
      Effect.gen(function* () {
        const reason = "POST /admin/shutdown"
        if (jobs !== undefined) yield* jobs.shutdown(reason)
        yield* lifecycle.stop(reason)
        return Guard.json(202, { stopping: true })
      }),
    (request) =>
      Effect.flatMap(config.current, ({ adminShutdownToken }) => {
        const token = presented(request)
        if (token === undefined || adminShutdownToken === undefined) return new Unauthorized({ reason: "missing" })
        return timingSafeEqual(digest(token), digest(Redacted.value(adminShutdownToken)))
          ? Effect.succeed(admin)
          : new Unauthorized({ reason: "mismatch" })
      })
  )

  return HttpRouter.empty.pipe(
    HttpRouter.all("/healthz", health),
    HttpRouter.all("/version", version),
    HttpRouter.all("/stats", stats),
    HttpRouter.all("/jobs", list),
    HttpRouter.all("/admin/shutdown", shutdown)
  )
})
