import { readFile } from "node:fs/promises";
import { basename, dirname, extname, join, relative, resolve, sep } from "node:path";
import { z } from "zod";
import { removeFile, saving } from "../client/file-errors.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { ImageMimeType } from "../contract/image-formats.ts";
import { expandedCustomIds } from "../contract/limits.ts";
import { programName, shellWord } from "../kernel/command-line.ts";
import { isWithin, realPathBelow, shownPath, writeFileDurably } from "../kernel/files.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { canonicalJson, groupBy, parseJson } from "../kernel/json.ts";
import { microsToNumber, numberToMicros } from "../kernel/money.ts";
import { readSharpVersion, readVersion } from "../kernel/package-file.ts";
import { type Options, optionsOf, withoutDefaults } from "../prompts/options.ts";
import { type FileLine, formatProblem } from "../prompts/problems.ts";
import { type LineFiles, pathsOf } from "../prompts/wanted-files.ts";
import {
  type InputLine,
  lineFilesOf,
  type RunInput,
  readRunInput,
  referencePath,
} from "./directory/input.ts";
import { type ResultLine, readResults } from "./directory/results.ts";
import { hashFile } from "./directory/run-files.ts";
import { readRunState } from "./directory/run-state.ts";
import type { RunState } from "./directory/run-state-schema.ts";
import type { PromptItem } from "./plan/prompt-files.ts";
import { followsFiles } from "./plan/shape-items.ts";
import { textOf } from "./plan/spool.ts";
import { gapsIn } from "./plan/update.ts";
import { type Review, readReview } from "./review.ts";
import { stands } from "./standing.ts";

/*
 * The lock file `<stem>.lock` beside a prompt file. It says for each prompt which pictures were made, and from what, so that a
 * fresh clone of a repository pays for nothing. It is committed together with the pictures. The first line is the head, and each
 * further line is the entry of a prompt.
 */

/** The version of the format. A file of a later version is refused. */
const LOCK_VERSION = 1;

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, { error: "must be a SHA-256 in hexadecimal" });

const headSchema = z.looseObject({
  imgbatch_lock: z.int().min(1),
  program: z.string().describe("the version of the program that wrote the file"),
  sharp: z.string().describe("the version of the image library"),
  prompts: z.string().describe("the name of the prompt file"),
  flags: z
    .record(z.string(), z.union([z.string(), z.array(z.string()), z.literal(true)]))
    .describe("the flags of the command that shape the pictures; paths lead from the lock file on"),
});
type LockHead = z.infer<typeof headSchema>;

/** The flags that shape the pictures of a prompt file, such as `--aspect-ratio`. Paths lead from the lock file on, with `/`. */
export type LockFlags = Readonly<Record<string, string | readonly string[] | true>>;

const entrySchema = z.looseObject({
  id: z.string().min(1).optional().describe("the custom_id as typed; absent without one"),
  key: sha256.describe("identifies the prompt, its options and the bytes of its references"),
  originals: z.array(sha256).min(1).describe("the SHA-256 of each picture as it was made"),
  files: z
    .array(z.looseObject({ path: z.string().min(1), sha256 }))
    .optional()
    .describe("the files of the picture, and how they were made; paths lead from the lock file on, with /"),
  made_by: z.looseObject({
    model: z.string().nullable(),
    provider: z.string().optional(),
    model_version: z.string().nullable().optional(),
    seed: z.int().optional(),
    edit: z.string().optional().describe("what should change; it was the prompt"),
    picture: sha256.optional().describe("the picture that was changed"),
  }),
  cost: z.number().min(0).nullable().describe("US dollars for all pictures of the prompt; null: not known"),
  play_money: z.literal(true).optional().describe("the cost is no real money: the pictures are drawn"),
  date: z.string().regex(/^\d{4}-\d{2}-\d{2}$/, { error: "must be a day such as 2026-11-29" }),
  choice: z
    .union([z.int().min(1), sha256])
    .optional()
    .describe("the picture that a person chose among several"),
});
export type LockEntry = z.infer<typeof entrySchema>;

/** A line of a lock file. */
interface LockLine {
  /** From 1. */
  number: number;
  /** As it is in the file. An entry that stays is written as this text. */
  text: string;
  entry: LockEntry;
}

