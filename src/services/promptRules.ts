/** Words that a hint such as `<add|remove> [name]` offers for the argument that is being typed, best first. */
export const hinted = (hint: string, typed: string): ReadonlyArray<string> => {
  const places = hint.match(/<[^>]*>|\[[^\]]*\]|\S+/g) ?? []
  const words = typed.split(/\s+/)
  const last = words.at(-1) ?? ""
  const before = typed.slice(0, typed.length - last.length)
  const place = places[words.length - 1]?.replace(/^[<[]|[>\]]$/g, "") ?? ""
  const choices = place.includes("|") ? place.split("|").map((choice) => choice.trim()) : []
  return choices.filter((choice) => choice !== "" && choice.startsWith(last)).map((choice) => before + choice)
}

/** A prompt's name on the wire: omp's own, which may be anything, as one word. */
export const promptName = (name: string): string => name.toWellFormed().replaceAll(/\s+/g, "-").slice(0, 128)
