// Loaded into the suite with `node --import`: it cannot be told of a bearer token, so its requests get one here.
import { subscribe } from "node:diagnostics_channel"
import http from "node:http"

const authorization = `Bearer ${process.env.MCP_TOKEN}`

subscribe("undici:request:create", ({ request }) => request.addHeader("authorization", authorization))

const plain = http.request
http.request = (first, ...rest) =>
  typeof first === "object" && !(first instanceof URL)
    ? plain({ ...first, headers: { authorization, ...first.headers } }, ...rest)
    : plain(first, ...rest)
