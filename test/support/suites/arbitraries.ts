import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Runtime from "effect/Runtime"

/** Any JSON, with the keys and strings that break careless code: `__proto__`, lone surrogates, empty names. */
export const Json: FastCheck.Arbitrary<unknown> = FastCheck.letrec((tie) => ({
  text: FastCheck.oneof(
    FastCheck.string(),
    FastCheck.string({ unit: "binary" }),
    FastCheck.constantFrom("\ud800", "a\udc00b", "", "__proto__", "constructor")
  ),
  key: FastCheck.oneof(
    FastCheck.string(),
    FastCheck.constantFrom("__proto__", "constructor", "toString", "id", "method", "params", "type", "properties")
  ),
  value: FastCheck.oneof(
    { maxDepth: 5, depthIdentifier: "json" },
    FastCheck.constantFrom(null, true, false),
    FastCheck.integer(),
    FastCheck.double({ noNaN: true, noDefaultInfinity: true }),
    tie("text"),
    FastCheck.array(tie("value"), { maxLength: 6, depthIdentifier: "json" }),
    tie("object")
  ),
  // Through JSON text, so that `__proto__` is an own key, as it is in a parsed body.
  object: FastCheck.array(FastCheck.tuple(tie("key"), tie("value")), { maxLength: 6, depthIdentifier: "json" }).map(
    (entries) =>
      JSON.parse(`{${entries.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join(",")}}`)
  )
})).value

export const JsonRecord: FastCheck.Arbitrary<Record<string, unknown>> = FastCheck.array(
  FastCheck.tuple(FastCheck.oneof(FastCheck.string(), FastCheck.constantFrom("__proto__", "constructor")), Json),
  { maxLength: 5 }
).map((entries) =>
  JSON.parse(`{${entries.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join(",")}}`)
)

/** A value nested this many levels deep, without recursion. */
export const nested = (levels: number, wrap: (inner: unknown) => unknown, core: unknown): unknown => {
  let value = core
  for (let level = 0; level < levels; level++) value = wrap(value)
  return value
}

/** A property over effects in one environment: `it.effect.prop` makes a new one for each sample, at some 20 ms. */
export const forAll = <A, E, R>(
  arbitrary: FastCheck.Arbitrary<A>,
  check: (sample: A) => Effect.Effect<void, E, R>,
  numRuns = 100
): Effect.Effect<void, never, R> =>
  Effect.flatMap(Effect.runtime<R>(), (runtime) =>
    Effect.promise(() =>
      FastCheck.assert(
        FastCheck.asyncProperty(arbitrary, (sample) => Runtime.runPromise(runtime)(check(sample))),
        { numRuns }
      )
    )
  )
