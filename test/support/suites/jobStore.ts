import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import type * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Job from "../../../src/services/jobs/Job.ts"
import type { Filter, Patch } from "../../../src/services/jobs/JobStore.ts"
import { JobStore } from "../../../src/services/jobs/JobStore.ts"
import { MemoryJobStore } from "../memoryJobStore.ts"
import { forAll } from "./arbitraries.ts"
import { alice, AnyEvent, bob, job, newId, StoryEvent, time } from "./jobs.ts"

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes)
const bytes = (content: string): Uint8Array => new TextEncoder().encode(content)
const started = { _tag: "Started" } as const
const completed = { _tag: "Completed", text: "done" } as const

const Text = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.string({ unit: "binary" }),
  FastCheck.constantFrom("\u0000", "\ud800", "'; DROP TABLE jobs; --", "né\n")
)
const AnyFilter: FastCheck.Arbitrary<Filter> = FastCheck.record(
  {
    owner: FastCheck.constantFrom(alice, bob),
    states: FastCheck.subarray([...Job.State.literals]),
    hasWorktree: FastCheck.constant(true as const),
    updatedAfter: FastCheck.nat(60).map((n) => time(n * 10))
  },
  { requiredKeys: [] }
)
const AnyPatch: FastCheck.Arbitrary<Patch> = FastCheck.record(
  {
    worktree: Text,
    timeoutSeconds: FastCheck.integer({ min: 1, max: 9999 }),
    diffstat: FastCheck.constant({ files: [], insertions: 0, deletions: 0 })
  },
  { requiredKeys: [] }
)
const which = FastCheck.nat(9)
const Command = FastCheck.oneof(
  {
    weight: 3,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("insert" as const),
      owner: FastCheck.constantFrom(alice, bob),
      tier: FastCheck.constantFrom(...Job.Tier.literals),
      prompt: Text,
      thread: which
    })
  },
  {
    weight: 8,
    arbitrary: FastCheck.record(
      {
        kind: FastCheck.constant("append" as const),
        which,
        events: FastCheck.array(FastCheck.oneof(StoryEvent, AnyEvent), { maxLength: 5 }),
        patch: AnyPatch
      },
      { requiredKeys: ["kind", "which", "events"] }
    )
  },
  {
    weight: 2,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("put" as const),
      which,
      name: FastCheck.constantFrom("patch", "report"),
      size: FastCheck.oneof(FastCheck.nat(20), FastCheck.nat(600_000))
    })
  },
  {
    weight: 3,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("read" as const),
      which,
      name: FastCheck.constantFrom("patch", "report"),
      offset: FastCheck.nat(600_000),
      length: FastCheck.nat(600_000)
    })
  },
  {
    weight: 3,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("list" as const),
      filter: AnyFilter,
      limit: FastCheck.nat(5),
      after: FastCheck.option(which),
      thread: FastCheck.option(which)
    })
  },
  {
    weight: 2,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("events" as const),
      which,
      since: FastCheck.nat(10),
      limit: FastCheck.nat(10),
      tags: FastCheck.option(FastCheck.constantFrom(["Text" as const], ["Started" as const, "Asked" as const], []))
    })
  },
  {
    weight: 1,
    arbitrary: FastCheck.record({
      kind: FastCheck.constant("prune" as const),
      maxAge: FastCheck.constantFrom(0, 100, 1_000_000),
      maxJobs: FastCheck.nat(4)
    })
  }
)

