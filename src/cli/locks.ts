import { dirname, join, relative, resolve, sep } from "node:path";
import { ImgbatchError } from "../contract/errors.ts";
import { type ImageMimeType, SIZE_TIERS, type SizeTier, tierOf } from "../contract/image-formats.ts";
import { WIDEST_LIMITS } from "../contract/limits.ts";
import { shellWord } from "../kernel/command-line.ts";
import { shownPath } from "../kernel/files.ts";
import { canonicalJson } from "../kernel/json.ts";
import { formatUsd, multiplyToMicros, numberToMicros } from "../kernel/money.ts";
import { counted, firstLines, foldFileName } from "../kernel/text.ts";
import { formatProblem } from "../prompts/problems.ts";
import { isNumbered } from "../prompts/wanted-files.ts";
import { findPreset, modelFacts, priceOf } from "../providers/catalogue/catalogue.ts";
import { makeFiles } from "../runs/derived-files.ts";
import { withRunLock } from "../runs/directory/claim.ts";
import type { InputLine } from "../runs/directory/input.ts";
import { readRunState } from "../runs/directory/run-state.ts";
import {
  compareLock,
  entriesOfRun,
  entryOf,
  type Lock,
  type LockEntry,
  type LockedLine,
  type LockFlags,
  type LockPrompt,
  lockFilesOf,
  lockKeyOf,
  lockPathFlag,
  lockPathOf,
  placeOf,
  readLock,
  readRunPictures,
  requireOwnStems,
  writeLock,
} from "../runs/lock.ts";
import { assignIds } from "../runs/plan/plan.ts";
import { type PromptItem, readPromptFiles, STDIN } from "../runs/plan/prompt-files.ts";
import { followsFiles } from "../runs/plan/shape-items.ts";
import { textOf } from "../runs/plan/spool.ts";
import type { CheckedPicture } from "../runs/reports/write-reports.ts";
import type { CommandContext, CommandResult } from "./command.ts";
import {
  loadReferences,
  readVariableRules,
  shapingOptions,
  typedItemOptions,
} from "./commands/input-options.ts";
import { type readSubmitOptions, submitOptions } from "./commands/submit-options.ts";
import { flagIn, type Values, valuesOf } from "./options.ts";
import { commandAgain, commandWith, type Flag } from "./output/next-step.ts";
import { writeLockReports } from "./output/reports.ts";

/*
 * What the commands know of lock files besides their format: the flags that shape the pictures, the prompts as their entries see
 * them, and what pictures cost, without asking a service.
 */

interface LockPlace {
  cwd: string;
  /** The directory of the lock file. */
  from: string;
  /** All paths lie below this directory. */
  root: string;
}

/** What was typed for the options that shape the pictures. */
type Shaping = Values<typeof shapingOptions>;

const SHAPING = Object.entries(shapingOptions);

/** Returns the typed flags that shape the pictures, as a lock file has them. Throws `USAGE` for a path that leads out of `root`. */
function lockFlagsOf(typed: Shaping, place: LockPlace): LockFlags {
  const flags: Record<string, string | string[] | true> = {};
  for (const [name, option] of SHAPING) {
    const value = typed[name as keyof Shaping];
    const flag = flagIn(option);
    const move = (text: string) => movedFlag(flag, text, (path) => lockPathFlag(flag, path, place));
    if (value === undefined || value === false) continue;
    if (value === true) flags[flag] = true;
    else if (typeof value !== "object") flags[flag] = move(String(value));
    else if (value.length > 0) flags[flag] = value.map(move);
  }
  return flags;
}

/** The flags whose values are paths. */
const PATHS: readonly string[] = [shapingOptions.images, shapingOptions.references, shapingOptions.root].map(
  flagIn,
);

/** Changes the path in the value of a flag, as in `--images photos` and `--var season=@seasons.txt`. */
function movedFlag(flag: string, text: string, move: (path: string) => string): string {
  if (PATHS.includes(flag)) return move(text);
  const [, head = "", path] = /^([^=]*=@)([^@].*)$/s.exec(text) ?? [];
  return flag !== flagIn(shapingOptions.variables) || path === undefined ? text : `${head}${move(path)}`;
}

