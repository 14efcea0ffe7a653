import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as FileConfig from "../../src/layers/FileConfig.ts"
import type { ConfigEvent } from "../../src/services/Config.ts"
import { Config } from "../../src/services/Config.ts"
import { Json } from "../support/suites/arbitraries.ts"
import { folder } from "../support/suites/folder.ts"

const token = "0123456789abcdef0123456789abcdef"
const mode = (file: string) => statSync(file).mode & 0o777
const json = (file: string) => JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>

const load = (agentDir: string, env: Readonly<Record<string, string | undefined>> = {}) =>
  Effect.map(Layer.build(FileConfig.layer({ agentDir, env })), Context.get(Config))

/** A loaded file, and its events as they come. */
const watched = (content: string | undefined, env: Readonly<Record<string, string | undefined>> = {}) =>
  Effect.gen(function* () {
    const dir = yield* folder
    const file = join(dir, "a2a-bridge.json")
    if (content !== undefined) writeFileSync(file, content, { mode: 0o600 })
    const config = yield* load(dir, env)
    const events = yield* Queue.unbounded<ConfigEvent>()
    yield* config.changes.pipe(
      Stream.runForEach((event) => Queue.offer(events, event)),
      Effect.forkScoped
    )
    // The subscription stands before anything is edited.
    yield* Effect.yieldNow()
    yield* TestClock.adjust("0 seconds")
    return { dir, file, config, taken: Effect.map(Queue.takeAll(events), Chunk.toReadonlyArray) }
  })
const poll = TestClock.adjust("1 second")
const tokenOf = (config: Context.Tag.Service<typeof Config>) =>
  Effect.map(config.current, (current) => Redacted.value(current.token))