export interface Lock {
  path: string;
  /** All files of its entries lie below this directory. */
  root: string;
  head: LockHead;
  lines: readonly LockLine[];
  /** The line of the head as it is in the file. */
  headText: string;
  lineEnd: "\n" | "\r\n";
}

/** Returns the path of the lock file of a prompt file. */
export function lockPathOf(promptFile: string): string {
  return join(dirname(promptFile), `${basename(promptFile, extname(promptFile))}.lock`);
}

const MARKER = /^(<{7}|\|{7}|={7}|>{7})( |$)/;

/**
 * Reads the lock file of a prompt file; null if there is none. `root`: the directory that all paths must lie below. Default: that
 * of the lock file, or the one that its head names. Throws `LOCK_CONFLICT`, with the line and the field, for the marks of a merge,
 * for a later version of the format, and for a line that no version can have written.
 */
export async function readLock(promptFile: string, cwd: string, root?: string): Promise<Lock | null> {
  const path = lockPathOf(promptFile);
  const shown = shownPath(cwd, path);
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return null;
    throw new ImgbatchError("SAVE_FAILED", `Could not read ${shown} (${error.code}).`, { cause: error });
  });
  if (text === null) return null;
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  const marker = lines.findIndex((line) => MARKER.test(line));
  if (marker >= 0) throw unmerged(shown, marker + 1);
  const numbered = lines.map((line, i) => ({ text: line, number: i + 1 })).filter((line) => line.text !== "");
  const heads = numbered.filter((line) => isHead(line.text));
  const [first = { text: "", number: 1 }, ...others] = heads;
  const head = parsed(shown, first, headSchema);
  if (head.imgbatch_lock > LOCK_VERSION) throw newer(shown, head);
  // A merge of two branches may have kept the heads of both.
  for (const other of others) {
    const { flags } = parsed(shown, other, headSchema);
    if (canonicalJson(flags) === canonicalJson(head.flags)) continue;
    throw broken(shown, other.number, "flags", "differ from those of the first line; remove one of the two");
  }
  if (head.prompts !== basename(promptFile)) throw sharedStem(shown, head.prompts, basename(promptFile));
  const top = root ?? resolve(dirname(path), rootOf(head));
  const entries = numbered
    .filter((line) => !heads.includes(line))
    .map((line) => ({ ...line, entry: parsed(shown, line, entrySchema) }));
  for (const { number, entry } of entries)
    for (const file of entry.files ?? []) requireBelow(shown, number, file.path, dirname(path), top);
  return {
    path,
    root: top,
    head,
    lines: entries,
    headText: first.text,
    lineEnd: text.includes("\r\n") ? "\r\n" : "\n",
  };
}

