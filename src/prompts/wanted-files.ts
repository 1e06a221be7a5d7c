import { FILE_FORMATS, FITS, type FileForm, type FileFormat } from "../contract/image-formats.ts";
import { isDeviceName, replaceForbidden, truncateCodePoints } from "../kernel/text.ts";
import { MOST_SHOWN_CHARS, type Report } from "./problems.ts";

/*
 * What a line says of the files that are made of its pictures: where they lie, how many pixels they have, and in which form. They
 * are made from the pictures of the run, so a change pays nothing.
 */

/** The part of a picture that stays when it is cut: by what it shows, or by its place. */
const STRATEGIES: readonly string[] = ["attention", "entropy"];
const SIDES = "center, top, right top, right, right bottom, bottom, left bottom, left, left top".split(", ");
export const POSITIONS: readonly string[] = [...STRATEGIES, ...SIDES];

/** A file that is made of a picture, in the words of a line. */
export interface WantedFile extends FileForm {
  /** From the directory of the prompt file on, with `/`. `{{n}}` stands for the number of the image, from 1. */
  path: string;
}

/** The files that are made of the pictures of a line, and where they may lie. */
export interface LineFiles {
  /** The directory of the prompt file, from which paths lead. */
  from: string;
  /** Files may lie below this directory, too. */
  root?: string | undefined;
  /** The files do not say that they are made by AI. */
  unmarked?: true | undefined;
  wanted: WantedFile[];
}

/** The fields of a line that say which files it wants. */
export const FILE_FIELDS: readonly string[] = [
  ...["file", "pixels", "fit", "position", "format", "encode_quality", "trim", "also"],
];

/** What holds for the files of all lines. */
export interface FileRules {
  /** The format of files whose names have no ending. Default: none, so that the names need one. */
  format?: FileFormat | undefined;
  /** The model of lines that name none, for `{{model}}`. Default: it is not known. */
  model?: string | undefined;
}

/** The names that stand for something in a path besides the variables of the line. */
export const PATH_NAMES: readonly string[] = ["n", "model"];
const NUMBER = /\{\{\s*n\s*\}\}/;
const MODEL = /\{\{\s*model\s*\}\}/;
const ANY_NAME = /\{\{.*?\}\}/;
const all = (pattern: RegExp) => new RegExp(pattern.source, "g");

const ENDINGS: Readonly<Record<string, FileFormat>> = {
  png: "png",
  jpg: "jpeg",
  jpeg: "jpeg",
  webp: "webp",
  avif: "avif",
};
const MOST_SIDE_PX = 16_384;
const MOST_PATH_CHARS = 1000;
const MOST_NAME_BYTES = 255;
const MOST_FILES = 100;

/**
 * Returns the files that a line wants, that of `file` first; none without `file`. Reports each problem under its field. `rules`:
 * null where no such files are made.
 */
export function checkFiles(
  fields: Record<string, unknown>,
  rules: FileRules | null,
  report: Report,
): WantedFile[] {
  const [first] = FILE_FIELDS.filter((name) => (fields[name] ?? null) !== null);
  if (first === undefined) return [];
  if (rules === null) {
    report(first, "only `imgbatch submit` makes files besides those of the run; leave it out here");
    return [];
  }
  if ((fields.file ?? null) === null) {
    report(
      first,
      "says how the file of the picture is made; name that file in the field file (if it is a field of your own, rename it or put it into metadata)",
    );
    return [];
  }
  const model = typeof fields.model === "string" ? fields.model.trim() : rules.model;
  const check = { rules, model, shape: checkShape(fields, report), report };
  const main = checkFile(fields.file, "file", { ...check, named: formatOf(fields.format, report) });
  const others = checkAlso(fields.also, report).flatMap(({ name, pixels }) => {
    const beside = (main?.path ?? "").replace(/[^/]*$/, name);
    const shape = pixels === undefined ? check.shape : { ...check.shape, pixels };
    return checkFile(beside, "also", { ...check, shape, named: null }) ?? [];
  });
  if (main === null) return [];
  for (const other of others)
    if (isNumbered(other) !== isNumbered(main))
      report("also", `${shown(other.path)}: write {{n}} in each file of the line, or in none`);
  return [main, ...others];
}

type Shape = Pick<WantedFile, "pixels" | "fit" | "position" | "encode_quality" | "trim">;

interface FileCheck {
  rules: FileRules;
  model: string | undefined;
  shape: Shape;
  /** The format that the line names; null for none. */
  named: FileFormat | null;
  report: Report;
}

