/** The product's own server over the fixture host. Prints `<url> <token>` when it listens; ends with its stdin. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as FileAudit from "../../src/layers/FileAudit.ts"
import * as FileConfig from "../../src/layers/FileConfig.ts"
import * as HeadlessApprovals from "../../src/layers/HeadlessApprovals.ts"
import * as Http from "../../src/layers/http/Server.ts"
import * as MemoryResults from "../../src/layers/MemoryResults.ts"
import * as MemorySessionStore from "../../src/layers/MemorySessionStore.ts"
import * as TokenAuth from "../../src/layers/TokenAuth.ts"
import { Config } from "../../src/services/Config.ts"
import { HostInfo } from "../../src/services/HostInfo.ts"
import { Lifecycle } from "../../src/services/Lifecycle.ts"
import { Listening } from "../../src/services/Listening.ts"
import * as Features from "../../src/services/mcp/features.ts"
import * as Invocations from "../../src/services/mcp/Invocations.ts"
import * as McpServer from "../../src/services/mcp/McpServer.ts"
import * as ToolCalls from "../../src/services/ToolCalls.ts"
import * as FixtureHost from "./fixtureHost.ts"

const agentDir = mkdtempSync(join(tmpdir(), "pi-a2a-conformance-"))
const paths = { agentDir, env: {} }

const server = Http.layer.pipe(
  Layer.provideMerge(McpServer.layer),
  Layer.provideMerge(Layer.mergeAll(Features.layer, Invocations.layer)),
  Layer.provideMerge(ToolCalls.layer),
  Layer.provideMerge(
    Layer.mergeAll(
      FixtureHost.layer,
      MemoryResults.layer,
      Layer.succeed(Lifecycle, { stop: () => Effect.void }),
      HeadlessApprovals.layer,
      FileAudit.layer(paths, () => Effect.void),
      TokenAuth.layer,
      MemorySessionStore.layer,
      Layer.succeed(HostInfo, {
        name: "pi-a2a-ext-fixture",
        title: "Fixture host",
        version: "1.0.0",
        instance: crypto.randomUUID(),
        instructions: "A host for the conformance suite."
      })
    )
  ),
  Layer.provideMerge(FileConfig.layer(paths))
)

const main = Effect.gen(function* () {
  const { port } = yield* Listening
  const { token } = yield* (yield* Config).current
  process.stdout.write(`http://localhost:${port}/mcp ${Redacted.value(token)}\n`)
  yield* Effect.promise(async () => {
    for await (const _ of process.stdin) {
      // Whoever started this keeps stdin open for as long as it is wanted.
    }
  })
})

await Effect.runPromise(Effect.scoped(Effect.provide(main, server)))
rmSync(agentDir, { recursive: true, force: true })