/** Returns the flags of a lock file as if they were typed in its directory. Throws `USAGE` for a wrong value. */
function typedOf(flags: LockFlags): Shaping {
  const typed = SHAPING.map(([name, option]) => [name, flags[flagIn(option)]] as const);
  return valuesOf(shapingOptions, Object.fromEntries(typed), 0);
}

/** Returns the flags of a lock file as words of a command line that is typed in `cwd`. */
export function lockedWords(lock: Lock | null, cwd: string): (string | Flag)[] {
  const from = relative(cwd, dirname(lock?.path ?? cwd));
  const words = Object.entries(lock?.head.flags ?? {}).flatMap(([flag, value]) =>
    [value].flat().map((text) => {
      if (text === true) return [{ flag: flag as Flag["flag"] }];
      const moved = movedFlag(flag, text, (path) => join(from, path).replaceAll(sep, "/"));
      return [{ flag: flag as Flag["flag"] }, moved];
    }),
  );
  return words.flat();
}

/**
 * Reads a prompt file with the flags of its lock file, as the command did that made its pictures. Asks no service. Lists of the flags
 * lie below `root`. `writable`: files may be written below this directory. Throws `INVALID_INPUT` with all problems.
 */
export async function readLocked(
  context: Pick<CommandContext, "output" | "signal" | "stdin">,
  file: string,
  { flags, writable, ...place }: LockPlace & { flags: LockFlags; writable?: string | undefined },
): Promise<LockPrompt[]> {
  const { from, root, cwd } = place;
  const typed = typedOf(flags);
  const items = await readPromptFiles([{ name: file, cwd, stdin: () => context.stdin() }], {
    limits: WIDEST_LIMITS,
    defaultCount: typed.count ?? 1,
    format: typed.format ?? null,
    ...(await readVariableRules(typed, { cwd: from, root, output: context.output })),
    file: typed.file,
    files: { format: typed.fileFormat, model: typed.model },
    filesRoot: writable ?? root,
    isUnmarked: typed.noMark,
    shared: await loadReferences(typed.references, flagIn(shapingOptions.references), from),
    options: typedItemOptions(typed),
  });
  return lockPromptsOf(items, typed.mimeType);
}

/** Returns prompts as their entries see them. `mimeType`: the type of all pictures. */
function lockPromptsOf(items: readonly PromptItem[], mimeType: ImageMimeType = "image/png"): LockPrompt[] {
  const named = assignIds(items);
  return items.map((item, i) => ({
    id: item.customId,
    shownId: named[i]?.customId ?? "",
    key: lockKeyOf(item, mimeType),
    fileLine: item.fileLine,
    files: lockFilesOf(item.files, item.outputCount),
    item,
  }));
}

/**
 * Returns what it costs to repair a line on a machine without its originals, in micro-dollars. 0 where no new picture is needed;
 * null where the price is not known.
 */
function costOfLine(line: LockedLine, lock: Lock | null): number | null {
  const { state, isMade } = line;
  const isFree = state === "ok" || state === "altered" || (state === "stale" && isMade);
  return isFree ? 0 : priceOfLine(line, lock);
}

/**
 * Returns what it costs to make the pictures of a line, in micro-dollars: the price of the catalogue, else what pictures of the same
 * model have cost. Null where neither is known.
 */
function priceOfLine({ prompt, line, reason }: LockedLine, lock: Lock | null): number | null {
  if (prompt === null) return 0;
  // This program drew the picture: its entry says nothing about the price of an upstream.
  if (reason === DRAWN) return null;
  const { "--model": typed } = lock?.head.flags ?? {};
  const { item } = prompt;
  const model = item.model ?? (typeof typed === "string" ? typed : null) ?? line?.entry.made_by.model ?? null;
  const isAlike = ({ made_by: { model: other } }: LockEntry) => model === null || other === model;
  const like =
    line !== null && isAlike(line.entry)
      ? line.entry
      : lock?.lines.findLast(({ entry }) => isAlike(entry))?.entry;
  if (like === undefined) return null;
  if (like.play_money) return 0;
  // The shape follows from the files, and only the service can choose it. The last picture had that shape, so its price is taken.
  const sameShape = like === line?.entry && followsFiles(item) ? paidFor(like) : null;
  const each = sameShape ?? listPrice(like, item) ?? paidFor(like);
  return each === null ? null : each * item.outputCount;
}

