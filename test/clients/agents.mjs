/** Scripted model servers, and coding agents run headless over them: one tool call a run, its result as the model sees it. */
import { spawn } from "node:child_process"
import { createServer } from "node:http"

/** An HTTP server on loopback that answers each POST with what `answer` writes. */
export const modelServer = (answer) =>
  new Promise((resolve) => {
    const server = createServer(async (request, response) => {
      let body = ""
      for await (const chunk of request) body += chunk
      let json = {}
      try {
        json = JSON.parse(body)
      } catch {
        // Not a request that a model answers.
      }
      answer(request, json, response)
    })
    server.listen(0, "127.0.0.1", () => resolve({ server, port: server.address().port }))
  })

export const events = (response) => {
  response.writeHead(200, { "content-type": "text/event-stream" })
  return (event, data) =>
    response.write(`${event === undefined ? "" : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`)
}

/** What is to happen between two calls, however often the program asks its model. */
export const once = (action) => {
  let going
  return () => (going ??= action?.())
}

/** Runs a program to its end; rejects where it fails. */
export const runProgram = (command, args, { cwd, env, signal, stdin = "" }) =>
  new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env, stdio: ["pipe", "pipe", "pipe"] })
    let out = ""
    child.stdout.on("data", (chunk) => (out += chunk))
    child.stderr.on("data", (chunk) => (out += chunk))
    child.stdin.on("error", () => undefined)
    if (stdin !== undefined) child.stdin.end(stdin)
    signal?.addEventListener("abort", () => child.kill("SIGINT"))
    child.on("error", reject)
    child.on("close", (code) =>
      code === 0 ? resolve(out) : reject(new Error(`${command} ended with code ${code}: ${out.slice(-1500)}`))
    )
  })