describe("FileConfig at the start", () => {
  it.scoped("leaves no file, one that others can read, or a guessable token", () =>
    Effect.gen(function* () {
      const dir = join(yield* folder, "not", "yet")
      const config = yield* load(dir)
      const file = join(dir, "a2a-bridge.json")
      assert.strictEqual(config.file, file)
      assert.strictEqual(mode(file), 0o600)
      assert.match(yield* tokenOf(config), /^[A-Za-z0-9_-]{43}$/)
      assert.strictEqual(json(file)["token"], yield* tokenOf(config))
      assert.deepStrictEqual(readdirSync(dir), ["a2a-bridge.json"])
    })
  )

  it.scoped("makes up another token at the second start, or writes the file again", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const first = yield* Effect.scoped(Effect.flatMap(load(dir), tokenOf))
      const before = readFileSync(join(dir, "a2a-bridge.json"), "utf8")
      assert.strictEqual(yield* Effect.scoped(Effect.flatMap(load(dir), tokenOf)), first)
      assert.strictEqual(readFileSync(join(dir, "a2a-bridge.json"), "utf8"), before)
      const other = yield* folder
      assert.notStrictEqual(yield* Effect.scoped(Effect.flatMap(load(other), tokenOf)), first)
    })
  )

  it.effect.each([
    "",
    "{",
    "not json",
    "[]",
    "null",
    `{"token":"${token}","port":"x"}`,
    `{"port": 70000}`,
    `{"token":"bad","deny":[1]}`,
    `{"token":"${token}","unknown":1}`,
    `{"token":"${token}",}`
  ])("starts with the malformed file %j, or writes over it", (content) =>
    Effect.gen(function* () {
      const dir = yield* folder
      const file = join(dir, "a2a-bridge.json")
      writeFileSync(file, content)
      const failed = yield* Effect.flip(load(dir))
      assert.strictEqual(failed._tag, "ConfigInvalid")
      assert.include(failed.message, file)
      assert.strictEqual(readFileSync(file, "utf8"), content)
      assert.deepStrictEqual(readdirSync(dir), ["a2a-bridge.json"])
    }).pipe(Effect.scoped)
  )

  it.effect.prop(
    "dies for some JSON in the file",
    [Json],
    ([content]) =>
      Effect.gen(function* () {
        const dir = yield* folder
        const file = join(dir, "a2a-bridge.json")
        const text = JSON.stringify(content)
        writeFileSync(file, text)
        const loaded = yield* Effect.either(load(dir))
        if (Either.isLeft(loaded)) assert.strictEqual(readFileSync(file, "utf8"), text)
      }).pipe(Effect.scoped),
    { timeout: 30_000, fastCheck: { numRuns: 50 } }
  )

  it.scoped("prints the token where the file is not JSON", () =>
    Effect.gen(function* () {
      for (const content of [
        `{"token": ${"Sup3rSecretTokenValue"}}`,
        `{"token": "Sup3rSecretTokenValue}`,
        `"Sup3rSecretTokenValue"`
      ]) {
        const dir = yield* folder
        writeFileSync(join(dir, "a2a-bridge.json"), content)
        const failed = yield* Effect.flip(load(dir))
        assert.notInclude(failed.message, "Sup3rSecret", content)
      }
    })
  )

  it.effect.each<Record<string, unknown>>([{}, { token: "short" }, { token: null }, { token: 5 }])(
    "does not mend %j, or changes its other fields",
    (bad) =>
      Effect.gen(function* () {
        const dir = yield* folder
        const file = join(dir, "a2a-bridge.json")
        const rest = { maxBodyBytes: 2048, deny: ["bash", "mcp__*"], port: 4711, approval: {} }
        writeFileSync(file, JSON.stringify({ ...rest, ...bad }))
        const config = yield* load(dir)
        const { token: fresh, ...others } = json(file)
        assert.strictEqual(fresh, yield* tokenOf(config))
        assert.match(String(fresh), /^[A-Za-z0-9_-]{43}$/)
        assert.deepStrictEqual(others, rest)
        // A person's file keeps its order.
        assert.deepStrictEqual(
          Object.keys(json(file)).filter((key) => key !== "token"),
          Object.keys(rest)
        )
        assert.strictEqual(mode(file), 0o600)
        assert.deepStrictEqual(readdirSync(dir), ["a2a-bridge.json"])
      }).pipe(Effect.scoped)
  )

  it.scoped("leaves a file open that others can read", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const file = join(dir, "a2a-bridge.json")
      const content = `{ "token": "${token}" }`
      writeFileSync(file, content)
      chmodSync(file, 0o644)
      yield* load(dir)
      assert.strictEqual(mode(file), 0o600)
      assert.strictEqual(readFileSync(file, "utf8"), content)
    })
  )

  it.scoped("does not look where A2A_BRIDGE_CONFIG points, or ignores the other variables", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const file = join(dir, "elsewhere", "mine.json")
      const config = yield* load(dir, { A2A_BRIDGE_CONFIG: file, A2A_BRIDGE_PORT: "4711" })
      assert.strictEqual(config.file, file)
      assert.isTrue(existsSync(file))
      assert.isFalse(existsSync(join(dir, "a2a-bridge.json")))
      assert.strictEqual((yield* config.current).port, 4711)
      // An override is of this process; it does not become the file's.
      assert.notStrictEqual(json(file)["port"], 4711)
    })
  )

  it.scoped("starts with an unusable variable", () =>
    Effect.gen(function* () {
      const failed = yield* Effect.flip(load(yield* folder, { A2A_BRIDGE_PORT: "http" }))
      assert.include(failed.message, "A2A_BRIDGE_PORT")
    })
  )

  it.scoped("writes a token into the file that the environment gave", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const config = yield* load(dir, { A2A_BRIDGE_TOKEN: token })
      assert.strictEqual(yield* tokenOf(config), token)
      assert.notInclude(readFileSync(join(dir, "a2a-bridge.json"), "utf8"), token)
    })
  )

  it.scoped("says ConfigInvalid where the file cannot be read, or dies", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      mkdirSync(join(dir, "a2a-bridge.json"))
      assert.strictEqual((yield* Effect.flip(load(dir)))._tag, "ConfigUnavailable")
    })
  )
})

