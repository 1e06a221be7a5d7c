import { constants } from "node:fs";
import { open, readdir } from "node:fs/promises";
import { basename, dirname, extname, join, relative, resolve, sep } from "node:path";
import { type ErrorDetails, ImgbatchError } from "../../contract/errors.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { didYouMean } from "../../kernel/did-you-mean.ts";
import { isWithin, openPathBelow, realPathBelow } from "../../kernel/files.ts";
import { foldFileName, truncateCodePoints } from "../../kernel/text.ts";
import type { CheckedRow, RowSource, Variant } from "../../prompts/check-row.ts";
import { type Options, optionsOf } from "../../prompts/options.ts";
import { type FileLine, MOST_SHOWN_CHARS, type Problems, type Report } from "../../prompts/problems.ts";
import { PromptReader, type ReaderRules } from "../../prompts/prompt-reader.ts";
import { type LineFiles, pathsOf } from "../../prompts/wanted-files.ts";
import { RUN_STATE_FILE } from "../directory/run-state.ts";
import { loadReference, type PromptReference } from "./reference-files.ts";
import { type PromptText, Spool, textOf } from "./spool.ts";
import { readListFile } from "./variable-lists.ts";

/** One line of a prompt file, checked. */
export interface PromptItem extends Options {
  /** Null when the line has none; the plan gives it one. */
  customId: string | null;
  /** Absent for a prompt without lists. */
  variant?: Variant;
  /** The number of its row in the prompt files, from 1. Default: its position. */
  number?: number;
  prompt: PromptText;
  outputCount: number;
  /** Absent: that of the run. */
  model?: string;
  references: PromptReference[];
  /** The JSON text of the fields that only the caller needs, as an object; null for none. */
  metadata: PromptText | null;
  /** File and line, for messages and results. */
  fileLine: FileLine;
  /** Absent: no files are made of its pictures besides those of the run. */
  files?: LineFiles;
  /** Set for a line of a run's own input: where the prompt was read at first. */
  source?: RowSource;
}

/** The name of standard input on the command line. */
export const STDIN = "-";

interface PromptSource {
  /** A path, or `-`. */
  name: string;
  cwd: string;
  /** Opens standard input. */
  stdin: () => AsyncIterable<Uint8Array>;
}

const PIECE_BYTES = 256 * 1024;

/**
 * Reads and checks prompt files, in order, line by line: of a large input only a part stays in memory, the rest goes
 * into `spool`. Throws `INVALID_INPUT` with the problems of every file, one a line (`file:line: field: what is wrong,
 * what would be right`); nothing is half accepted. See `findMore` for what only the service knows.
 */
export async function readPromptFiles(
  sources: readonly PromptSource[],
  rules: FileRules,
  spool = new Spool(),
): Promise<PromptItem[]> {
  const { shared = [], note, findMore } = rules;
  const readList = async (file: string, path: string) => {
    const source = sources.find((each) => fileOf(each) === file);
    if (source === undefined) return { problem: "is named by no prompt file" };
    return readListFile(path, baseOf(source), rules.hidden);
  };
  const reader = new PromptReader({ readList, ...rules });
  const input: Input = { rules, spool, shared, reader, items: [], loaded: new Map(), owners: new Map() };
  for (const source of sources) if (!reader.isCut) await readOne(source, input);
  const files = sources.map(fileOf);
  const problems = reader.finish();
  if (problems.count > 0 && !problems.isFull && !reader.isCut) await findMore?.(input.items, problems);
  problems.throwIfAny(files);
  for (const remark of reader.remarks) note?.(remark);
  return input.items;
}

interface FileRules extends ReaderRules {
  /** Reference images of every prompt, behind its own. Default: none. */
  shared?: readonly PromptReference[];
  /** Reference images lie below this directory. Default: anywhere. */
  root?: string | undefined;
  /** Where the files that are made of pictures may lie besides the directory of the prompt file. Default: nowhere else. */
  filesRoot?: string | undefined;
  /** These files do not say that they are made by AI. Default: they do. */
  isUnmarked?: boolean;
  /** No file in these directories is read. Default: none. */
  hidden?: readonly string[] | undefined;
  /** What every prompt asks for that does not say so itself. Default: nothing. */
  options?: Options;
  /**
   * Adds what else is wrong with the lines of files that have problems, by what the service takes, so that all is told at once.
   * The lines are as far as they could be read. Default: nothing.
   */
  findMore?: (items: readonly PromptItem[], problems: Problems) => Promise<void>;
  /** Gets what the variables of the files came to. */
  note?: (remark: string) => void;
}

/** The state of reading files. */
interface Input {
  rules: FileRules;
  spool: Spool;
  shared: readonly PromptReference[];
  reader: PromptReader;
  items: PromptItem[];
  /** The reference images of the files of a line: its variants share them. */
  loaded: Map<string, PromptReference | null>;
  /** The line of each file that is made of a picture, by its real path without regard to case. */
  owners: Map<string, { fileLine: FileLine; model: string | undefined }>;
}