function listPrice(
  { made_by: { provider = "", model } }: LockEntry,
  { size, quality }: PromptItem,
): number | null {
  const preset = findPreset(provider);
  const facts = preset && model !== null ? modelFacts(preset.name, model) : null;
  if (preset === undefined || facts === null) return null;
  if (preset.provider.free) return 0;
  const tier: SizeTier =
    size === undefined
      ? "1K"
      : tierOf(
          size,
          SIZE_TIERS.filter((each) => facts.sizes.includes(each)),
        );
  const usd = priceOf(facts, { size: tier, quality });
  const share = preset.isOfJobs ? facts.jobPrice : 1;
  return usd === null || share == null ? null : multiplyToMicros([usd, share]);
}

function paidFor({ cost, originals }: LockEntry): number | null {
  return cost === null ? null : Math.round(numberToMicros(cost) / originals.length);
}

/** Returns a line of a lock file for reports. `file`: the prompt file as typed. Paths lead from the working directory on. */
export function checkedPicture(
  cwd: string,
  file: string,
  line: LockedLine,
  lock: Lock | null = null,
): CheckedPicture {
  const { prompt, line: found, state, reason } = line;
  const entry = found?.entry ?? null;
  const files = (prompt?.files ?? entry?.files ?? []).map(({ path }) => path);
  const from = dirname(resolve(cwd, file));
  const isOfOne = prompt?.item.files?.wanted.some((file) => !isNumbered(file)) === true;
  return {
    id: prompt?.shownId ?? entry?.id ?? files[0] ?? `line ${found?.number} of the lock file`,
    prompt: prompt === null ? null : textOf(prompt.item.prompt),
    fileLine: prompt?.fileLine ?? null,
    file,
    state,
    reason,
    files: files.map((path) => shownPath(cwd, resolve(from, path)).replaceAll(sep, "/")),
    costMicroUsd: costOfLine(line, lock),
    isUndecided: isOfOne && entry?.choice === undefined && (entry?.originals.length ?? 0) > 1,
  };
}

type SubmitOptions = Pick<
  ReturnType<typeof readSubmitOptions>,
  | "dir"
  | "files"
  | "shownDir"
  | "mimeType"
  | "model"
  | "explicitKey"
  | "isNew"
  | "isUpdate"
  | "isExpanded"
  | "isLocked"
  | "includesLost"
>;

/** A prompt file of a run with its lock file. */
interface FileLock {
  /** As typed. */
  file: string;
  /** Absolute. */
  path: string;
  lock: Lock | null;
  flags: LockFlags;
  lines: LockedLine[];
}

/** The lock files of a run, and which of its prompts are still to be made. */
export interface RunLocks {
  files: readonly FileLock[];
  /** The prompts of the run: those to make, and those whose pictures are in its directory. The others are done. */
  items: readonly PromptItem[];
  /** Whether all pictures are as the lock files say: nobody has to be asked. */
  isWhole: boolean;
  /** The prompts to make, each as `placeOf` identifies it. */
  wanted: ReadonlySet<string>;
  /** Whether a lock file names a file with this content at a path. */
  isKnown(path: string, sha256: string): boolean;
}

/**
 * Reads the lock files of the prompts of a run, and decides which prompts are made. Null where no prompt file has or gets one. Throws
 * `LOCK_CONFLICT` for a file that cannot be used, `PROMPTS_CHANGED` for changed prompts without `--update`, and `ORIGINALS_MISSING` for
 * lost pictures without `--include-lost`; both with what it costs to make them.
 */
