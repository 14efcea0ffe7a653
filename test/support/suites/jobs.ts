import * as Arbitrary from "effect/Arbitrary"
import * as FastCheck from "effect/FastCheck"
import { PrincipalId } from "../../../src/services/Auth.ts"
import * as Job from "../../../src/services/jobs/Job.ts"

export const alice = PrincipalId.make("alice")
export const bob = PrincipalId.make("bob")

/** ISO 8601, that many milliseconds after a fixed moment. */
export const time = (millis: number): string => new Date(Date.UTC(2026, 10, 1) + millis).toISOString()

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

/** Any event, each kind as often as any other. */
export const AnyEvent: FastCheck.Arbitrary<Job.Event> = Arbitrary.make(Job.Event)
export const AnyWorkerEvent: FastCheck.Arbitrary<Job.WorkerEvent> = Arbitrary.make(Job.WorkerEvent)

const plain = (tag: "Submitted" | "Started" | "CleanedUp") => FastCheck.constant<Job.Event>({ _tag: tag })

/** Events that make long stories: mostly ones that some state accepts, ends seldom. */
export const StoryEvent: FastCheck.Arbitrary<Job.Event> = FastCheck.oneof(
  { weight: 8, arbitrary: plain("Started") },
  { weight: 8, arbitrary: AnyWorkerEvent },
  { weight: 4, arbitrary: FastCheck.string().map((question): Job.Event => ({ _tag: "Asked", question })) },
  { weight: 6, arbitrary: FastCheck.string().map((prompt): Job.Event => ({ _tag: "Replied", prompt })) },
  { weight: 2, arbitrary: AnyEvent }
)