async function readOne(source: PromptSource, input: Input): Promise<void> {
  const { reader, rules } = input;
  const file = fileOf(source);
  const path = resolve(source.cwd, source.name);
  const isStdin = source.name === STDIN;
  const baseDir = baseOf(source);
  const bytes = isStdin ? source.stdin() : piecesOf(path, rules.root);
  try {
    for await (const { row, report } of reader.read(file, bytes, rules.format ?? null))
      await keep(row, baseDir, input, report);
  } catch (error) {
    const code = systemCode(error);
    // The input is not wrong: reading was interrupted, or the disk for temporary files is full.
    if (code === null) throw error;
    const { message, ...remedy } =
      code === "ENOENT" || code === "ENAMETOOLONG"
        ? await missingProblem(source)
        : code === "EISDIR"
          ? await directoryProblem(source)
          : { message: `cannot be read (${code})` };
    reader.problems.add({ file, line: null }, null, message, remedy);
  }
}

/** Reads a prompt file, which may be a pipe. With `root`, the open file must lie below that directory: `EXDEV`. */
async function* piecesOf(path: string, root: string | undefined): AsyncGenerator<Uint8Array> {
  const flags = constants.O_RDONLY | (root === undefined ? 0 : (constants.O_NONBLOCK ?? 0));
  const file = await open(path, flags);
  try {
    if (root !== undefined && (await openPathBelow(root, file.fd, path)) === null)
      throw Object.assign(new Error(`${path} leads out of ${root}`), { code: "EXDEV", syscall: "open" });
    for await (const piece of file.createReadStream({ highWaterMark: PIECE_BYTES, autoClose: false }))
      yield piece as Uint8Array;
  } finally {
    await file.close();
  }
}

const PROMPT_FILE = /\.(jsonl|ndjson|json|txt|csv|tsv)$/i;

/** A problem of a prompt file as a whole, and what repairs it. */
type FileProblem = { message: string } & Pick<ErrorDetails, "advice" | "meant">;

/** Says what was meant by a file that is not there: one beside it with nearly the same name, or a prompt. */
async function missingProblem({ name, cwd }: PromptSource): Promise<FileProblem> {
  const missing = "no such file";
  const path = resolve(cwd, name);
  const entries = await readdir(dirname(path)).catch(() => []);
  const stem = (file: string) => basename(file, extname(file)).toLowerCase();
  const near =
    didYouMean(basename(path), entries) ??
    entries.find((entry) => PROMPT_FILE.test(entry) && stem(entry) === stem(path));
  if (near !== null && near !== undefined) {
    const right = join(dirname(name), near);
    const message = `${missing}; did you mean ${shellWord(right)}?`;
    return { message, meant: { typed: name, right } };
  }
  if (!/\s/.test(name) || PROMPT_FILE.test(name)) return { message: missing };
  const words = truncateCodePoints(name, MOST_SHOWN_CHARS, "…");
  const advice = `${programName()} generate ${shellWord(words)}`;
  return { message: `${missing}; to make an image of these words: ${advice}`, advice };
}

/** Says which prompt file of a directory was meant. */
async function directoryProblem({ name, cwd }: PromptSource): Promise<FileProblem> {
  const entries = (await readdir(resolve(cwd, name)).catch(() => [])).sort();
  if (entries.includes(RUN_STATE_FILE)) {
    const advice = `${programName()} retry ${shellWord(name)}`;
    const message = "is the output directory of a run: name its prompt file";
    return { message: `${message}; ${advice} makes its failed images again`, advice };
  }
  const file = entries.find((entry) => PROMPT_FILE.test(entry));
  if (file !== undefined) {
    const right = join(name, file);
    const message = `is a directory; name a file in it, such as ${shellWord(right)}`;
    return { message, meant: { typed: name, right } };
  }
  const hasImages = entries.some((entry) => /\.(png|jpe?g|webp)$/i.test(entry));
  if (!hasImages) {
    const advice = `to write a prompt file into it: ${programName()} init ${shellWord(name)}`;
    return { message: "is a directory; name a prompt file", advice };
  }
  const images = `--images ${shellWord(name)}`;
  const advice = `write a prompt for each of its images into a file, then: ${programName()} submit prompts.txt ${images}`;
  return { message: `is a directory; name a prompt file, and the images with ${images}`, advice };
}

/** Returns the directory from which paths in the prompts lead. */
function baseOf({ name, cwd }: PromptSource): string {
  return name === STDIN ? cwd : dirname(resolve(cwd, name));
}

