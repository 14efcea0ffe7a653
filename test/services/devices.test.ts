import { assert, describe, it } from "@effect/vitest"
import { closedDevice } from "../../src/services/devices.ts"

describe("closedDevice", () => {
  it.each([
    { path: "xd://bash" },
    { path: " XD://bash " },
    { path: "[xd://bash#ABCD]" },
    { path: "xd://" },
    { path: "xd:bash" },
    { paths: ["ok.txt", "xd://bash"] },
    { edits: [{ path: "xd://resolve-me" }] }
  ])("lets a caller reach a tool through %j", (args) => {
    assert.isDefined(closedDevice(args))
  })

  it.each([
    { path: "notes.txt" },
    { path: "./xd/bash" },
    { path: "docs.md", content: "xd://bash is a device" },
    { command: "echo xd://bash" },
    { path: "xd://resolve", content: "looks right" },
    { path: "xd://reject", content: "no" },
    {}
  ])("refuses %j, which names no tool's device", (args) => {
    assert.isUndefined(closedDevice(args))
  })
})