export async function openLocks(
  context: CommandContext,
  options: SubmitOptions & { typed: Shaping },
  items: readonly PromptItem[],
): Promise<RunLocks | null> {
  const { dir, isNew, isExpanded, isUpdate, includesLost } = options;
  const named = [...new Set(context.arguments)].filter((name) => name !== STDIN);
  const files = (await Promise.all(named.map((file) => openLock(context, options, file, items)))).flatMap(
    (each) => each ?? [],
  );
  if (files.length === 0) return null;
  requireOwnStems(files.map(({ file }) => file));
  const run = await readRunPictures(dir);
  const results = [...(run?.results.values() ?? [])];
  const originals = new Set(results.flatMap((line) => line.files.map(({ sha256 }) => sha256)));
  const found = entriesOfRun(run, promptsIn(files));
  const isHere = ({ prompt, line, state, isMade, reason }: LockedLine) => {
    const entry = prompt === null ? undefined : found.get(prompt);
    if (reason === OTHER_MODEL) return entry?.made_by.model === options.model;
    if (reason === DRAWN) return entry !== undefined && entry.play_money === undefined;
    const isKept = isMade && line?.entry.originals.every((hash) => originals.has(hash)) === true;
    // Where the files are right, a different picture of the prompt in the run does not replace that of the lock.
    const isRight = state === "ok" && prompt?.files.length !== 0;
    return isKept || (entry !== undefined && !isRight);
  };
  for (const file of files)
    file.lines = file.lines.map((line) => (isHere(line) ? line : withoutPicture(line)));
  const lines = files.flatMap((file) => file.lines);
  const left = lines.filter((line) => line.state !== "ok" && line.prompt !== null);
  const changed = left.filter((line) => line.line !== null && line.state === "stale" && !isHere(line));
  // Without --force, a file that was changed by hand stays, so its original is not needed.
  const isLost = ({ state }: LockedLine) =>
    state === "missing" || (state === "altered" && options.files.isForced);
  const lost = left.filter((line) => line.line !== null && isLost(line) && !isHere(line));
  const isPlain = !isNew && !isExpanded && options.explicitKey === null;
  if (isPlain) {
    if (!isUpdate) requireUnchanged(context, files, changed);
    if (!includesLost) requireOriginals(context, files, lost);
  }
  const kept = new Set(
    lines.filter((line) => line.state !== "ok" || isHere(line)).map(({ prompt }) => prompt?.item),
  );
  return {
    files,
    isKnown: knownFiles(files),
    items: isPlain ? items.filter((item) => kept.has(item) || !isLockedItem(files, item)) : items,
    isWhole: isPlain && left.length === 0 && items.every((item) => isLockedItem(files, item)),
    wanted: new Set(
      left
        // Without --update, the picture of a stale prompt is here, and only files are made of it. Where that picture is too small,
        // a new picture needs --update.
        .filter(({ state }) => isUpdate || state !== "stale")
        .flatMap(({ prompt }) =>
          prompt === null ? [] : [placeOf(prompt.fileLine, prompt.item.variant?.values)],
        ),
    ),
  };
}

/** Returns whether one of some lock files names a file with this content at a path. */
function knownFiles(
  files: readonly Pick<FileLock, "path" | "lock">[],
): (path: string, sha256: string) => boolean {
  const known = new Map<string, Set<string>>();
  for (const { path, lock } of files)
    for (const file of lock?.lines.flatMap(({ entry }) => entry.files ?? []) ?? []) {
      const full = foldFileName(resolve(dirname(path), file.path));
      known.set(full, (known.get(full) ?? new Set()).add(file.sha256));
    }
  return (path, sha256) => known.get(foldFileName(path))?.has(sha256) === true;
}

/** Returns an `ok` line as `missing` if its prompt has no files: then its picture could only be in the directory of the run. */
function withoutPicture(line: LockedLine): LockedLine {
  const isMissing = line.state === "ok" && line.prompt?.files.length === 0;
  return isMissing ? { ...line, state: "missing", reason: "its picture is not here" } : line;
}

const promptsIn = (files: readonly Pick<FileLock, "lines">[]) =>
  files.flatMap(({ lines }) => lines.flatMap(({ prompt }) => prompt ?? []));

