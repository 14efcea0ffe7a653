/** Writes docs/a2a-bridge.schema.json from the Effect Schema of the settings. A test keeps the two together. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { jsonSchema } from "../src/services/Config.ts"

const file = join(import.meta.dir, "../docs/a2a-bridge.schema.json")
writeFileSync(file, `${JSON.stringify(jsonSchema(), null, 2)}\n`)
console.log(file)
