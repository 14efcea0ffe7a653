import type { Tier } from "./Job.ts"

const marker = "INPUT REQUIRED:"

const rules: { readonly [T in Tier]: string } = {
  consult:
    "Answer the request below. Read and search as you need; change nothing: no file is written, created, moved or deleted, and no command is run that would. A changed file fails the job.",
  plan: "Make a plan for the request below: what to change, where, in which order, and how to check it. Read and search as you need; change nothing: no file is written, created, moved or deleted, and no command is run that would. A changed file fails the job.",
  execute:
    "Carry out the request below by changing files in this folder. Leave your changes uncommitted: they are collected when you end."
}

/** What every worker is told before the request itself: where it is, what the tier allows, how to ask. */
export const preamble = (tier: Tier, cwd: string): string =>
  [
    `You work unattended, for a request that came from another agent, in ${cwd}: a git worktree made for this request alone.`,
    rules[tier],
    "Stay inside this folder. Do not commit, push, switch or create branches, nor touch git's configuration. Leave no process running.",
    `Nobody sees a dialog. If you cannot go on without an answer from the requester, end your last message with one line of this form, and stop: ${marker} <your question>`
  ].join("\n")

/** The whole first message of a turn. */
export const promptOf = (tier: Tier, cwd: string, request: string): string =>
  `${preamble(tier, cwd)}\n\n---\n\n${request}`

/** The question that a worker's last message ends with, if it does. */
export const questionOf = (text: string): string | undefined => {
  const last = text.trimEnd().split("\n").at(-1)?.trim() ?? ""
  // Models like to make it bold, a quotation or code.
  const bare = last.replace(/^[*_`>#\s-]+/, "")
  if (!bare.startsWith(marker)) return undefined
  const question = bare
    .slice(marker.length)
    .replace(/^[*_`\s]+/, "")
    .replace(/[*_`\s]+$/, "")
  return question === "" ? undefined : question
}
