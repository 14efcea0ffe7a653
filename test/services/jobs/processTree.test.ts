import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import type { Row } from "../../../src/services/jobs/processTree.ts"
import { membersOf, parsePs, parseStat } from "../../../src/services/jobs/processTree.ts"

const row = (pid: number, parent: number, more: Partial<Row> = {}): Row => ({
  pid,
  parent,
  group: pid,
  startedAt: `boot:${pid}`,
  ended: false,
  jobs: [],
  ...more
})

/** init, a shell, the bridge (3), and somebody else's process. */
const host = [row(1, 0), row(2, 1), row(3, 2, { group: 2 }), row(4, 2)]
const pidsOf = (rows: ReadonlyArray<Row>, tree: Partial<Parameters<typeof membersOf>[1]> = {}) =>
  membersOf([...host, ...rows], { job: "j", root: undefined, known: [], ...tree }, 3)
    .map((row) => row.pid)
    .sort((a, b) => a - b)

const root = { pid: 10, startedAt: "boot:10" }

describe("membersOf", () => {
  it("finds the root, its descendants and their groups", () => {
    const rows = [row(10, 3), row(11, 10, { group: 10 }), row(12, 11), row(13, 1, { group: 12 }), row(14, 13)]
    assert.deepStrictEqual(pidsOf(rows, { root }), [10, 11, 12, 13, 14])
  })

  it("takes nothing for the root that only has its number", () => {
    const rows = [row(10, 3, { startedAt: "boot:77" }), row(11, 10, { group: 10 })]
    assert.deepStrictEqual(pidsOf(rows, { root }), [])
  })

  it("still knows the group of a root that has ended but not been looked at", () => {
    assert.deepStrictEqual(pidsOf([row(10, 3, { ended: true }), row(11, 1, { group: 10 })], { root }), [11])
  })

  it("finds marked processes wherever they are, and what descends from one seen before", () => {
    assert.deepStrictEqual(pidsOf([row(20, 1, { jobs: ["k", "j"] }), row(21, 1, { jobs: ["k"] })]), [20])
    assert.deepStrictEqual(pidsOf([row(20, 1), row(21, 20)], { known: [row(20, 10)] }), [20, 21])
  })

  it("spares itself and what it descends from, though these carry the mark", () => {
    const marked = host.map((row) => (row.pid === 4 ? row : { ...row, jobs: ["j"] }))
    const found = membersOf([...marked, row(9, 3, { jobs: ["j"] })], { job: "j", root: undefined, known: [] }, 3)
    assert.deepStrictEqual(
      found.map((row) => row.pid),
      [9]
    )
  })

  it("does not walk into its own group, nor into init's", () => {
    const rows = [
      row(30, 1, { group: 2, jobs: ["j"] }),
      row(31, 2, { group: 2 }),
      row(32, 1, { group: 1, jobs: ["j"] }),
      row(33, 1, { group: 1 })
    ]
    assert.deepStrictEqual(pidsOf(rows), [30, 32])
  })

  const Pid = Schema.Int.pipe(Schema.between(5, 30))
  it.prop(
    "never takes a process that neither it nor any of its parents and group mates is marked, recorded or known",
    [Schema.Array(Schema.Struct({ pid: Pid, parent: Pid, group: Pid, marked: Schema.Boolean }))],
    ([drawn]) => {
      const rows = drawn.map(({ group, marked, parent, pid }) => row(pid, parent, { group, jobs: marked ? ["j"] : [] }))
      const found = membersOf([...host, ...rows], { job: "j", root: undefined, known: [] }, 3)
      const isOurs = (seen: ReadonlySet<number>, candidate: Row): boolean =>
        !seen.has(candidate.pid) &&
        (candidate.jobs.includes("j") ||
          rows.some(
            (other) =>
              other !== candidate &&
              (other.pid === candidate.parent || other.group === candidate.group) &&
              isOurs(new Set([...seen, candidate.pid]), other)
          ))
      // Numbers are drawn with repetition: a table that no system shows, in which the rule must hold all the same.
      for (const member of found) assert.isTrue(isOurs(new Set(), member), JSON.stringify(member))
    },
    { fastCheck: { numRuns: 50 } }
  )
})

describe("parseStat", () => {
  const fields = (name: string, state = "S") =>
    `42 (${name}) ${state} 7 40 40 0 -1 4194304 40 0 1 0 0 0 0 0 20 0 1 0 361850 2461696 179`

  it("reads Linux's fields, whatever the program calls itself", () => {
    for (const name of ["sleep", "a b", "x) S 1 1 1", "", "((("]) {
      assert.deepStrictEqual(parseStat(fields(name), "b"), {
        pid: 42,
        parent: 7,
        group: 40,
        startedAt: "b:361850",
        ended: false
      })
    }
    assert.isTrue(parseStat(fields("sleep", "Z"), "b")?.ended)
  })

  it("makes nothing of what is not there or cut short", () => {
    for (const text of ["", "42", "42 (sleep) S 7 40", "x (y) S 7 40 40"]) assert.isUndefined(parseStat(text, "b"))
  })
})

describe("parsePs", () => {
  it("reads the columns that macOS prints, and skips lines that are none", () => {
    const output = [
      "    1     0     1 Ss   Mon Nov 24 09:00:00 2025    ",
      "  501   400   501 Z+   Mon Dec  1 10:11:12 2025",
      "ps: something else",
      ""
    ].join("\n")
    assert.deepStrictEqual(parsePs(output), [
      { pid: 1, parent: 0, group: 1, startedAt: "Mon Nov 24 09:00:00 2025", ended: false },
      { pid: 501, parent: 400, group: 501, startedAt: "Mon Dec 1 10:11:12 2025", ended: true }
    ])
  })
})
