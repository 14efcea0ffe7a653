import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ConfiguredWorkers from "../../../src/layers/jobs/ConfiguredWorkers.ts"
import { Workers } from "../../../src/services/jobs/Worker.ts"
import type { WorkerSpec } from "../../../src/services/jobs/workerSpecs.ts"
import { known, WorkerSpec as Spec } from "../../../src/services/jobs/workerSpecs.ts"

const make = ({ kind, name }: WorkerSpec) =>
  Effect.succeed({
    name,
    run: () => Stream.make({ _tag: "Answered" as const, text: kind }),
    health: Effect.succeed({ ok: true, detail: kind })
  })
const layer = (specs: ReadonlyArray<WorkerSpec>, fallback?: string) =>
  ConfiguredWorkers.layerWith({ specs, default: fallback, make: { acp: make, "cursor-cli": make } })

it.effect("a job that names no worker gets the default one, or the first", () =>
  Effect.gen(function* () {
    const nameWith = (fallback?: string) =>
      Effect.flatMap(Workers, (workers) => workers.get(undefined)).pipe(
        Effect.map(({ name }) => name),
        Effect.provide(layer(known, fallback))
      )
    assert.strictEqual(yield* nameWith(), "cursor")
    assert.strictEqual(yield* nameWith("omp"), "omp")
  })
)

it.effect("a worker that is not there is told with those that are, whoever named it", () =>
  Effect.gen(function* () {
    const names = known.map(({ name }) => name)
    for (const [fallback, name] of [
      [undefined, "nobody"],
      ["nobody", undefined]
    ] as const) {
      const failure = yield* Effect.flatMap(Workers, (workers) => workers.get(name)).pipe(
        Effect.flip,
        Effect.provide(layer(known, fallback))
      )
      assert.deepInclude(failure, { _tag: "WorkerUnknown", worker: "nobody", known: names })
    }
    const none = yield* Effect.flatMap(Workers, (workers) => workers.get(undefined)).pipe(
      Effect.flip,
      Effect.provide(layer([]))
    )
    assert.deepStrictEqual(none.known, [])
  })
)

it.effect("settings that name a known worker replace it", () =>
  Effect.gen(function* () {
    const workers = yield* Workers
    assert.strictEqual((yield* workers.all).length, known.length)
    assert.strictEqual((yield* (yield* workers.get("cursor")).health).detail, "acp")
  }).pipe(Effect.provide(layer([...known, { name: "cursor", kind: "acp", command: ["mine"] }])))
)

it("the known workers are what settings could say", () => {
  assert.deepStrictEqual(Schema.decodeUnknownSync(Schema.Array(Spec))(structuredClone(known)), known)
  for (const wrong of [
    { name: "a b", kind: "cursor-cli" },
    { name: "x", kind: "acp" },
    { name: "x", kind: "acp", command: [] }
  ]) {
    assert.throws(() => Schema.decodeUnknownSync(Spec)(wrong))
  }
})