const isLockedItem = (files: readonly FileLock[], { fileLine }: PromptItem) =>
  files.some(({ file }) => file === fileLine.file);

async function openLock(
  context: CommandContext,
  { isLocked, mimeType, model, files, ...options }: SubmitOptions & { typed: Shaping },
  file: string,
  items: readonly PromptItem[],
): Promise<FileLock | null> {
  const { cwd, signal } = context;
  const path = resolve(cwd, file);
  const lock = await readLock(path, cwd, files.root);
  const own = items.filter(({ fileLine }) => fileLine.file === file);
  if (lock === null && !isLocked && own.every((item) => item.files === undefined)) return null;
  const from = dirname(path);
  const typed = lockFlagsOf(options.typed, { cwd, from, root: files.root ?? from });
  const prompts = lockPromptsOf(own, mimeType);
  const lines = await compareLock(lock, prompts, signal);
  const { "--model": before } = lock?.head.flags ?? {};
  // Without a typed model, the model of the lock file stays.
  const flags = model === null && before !== undefined ? { ...typed, "--model": before } : typed;
  const isOther = ({ prompt, line }: LockedLine) =>
    model !== null &&
    model !== before &&
    prompt?.item.model === undefined &&
    line?.entry.made_by.model !== model;
  const isReal = findPreset(context.options.upstream) !== undefined;
  const asked = lines.map((line) => {
    const isDrawn = isReal && line.line?.entry.play_money === true;
    if (!line.isMade || !(isDrawn || isOther(line))) return line;
    return { ...line, state: "stale" as const, reason: isDrawn ? DRAWN : OTHER_MODEL, isMade: false };
  });
  return { file, path, lock, flags, lines: asked };
}

const OTHER_MODEL = "another model made it";
const DRAWN = "it is a drawing, and an upstream would make it now";

/** Throws `PROMPTS_CHANGED` where prompts or flags have changed since the pictures were made. */
function requireUnchanged(
  { typed, cwd }: CommandContext,
  files: readonly FileLock[],
  changed: readonly LockedLine[],
): void {
  const others = files.filter(
    (file) => hasOtherFlags(file) && file.lines.some(({ state }) => state !== "ok"),
  );
  const affected = others.flatMap(({ lines }) =>
    lines.filter(({ line, prompt, state }) => line && prompt && state !== "ok"),
  );
  const all = [...new Set([...changed, ...affected])];
  if (all.length === 0) return;
  // A prompt of which only the files have changed costs nothing: its picture is here.
  const isPaid = (line: LockedLine) => changed.includes(line) || line.line === null;
  const { price, details } = pricedLines(files, all, isPaid);
  const has = all.length === 1 ? "has" : "have";
  const message = `${counted(all.length, "prompt")} ${has} changed since the pictures of ${lockNames(cwd, files)} were made. Nothing was sent.`;
  const [other] = others;
  const before = other === undefined ? [] : [`with the flags of before: ${beforeCommand(other, typed, cwd)}`];
  const update = `to make what has changed${price}: ${commandAgain(typed, submitOptions.isUpdate)}`;
  throw new ImgbatchError("PROMPTS_CHANGED", message, { details, advice: [update, ...before].join("\n") });
}

/**
 * Whether other flags were typed than the lock file has. Flags that only shape files cost nothing, so they may be added or changed;
 * where such a flag is left out, it was probably forgotten, and counts as a difference.
 */
function hasOtherFlags({ lock, flags: now }: FileLock): boolean {
  const before: LockFlags = lock?.head.flags ?? now;
  return Object.keys({ ...before, ...now }).some((flag) => {
    if (FILE_FLAGS.includes(flag) && now[flag] !== undefined) return false;
    return canonicalJson(before[flag] ?? null) !== canonicalJson(now[flag] ?? null);
  });
}

const FILE_FLAGS: readonly string[] = ["--file", "--file-format", "--root", "--no-mark"];

