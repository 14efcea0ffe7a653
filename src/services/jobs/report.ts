import type { Diffstat, Job, StoredEvent } from "./Job.ts"

/** Kinds of events that a report tells of. */
export const told = ["Denied", "Warning", "Replied"] as const

/** The text as a code block: fenced by more backticks than it has in a row. */
const block = (text: string): string => {
  const longest = Math.max(2, ...(text.match(/`+/gu) ?? []).map((run) => run.length))
  const fence = "`".repeat(longest + 1)
  return `${fence}text\n${text.endsWith("\n") ? text : `${text}\n`}${fence}`
}

/** As one line of inline code: a path or a command may hold anything. */
const inline = (text: string): string => {
  const line = text.replaceAll(/[\r\n]+/gu, " ")
  const longest = Math.max(0, ...(line.match(/`+/gu) ?? []).map((run) => run.length))
  const ticks = "`".repeat(longest + 1)
  const pad = line.startsWith("`") || line.endsWith("`") ? " " : ""
  return `${ticks}${pad}${line}${pad}${ticks}`
}

const changes = ({ deletions, files, insertions }: Diffstat): string =>
  files.length === 0
    ? "Nothing was changed."
    : [
        ...files.map((file) => {
          const name = file.from === undefined ? inline(file.path) : `${inline(file.from)} → ${inline(file.path)}`
          const size = file.binary ? "binary" : `+${file.insertions} −${file.deletions}`
          return `- ${name}: ${file.change}, ${size}`
        }),
        "",
        `${files.length} ${files.length === 1 ? "file" : "files"}, +${insertions} −${deletions}`
      ].join("\n")

const section = (title: string, body: string | undefined): ReadonlyArray<string> =>
  body === undefined || body === "" ? [] : ["", `## ${title}`, "", body]

/** What a job was, and what came of it, for people (Markdown). `events` are those of the kinds in `told`. */
export const render = (job: Job, events: ReadonlyArray<StoredEvent>): string => {
  const denied: Array<string> = []
  const warnings: Array<string> = []
  const prompts = [job.prompt]
  for (const { event } of events) {
    if (event._tag === "Denied") denied.push(`- ${inline(event.what)}: ${inline(event.reason)}`)
    if (event._tag === "Warning") warnings.push(`- ${inline(event.text)}`)
    if (event._tag === "Replied") prompts.push(event.prompt)
  }
  const { usage } = job
  const facts: ReadonlyArray<readonly [string, string | undefined]> = [
    ["Job", job.id],
    ["Thread", job.thread],
    ["State", job.state],
    ["Tier", job.tier],
    ["Worker", job.model === undefined ? job.worker : `${job.worker} (${job.model})`],
    ["Workspace", job.workspace],
    ["Created", job.createdAt],
    ["Started", job.startedAt],
    ["Ended", job.endedAt]
  ]
  return [
    `# ${inline(job.title)}`,
    "",
    ...facts.flatMap(([name, value]) => (value === undefined ? [] : [`- ${name}: ${inline(value)}`])),
    ...section("Prompt", prompts.map(block).join("\n\n")),
    ...section("Result", job.result === undefined ? undefined : block(job.result)),
    ...section(
      "Failure",
      job.failure === undefined ? undefined : `${job.failure.reason}:\n\n${block(job.failure.message)}`
    ),
    ...section("Changes", job.diffstat === undefined ? undefined : changes(job.diffstat)),
    ...section(
      "Usage",
      usage === undefined
        ? undefined
        : [
            `- input tokens: ${usage.inputTokens}`,
            `- output tokens: ${usage.outputTokens}`,
            ...(usage.cacheReadTokens === undefined ? [] : [`- read from cache: ${usage.cacheReadTokens}`]),
            ...(usage.cacheWriteTokens === undefined ? [] : [`- written to cache: ${usage.cacheWriteTokens}`])
          ].join("\n")
    ),
    ...section("Denied", denied.join("\n")),
    ...section("Warnings", warnings.join("\n")),
    ""
  ].join("\n")
}
