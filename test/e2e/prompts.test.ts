import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import { assert, beforeAll, describe, expect, it } from "vitest"
import type { Home, RpcOmp } from "../support/omp.ts"
import { until, useLab } from "../support/omp.ts"

describe("what a real omp has besides tools", () => {
  const lab = useLab()
  let home: Home
  let omp: RpcOmp
  let url: string

  const connect = async () => {
    const client = new Client({ name: "e2e-prompts", version: "1.0.0" })
    const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
      requestInit: { headers: { authorization: `Bearer ${home.token()}` } }
    })
    // The SDK's own types do not agree with exactOptionalPropertyTypes.
    await client.connect(transport as unknown as Parameters<Client["connect"]>[0])
    lab.onEnd(() => client.close())
    return client
  }

  beforeAll(async () => {
    home = lab.home()
    const skill = join(home.agent, "skills", "polish")
    mkdirSync(skill, { recursive: true })
    writeFileSync(
      join(skill, "SKILL.md"),
      "---\nname: polish\ndescription: Polishes a text\n---\n\nPolish with care: ünï😀.\n"
    )
    const commands = join(home.agent, "commands")
    mkdirSync(commands, { recursive: true })
    writeFileSync(
      join(commands, "deploy.md"),
      "---\ndescription: Deploys\nargument-hint: <staging|production> [version]\n---\nDeploy $2 to $1.\n"
    )
    omp = lab.rpc(home)
    url = await omp.url()
  })

  const textOf = (result: Awaited<ReturnType<Client["getPrompt"]>>): string =>
    result.messages.map(({ content }) => (content.type === "text" ? content.text : "")).join("\n")

  it("lists skills and slash commands as prompts, with what they are for", async () => {
    const { prompts } = await (await connect()).listPrompts()
    expect(prompts).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: "skill:polish", description: "Polishes a text" }),
        expect.objectContaining({
          name: "deploy",
          description: "Deploys",
          arguments: [{ name: "arguments", description: "<staging|production> [version]", required: false }]
        })
      ])
    )
  })

  it("gives the text that the command puts into a conversation, arguments filled in", async () => {
    const client = await connect()
    const deploy = await client.getPrompt({ name: "deploy", arguments: { arguments: "production v1.2" } })
    assert.strictEqual(textOf(deploy).trim(), "Deploy v1.2 to production.")
    const polish = textOf(await client.getPrompt({ name: "skill:polish", arguments: { arguments: "my draft" } }))
    assert.include(polish, "Polish with care: ünï😀.")
    assert.include(polish, "my draft")
  })

  it("completes an argument from the command's hint", async () => {
    const { completion } = await (
      await connect()
    ).complete({ ref: { type: "ref/prompt", name: "deploy" }, argument: { name: "arguments", value: "pro" } })
    assert.deepEqual(completion.values, ["production"])
  })

  it("refuses a prompt that is not there, and an argument that it has not", async () => {
    const client = await connect()
    await expect(client.getPrompt({ name: "nonesuch" })).rejects.toThrow(/no prompt 'nonesuch'/)
    await expect(client.getPrompt({ name: "deploy", arguments: { target: "x" } })).rejects.toThrow(/'target'/)
  })

  it("keeps a long output as a resource, whole and in pieces", async () => {
    const client = await connect()
    const before = (await client.listResources()).resources.length
    const reply = await client.callTool({ name: "bash", arguments: { command: "seq 1 60000" } })
    assert.notStrictEqual(reply.isError, true)
    const resources = await until("an artifact", async () => {
      const { resources } = await client.listResources()
      return resources.length > before ? resources : undefined
    })
    const artifact = resources.find(({ uri }) => uri.startsWith("artifact://"))
    assert(artifact !== undefined)
    const read = async (uri: string) => {
      const [contents] = (await client.readResource({ uri })).contents
      assert(contents !== undefined && "text" in contents)
      return String(contents.text)
    }
    const whole = await read(artifact.uri)
    assert.include(whole, "1\n2\n3\n")
    assert.include(whole, "59999\n60000")
    assert.strictEqual(await read(`${artifact.uri}?offset=10&length=100`), whole.slice(10, 110))
    await expect(read("artifact://999999")).rejects.toThrow(/-32002/)
  })

  it("logs each of these reads, as reads", () => {
    const paths = home
      .audit()
      .filter(({ tool }) => tool === "read")
      .map(({ args }) => JSON.stringify(args))
    expect(paths.join("\n")).toMatch(/prompt:\/\/deploy/)
    expect(paths.join("\n")).toMatch(/artifact:\/\/\d+/)
  })

  it("offers none of it where reading is denied", async () => {
    home.edit({ deny: ["read"] })
    const client = await connect()
    await until("the setting in force", async () => (await client.listPrompts()).prompts.length === 0)
    const { resources } = await client.listResources()
    assert.deepEqual(resources, [])
    await expect(client.getPrompt({ name: "deploy" })).rejects.toThrow(/no prompt/)
    await expect(client.readResource({ uri: "artifact://0" })).rejects.toThrow(/-32002/)
  })
})
