import { assert, it } from "@effect/vitest"
import { forWorker } from "../../../src/services/jobs/environment.ts"

it("forWorker keeps back the settings of the bridge and the pointers of git, in any case, and nothing else", () => {
  assert.deepStrictEqual(
    forWorker({
      PATH: "/bin",
      HOME: "/h",
      A2A_BRIDGE_TOKEN: "t",
      a2a_bridge_admin_token: "t",
      PI_A2A_STATE: "s",
      CURSOR_BRIDGE_A2A_AUTH_TOKEN: "t",
      CURSOR_API_KEY: "k",
      GIT_DIR: "/g",
      git_work_tree: "/g",
      GIT_AUTHOR_NAME: "n",
      MY_A2A_BRIDGE_NOTE: "kept"
    }),
    { PATH: "/bin", HOME: "/h", CURSOR_API_KEY: "k", GIT_AUTHOR_NAME: "n", MY_A2A_BRIDGE_NOTE: "kept" }
  )
})
