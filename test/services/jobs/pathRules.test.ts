import { posix, win32 } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import type { Flavour } from "../../../src/services/jobs/pathRules.ts"
import { checkLiteral, decide, inside } from "../../../src/services/jobs/pathRules.ts"

const flavours: ReadonlyArray<Flavour> = ["posix", "darwin", "win32"]
const path = (flavour: Flavour) => (flavour === "win32" ? win32 : posix)
const roots = { posix: "/roots/app", darwin: "/roots/app", win32: "C:\\roots\\app" }
const rootOf = (flavour: Flavour) => ({ path: roots[flavour], real: roots[flavour] })

/** Names without a meaning of their own on any system. */
const Clean = FastCheck.oneof(
  FastCheck.stringMatching(/^[a-z][a-z0-9_-]{0,8}$/),
  FastCheck.constantFrom("src", "Größe", "日本", "a b", ".git", "...x", "console", "COM10", "nulls", "a~b", "x.y.z")
).filter((name) => !/^(con|prn|aux|nul|(com|lpt)[1-9])$/i.test(name))

const Hostile = FastCheck.oneof(
  FastCheck.constantFrom(
    "..",
    ".",
    "",
    "...",
    ".. ",
    "..\\..",
    "../..",
    "\0",
    "a\0b",
    "app",
    "app2",
    "APP",
    "APP.",
    "roots",
    "Roots",
    "CON",
    "nul.txt",
    "COM1",
    "LPT9.a.b",
    "com¹",
    "PROGRA~1",
    "C:",
    "D:\\",
    "C:foo",
    "a:b",
    "app::$DATA",
    "\\\\?\\C:",
    "\\\\.\\PIPE",
    "//server/share",
    "~",
    "%2e%2e",
    "..%2f",
    "ſrc",
    "straße",
    "\u212a"
  ),
  FastCheck.string({ unit: "binary", maxLength: 6 })
)
const Prefix = FastCheck.constantFrom(
  "/roots/app",
  "/roots/app2",
  "/roots",
  "/",
  "",
  "C:\\roots\\app",
  "C:/roots/app",
  "c:\\ROOTS\\App",
  "C:\\roots",
  "C:roots\\app",
  "\\roots\\app",
  "\\\\?\\C:\\roots\\app",
  "\\\\server\\roots\\app",
  "D:\\roots\\app",
  "roots/app",
  "/roots/app/..",
  "/Roots/APP",
  "C:\\roots\\app2",
  "C:\\roots\\app.",
  "C:\\roots\\app "
)
const Separator = FastCheck.constantFrom("/", "\\", "//", "\\/", "/./")
const Any = FastCheck.tuple(
  Prefix,
  FastCheck.array(FastCheck.tuple(Separator, FastCheck.oneof(Clean, Hostile)), { maxLength: 5 })
).map(([prefix, rest]) => prefix + rest.map(([separator, name]) => separator + name).join(""))

/** What the platform's own resolution makes of a path, as an independent judge of where it leads. */
const leadsInto = (flavour: Flavour, root: string, literal: string): boolean => {
  const fold = (text: string) => (flavour === "posix" ? text : text.normalize("NFC").toUpperCase())
  const { normalize, sep } = path(flavour)
  return `${fold(normalize(literal))}${sep}`.startsWith(`${fold(root)}${sep}`)
}

