import type { Environment } from "./Processes.ts"

/** The bridge's own settings and tokens. */
const own = /^(A2A_BRIDGE|PI_A2A|CURSOR_BRIDGE)_/i

/** Variables by which git would work on another repository than the folder's. */
const git = new Set([
  "GIT_DIR",
  "GIT_WORK_TREE",
  "GIT_INDEX_FILE",
  "GIT_OBJECT_DIRECTORY",
  "GIT_ALTERNATE_OBJECT_DIRECTORIES",
  "GIT_COMMON_DIR",
  "GIT_NAMESPACE",
  "GIT_PREFIX"
])

/** What of the bridge's environment a worker gets. Its accounts' keys are in there: it needs them. */
export const forWorker = (env: Environment): Environment =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !own.test(name) && !git.has(name.toUpperCase())))
