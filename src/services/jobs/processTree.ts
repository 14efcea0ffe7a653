import type { ProcessIdentity } from "./Processes.ts"

/** A process of this machine at one moment. */
export interface Row extends ProcessIdentity {
  readonly parent: number
  readonly group: number
  /** Ended, but its parent has not looked yet: nothing is left to kill. */
  readonly ended: boolean
  /** Jobs whose mark its environment carries. */
  readonly jobs: ReadonlyArray<string>
}

/** The tree that is looked for. `root` is absent where it was never recorded. */
export interface Tree {
  readonly job: string
  readonly root: ProcessIdentity | undefined
  /** Members that an earlier look found: their parents may be gone since. */
  readonly known: ReadonlyArray<ProcessIdentity>
}

const keyOf = (process: ProcessIdentity): string => `${process.pid} ${process.startedAt}`

/**
 * What belongs to the tree: its root, whatever carries the job's mark, those known from before, everything in a process
 * group of one of these (a group's number cannot be reused while it has a member), and all that descends from any of
 * them. Never a process that only has a number in common, nor `self` or its ancestors.
 */
export const membersOf = (rows: ReadonlyArray<Row>, tree: Tree, self: number): ReadonlyArray<Row> => {
  const byPid = new Map(rows.map((row) => [row.pid, row]))
  const children = Map.groupBy(rows, (row) => row.parent)
  const groups = Map.groupBy(rows, (row) => row.group)
  const spared = new Set([0, 1])
  for (let pid = self; !spared.has(pid); pid = byPid.get(pid)?.parent ?? 0) spared.add(pid)
  // Not to be walked into: init's, the bridge's own.
  groups.delete(0)
  groups.delete(1)
  groups.delete(byPid.get(self)?.group ?? 0)
  const wanted = new Set([...tree.known, ...(tree.root === undefined ? [] : [tree.root])].map(keyOf))
  const members = new Map<number, Row>()
  const open = rows.filter((row) => row.jobs.includes(tree.job) || wanted.has(keyOf(row)))
  for (let row = open.pop(); row !== undefined; row = open.pop()) {
    if (members.has(row.pid) || spared.has(row.pid)) continue
    members.set(row.pid, row)
    open.push(...(children.get(row.pid) ?? []), ...(groups.get(row.group) ?? []))
    groups.delete(row.group)
  }
  return [...members.values()].filter((row) => !row.ended)
}

/** Fields of Linux's /proc/<pid>/stat (proc(5)); the name in parentheses may hold anything, `) ` included. */
export const parseStat = (stat: string, boot: string): Omit<Row, "jobs"> | undefined => {
  const end = stat.lastIndexOf(")")
  const pid = Number.parseInt(stat, 10)
  const [state, parent, group, ...rest] = stat.slice(end + 2).split(" ")
  // Field 22, counted from 1; the first after the name is field 3.
  const ticks = rest[22 - 3 - 3]
  if (end < 0 || !Number.isInteger(pid) || state === undefined || ticks === undefined) return undefined
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    startedAt: `${boot}:${ticks}`,
    ended: state === "Z" || state === "X"
  }
}

/** Lines of `ps -axww -o pid=,ppid=,pgid=,stat=,lstart=`: lstart is five words. */
export const parsePs = (output: string): ReadonlyArray<Omit<Row, "jobs">> =>
  output.split("\n").flatMap((line) => {
    const [pid, parent, group, state, ...started] = line.trim().split(/\s+/)
    if (state === undefined || started.length < 5 || !Number.isInteger(Number(pid))) return []
    return [
      {
        pid: Number(pid),
        parent: Number(parent),
        group: Number(group),
        startedAt: started.slice(0, 5).join(" "),
        ended: state.startsWith("Z")
      }
    ]
  })