describe.each(flavours)("pathRules on %s", (flavour) => {
  const root = rootOf(flavour)

  it.prop(
    "lets a path in that leads out of every root",
    [Any],
    ([literal]) => {
      const decision = decide(flavour, [root], literal, literal)
      if (Either.isLeft(decision)) return
      assert.isTrue(path(flavour).isAbsolute(literal), literal)
      assert.isTrue(leadsInto(flavour, root.path, literal), literal)
      assert.notInclude(literal, "\0")
      assert.notInclude(literal.split(path(flavour).sep), "..")
      if (flavour === "win32") {
        assert.match(literal, /^C:[\\/](?![\\/])/i)
        assert.notInclude(literal.slice(2), ":")
        for (const name of literal.split(/[\\/]/)) assert.notMatch(name, /^.*[^.][. ]$/)
      }
    },
    { fastCheck: { numRuns: 3000 } }
  )

  it.prop(
    "refuses a clean path inside a root, or answers with another than the real one",
    [FastCheck.array(Clean, { maxLength: 6 })],
    ([names]) => {
      const literal = [root.path, ...names].join(path(flavour).sep)
      assert.strictEqual(checkLiteral(flavour, literal), undefined)
      assert.isTrue(inside(flavour, root.path, literal))
      for (const spelling of [literal, literal + path(flavour).sep, literal.replaceAll(path(flavour).sep, "/")])
        assert.deepStrictEqual(decide(flavour, [root], spelling, literal), Either.right(literal), spelling)
    }
  )

  it.prop("lets a path out by a link, wherever the link leads", [FastCheck.array(Clean), Any], ([names, real]) => {
    const literal = [root.path, ...names].join(path(flavour).sep)
    const decision = decide(flavour, [root], literal, real)
    if (Either.isRight(decision)) assert.isTrue(leadsInto(flavour, root.path, real), real)
    else assert.strictEqual(decision.left, "link-escape")
  })

  it.prop("takes a sibling whose name begins like the root's for the root", [Clean, Clean], ([suffix, name]) => {
    const literal = `${root.path}${suffix}${path(flavour).sep}${name}`
    assert.isFalse(inside(flavour, root.path, literal))
    assert.deepStrictEqual(decide(flavour, [root], literal, literal), Either.left("outside"))
    assert.deepStrictEqual(
      decide(flavour, [root], root.path + path(flavour).sep + name, literal),
      Either.left("link-escape")
    )
  })

  it.prop("lets anything in where there are no roots, or where no root exists", [Any], ([literal]) => {
    assert.deepStrictEqual(decide(flavour, [], literal, literal), Either.left("no-roots"))
    assert.isTrue(Either.isLeft(decide(flavour, [{ path: root.path, real: undefined }], literal, literal)))
  })

  it.each(["", ".", "..", "roots/app", "~/app", "./app"])(
    "takes a root that is not absolute (%j) for one",
    (relative) => {
      assert.isTrue(Either.isLeft(decide(flavour, [{ path: relative, real: "/" }], root.path, root.path)))
      assert.isFalse(inside(flavour, relative, root.path))
    }
  )

  it("tells those outside what exists there", () => {
    const outside = flavour === "win32" ? "C:\\secret" : "/secret"
    assert.deepStrictEqual(decide(flavour, [root], outside, undefined), Either.left("outside"))
    assert.deepStrictEqual(decide(flavour, [root], root.path, undefined), Either.left("absent"))
  })
})

describe("checkLiteral on Windows", () => {
  const at = (name: string) => `C:\\roots\\app\\${name}`

  it.each(
    [
      "CON",
      "con",
      "Prn",
      "AUX",
      "nul",
      "COM1",
      "com9",
      "LPT1",
      "lpt9",
      "COM¹",
      "LPT²",
      "com³",
      "CONIN$",
      "conout$"
    ].flatMap((name) => [
      name,
      `${name}.txt`,
      `${name}.tar.gz`,
      `${name}.`,
      `${name} `,
      `${name} .txt`,
      `${name}:x`,
      `${name}\\a`
    ])
  )("lets the device %j in", (name) => {
    assert.strictEqual(checkLiteral("win32", at(name)), "device-name")
    assert.strictEqual(checkLiteral("posix", `/roots/app/${name}`), undefined)
  })

  it.each(["console", "COM0", "COM10", "LPT", "nully", "aconx", "a.con", "CON1", "com⁴"])(
    "takes %j for a device",
    (name) => {
      assert.strictEqual(checkLiteral("win32", at(name)), undefined)
    }
  )

  it.each(["PROGRA~1", "progra~1", "AB~12", "A~1.TXT", "~1", "ABC123~9.C"])("lets the short name %j in", (name) => {
    assert.strictEqual(checkLiteral("win32", at(name)), "short-name")
    assert.strictEqual(checkLiteral("win32", `${at(name)}/x`), "short-name")
    assert.strictEqual(checkLiteral("posix", `/roots/app/${name}`), undefined)
  })

  it.each(["notes~1.backup", "longername~1", "a~b", "x~", "v~1a"])("takes %j for a short name", (name) => {
    assert.strictEqual(checkLiteral("win32", at(name)), undefined)
  })

  it.each(["a:b", "app::$DATA", "app.", "app ", "...", "a?", "a*", "a|b", 'a"b', "<a>", "a\u0001"])(
    "lets %j in, which names another file",
    (name) => {
      assert.strictEqual(checkLiteral("win32", at(name)), "bad-name")
    }
  )

  it.each([
    ["\\\\server\\share\\app", "unc"],
    ["//server/share", "unc"],
    ["\\/server\\share", "unc"],
    ["\\\\?\\C:\\roots\\app", "unc"],
    ["\\\\.\\C:\\roots\\app", "unc"],
    ["//?/C:/roots/app", "unc"],
    ["\\\\?\\UNC\\server\\share", "unc"],
    ["\\??\\C:\\roots\\app", "not-absolute"],
    ["C:roots\\app", "not-absolute"],
    ["C:", "not-absolute"],
    ["\\roots\\app", "not-absolute"],
    ["/roots/app", "not-absolute"],
    ["roots\\app", "not-absolute"],
    ["1:\\roots", "not-absolute"],
    ["C:\\roots\\..\\x", "dot-dot"],
    ["C:/roots/..", "dot-dot"],
    ["C:\\roots/..\\x", "dot-dot"],
    ["C:\\roots\\a\0b", "nul"],
    ["", "not-absolute"]
  ] as const)("refuses %j for another reason than %s, or not", (literal, refusal) => {
    assert.strictEqual(checkLiteral("win32", literal), refusal)
  })
})

