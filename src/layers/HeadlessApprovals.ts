import * as Layer from "effect/Layer"
import { ApprovalRefused, Approvals } from "../services/Approvals.ts"

/** Nobody can be asked: every question is refused at once. */
export const layer = Layer.succeed(Approvals, {
  decide: ({ tool }) => new ApprovalRefused({ tool, reason: "nobody" })
})