async function keep(
  { references: specs, prompt, metadata: extra, files: wanted, variant, ...fields }: CheckedRow,
  baseDir: string,
  input: Input,
  report: Report,
): Promise<void> {
  const { rules, spool, reader, items, loaded } = input;
  if (items.at(-1)?.number !== fields.number) loaded.clear();
  const references: PromptReference[] = [];
  for (const spec of specs) {
    const { path, id, type } = spec;
    const known = path === undefined ? "" : JSON.stringify([path, id, type]);
    const reference = loaded.get(known) ?? (await loadReference(spec, { ...rules, baseDir, spool }, report));
    if (path !== undefined) loaded.set(known, reference);
    if (reference !== null) references.push(reference);
  }
  references.push(...input.shared);
  const files: LineFiles | null =
    wanted === undefined
      ? null
      : {
          from: baseDir,
          ...(rules.filesRoot === undefined ? {} : { root: rules.filesRoot }),
          ...(rules.isUnmarked ? { unmarked: true } : {}),
          wanted,
        };
  if (files !== null) await claimFiles(files, fields, input, report);
  // No further problem would be shown, so the items are not needed.
  if (reader.problems.isFull) items.length = 0;
  else {
    const metadata = extra === null ? null : spool.keepText(JSON.stringify(extra));
    const kept = {
      ...rules.options,
      ...fields,
      prompt: spool.keepText(prompt),
      references,
      metadata,
      ...(files === null ? {} : { files }),
    };
    items.push(variant === null ? kept : { ...kept, variant });
  }
}

/** Reports files that do not lie where they may, and those that another line has. */
async function claimFiles(
  files: LineFiles,
  { fileLine, outputCount, model }: Pick<CheckedRow, "fileLine" | "outputCount" | "model">,
  { owners, rules }: Input,
  report: Report,
): Promise<void> {
  const own = new Set<string>();
  for (const [index, file] of files.wanted.entries()) {
    const field = index === 0 ? "file" : "also";
    for (const path of pathsOf(file, outputCount)) {
      const real = await findFile(files, path);
      const isInRoot = real !== null && (rules.root === undefined || isWithin(rules.root, real));
      if (real === null || !isInRoot) {
        report(field, outsideOf(files, path));
        break;
      }
      const name = foldFileName(real);
      const owner = owners.get(name);
      const isTaken = owner !== undefined || own.has(name);
      own.add(name);
      if (owner === undefined) owners.set(name, { fileLine, model });
      if (!isTaken) continue;
      const { file: other, line } = owner?.fileLine ?? fileLine;
      const isOfModels = owner !== undefined && owner.model !== model;
      const way = isOfModels
        ? "write {{model}} in it, so that each model has a file of its own"
        : "name another one";
      report(field, `${JSON.stringify(path)} is the file of ${other}:${line} already; ${way}`);
      break;
    }
  }
}

/** Returns the real path of a file of a line; null when it does not lie where it may, also where links lead. */
export async function findFile(
  { from, root }: Pick<LineFiles, "from" | "root">,
  path: string,
): Promise<string | null> {
  const full = resolve(from, path);
  for (const top of [from, ...(root === undefined ? [] : [root])]) {
    const real = await realPathBelow(top, full);
    if (real !== null) return real;
  }
  return null;
}

function outsideOf({ from, root }: LineFiles, path: string): string {
  const tops = [from, ...(root === undefined ? [] : [root])].map((top) => shellWord(top)).join(" or ");
  return `${JSON.stringify(path)} does not lie below ${tops}; --root DIR says where files may lie besides the directory of the prompt file`;
}

function systemCode(error: unknown): string | null {
  if (error instanceof ImgbatchError || !(error instanceof Error) || !("syscall" in error)) return null;
  return "code" in error ? String(error.code) : null;
}

function fileOf(source: PromptSource): string {
  return source.name === STDIN ? "<stdin>" : source.name;
}

/** Returns the line of a prompt file that asks for a prompt alone. Its paths lead from `cwd`. */
export function toPromptLine(item: PromptItem, cwd: string): Record<string, unknown> {
  const { customId, prompt, outputCount, references, model, metadata, files } = item;
  const images = references.map(({ source, mimeType, id, type }) => {
    const labels = { ...(id === undefined ? {} : { id }), ...(type === undefined ? {} : { type }) };
    if ("path" in source) return { path: relative(cwd, source.path) || source.path, ...labels };
    return { data: source.kept.read().toString("base64"), mime_type: mimeType, ...labels };
  });
  return {
    ...(customId === null ? {} : { custom_id: customId }),
    prompt: textOf(prompt),
    ...(outputCount === 1 ? {} : { output_count: outputCount }),
    ...(images.length === 0 ? {} : { reference_images: images }),
    ...(model === undefined ? {} : { model }),
    ...optionsOf(item),
    ...(files === undefined ? {} : toFileFields(files, cwd)),
    ...(metadata === null ? {} : { metadata: JSON.parse(textOf(metadata)) }),
  };
}

/** Returns the fields of a line that wants these files. Its paths lead from `cwd`. */
function toFileFields({ from, wanted }: LineFiles, cwd: string): Record<string, unknown> {
  const [main, ...others] = wanted;
  if (main === undefined) return {};
  const { path, ...form } = main;
  const folder = path.replace(/[^/]*$/, "");
  const also = others.map((file) => {
    const pixels = file.pixels === undefined || file.pixels === form.pixels ? "" : ` ${file.pixels}`;
    return `${file.path.slice(folder.length)}${pixels}`;
  });
  const shown = relative(cwd, join(from, path)).split(sep).join("/");
  return { file: shown, ...form, ...(also.length === 0 ? {} : { also }) };
}
