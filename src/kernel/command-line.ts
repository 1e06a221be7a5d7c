import { readFileSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path";

/** A name as a word of a command line. One that begins with `-` is not read as an option. */
export function shellWord(name: string): string {
  return quoted(name.startsWith("-") ? `./${name}` : name);
}

/** A word that a POSIX shell reads back as it is. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** What starts this program again in a directory: `imgbatch`, `npx imgbatch` or `node bin/imgbatch.cjs`. Default: here. */
export function programName(directory = process.cwd()): string {
  return programWords(directory).map(quoted).join(" ");
}

/**
 * Returns the words that start this program in a directory, as it was started here: of a checkout or an installation that
 * the directory is in, or of what `npx` was given. Only the path of the script tells how that was: every child has the
 * variables of npm too. A path in other places may be behind an alias, and is not named.
 */
export function programWords(
  directory: string,
  script = process.argv[1] ?? "",
  cwd = process.cwd(),
): [string, ...string[]] {
  const [, home, isLink] =
    /^(.*)[\\/]node_modules[\\/](?:(\.bin[\\/]imgbatch)|imgbatch[\\/]bin[\\/]imgbatch\.cjs)$/s.exec(script) ??
    [];
  if (home === undefined) {
    const isCheckout =
      /[\\/]bin[\\/]imgbatch\.cjs$/.test(script) && isWithin(dirname(dirname(script)), directory);
    return isCheckout ? ["node", relative(directory, script)] : ["imgbatch"];
  }
  const given = givenToNpx(home).map((each) => seenFrom(directory, each, cwd));
  const [one] = given;
  if (given.length > 1) return ["npx", ...given.map((each) => `--package=${each}`), "imgbatch"];
  if (one !== undefined && !(isAbsolute(one) && isWithin(one, directory))) return ["npx", one];
  if (one !== undefined || isWithin(home, directory)) return ["npx", "imgbatch"];
  return [isLink === undefined ? "imgbatch" : script];
}

/** The packages that npx was told to fetch into this directory of its cache. Empty for any other directory. */
function givenToNpx(home: string): string[] {
  if (basename(dirname(home)) !== "_npx") return [];
  try {
    const { packages } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"))._npx;
    // An address may hold a password.
    const isPublic = (each: unknown) => typeof each === "string" && !/:\/\/[^/]*@|[?#]/.test(each);
    return packages.every(isPublic) ? packages : [];
  } catch {
    return [];
  }
}

/** A package that npx was given in one directory, for another one: the file has another relative path there. */
function seenFrom(directory: string, given: string, cwd: string): string {
  if (directory === cwd || !(given.startsWith(".") || /^[^:]*\.tgz$/.test(given)) || isAbsolute(given))
    return given;
  const path = relative(directory, resolve(cwd, given));
  return path.startsWith(".") ? path : `./${path}`;
}

function isWithin(directory: string, path: string): boolean {
  const inside = relative(directory, path);
  return !inside.startsWith("..") && !isAbsolute(inside);
}