const isHead = (text: string) => /^\s*\{\s*"imgbatch_lock"/.test(text);

const rootOf = ({ flags }: Pick<LockHead, "flags">) => {
  const { "--root": root = "." } = flags;
  return typeof root === "string" ? root : ".";
};

function parsed<T>(
  shown: string,
  { text, number }: { text: string; number: number },
  shape: z.ZodType<T>,
): T {
  let json: unknown;
  try {
    json = parseJson(text);
  } catch {
    throw broken(shown, number, null, number === 1 ? "is not the head of a lock file" : "is not JSON");
  }
  const read = shape.safeParse(json);
  if (read.success) return read.data;
  const { path = [], message = "" } = read.error.issues[0] ?? {};
  throw broken(shown, number, path.join(".") || null, message);
}

function requireBelow(shown: string, number: number, path: string, from: string, root: string): void {
  const wrong = (problem: string) => broken(shown, number, "files", `${JSON.stringify(path)} ${problem}`);
  if (path.includes("\\") || path.includes("\0") || /^([a-z]:|\/)/i.test(path))
    throw wrong("must lead from the lock file on, with / between names");
  if (!isWithin(root, resolve(from, path))) throw wrong(`leads out of ${shownPath(from, root) || "."}`);
}

const RESTORE = "or take the file from the repository: git checkout --";

function unmerged(shown: string, number: number): ImgbatchError {
  const message = `${shown}:${number} has the marks of a merge that is not finished. Nothing was written or sent.`;
  const advice = `remove the lines with these marks, and keep the entries of both sides: the one that fits its prompt counts, and nothing is paid for again`;
  return new ImgbatchError("LOCK_CONFLICT", message, { advice });
}

function newer(shown: string, { imgbatch_lock: version, program }: LockHead): ImgbatchError {
  const message = `${shown} has version ${version} of the format, of imgbatch ${program}; this is ${readVersion()}, which reads version ${LOCK_VERSION}. Nothing was written or sent.`;
  return new ImgbatchError("LOCK_CONFLICT", message, { advice: `install imgbatch ${program} or newer` });
}

function sharedStem(shown: string, theirs: string, ours: string): ImgbatchError {
  const message = `${shown} belongs to ${theirs}, not to ${ours}. Nothing was written or sent.`;
  const advice = `rename one of the two: each prompt file needs a name of its own before its ending`;
  return new ImgbatchError("LOCK_CONFLICT", message, { advice });
}

function broken(shown: string, number: number, field: string | null, problem: string): ImgbatchError {
  const line = formatProblem({ file: shown, line: number, field, message: problem });
  const advice = `correct the line, ${RESTORE} ${shellWord(shown)}\nwithout the line, its picture counts as missing: ${programName()} check says what that costs`;
  return new ImgbatchError("LOCK_CONFLICT", `${line}. Nothing was written or sent.`, { advice });
}

/** A prompt as its entry knows it. */
export interface LockPrompt {
  /** The id as typed; null without one. */
  id: string | null;
  /** The id for people: without a typed one, that of the run. */
  shownId: string;
  key: string;
  fileLine: FileLine;
  /** Its files, and how they are made of its pictures. Empty for a prompt without `file`. */
  files: readonly LockFile[];
  item: PromptItem;
}

/** A file of a prompt, with what shapes it. The path leads from the lock file on, with `/`. */
type LockFile = { path: string } & { readonly [field: string]: string | number | boolean };

/**
 * Returns what identifies a prompt in its lock file: what it says, the bytes of its references, and the options that flags give
 * it. Neither the default model, its default quality nor the upstream is part of it, so that an upgrade changes no key.
 */
export function lockKeyOf(item: PromptItem, mimeType: ImageMimeType): string {
  const references = item.references.map(({ id = null, type = null, sha256: hash }) => ({
    id,
    type,
    sha256: hash,
  }));
  const { outputCount: output_count, model = null } = item;
  const options = { ...optionsOf(withoutDefaults(item)) } as Record<string, string | number>;
  return sha256Hex(
    canonicalJson({
      prompt: textOf(item.prompt),
      output_count,
      references,
      model,
      mime_type: mimeType,
      ...options,
    }),
  );
}

/** Returns the files of a line as its entry has them. */
export function lockFilesOf(files: LineFiles | null | undefined, outputCount: number): LockFile[] {
  const { wanted = [], unmarked } = files ?? {};
  return wanted.flatMap((file) => {
    const { path: _, ...form } = file;
    const given = Object.entries(form).filter(([, value]) => value !== undefined);
    const shape = { ...Object.fromEntries(given), ...(unmarked && { unmarked }) };
    return pathsOf(file, outputCount).map((path) => ({ path, ...shape }));
  });
}

/** The results of comparing a prompt with its entry. `unused`: an entry without a prompt. */
const LOCK_STATES = ["ok", "stale", "missing", "altered", "unused"] as const;
export type LockState = (typeof LOCK_STATES)[number];

export type LockCounts = Record<LockState, number>;

export function countStates(lines: readonly Pick<LockedLine, "state">[]): LockCounts {
  const counts = Object.fromEntries(LOCK_STATES.map((state) => [state, 0])) as LockCounts;
  for (const { state } of lines) counts[state]++;
  return counts;
}

export interface LockedLine {
  /** Null for `unused`. */
  prompt: LockPrompt | null;
  /** Null for a prompt that has none. */
  line: LockLine | null;
  state: LockState;
  /** Why, in words; empty for `ok`. */
  reason: string;
  /** Whether the pictures of the entry are those of the prompt: what differs then are its files, which cost nothing. */
  isMade: boolean;
}

/**
 * Compares prompts with their lock file. Reads files and changes nothing. The lines are in the order of the prompts, and then come the
 * unused entries.
 */
export async function compareLock(
  lock: Lock | null,
  prompts: readonly LockPrompt[],
  signal?: AbortSignal,
): Promise<LockedLine[]> {
  const found = entriesOf(lock?.lines ?? [], prompts);
  const lines: LockedLine[] = [];
  for (const prompt of prompts) {
    signal?.throwIfAborted();
    const line = found.get(prompt) ?? null;
    lines.push({ prompt, line, ...(await standingOf(prompt, line?.entry ?? null, lock)) });
  }
  for (const line of unusedOf(lock?.lines ?? [], prompts, new Set(found.values())))
    lines.push({ prompt: null, line, state: "unused", reason: "no prompt has this entry", isMade: false });
  return lines;
}

async function standingOf(
  prompt: LockPrompt,
  entry: LockEntry | null,
  lock: Lock | null,
): Promise<Pick<LockedLine, "state" | "reason" | "isMade">> {
  if (entry === null || lock === null)
    return { state: "missing", reason: "it has no picture yet", isMade: false };
  const { files = [] } = entry;
  if (entry.key !== prompt.key)
    return { state: "stale", reason: "its prompt, options or references have changed", isMade: false };
  const paths = files.map(({ path }) => path);
  const shapes = files.map(({ sha256: _, ...shape }) => shape as LockFile);
  if (canonicalJson(shapes) !== canonicalJson(prompt.files))
    return { state: "stale", reason: OTHER_FILES, isMade: true };
  const hashes = await Promise.all(files.map(({ path }) => hashBelow(lock, path)));
  const missing = paths.filter((_, i) => hashes[i] === null);
  if (missing.length > 0)
    return { state: "missing", reason: `${missing.join(", ")} does not exist`, isMade: true };
  const altered = files.filter((file, i) => hashes[i] !== file.sha256).map(({ path }) => path);
  if (altered.length > 0)
    return { state: "altered", reason: `${altered.join(", ")} was changed by hand`, isMade: true };
  return { state: "ok", reason: "", isMade: true };
}

const OTHER_FILES = "its files have another path, or are made in another way";

/** Returns the hash of a file of an entry; null if it does not exist, or a link leads elsewhere. */
async function hashBelow({ path: lock, root }: Lock, path: string): Promise<string | null> {
  const real = await realPathBelow(root, resolve(dirname(lock), path));
  return real === null ? null : hashFile(real);
}

/** What prompts and entries have in common, the surest first; null for nothing. */
type Mark = (facts: { id: string | null; key: string; file: string | null }) => string | null;
const MARKS: readonly Mark[] = [
  // A merge may have kept the entries of both branches: the one that fits comes first.
  ({ id, key }) => (id === null ? null : `${key} ${id}`),
  ({ id, key }) => (id === null ? key : null),
  ({ id }) => id,
  ({ key }) => key,
  ({ file }) => file,
];

/** Finds the entry of each prompt: by its id, else by its content, else by its file. */
function entriesOf(lines: readonly LockLine[], prompts: readonly LockPrompt[]): Map<LockPrompt, LockLine> {
  const found = new Map<LockPrompt, LockLine>();
  const used = new Set<LockLine>();
  for (const mark of MARKS) {
    const free = groupBy(
      lines.filter((line) => !used.has(line)),
      ({ entry: { id = null, key, files = [] } }) => mark({ id, key, file: files[0]?.path ?? null }),
    );
    for (const prompt of prompts) {
      if (found.has(prompt)) continue;
      const { id, key, files } = prompt;
      const marked = mark({ id, key, file: files[0]?.path ?? null });
      const line = marked === null ? undefined : free.get(marked)?.shift();
      if (line === undefined) continue;
      found.set(prompt, line);
      used.add(line);
    }
  }
  // A prompt without an id whose text was changed is found by its place between two other prompts.
  const places = gapsIn(lines, (line) => (used.has(line) ? line : undefined));
  for (const [before, changed] of gapsIn(prompts, (prompt) => found.get(prompt))) {
    const free = places.get(before)?.filter(({ entry }) => entry.id === undefined) ?? [];
    for (const prompt of changed.filter(({ id }) => id === null)) {
      const line = free.shift();
      if (line !== undefined) found.set(prompt, line);
    }
  }
  return found;
}

/**
 * Returns the entries that no prompt has. An entry with the id or a file of some prompt is left over from a merge of two branches,
 * and is not returned.
 */
function unusedOf(
  lines: readonly LockLine[],
  prompts: readonly LockPrompt[],
  used: ReadonlySet<LockLine>,
): LockLine[] {
  const ids = new Set(prompts.flatMap(({ id }) => id ?? []));
  const files = new Set(prompts.flatMap((prompt) => prompt.files.map(({ path }) => path)));
  const isRepeated = ({ id, files: own = [] }: LockEntry) =>
    (id !== undefined && ids.has(id)) || own.some(({ path }) => files.has(path));
  return lines.filter((line) => !used.has(line) && !isRepeated(line.entry));
}

/**
 * Writes the lock file of prompts, whole or not at all. `made`: the entries of prompts whose pictures are here; other prompts keep
 * what the lock has. Entries that say the same stay byte for byte. `keepsUnused`: entries without a prompt stay, at the end. The
 * file is not touched when nothing has changed. Files that only earlier entries name are removed where their bytes are those of the
 * lock; returns their paths.
 */
export async function writeLock(
  promptFile: string,
  before: Lock | null,
  {
    lines,
    made,
    flags,
    keepsUnused,
    root = dirname(promptFile),
  }: {
    lines: readonly LockedLine[];
    made: ReadonlyMap<LockPrompt, LockEntry>;
    flags: LockFlags;
    keepsUnused: boolean;
    /** Files are removed below this directory only. Default: that of the prompt file. */
    root?: string | undefined;
  },
): Promise<string[]> {
  const now = lines.flatMap(({ prompt, line }) => {
    if (prompt === null) return keepsUnused && line !== null ? [line] : [];
    const entry = made.get(prompt);
    if (entry === undefined) return line === null ? [] : [line];
    return [line !== null && isSame(line.entry, entry) ? line : { entry, text: JSON.stringify(entry) }];
  });
  const texts = now.map(({ text }) => text);
  const removed =
    before === null
      ? []
      : await removeLeft(
          { ...before, root },
          now.map(({ entry }) => entry),
        );
  const path = lockPathOf(promptFile);
  const isOld = before !== null && canonicalJson(before.head.flags) === canonicalJson({ ...flags });
  const old = before?.lines.map(({ text }) => text) ?? [];
  if (isOld && old.length === texts.length && old.every((text, i) => text === texts[i])) return removed;
  if (before === null && texts.length === 0) return removed;
  const head: LockHead = {
    imgbatch_lock: LOCK_VERSION,
    program: readVersion(),
    sharp: readSharpVersion(),
    prompts: basename(promptFile),
    flags: { ...flags } as LockHead["flags"],
  };
  const end = before?.lineEnd ?? "\n";
  const text = [JSON.stringify(head), ...texts].map((line) => `${line}${end}`).join("");
  await saving(path, () => writeFileDurably(path, text));
  return removed;
}

/** Removes the files that no entry names any more, where their bytes are still those of the lock. Returns their paths. */
async function removeLeft(before: Lock, now: readonly LockEntry[]): Promise<string[]> {
  const used = new Set(now.flatMap(({ files = [] }) => files.map(({ path }) => path)));
  const removed: string[] = [];
  for (const { path, sha256: hash } of before.lines.flatMap(({ entry }) => entry.files ?? [])) {
    if (used.has(path) || (await hashBelow(before, path)) !== hash) continue;
    const full = resolve(dirname(before.path), path);
    await removeFile(full);
    removed.push(full);
  }
  return removed;
}

/** Whether two entries name the same prompt, pictures, files and choice. Who made the pictures, when and at what price is not compared. */
function isSame(before: LockEntry, now: LockEntry): boolean {
  const facts = ({ id, key, originals, files = [], choice }: LockEntry) =>
    canonicalJson({
      key,
      originals,
      files: files as LockFile[],
      ...(id !== undefined && { id }),
      ...(choice !== undefined && { choice }),
    });
  return facts(before) === facts(now);
}

/**
 * Returns a path of a flag as a lock file has it: from its directory on, with `/`. Throws `USAGE` for one that leads out of `root`:
 * another machine has no such file.
 */
export function lockPathFlag(
  flag: string,
  path: string,
  { cwd, from, root }: { cwd: string; from: string; root: string },
): string {
  const full = resolve(cwd, path);
  if (!isWithin(root, full)) {
    const message = `${flag}: ${path} leads out of ${shownPath(cwd, root) || "."}, and a lock file must work on other machines.`;
    const advice = "copy it there, or name a directory above both with --root";
    throw new ImgbatchError("USAGE", message, { param: flag, advice });
  }
  return (relative(from, full) || ".").replaceAll(sep, "/");
}

/** Throws `USAGE` for two prompt files of a run that would share a lock file. */
export function requireOwnStems(files: readonly string[]): void {
  for (const [path, [first, second]] of groupBy(new Set(files), lockPathOf)) {
    if (second === undefined) continue;
    const message = `${first} and ${second} would share the lock file ${path}: rename one of the two.`;
    throw new ImgbatchError("USAGE", message);
  }
}

/** What the directory of a run says of its pictures. */
interface RunPictures {
  state: RunState;
  input: RunInput;
  results: ReadonlyMap<string, ResultLine>;
  choices: Review["choices"];
}

/** Reads what the directory of a run says of its pictures; null without a run. */
export async function readRunPictures(dir: string): Promise<RunPictures | null> {
  const state = await readRunState(dir);
  if (state === null) return null;
  const input = await readRunInput(dir);
  const results = new Map((await readResults(dir)).map((line) => [line.custom_id, line]));
  const { choices } = await readReview(dir);
  return { state, input, results, choices };
}

/**
 * Returns the entries of prompts whose pictures are all in the directory of a run. `run`: null without a run. A prompt that says
 * something else than the line that the run was made of has no entry.
 */
export function entriesOfRun(
  run: RunPictures | null,
  prompts: readonly LockPrompt[],
): Map<LockPrompt, LockEntry> {
  const made = new Map<LockPrompt, LockEntry>();
  if (run === null) return made;
  const places = groupBy(run.input.lines(), ({ source }) => placeOf(source, source.values));
  for (const prompt of prompts) {
    const line = places.get(placeOf(prompt.fileLine, prompt.item.variant?.values))?.shift();
    if (line === undefined || !isOfPrompt(line, prompt.item)) continue;
    const entry = entryOf(run, prompt, line);
    if (entry !== null) made.set(prompt, entry);
  }
  return made;
}

/** Returns the entry of a prompt that a line of a run's input has made; null unless all of its pictures and files are here. */
export function entryOf(run: RunPictures, { id, key, files }: LockPrompt, line: InputLine): LockEntry | null {
  const facts = madeOf(run, line, files);
  return facts && { ...(id !== null && { id }), key, ...facts };
}

/** Adds the hashes of files that were made of images; null unless all of them were made. */
function withHashes(
  files: readonly LockFile[],
  images: readonly ResultLine[],
): NonNullable<LockEntry["files"]> | null {
  const derived = new Map(
    images.flatMap((image) => image.derived ?? []).map((file) => [file.path, file.sha256]),
  );
  const found = files.map((file) => ({ ...file, sha256: derived.get(file.path) ?? "" }));
  return found.every(({ sha256: hash }) => hash !== "") ? found : null;
}

/** Identifies a prompt in its files, also where a line makes several of them. */
export function placeOf({ file, line }: FileLine, values: Readonly<Record<string, string>> = {}): string {
  return canonicalJson([file, line, values]);
}

/** Whether a line of a run's input asks for the same as a prompt. It does not name the default model and its default quality. */
function isOfPrompt(line: InputLine, item: PromptItem): boolean {
  const { model, quality, outputCount, references } = item;
  const hashes = references.map(({ sha256: hash }) => referencePath(hash));
  // Where the shape follows from the files, the prompt does not name it: shapes are not compared.
  const isShaped = followsFiles(item);
  const asked = ({ quality: _, aspect_ratio, size, ...options }: Options) =>
    canonicalJson({
      ...(options as Record<string, string | number>),
      shape: isShaped ? null : [aspect_ratio ?? null, size ?? null],
    });
  return (
    line.prompt === textOf(item.prompt) &&
    (line.output_count ?? 1) === outputCount &&
    (line.model === undefined || line.model === model) &&
    (line.quality === undefined || line.quality === quality) &&
    canonicalJson((line.reference_images ?? []).map(({ path }) => path)) === canonicalJson(hashes) &&
    asked(optionsOf(line)) === asked(optionsOf(withoutDefaults(item)))
  );
}

/** What an entry says of the pictures of a prompt. */
type MadeFacts = Pick<
  LockEntry,
  "originals" | "files" | "made_by" | "cost" | "play_money" | "date" | "choice"
>;

/**
 * Returns the pictures that a line of a run's input has made, with what made them, what they cost, and when; null unless all of the
 * pictures and `files` are here.
 */
function madeOf(
  { state: { batches, request, model: realtime, created_at: began }, results, choices }: RunPictures,
  line: InputLine,
  files: readonly LockFile[],
): MadeFacts | null {
  const ids = expandedCustomIds(line.custom_id, line.output_count ?? 1);
  const images = ids.flatMap((id) => results.get(id) ?? []);
  if (images.length < ids.length || images.some((image) => !stands(image, "here"))) return null;
  const hashed = withHashes(files, images);
  if (hashed === null) return null;
  const choice = choices.get(line.custom_id)?.choose;
  const costs = images.map(({ cost }) => cost);
  const sum = costs.includes(undefined)
    ? null
    : costs.reduce((total: number, cost = 0) => total + numberToMicros(cost), 0);
  const [{ provider, model_version, seed, again = {}, batch_id = null }] = images as [ResultLine];
  const batch = batches.find(({ id }) => id === batch_id);
  const model = again.model ?? line.model ?? batch?.model ?? request?.model ?? realtime ?? null;
  const seconds = batch?.created_at ?? null;
  const { edit, picture } = again;
  return {
    originals: images.flatMap((image) => image.files[0]?.sha256 ?? []),
    ...(hashed.length > 0 && { files: hashed }),
    made_by: {
      model,
      ...(provider !== undefined && { provider }),
      ...(model_version && { model_version }),
      ...(seed !== undefined && { seed }),
      ...(edit !== undefined && { edit }),
      ...(picture !== undefined && { picture }),
    },
    cost: sum === null ? null : microsToNumber(sum),
    ...(images.some(({ play_money: isPlay }) => isPlay) && { play_money: true as const }),
    date: (seconds === null ? began : new Date(1000 * seconds).toISOString()).slice(0, 10),
    ...(choice !== undefined && { choice }),
  };
}

/**
 * Brings the lock files of a run up to date after its pictures were made again: what made them, their hashes, and those of their files.
 * Entries are found by their files; what prompts say is not read. A lock file that cannot be used stays as it is.
 */
export async function refreshLocks(dir: string, cwd: string): Promise<void> {
  const run = await readRunPictures(dir);
  if (run === null) return;
  const made = new Map<string, Map<string, MadeFacts>>();
  for (const line of run.input.lines()) {
    const files = lineFilesOf(dir, line);
    if (files === null) continue;
    const facts = madeOf(run, line, lockFilesOf(files, line.output_count ?? 1));
    const [first] = facts?.files ?? [];
    if (facts === null || first === undefined) continue;
    const promptFile = join(files.from, basename(line.source.file));
    const entries = made.get(promptFile) ?? new Map<string, MadeFacts>();
    made.set(promptFile, entries);
    entries.set(first.path, facts);
  }
  for (const [promptFile, entries] of made) {
    const lock = await readLock(promptFile, cwd).catch(() => null);
    if (lock === null) continue;
    const texts = lock.lines.map(({ entry, text }) => {
      const facts = entries.get(entry.files?.[0]?.path ?? "");
      if (facts === undefined) return text;
      const { id, key } = entry;
      const now: LockEntry = { ...(id !== undefined && { id }), key, ...facts };
      return isSame(entry, now) ? text : JSON.stringify(now);
    });
    if (texts.every((text, i) => text === lock.lines[i]?.text)) continue;
    const text = [lock.headText, ...texts].map((each) => `${each}${lock.lineEnd}`).join("");
    await saving(lock.path, () => writeFileDurably(lock.path, text));
  }
}
