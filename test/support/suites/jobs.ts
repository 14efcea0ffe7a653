import * as Arbitrary from "effect/Arbitrary"
import * as DateTime from "effect/DateTime"
import * as FastCheck from "effect/FastCheck"
import { PrincipalId } from "../../../src/services/Auth.ts"
import * as Job from "../../../src/services/jobs/Job.ts"

export const alice = PrincipalId.make("alice")
export const bob = PrincipalId.make("bob")

/** ISO 8601, that many milliseconds after a fixed moment. */
export const time = (millis: number): string =>
  DateTime.formatIso(DateTime.addDuration(DateTime.unsafeMake("2026-11-01T00:00:00Z"), millis))

export const newId = (): Job.JobId => Job.JobId.make(crypto.randomUUID())

/** A job as it is before it is stored. */
export const job = (fields: Partial<Job.Job> = {}): Job.Job => ({
  id: newId(),
  thread: Job.ThreadId.make(crypto.randomUUID()),
  owner: alice,
  client: "test/1",
  state: "queued",
  tier: "execute",
  worker: "fake",
  workspace: "/repo",
  prompt: "do it",
  title: "do it",
  timeoutSeconds: 900,
  createdAt: time(0),
  updatedAt: time(0),
  lastSeq: 0,
  ...fields
})

/** Without `-0` and without keys that hold `undefined`, which JSON does not tell from `0` and from none. */
const asJson = <A>(value: A): A => JSON.parse(JSON.stringify(value)) as A

/** Any event, each kind as often as any other. */
export const AnyEvent: FastCheck.Arbitrary<Job.Event> = Arbitrary.make(Job.Event).map(asJson)
export const AnyWorkerEvent: FastCheck.Arbitrary<Job.WorkerEvent> = Arbitrary.make(Job.WorkerEvent).map(asJson)

const plain = (tag: "Submitted" | "Started" | "CleanedUp") => FastCheck.constant<Job.Event>({ _tag: tag })

/** Events that make long stories: mostly ones that some state accepts, ends seldom. */
export const StoryEvent: FastCheck.Arbitrary<Job.Event> = FastCheck.oneof(
  { weight: 8, arbitrary: plain("Started") },
  { weight: 8, arbitrary: AnyWorkerEvent },
  { weight: 4, arbitrary: FastCheck.string().map((question): Job.Event => ({ _tag: "Asked", question })) },
  { weight: 6, arbitrary: FastCheck.string().map((prompt): Job.Event => ({ _tag: "Replied", prompt })) },
  { weight: 2, arbitrary: AnyEvent }
)
