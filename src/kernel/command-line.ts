import { readFileSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path";
import { isWithin } from "./files.ts";

/** A name as a word of a command line. One that begins with `-` is not read as an option. */
export function shellWord(name: string): string {
  return quoted(name.startsWith("-") ? `./${name}` : name);
}

/** A word that a POSIX shell reads back as it is. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * Returns the words of a command line as a POSIX shell separates them, with quotes and backslashes; nothing is expanded. Null
 * where a quote or a backslash has no end.
 */
export function commandWords(text: string): string[] | null {
  const words: string[] = [];
  const part = /\s+|'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\]+)/suy;
  let word: string | null = null;
  while (part.lastIndex < text.length) {
    const found = part.exec(text);
    if (found === null) return null;
    const [, single, double, escaped, plain] = found;
    const piece = single ?? double?.replace(/\\(["\\$`])/g, "$1") ?? escaped ?? plain;
    if (piece !== undefined) word = (word ?? "") + piece;
    else if (word !== null) {
      words.push(word);
      word = null;
    }
  }
  return word === null ? words : [...words, word];
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
  const given = givenToNpx(home);
  if (given !== null && !(isAbsolute(given) && isWithin(given, directory)))
    return ["npx", seenFrom(directory, given, cwd)];
  if (given !== null || isWithin(home, directory)) return ["npx", "imgbatch"];
  return [isLink === undefined ? "imgbatch" : script];
}

/**
 * What npx was told to fetch into this directory of its cache: a name, a path of a file or, absolute, of a directory. Null
 * for any other directory. Up to version 10, npm keeps only where that lies.
 */
function givenToNpx(home: string): string | null {
  if (basename(dirname(home)) !== "_npx") return null;
  try {
    const { _npx, dependencies } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
    const [only, more] = _npx?.packages ?? [];
    const place: string = dependencies.imgbatch;
    if (only !== undefined && more === undefined) return hasSecret(only) ? null : only;
    if (place.startsWith("file:")) return resolve(home, place.slice("file:".length));
    return /^[\^~\d]/.test(place) ? "imgbatch" : hasSecret(place) ? null : place;
  } catch {
    return null;
  }
}

/** An address may hold a password. */
const hasSecret = (given: string) => /:\/\/[^/]*@|[?#]/.test(given);

/** A package that npx was given in one directory, for another one. npx runs a file with an absolute path in place of fetching it. */
function seenFrom(directory: string, given: string, cwd: string): string {
  const isFile = /\.(tgz|tar\.gz|tar)$/.test(given) && (isAbsolute(given) || !given.includes(":"));
  const isRelative = !isAbsolute(given) && (isFile || given.startsWith("."));
  if (isRelative ? directory === cwd : !isFile) return given;
  const path = relative(directory, resolve(cwd, given));
  return path.startsWith(".") ? path : `./${path}`;
}