describe("FileConfig while it runs", () => {
  it.scoped("does not see an edit within a second, or does not tell of it", () =>
    Effect.gen(function* () {
      const { config, file, taken } = yield* watched(JSON.stringify({ token, deny: [] }))
      writeFileSync(file, JSON.stringify({ token, deny: ["bash"], expose: "active" }))
      yield* poll
      assert.deepStrictEqual((yield* config.current).deny, ["bash"])
      const events = yield* taken
      assert.lengthOf(events, 1)
      const [event] = events
      assert.strictEqual(event?._tag, "Applied")
      if (event?._tag === "Applied") {
        assert.sameMembers([...event.changed], ["deny", "expose"])
        assert.deepStrictEqual(event.config.deny, ["bash"])
      }
      yield* poll
      assert.lengthOf(yield* taken, 0)
    })
  )

  it.scoped("tells of an edit that changes nothing", () =>
    Effect.gen(function* () {
      const { file, taken } = yield* watched(JSON.stringify({ token, deny: [] }))
      writeFileSync(file, JSON.stringify({ deny: [], token, port: 0 }, null, 4))
      yield* poll
      assert.lengthOf(yield* taken, 0)
    })
  )

  it.effect.each(["{", `{"token":"${token}","port":"x"}`, "[]", ""])(
    "takes the bad edit %j, gives up the settings in force for it, or says nothing",
    (bad) =>
      Effect.gen(function* () {
        const { config, file, taken } = yield* watched(JSON.stringify({ token, deny: ["bash"] }))
        const before = yield* config.current
        writeFileSync(file, bad)
        yield* poll
        const events = yield* taken
        assert.deepStrictEqual(
          events.map((event) => event._tag),
          ["Rejected"]
        )
        assert.strictEqual(yield* config.current, before)
        assert.strictEqual(readFileSync(file, "utf8"), bad)
        // Once, and not once a second.
        yield* TestClock.adjust("5 seconds")
        assert.lengthOf(yield* taken, 0)
        writeFileSync(file, JSON.stringify({ token, deny: ["read"] }))
        yield* poll
        assert.deepStrictEqual((yield* config.current).deny, ["read"])
      }).pipe(Effect.scoped)
  )

  it.scoped("answers a file that is gone with a new one, or does not see it come back", () =>
    Effect.gen(function* () {
      const { config, file, taken } = yield* watched(JSON.stringify({ token, deny: ["bash"] }))
      rmSync(file)
      yield* TestClock.adjust("10 seconds")
      assert.isFalse(existsSync(file))
      assert.lengthOf(yield* taken, 0)
      assert.deepStrictEqual((yield* config.current).deny, ["bash"])
      writeFileSync(file, JSON.stringify({ token, deny: ["read"] }))
      yield* poll
      assert.deepStrictEqual((yield* config.current).deny, ["read"])
      assert.lengthOf(yield* taken, 1)
    })
  )

  it.scoped("does not see an editor's rename over the file", () =>
    Effect.gen(function* () {
      const { config, file } = yield* watched(JSON.stringify({ token, deny: ["aaaa"] }))
      writeFileSync(`${file}.new`, JSON.stringify({ token, deny: ["bbbb"] }))
      renameSync(`${file}.new`, file)
      yield* poll
      assert.deepStrictEqual((yield* config.current).deny, ["bbbb"])
      assert.strictEqual(mode(file), 0o600)
    })
  )

  it.scoped("does not report a changed port", () =>
    Effect.gen(function* () {
      const { file, taken } = yield* watched(JSON.stringify({ token, port: 1 }))
      writeFileSync(file, JSON.stringify({ token, port: 2 }))
      yield* poll
      const [event] = yield* taken
      assert.deepStrictEqual(event?._tag === "Applied" ? event.changed : undefined, ["port"])
    })
  )

  it.scoped("lets an edit of the file win over the environment", () =>
    Effect.gen(function* () {
      const { config, file, taken } = yield* watched(JSON.stringify({ token, deny: [] }), { A2A_BRIDGE_DENY: "bash" })
      writeFileSync(file, JSON.stringify({ token, deny: ["read"] }))
      yield* poll
      assert.deepStrictEqual((yield* config.current).deny, ["bash"])
      assert.lengthOf(yield* taken, 0)
    })
  )

  it.scoped("does not mend a token that an edit broke, or mends it again each second", () =>
    Effect.gen(function* () {
      const { config, file, taken } = yield* watched(JSON.stringify({ token, deny: ["bash"] }))
      writeFileSync(file, JSON.stringify({ token: "", deny: ["bash"] }))
      yield* poll
      const events = yield* taken
      assert.deepStrictEqual(
        events.map((event) => (event._tag === "Applied" ? event.changed : event._tag)),
        [["token"]]
      )
      const mended = yield* tokenOf(config)
      assert.deepStrictEqual(json(file), { token: mended, deny: ["bash"] })
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* tokenOf(config), mended)
      assert.lengthOf(yield* taken, 0)
    })
  )

  it.scoped("goes on polling after its scope has ended", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const file = join(dir, "a2a-bridge.json")
      const config = yield* Effect.scoped(load(dir))
      writeFileSync(file, JSON.stringify({ token, deny: ["bash"] }))
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual((yield* config.current).deny, [])
    })
  )
})