function checkFile(value: unknown, field: string, check: FileCheck): WantedFile | null {
  const { rules, model, shape, named, report } = check;
  const typed = typeof value === "string" ? value.trim() : "";
  const wrong = (message: string) => {
    report(field, message);
    return null;
  };
  if (typed === "") return wrong("must be the path of a file, such as public/blog/hero.webp");
  if (MODEL.test(typed) && model === undefined)
    return wrong("has {{model}}, and the line names no model; name one there, or with --model");
  const path = normalized(typed.replace(all(MODEL), model ?? ""));
  const [unknown] = ANY_NAME.exec(path.replace(all(NUMBER), "")) ?? [];
  if (unknown !== undefined)
    return wrong(`${shown(typed)}: nothing stands for ${unknown}; the line has no such field`);
  const problem = pathProblem(path);
  if (problem !== null) return wrong(`${shown(typed)} ${problem}`);
  const [, ending = ""] = /\.([^./]+)$/.exec(path) ?? [];
  const ofName = Object.hasOwn(ENDINGS, ending.toLowerCase()) ? ENDINGS[ending.toLowerCase()] : undefined;
  const ways = "use .png, .jpg, .webp or .avif";
  if (ofName === undefined && ending !== "" && (named ?? rules.format) === undefined)
    return wrong(`${shown(typed)}: .${ending} is no format of a picture here; ${ways}`);
  if (named !== null && ofName !== undefined && named !== ofName) {
    report("format", `${named}: the file ${shown(typed)} ends as ${ofName}; leave one of them out`);
    return null;
  }
  const format = named ?? ofName ?? rules.format;
  if (format === undefined) return wrong(`${shown(typed)} has no ending; ${ways}, or say format`);
  const { encode_quality: quality, ...others } = shape;
  if (format === "png" && quality !== undefined && field === "file") {
    report(
      "encode_quality",
      "a PNG has none: it keeps every pixel; use .webp, .jpg or .avif, or leave it out",
    );
    return null;
  }
  return {
    path,
    ...others,
    format,
    ...(format === "png" || quality === undefined ? {} : { encode_quality: quality }),
  };
}

/** Returns a path without `.` and doubled `/`. */
function normalized(path: string): string {
  const isAbsolute = path.startsWith("/");
  const isFolder = /(^|\/)\.{0,2}$/.test(path);
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  return `${isAbsolute ? "/" : ""}${names.join("/")}${isFolder ? "/" : ""}`;
}

/** Returns why a path is none that every system has, from the prompt file on; null if it is. */
function pathProblem(path: string): string | null {
  if (path.length > MOST_PATH_CHARS) return `has more than ${MOST_PATH_CHARS} characters`;
  if (path.includes("\\")) return "has a \\; write / between directories";
  if (/^(\/|~|[a-z]:)/i.test(path))
    return "is not relative to the prompt file; write a path such as images/hero.webp";
  if (path.endsWith("/") || path === "") return "names a directory; name a file in it";
  for (const name of path.split("/")) {
    if (name === "..") continue;
    if (replaceForbidden(name) !== name)
      return `has a character that some systems refuse: leave out : * ? " < > | and control characters`;
    if (/[. ]$/.test(name)) return `has a name that ends with a dot or a blank, which some systems drop`;
    if (isDeviceName(name)) return `has the name of a device of Windows (${name}); choose another one`;
    if (new TextEncoder().encode(name).length > MOST_NAME_BYTES)
      return `has a name of more than ${MOST_NAME_BYTES} bytes`;
  }
  return path.endsWith("/..") || path === ".." ? "names a directory; name a file in it" : null;
}

function checkShape(fields: Record<string, unknown>, report: Report): Shape {
  const pixels = readField("pixels", readWantedPixels, PIXELS_ADVICE);
  const fit = readField(
    "fit",
    (text) => FITS.find((each) => each === text.toLowerCase()) ?? null,
    `use ${FITS.join(", ")}`,
  );
  const position = readField("position", positionOf, `use ${POSITIONS.join(", ")}`);
  const encode_quality = readField("encode_quality", qualityOf, "write a whole number from 1 to 100");
  const isTrimmed = readField("trim", booleanOf, "write true or false");
  const isBox = pixels !== undefined && /^\d+x\d+$/.test(pixels);
  for (const [field, value] of Object.entries({ fit, position }))
    if (value !== undefined && !isBox)
      report(field, `${value}: it works only where pixels has both sides, such as 1200x630`);
  if (position !== undefined && (fit === "fill" || fit === "inside"))
    report("position", `${position}: with fit ${fit} the whole picture is seen; leave it out`);
  if (position !== undefined && fit === "contain" && STRATEGIES.includes(position))
    report("position", `${position}: with fit contain nothing is cut; use ${SIDES.join(", ")}`);
  return {
    ...(pixels === undefined ? {} : { pixels }),
    ...(fit === undefined || fit === "cover" ? {} : { fit }),
    ...(position === undefined ? {} : { position }),
    ...(encode_quality === undefined ? {} : { encode_quality }),
    ...(isTrimmed === true ? { trim: true } : {}),
  };

  function readField<T>(field: string, read: (text: string) => T | null, advice: string): T | undefined {
    const value = fields[field] ?? null;
    if (value === null) return undefined;
    const isText = ["string", "number", "boolean"].includes(typeof value);
    const found = isText ? read(String(value).trim()) : null;
    if (found === null) report(field, `${shown(value)}: ${advice}`);
    return found ?? undefined;
  }
}