describe("checkLiteral on POSIX", () => {
  it.each([
    ["", "not-absolute"],
    ["roots/app", "not-absolute"],
    ["~/app", "not-absolute"],
    ["C:\\roots", "not-absolute"],
    ["/roots/../etc", "dot-dot"],
    ["/roots/..", "dot-dot"],
    ["/..", "dot-dot"],
    ["/roots/app\0", "nul"],
    ["\0", "nul"],
    ["/roots/..\\..\\x", undefined],
    ["/roots/...", undefined],
    ["//roots//app/./x/", undefined]
  ] as const)("refuses %j for another reason than %s, or not", (literal, refusal) => {
    for (const flavour of ["posix", "darwin"] as const) assert.strictEqual(checkLiteral(flavour, literal), refusal)
  })
})

describe("inside", () => {
  it("compares names as another system does", () => {
    assert.isTrue(inside("win32", "C:\\Roots\\Größe", "c:/roots/GRÖSSE".replace("SS", "ß")))
    assert.isFalse(inside("posix", "/Roots", "/roots/a"))
    assert.isTrue(inside("darwin", "/Roots/caf\u00e9", "/roots/CAFE\u0301/a"))
    assert.isFalse(inside("posix", "/roots/caf\u00e9", "/roots/cafe\u0301"))
    assert.isFalse(inside("posix", "/roots/a", "/roots\\a"))
  })

  it.each([
    ["straße", "STRASSE"],
    ["ſrc", "SRC"],
    ["\u0131d", "ID"],
    ["\u212a", "k"],
    ["ﬁle", "FILE"]
  ])("takes %s and %s for one name, which Windows does not", (a, b) => {
    assert.isFalse(inside("win32", `C:\\${a}`, `C:\\${b}`))
    assert.isFalse(inside("win32", `C:\\${b}`, `C:\\${a}`))
  })

  it("keeps what a whole disk as root allows out, or what another disk has in", () => {
    assert.isTrue(inside("posix", "/", "/etc"))
    assert.isTrue(inside("win32", "C:\\", "c:\\x"))
    assert.isFalse(inside("win32", "C:\\", "D:\\x"))
  })
})

describe("decide", () => {
  it("lets another folder in on a case-sensitive macOS volume", () => {
    const root = { path: "/roots/app", real: "/roots/app" }
    assert.deepStrictEqual(decide("darwin", [root], "/roots/App", "/roots/App"), Either.left("link-escape"))
    assert.deepStrictEqual(decide("darwin", [root], "/roots/App/x", "/roots/app/x"), Either.right("/roots/app/x"))
  })

  it("refuses a symlinked root by one of its names, or a link from one root to the other", () => {
    const root = { path: "/link", real: "/data/app" }
    for (const literal of ["/link/x", "/data/app/x"])
      assert.deepStrictEqual(decide("posix", [root], literal, "/data/app/x"), Either.right("/data/app/x"))
    assert.deepStrictEqual(decide("posix", [root, { path: "/b", real: "/b" }], "/link/b", "/b/x"), Either.right("/b/x"))
    assert.deepStrictEqual(decide("posix", [root], "/elsewhere", "/data/app"), Either.left("outside"))
  })
})