describe("FileConfig.setToken", () => {
  const next = Redacted.make("next-token-0123456789abcdef")

  it.effect.prop(
    "loses a field, leaves half a file or a file that others can read",
    [FastCheck.record({ deny: FastCheck.array(FastCheck.constantFrom("bash", "read")), port: FastCheck.nat(9) })],
    ([fields]) =>
      Effect.gen(function* () {
        const { config, dir, file, taken } = yield* watched(JSON.stringify({ ...fields, token, approval: {} }))
        chmodSync(file, 0o644)
        const after = yield* config.setToken(next)
        assert.strictEqual(Redacted.value(after.token), Redacted.value(next))
        assert.strictEqual(yield* tokenOf(config), Redacted.value(next))
        assert.deepStrictEqual(json(file), { ...fields, token: Redacted.value(next), approval: {} })
        assert.strictEqual(mode(file), 0o600)
        assert.deepStrictEqual(readdirSync(dir), ["a2a-bridge.json"])
        yield* poll
        assert.deepStrictEqual(
          (yield* taken).map((event) => (event._tag === "Applied" ? event.changed : event._tag)),
          [["token"]]
        )
      }).pipe(Effect.scoped),
    { timeout: 30_000, fastCheck: { numRuns: 20 } }
  )

  it.scoped("takes an edit back that the poll has not seen yet", () =>
    Effect.gen(function* () {
      const { config, file } = yield* watched(JSON.stringify({ token, deny: [] }))
      writeFileSync(file, JSON.stringify({ token, deny: ["bash"] }))
      const after = yield* config.setToken(next)
      assert.deepStrictEqual(after.deny, ["bash"])
      assert.deepStrictEqual(json(file)["deny"], ["bash"])
    })
  )

  it.scoped("writes over a file that is being edited and is malformed", () =>
    Effect.gen(function* () {
      const { config, file } = yield* watched(JSON.stringify({ token }))
      for (const bad of ["{", `{"port":"x"}`, "[]"]) {
        writeFileSync(file, bad)
        assert.strictEqual((yield* Effect.flip(config.setToken(next)))._tag, "ConfigInvalid")
        assert.strictEqual(readFileSync(file, "utf8"), bad)
      }
      assert.strictEqual(yield* tokenOf(config), token)
    })
  )

  it.scoped("drops the deny list in force while the file is gone", () =>
    Effect.gen(function* () {
      const { config, file } = yield* watched(JSON.stringify({ token, deny: ["bash"] }))
      rmSync(file)
      yield* Effect.either(config.setToken(next))
      assert.deepStrictEqual((yield* config.current).deny, ["bash"])
    })
  )

  it.scoped("changes a token that the environment fixes", () =>
    Effect.gen(function* () {
      const { config, file } = yield* watched(JSON.stringify({ token: "file-token-0123456789" }), {
        A2A_BRIDGE_TOKEN: token
      })
      const before = readFileSync(file, "utf8")
      const failed = yield* Effect.flip(config.setToken(next))
      assert.strictEqual(failed._tag, "TokenPinned")
      assert.include(failed.message, "A2A_BRIDGE_TOKEN")
      assert.strictEqual(readFileSync(file, "utf8"), before)
      assert.strictEqual(yield* tokenOf(config), token)
    })
  )

  it.scoped("turns a link into a file, and leaves what it leads to as it was", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const dotfiles = yield* folder
      writeFileSync(join(dotfiles, "real.json"), JSON.stringify({ token, deny: ["bash"] }), { mode: 0o600 })
      symlinkSync(join(dotfiles, "real.json"), join(dir, "a2a-bridge.json"))
      const config = yield* load(dir)
      yield* config.setToken(next)
      assert.isTrue(lstatSync(join(dir, "a2a-bridge.json")).isSymbolicLink())
      assert.deepStrictEqual(json(join(dotfiles, "real.json")), { token: Redacted.value(next), deny: ["bash"] })
      assert.deepStrictEqual(readdirSync(dir), ["a2a-bridge.json"])
      assert.deepStrictEqual(readdirSync(dotfiles), ["real.json"])
    })
  )

  it.scoped("leaves a temporary file, or a new token in force, where the file cannot be written", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const config = yield* load(dir)
      const before = yield* tokenOf(config)
      rmSync(dir, { recursive: true })
      writeFileSync(dir, "a file where the folder was")
      const failed = yield* Effect.flip(config.setToken(next))
      assert.strictEqual(failed._tag, "ConfigUnavailable")
      assert.strictEqual(yield* tokenOf(config), before)
    })
  )
})