function formatOf(value: unknown, report: Report): FileFormat | null {
  if ((value ?? null) === null) return null;
  const format = readFileFormat(String(value));
  if (format === null) report("format", `${shown(value)}: use ${FILE_FORMATS.join(", ")}`);
  return format;
}

/** Returns the format of a name such as `webp` or `JPG`; null for any other. */
function readFileFormat(text: string): FileFormat | null {
  const name = text.trim().replace(/^\./, "").toLowerCase();
  return Object.hasOwn(ENDINGS, name) ? (ENDINGS[name] ?? null) : null;
}

const PIXELS_ADVICE = `write width x height such as 1200x630, or one side: 1200x or x630, at most ${MOST_SIDE_PX}`;

/** Returns pixels as they are kept, such as `1200x630`, `1200x` or `x630`; null for any other text. */
function readWantedPixels(text: string): string | null {
  const [, width = "", height = ""] = /^([1-9]\d{0,4})?\s*[x×]\s*([1-9]\d{0,4})?$/i.exec(text) ?? [];
  if (width + height === "" || Number(width) > MOST_SIDE_PX || Number(height) > MOST_SIDE_PX) return null;
  return `${width}x${height}`;
}

/** Returns a position as it is kept: the words of a corner may stand in any order. */
function positionOf(text: string): string | null {
  const words = text
    .toLowerCase()
    .replace("centre", "center")
    .split(/[\s-]+/);
  const [first = "", second] = words;
  const names = second === undefined ? [first] : [`${first} ${second}`, `${second} ${first}`];
  return words.length > 2 ? null : (POSITIONS.find((each) => names.includes(each)) ?? null);
}

function qualityOf(text: string): number | null {
  const quality = /^\d{1,3}(\.0+)?$/.test(text) ? Number(text) : 0;
  return quality >= 1 && quality <= 100 ? quality : null;
}

function booleanOf(text: string): boolean | null {
  const word = text.toLowerCase();
  if (["true", "yes", "1"].includes(word)) return true;
  return ["false", "no", "0"].includes(word) ? false : null;
}

/** Reads `["hero@2x.webp 2400x1260", "hero.jpg"]`, or the same in one text between `;`. */
function checkAlso(value: unknown, report: Report): { name: string; pixels?: string }[] {
  if ((value ?? null) === null) return [];
  const texts = typeof value === "string" ? value.split(";") : value;
  const advice = 'write a list of files beside that of file, such as ["hero@2x.webp 2400x1260", "hero.jpg"]';
  if (!Array.isArray(texts) || texts.some((each) => typeof each !== "string") || texts.length > MOST_FILES) {
    report("also", `${shown(value)}: ${advice}${Array.isArray(texts) ? `, at most ${MOST_FILES}` : ""}`);
    return [];
  }
  return texts
    .map((text: string) => text.trim())
    .filter((text) => text !== "" || typeof value !== "string")
    .flatMap((text) => {
      const [, name = text, size] = /^(.*\S)\s+(\d*[x×]\d*)$/i.exec(text) ?? [];
      const pixels = size === undefined ? undefined : readWantedPixels(size);
      if (name === "") report("also", `has an empty text; ${advice}`);
      else if (name.startsWith("/") || name.split("/").includes(".."))
        report("also", `${shown(name)}: write the name from the directory of file on`);
      else if (pixels === null) report("also", `${shown(text)}: ${PIXELS_ADVICE}`);
      else return [{ name, ...(pixels === undefined ? {} : { pixels }) }];
      return [];
    });
}

/** Returns the paths of a file for the images of a line: a path for each image where the file `isNumbered`, else a single path. */
export function pathsOf(file: WantedFile, outputCount: number): string[] {
  const count = isNumbered(file) ? outputCount : 1;
  return Array.from({ length: count }, (_, i) => file.path.replace(all(NUMBER), String(i + 1)));
}

/** Whether each image of a line has a file of its own. Otherwise only the chosen image has. */
export function isNumbered({ path }: WantedFile): boolean {
  return NUMBER.test(path);
}

function shown(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return JSON.stringify(truncateCodePoints(String(text), MOST_SHOWN_CHARS, "…"));
}