/** The command as typed, with the flags of a lock file in place of its own. */
function beforeCommand({ lock, flags }: FileLock, typed: readonly string[], cwd: string): string {
  const names = Object.keys({ ...lock?.head.flags, ...flags });
  const now = Object.fromEntries(names.map((name) => [name, undefined]));
  return `${commandWith(typed, now)}${lockedWords(lock, cwd)
    .map((word) => ` ${typeof word === "string" ? shellWord(word) : word.flag}`)
    .join("")}`;
}

/** Throws `ORIGINALS_MISSING` for pictures that must be paid for again. */
function requireOriginals(
  { typed, cwd }: CommandContext,
  files: readonly FileLock[],
  lost: readonly LockedLine[],
): void {
  if (lost.length === 0) return;
  const { price, details } = pricedLines(files, lost);
  const are = lost.length === 1 ? "is" : "are";
  const message = `${counted(lost.length, "picture")} of ${lockNames(cwd, files)} ${are} not as the lock says, and what ${lost.length === 1 ? "it was" : "they were"} made from is not here. Nothing was sent.`;
  const paths = lost.flatMap(({ line }) => line?.entry.files?.map(({ path }) => path) ?? []);
  const checkout = paths.length === 0 ? [] : ["the files may be in the repository: git checkout -- FILE"];
  const again = `to make ${lost.length === 1 ? "it" : "them"} again${price}: ${commandAgain(typed, submitOptions.includesLost)}`;
  throw new ImgbatchError("ORIGINALS_MISSING", message, { details, advice: [...checkout, again].join("\n") });
}

const lockNames = (cwd: string, files: readonly FileLock[]) =>
  files.map(({ path }) => shownPath(cwd, lockPathOf(path))).join(", ");

/** Describes lines, and says what it costs to make all of them. */
function pricedLines(
  files: readonly FileLock[],
  lines: readonly LockedLine[],
  isPaid: (line: LockedLine) => boolean = () => true,
): { price: string; details: string[] } {
  const lockOf = (line: LockedLine) => files.find((file) => file.lines.includes(line))?.lock ?? null;
  const costs = lines.map((line) => (isPaid(line) ? priceOfLine(line, lockOf(line)) : 0));
  const described = lines.map(({ prompt, reason }) =>
    formatProblem({
      file: prompt?.fileLine.file ?? "",
      line: prompt?.fileLine.line ?? null,
      field: prompt?.shownId ?? null,
      message: reason,
    }),
  );
  const sum = costs.reduce((total: number, cost) => total + (cost ?? 0), 0);
  const price = costs.includes(null)
    ? ""
    : sum === 0
      ? " (free of charge)"
      : ` (about ${formatUsd(sum, "limit")})`;
  return { price, details: firstLines(described, MOST_LISTED) };
}

const MOST_LISTED = 20;

/**
 * Writes the lock files of a run after its end: the entries of what is here now. With `isUpdate`, entries without a prompt go, and
 * their files with them, unless these were changed by hand. Returns the names of the lock files.
 */
export async function writeLocks(
  { cwd, output }: CommandContext,
  { dir, isNew, isUpdate, files: { root } }: Pick<SubmitOptions, "dir" | "isNew" | "isUpdate" | "files">,
  { files }: RunLocks,
): Promise<string[]> {
  const found = entriesOfRun(await readRunPictures(dir), promptsIn(files));
  for (const { path, lock, lines, flags } of files) {
    const isDone = new Set(
      lines
        .filter(({ state, prompt }) => state === "ok" && prompt?.files.length !== 0)
        .map(({ prompt }) => prompt),
    );
    const made = new Map([...found].filter(([prompt]) => isNew || !isDone.has(prompt)));
    const removed = await writeLock(path, lock, { lines, made, flags, keepsUnused: !isUpdate, root });
    for (const each of removed)
      output.note(
        `removed ${shellWord(shownPath(cwd, each))}: no entry of ${shownPath(cwd, lockPathOf(path))} names it any more`,
      );
  }
  return files.map(({ path }) => shownPath(cwd, lockPathOf(path)));
}

