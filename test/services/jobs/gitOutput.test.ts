import { assert, describe, it } from "@effect/vitest"
import * as FastCheck from "effect/FastCheck"
import * as GitOutput from "../../../src/services/jobs/gitOutput.ts"

const bytes = (text: string) => Uint8Array.from(text, (unit) => unit.charCodeAt(0))
const zero = "0".repeat(40)
const one = "1".repeat(40)

/** A file's name: any bytes but NUL, and those that a careless parser trips over. */
const Name = FastCheck.oneof(
  FastCheck.uint8Array({ min: 1, max: 255, minLength: 1, maxLength: 12 }),
  FastCheck.constantFrom(":100644 x", "1\t2\t", "\n", "a\tb", '"a"', "-\t-\t", ":", "caf\xe9", "\xef\xbb\xbfbom").map(
    bytes
  )
)

describe("gitOutput.records", () => {
  it.prop("loses a name, or makes two of one", [FastCheck.array(Name)], ([names]) => {
    assert.deepStrictEqual(
      GitOutput.records(GitOutput.toRecords(names)).map((name) => [...name]),
      names.map((name) => [...name])
    )
  })
})

describe("gitOutput.decode", () => {
  it.prop("makes one name of two", [Name, Name], ([a, b]) => {
    FastCheck.pre(GitOutput.decode(a)[0] !== '"' || GitOutput.decode(b)[0] !== '"')
    assert.strictEqual(GitOutput.decode(a) === GitOutput.decode(b), Buffer.compare(a, b) === 0)
  })

  it("changes a name that is text, or loses bytes of one that is none", () => {
    assert.strictEqual(GitOutput.decode(new TextEncoder().encode("Größe\n日本")), "Größe\n日本")
    assert.strictEqual(GitOutput.decode(bytes("\xef\xbb\xbfbom")), "\ufeffbom")
    assert.strictEqual(GitOutput.decode(bytes('caf\xe9"\\\n')), '"caf\\351\\042\\134\\012"')
  })
})

describe("gitOutput.line", () => {
  it("cuts blanks off a folder's name, or leaves the line's end on", () => {
    assert.strictEqual(GitOutput.line(bytes("/a/b \n\n")), "/a/b \n")
    assert.strictEqual(GitOutput.line(bytes("C:/a\r\n")), "C:/a")
    assert.strictEqual(GitOutput.line(bytes("")), "")
  })
})

type Sample = {
  readonly change: "added" | "modified" | "deleted" | "renamed" | "mode"
  readonly path: Uint8Array
  readonly from: Uint8Array
  readonly insertions: number
  readonly deletions: number
  readonly binary: boolean
}
const Sample: FastCheck.Arbitrary<Sample> = FastCheck.record({
  change: FastCheck.constantFrom("added", "modified", "deleted", "renamed", "mode"),
  path: Name,
  from: Name,
  insertions: FastCheck.nat(),
  deletions: FastCheck.nat(),
  binary: FastCheck.boolean()
})

const raw: { readonly [C in Sample["change"]]: string } = {
  added: `:000000 100644 ${zero} ${one} A`,
  modified: `:100644 120000 ${zero} ${one} T`,
  deleted: `:100644 000000 ${one} ${zero} D`,
  renamed: `:100644 100755 ${one} ${zero} R087`,
  mode: `:100644 100755 ${one} ${one} M`
}

describe("gitOutput.toDiffstat", () => {
  it.prop(
    "counts for another file, or takes a name for a field",
    [FastCheck.uniqueArray(Sample, { selector: ({ path }) => GitOutput.decode(path), maxLength: 8 })],
    ([samples]) => {
      const rawParts = samples.flatMap(({ change, from, path }) => [
        bytes(raw[change]),
        ...(change === "renamed" ? [from] : []),
        path
      ])
      const numParts = samples.flatMap(({ binary, change, deletions, from, insertions, path }) => {
        const counts = bytes(binary ? "-\t-\t" : `${insertions}\t${deletions}\t`)
        return change === "renamed" ? [counts, from, path] : [GitOutput.concat(counts, path)]
      })
      const sum = (key: "insertions" | "deletions") =>
        samples.reduce((total, sample) => total + (sample.binary ? 0 : sample[key]), 0)
      assert.deepStrictEqual(GitOutput.toDiffstat(GitOutput.toRecords([...rawParts, ...numParts])), {
        files: samples.map(({ binary, change, deletions, from, insertions, path }) => ({
          path: GitOutput.decode(path),
          ...(change === "renamed" ? { from: GitOutput.decode(from) } : {}),
          change,
          binary,
          insertions: binary ? 0 : insertions,
          deletions: binary ? 0 : deletions
        })),
        insertions: sum("insertions"),
        deletions: sum("deletions")
      })
    }
  )

  it("makes something of nothing, or fails on output that was cut", () => {
    assert.deepStrictEqual(GitOutput.toDiffstat(bytes("")), { files: [], insertions: 0, deletions: 0 })
    assert.deepStrictEqual(GitOutput.toDiffstat(bytes(`${raw.renamed}\0from`)).files, [])
  })
})

describe("gitOutput.parseIndex", () => {
  it("mistakes a tag, a mode or a name that holds tabs", () => {
    const output = `S 100644 ${one} 0\ta\tb\0H 160000 ${one} 0\tlib\n\0`
    assert.deepStrictEqual(
      GitOutput.parseIndex(bytes(output)).map(({ mode, path, tag }) => [tag, mode, GitOutput.decode(path)]),
      [
        ["S", "100644", "a\tb"],
        ["H", "160000", "lib\n"]
      ]
    )
  })
})

describe("gitOutput.parseStatus", () => {
  it("takes untracked files for changed ones", () => {
    assert.deepStrictEqual(GitOutput.parseStatus(bytes(" M a\0?? b\0A  ?? c\0?? d/\0")), { changed: 2, untracked: 2 })
  })
})
