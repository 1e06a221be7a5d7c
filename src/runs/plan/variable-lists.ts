import { constants } from "node:fs";
import { open, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, extname, join, resolve, sep } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { liesInOne, openPathBelow, realPathBelow } from "../../kernel/files.ts";
import { counted } from "../../kernel/text.ts";
import { readListText, type Variable, type VariableValue } from "../../prompts/variables.ts";

/** The largest file of values. */
const MOST_LIST_BYTES = 1024 * 1024;

/**
 * Reads a file of values. With `base`, the file must lie below that directory, also where links lead: a stranger may have
 * written the prompt file that names it. Without one, any path is taken. `hidden`: directories of which no file is read.
 */
export async function readListFile(
  path: string,
  base: string | null,
  hidden: readonly string[] = [],
): Promise<Uint8Array | { problem: string }> {
  try {
    const real = await realpath(base === null ? path : resolve(base, path));
    if (await liesInOne(hidden, real)) return { problem: "belongs to imgbatch itself" };
    if (base !== null && !real.startsWith(join(await realpath(base), sep)))
      return { problem: "is outside of the directory of the prompt file; copy it there" };
    // A FIFO in place of the file must not block.
    const file = await open(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const facts = await file.stat();
      if (!facts.isFile()) return { problem: "is not a file" };
      if (base !== null && (await openPathBelow(base, file.fd, real)) === null)
        return { problem: "was replaced while it was opened" };
      if (facts.size > MOST_LIST_BYTES)
        return { problem: `has ${facts.size} bytes; a list has at most ${MOST_LIST_BYTES}` };
      return await file.readFile();
    } finally {
      await file.close();
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT")
      return { problem: `does not exist${base === null ? "" : " beside the prompt file"}` };
    return { problem: `cannot be read (${code})` };
  }
}

/**
 * Reads `--var name=fox,owl` and `--var name=@FILE`. The file lies below `root`, also where links lead. Default: anywhere.
 * Throws `USAGE`.
 */
export async function readVariable(text: string, cwd: string, root?: string): Promise<Variable> {
  const at = text.indexOf("=");
  const [name, value] = [text.slice(0, at).trim(), text.slice(at + 1)];
  const wrong = (problem: string) =>
    new ImgbatchError("USAGE", `--var ${text}: ${problem}.`, { param: "--var" });
  if (at < 1 || name === "" || /[{}]/.test(name))
    throw wrong("write name=value, name=value,value or name=@FILE");
  if (/^@[^@]/.test(value)) {
    const path = resolve(cwd, value.slice(1));
    if (root !== undefined && (await realPathBelow(root, path)) === null)
      throw wrong(`${value.slice(1)} leads out of ${root}; copy it there`);
    const read = await readListFile(path, root ?? null);
    const values = "problem" in read ? read : readListText(read);
    if ("problem" in values) throw wrong(`${value.slice(1)} ${values.problem}`);
    return { name, values: values.map((each) => ({ text: each })), isList: true };
  }
  const values = splitAtCommas(value).map((each) => each.trim());
  if (values.some((each) => each === "")) throw wrong("a value is empty");
  return {
    name,
    values: values.map((each) => ({ text: each.replace(/^@@/, "@") })),
    isList: values.length > 1,
  };
}

/** Splits at commas. `\,` is a comma of a value, and `\\,` ends a value with a backslash. */
function splitAtCommas(text: string): string[] {
  const values = [""];
  const add = (piece: string) => values.push(`${values.pop()}${piece}`);
  for (const [i, piece] of text.split(/(\\*,)/).entries()) {
    if (i % 2 === 0) add(piece);
    else {
      const slashes = piece.length - 1;
      add("\\".repeat(slashes >> 1));
      if (slashes % 2 === 1) add(",");
      else values.push("");
    }
  }
  return values;
}

/**
 * Finds the files of `--images`: a file, a directory, or a directory with an ending (`photos/*.jpg`), in the order of
 * their bytes. Throws `USAGE` if there are none.
 */
export async function readImages(
  pattern: string,
  cwd: string,
  note: (remark: string) => void = () => {},
): Promise<Variable> {
  const path = resolve(cwd, pattern);
  const wrong = (problem: string) =>
    new ImgbatchError("USAGE", `--images ${pattern}: ${problem}.`, { param: "--images" });
  const kind = await stat(path).catch(() => null);
  const wanted = basename(path);
  if (kind === null && !/^\*(\.[^*?[\]]+)?$/.test(wanted))
    throw wrong("name a file, a directory, or a directory and an ending in quotes, such as 'photos/*.jpg'");
  const directory = kind?.isDirectory() ? path : dirname(path);
  const ending = kind === null ? wanted.slice(1).toLowerCase() : "";
  let files: string[];
  if (kind?.isFile()) files = [path];
  else {
    const entries = await readdir(directory, { withFileTypes: true }).catch(
      (error: NodeJS.ErrnoException) => {
        throw wrong(
          error.code === "ENOENT" ? "there is no such directory" : `cannot be read (${error.code})`,
        );
      },
    );
    const all = entries.filter((entry) => !entry.isDirectory()).map(({ name }) => name);
    const names = all.filter((name) => !name.startsWith(".") && name.toLowerCase().endsWith(ending));
    const isImage = (name: string) => /\.(png|jpe?g|webp)$/i.test(name);
    const others = names.filter((name) => ending === "" && !isImage(name));
    if (others.length > 0 && others.length < names.length) note(`--images ${pattern}: ${leftOut(others)}`);
    files = names
      .filter((name) => !others.includes(name))
      .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
      .map((name) => join(directory, name));
    if (files.length === 0) throw wrong(`none of the ${counted(all.length, "file")} in ${directory} fits`);
  }
  const values: VariableValue[] = files.map((image) => ({ text: basename(image, extname(image)), image }));
  return { name: "image", values, isList: true };
}

const MOST_NAMED = 4;

/** `left out 6 files that are no PNG, JPEG or WebP by their endings: a.txt, b.heic, c.pdf, d.md, …`. */
function leftOut(names: readonly string[]): string {
  const shown = names.slice(0, MOST_NAMED).join(", ");
  const more = names.length > MOST_NAMED ? ", …" : "";
  const are = names.length === 1 ? "is" : "are";
  return `left out ${counted(names.length, "file")} that ${are} no PNG, JPEG or WebP by the ending: ${shown}${more}`;
}