/** Describes a run whose pictures are all as its lock files say, and writes its reports. */
export async function describeLocked(
  context: CommandContext,
  {
    shownDir,
    dryRun,
    isUpdate,
    locks: { files },
  }: Pick<SubmitOptions, "shownDir" | "isUpdate"> & { dryRun: boolean; locks: RunLocks },
): Promise<CommandResult> {
  const { cwd, output } = context;
  const names = lockNames(cwd, files);
  const prompts = promptsIn(files);
  const summary = `${counted(prompts.length, "prompt")}: the pictures are as ${names} ${files.length === 1 ? "says" : "say"}`;
  const pictures = files.flatMap(({ file, lines }) => lines.map((line) => checkedPicture(cwd, file, line)));
  const title = files.map(({ file }) => file).join(", ");
  const ofPrompts = pictures.filter(({ state }) => state !== "unused");
  await writeLockReports(context, ofPrompts, { title, summary });
  const unused = pictures.length - prompts.length;
  const update = unused === 0 || isUpdate ? null : commandAgain(context.typed, submitOptions.isUpdate);
  if (update !== null)
    output.note(
      `${counted(unused, "entry", "entries")} of ${names} ${unused === 1 ? "has" : "have"} no prompt`,
    );
  output.note(`${summary}; nothing was asked or paid`);
  const images = prompts.reduce((sum, { item }) => sum + item.outputCount, 0);
  const counts = { total: images, success: images, failed: 0, unknown: 0, missing: 0 };
  const money = dryRun ? { dry_run: true, image_count: 0, estimated_cost: 0, max_cost: 0 } : { paid_now: 0 };
  return {
    json: {
      directory: shownDir,
      replayed: true,
      counts,
      fetched_count: 0,
      ...money,
      batches: [],
      items: [],
      locks: names.split(", "),
    },
    lines: files.map(({ path }) => shownPath(cwd, lockPathOf(path))),
    next: update,
  };
}

/**
 * Makes the files of prompts whose originals are in the directory of a run, and writes the lock file. Files that were changed by hand
 * stay. Returns whether there was anything to make.
 */
export async function fixFiles(
  { clock, signal, output }: CommandContext,
  { path, dir, lock, lines, flags, root }: Omit<FileLock, "file"> & { dir: string; root: string },
): Promise<boolean> {
  const wrong = lines.filter(({ state, prompt }) => prompt !== null && state !== "ok" && state !== "altered");
  if (wrong.length === 0 || (await readRunState(dir)) === null) return false;
  return withRunLock(dir, { clock, signal }, async () => {
    const run = await readRunPictures(dir);
    if (run === null) return false;
    const { input } = run;
    const results = [...run.results.values()];
    const made = new Map(
      results.flatMap(({ custom_id: id, files: [file] }) => (file ? [[file.sha256, id]] : [])),
    );
    const found = entriesOfRun(run, promptsIn([{ lines }]));
    // The line of the run whose pictures are the originals of a prompt.
    const prompts = new Map<string, LockPrompt>();
    for (const { prompt, line, isMade } of wrong) {
      const entry = (isMade ? line?.entry : undefined) ?? (prompt === null ? undefined : found.get(prompt));
      const asked = input.get(made.get(entry?.originals[0] ?? "") ?? "");
      if (prompt !== null && asked !== undefined)
        prompts.set(placeOf(asked.source, asked.source.values), prompt);
    }
    if (prompts.size === 0) return false;
    const known = knownFiles([{ path, lock }]);
    const filesOf = ({ source }: InputLine) =>
      prompts.get(placeOf(source, source.values))?.item.files ?? null;
    const outcome = await makeFiles({ dir, lines: results, filesOf, isKnown: known, signal });
    for (const problem of outcome?.problems ?? []) output.note(formatProblem(problem));
    const now = new Map((outcome?.lines ?? results).map((line) => [line.custom_id, line]));
    const entries = new Map<LockPrompt, LockEntry>();
    for (const line of input.lines()) {
      const prompt = prompts.get(placeOf(line.source, line.source.values));
      const entry = prompt && entryOf({ ...run, results: now }, prompt, line);
      if (prompt !== undefined && entry != null) entries.set(prompt, entry);
    }
    await writeLock(path, lock, { lines, made: entries, flags, keepsUnused: true, root });
    return entries.size > 0;
  });
}
