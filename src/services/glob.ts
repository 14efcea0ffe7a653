/**
 * Shell-style patterns over tool names: `*` stands for any run of characters, `?` for one. Case-sensitive.
 * Two cursors and one backtrack point, so that no pattern costs more than pattern x name steps.
 */
export const matches = (pattern: string, name: string): boolean => {
  let p = 0
  let n = 0
  let star = -1
  let resume = 0
  while (n < name.length) {
    // `*` is tested first: a literal `*` in the name must not consume the wildcard.
    if (pattern[p] === "*") {
      star = p++
      resume = n
    } else if (p < pattern.length && (pattern[p] === "?" || pattern[p] === name[n])) {
      p++
      n++
    } else if (star >= 0) {
      p = star + 1
      n = ++resume
    } else {
      return false
    }
  }
  while (pattern[p] === "*") p++
  return p === pattern.length
}