export const suite = <E>(name: string, layer: Layer.Layer<JobStore, E>) => {
  describe(`${name} as a JobStore`, () => {
    it.effect(
      "differs from the reference",
      () =>
        forAll(
          FastCheck.array(Command, { minLength: 5, maxLength: 40, size: "max" }),
          (commands) =>
            Effect.gen(function* () {
              const subject = yield* JobStore
              const reference = yield* Effect.provide(JobStore, new MemoryJobStore().layer)
              const threads = Array.from({ length: 10 }, () => Job.ThreadId.make(crypto.randomUUID()))
              const ids: Array<Job.JobId> = [newId()]
              const pick = (n: number): Job.JobId => ids[ids.length - 1 - (n % ids.length)] ?? newId()
              const same = <A, E2>(run: (store: JobStore["Type"]) => Effect.Effect<A, E2>) =>
                Effect.gen(function* () {
                  const [left, right] = [yield* Effect.either(run(subject)), yield* Effect.either(run(reference))]
                  assert.strictEqual(left._tag, right._tag)
                  if (left._tag === "Right" && right._tag === "Right") assert.deepStrictEqual(left.right, right.right)
                  return left
                })
              for (const [n, command] of commands.entries()) {
                const at = time(n * 10)
                switch (command.kind) {
                  case "insert": {
                    const { owner, prompt, tier } = command
                    const fresh = job({ owner, prompt, tier, thread: threads[command.thread] as Job.ThreadId })
                    ids.push(fresh.id)
                    yield* same((store) => store.insert(fresh, [started], at))
                    break
                  }
                  case "append":
                    yield* same((store) => store.append(pick(command.which), command.events, at, command.patch))
                    break
                  case "put": {
                    const content = new Uint8Array(command.size).map((_, i) => (i * 7 + n) % 256)
                    yield* same((store) => store.putArtifact(pick(command.which), command.name, "text/plain", content))
                    break
                  }
                  case "read":
                    yield* same((store) =>
                      store.readArtifact(pick(command.which), command.name, command.offset, command.length)
                    )
                    break
                  case "list": {
                    const { after, thread } = command
                    const filter =
                      thread === null ? command.filter : { ...command.filter, thread: threads[thread] ?? "" }
                    const from = after === null ? Option.none() : yield* reference.get(pick(after))
                    yield* same((store) => store.list(filter, command.limit, Option.getOrUndefined(from)))
                    break
                  }
                  case "events":
                    yield* same((store) =>
                      store.events(pick(command.which), command.since, command.limit, command.tags ?? undefined)
                    )
                    break
                  case "prune": {
                    yield* same((store) => store.prune(command, at))
                    break
                  }
                }
              }
              for (const id of ids) {
                yield* same((store) => store.get(id))
                yield* same((store) => store.events(id, 0, 1000))
                yield* same((store) => store.artifacts(id))
                yield* same((store) => store.processOf(id))
              }
              yield* same((store) => store.list({}, 1000))
              yield* same((store) => store.counts)
            }).pipe(Effect.provide(layer)),
          30
        ),
      60_000
    )

    const run = <A, E2>(effect: Effect.Effect<A, E2, JobStore>) => Effect.provide(effect, layer)

    it.effect("keeps part of an append of which an event is not accepted, or numbers with a gap", () =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const {
          job: { id }
        } = yield* store.insert(job(), [{ _tag: "Submitted" }], time(0))
        const first = yield* store.append(id, [{ _tag: "Text", text: "too early" }], time(1))
        assert.deepStrictEqual(
          Option.map(first, ({ events }) => events),
          Option.some([])
        )
        yield* store.append(id, [started, completed, { _tag: "Text", text: "too late" }], time(2))
        const again = yield* store.append(id, [{ _tag: "Canceled", reason: "late" }], time(3), { worktree: "/late" })
        assert.deepStrictEqual(
          Option.map(again, ({ events }) => events),
          Option.some([])
        )
        const stored = yield* store.events(id, 0, 100)
        assert.deepStrictEqual(
          stored.map(({ event, seq }) => [seq, event._tag]),
          [
            [1, "Submitted"],
            [2, "Started"],
            [3, "Completed"]
          ]
        )
        const now = Option.getOrThrow(yield* store.get(id))
        assert.strictEqual(now.state, "completed")
        assert.notProperty(now, "worktree")
      }).pipe(run)
    )

    it.effect("stores a job twice under one id", () =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const one = job()
        yield* store.insert(one, [], time(0))
        assert.strictEqual((yield* Effect.flip(store.insert(one, [], time(1))))._tag, "StoreFailed")
        assert.strictEqual((yield* store.list({}, 10)).total, 1)
      }).pipe(run)
    )

    it.effect("shows a job twice, or never, to who reads page by page", () =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const all: Array<Job.Job> = []
        for (let n = 0; n < 25; n++) {
          const at = time(n % 5)
          all.push((yield* store.insert(job({ createdAt: at, updatedAt: at }), [], at)).job)
        }
        const seen: Array<string> = []
        let after: Job.Job | undefined
        for (;;) {
          const page: { readonly jobs: ReadonlyArray<Job.Job>; readonly total: number } = yield* store.list(
            {},
            4,
            after
          )
          assert.strictEqual(page.total, 25)
          if (page.jobs.length === 0) break
          seen.push(...page.jobs.map(({ id }) => id))
          after = page.jobs.at(-1)
        }
        assert.lengthOf(seen, 25)
        assert.sameMembers(
          seen,
          all.map(({ id }) => id)
        )
      }).pipe(run)
    )

    it.effect("keeps an old piece of an artifact that was replaced by a shorter one", () =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const {
          job: { id }
        } = yield* store.insert(job(), [], time(0))
        yield* store.putArtifact(id, "patch", "text/x-diff", bytes("a".repeat(700_000)))
        yield* store.putArtifact(id, "patch", "text/x-diff", bytes("short"))
        const { artifact, bytes: content } = Option.getOrThrow(yield* store.readArtifact(id, "patch", 0, 1_000_000))
        assert.deepStrictEqual(artifact, { name: "patch", mediaType: "text/x-diff", size: 5 })
        assert.strictEqual(text(content), "short")
        assert.lengthOf(yield* store.artifacts(id), 1)
        assert.isTrue(Option.isNone(yield* store.readArtifact(id, "report", 0, 1)))
        assert.strictEqual((yield* Effect.flip(store.putArtifact(newId(), "a", "b", bytes(""))))._tag, "StoreFailed")
      }).pipe(run)
    )

    it.effect("prunes a job that waits for input, or that still has a worktree, or not the oldest ones", () =>
      Effect.gen(function* () {
        const store = yield* JobStore
        const ids = Array.from({ length: 6 }, newId)
        for (const [n, id] of ids.entries()) {
          yield* store.insert(job({ id }), [started], time(n))
          if (n === 0) yield* store.append(id, [{ _tag: "Asked", question: "?" }], time(n))
          else if (n === 1) yield* store.append(id, [completed], time(n), { worktree: "/w" })
          else yield* store.append(id, [completed], time(n * 1000))
        }
        yield* store.putArtifact(ids[2] as Job.JobId, "patch", "text/x-diff", bytes("gone too"))
        assert.deepStrictEqual(yield* store.prune({ maxAge: 1_000_000, maxJobs: 10 }, time(6000)), [])
        // Too many: jobs 2 and 1 (kept: it has a worktree).
        assert.deepStrictEqual(yield* store.prune({ maxAge: 1_000_000, maxJobs: 3 }, time(6000)), ids.slice(2, 3))
        // Too old: job 3 ended at 3000.
        assert.deepStrictEqual(yield* store.prune({ maxAge: 2500, maxJobs: 10 }, time(6000)), ids.slice(3, 4))
        assert.isTrue(Option.isNone(yield* store.readArtifact(ids[2] as Job.JobId, "patch", 0, 10)))
        assert.deepStrictEqual(yield* store.events(ids[2] as Job.JobId, 0, 10), [])
        assert.sameMembers(
          (yield* store.list({}, 10)).jobs.map(({ id }) => id),
          [ids[0], ids[1], ids[4], ids[5]] as Array<Job.JobId>
        )
      }).pipe(run)
    )
  })
}
