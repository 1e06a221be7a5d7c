import { realpathSync } from "node:fs";
import { access, constants, stat } from "node:fs/promises";
import { join, relative, resolve, sep } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readActionsEnvironment, readRepositoryRoot } from "../../environment.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { isWithin, nearestExisting } from "../../kernel/files.ts";
import type { Cost } from "../../kernel/money.ts";
import { openPath } from "../../processes/programs.ts";
import type { Oddities } from "../../runs/checks.ts";
import { type RunInput, readRunInput } from "../../runs/directory/input.ts";
import { readVersions } from "../../runs/directory/results.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import { GALLERY_FILE, type MakeThumbnail, writeGallery } from "../../runs/reports/gallery.ts";
import { buildReport, type EndedImage } from "../../runs/reports/run-report.ts";
import {
  type ChangedPicture,
  type CheckedPicture,
  writeCheckReports,
  writeReports,
} from "../../runs/reports/write-reports.ts";
import { repairsOf, stands } from "../../runs/standing.ts";
import type { CommandContext } from "../command.ts";
import type { SharedOptions } from "../commands/shared-options.ts";

/** Where the reports of `--junit` and `--markdown` go; paths are relative to the working directory. */
function readReportPaths({ options, cwd }: Pick<CommandContext, "options" | "cwd">) {
  const full = (path: string | undefined) => (path === undefined ? undefined : resolve(cwd, path));
  return { junit: full(options.junit), markdown: full(options.markdown) };
}

/**
 * Writes the reports of an ended run: the contact sheet, the reports of the options, and those of GitHub Actions. `model` and
 * `name` are those of the request; null if not known. `cost`: that of a run without batches. `retryCommand` makes the failed images again. Default:
 * `imgbatch retry`; null: none.
 */
export async function writeRunReports(
  context: CommandContext,
  run: {
    outcome: { dir: string; lines: readonly EndedImage[] };
    shownDir: string;
    model: string | null;
    name: string | null;
    cost?: Cost | null;
    /** What this command paid, in micro-dollars. Default: all that the run has cost. */
    paidNowMicroUsd?: number;
    retryCommand?: string | null;
    /** What looks odd about the pictures. Default: nothing. */
    oddities?: Oddities;
  },
): Promise<void> {
  const { outcome, shownDir, ...rest } = run;
  const { dir, lines } = outcome;
  const runState: RunState | null = await readRunState(dir);
  if (runState === null) return;
  const input = await readRunInput(dir);
  const fromRoot = pathsFrom(readRepositoryRoot(), context.cwd);
  const nowMs = context.clock.nowMs();
  const versionCount = (await readVersions(dir)).length;
  const found = { state: runState, lines, input, versionCount };
  const facts = { ...rest, ...found, directory: shownDir, nowMs, fromRoot };
  context.output.progress("writing the reports");
  const actions = readActionsEnvironment();
  // Other steps read the output, in the root or in this directory.
  await writeReports(dir, buildReport(facts), {
    ...readReportPaths(context),
    gallery: !context.options.noGallery,
    actions: actions && { ...actions, directory: fromRoot(".") === "." ? shownDir : dir },
    loadThumbnail,
    say: context.output.note,
    annotate: context.output.annotate,
    signal: context.signal,
  });
  context.output.settle();
  if (!context.options.open) return;
  const sheet = join(dir, GALLERY_FILE);
  if (!(await openPath(sheet)))
    context.output.note(`nothing can be opened here; the contact sheet is ${sheet}`);
}

/** Writes the reports of lock files: those of the options, and those of GitHub Actions. */
export async function writeLockReports(
  context: CommandContext,
  pictures: readonly CheckedPicture[],
  about: { title: string; summary: string; changed?: readonly ChangedPicture[] },
): Promise<void> {
  const { clock, output } = context;
  await writeCheckReports(pictures, {
    ...about,
    at: new Date(clock.nowMs()).toISOString(),
    ...readReportPaths(context),
    actions: readActionsEnvironment(),
    say: output.note,
    annotate: output.annotate,
  });
}

/** While a run is under way, its contact sheet is written at most this often. */
const SHEET_MS = 2_000;
/** Between two pages, the writer rests at least this many times as long as a page takes. */
const SHEET_RESTS = 10;

/** What is known of a run that is under way. */
interface SoFar {
  state: RunState;
  lines: readonly EndedImage[];
  input: Pick<RunInput, "get" | "keys">;
}

/**
 * The contact sheet of a run that is under way. It shows the files themselves: small pictures of them are made at the end,
 * once. A sheet that cannot be written is told then.
 */
export class SheetSoFar {
  readonly #context: Pick<CommandContext, "options" | "cwd" | "clock">;
  readonly #run: { dir: string; shownDir: string };
  readonly #ending = new AbortController();
  /** What is not in the page. */
  #unwritten: SoFar | null = null;
  #work: Promise<void> | null = null;

  constructor(
    context: Pick<CommandContext, "options" | "cwd" | "clock">,
    run: { dir: string; shownDir: string },
  ) {
    this.#context = context;
    this.#run = run;
  }

  /** Shows the images that are here: at once, unless the page was written a moment ago. */
  show(soFar: SoFar): void {
    this.#unwritten = soFar;
    if (!this.#context.options.noGallery) this.#work ??= this.#follow();
  }

  /** Shows at once what `show` was given, and ends the work. */
  async end(): Promise<void> {
    this.#ending.abort();
    await this.#work;
  }

  async #follow(): Promise<void> {
    const { clock } = this.#context;
    for (let soFar = this.#unwritten; soFar !== null; soFar = this.#unwritten) {
      this.#unwritten = null;
      const startMs = clock.monotonicMs();
      await this.#write(soFar);
      const restMs = Math.max(SHEET_MS, SHEET_RESTS * (clock.monotonicMs() - startMs));
      await clock.sleep(restMs, this.#ending.signal).catch(() => {});
    }
    this.#work = null;
  }

  async #write({ state, lines, input }: SoFar): Promise<void> {
    const { dir, shownDir: directory } = this.#run;
    const { model = null, task_name: name = null } = state.request ?? {};
    const made = lines.filter(({ files }) => files.length > 0);
    const facts = { directory, name, model, state, lines: made, input, nowMs: this.#context.clock.nowMs() };
    const report = buildReport({ ...facts, askedCount: [...input.keys()].length });
    await writeGallery(dir, report, { loadThumbnail: async () => null }).catch(() => {});
  }
}

/** Returns a function that turns a path of the command line into one from `root` on. Paths elsewhere, and all paths without a root, stay. */
export function pathsFrom(root: string | null, cwd: string): (path: string) => string {
  if (root === null) return (path) => path;
  const real = (path: string) => {
    try {
      return realpathSync(path);
    } catch {
      return path;
    }
  };
  const [top, base] = [real(root), real(cwd)];
  return (path) => {
    const full = resolve(base, path);
    return full === top || !isWithin(top, full) ? path : relative(top, full).replaceAll(sep, "/");
  };
}

/** The command that reports show if no image has failed, but some are missing here: the cheapest repair. */
export function fetchAgain(
  { lines }: { lines: readonly Pick<EndedImage, "status" | "error" | "files">[] },
  shownDir: string,
): { retryCommand?: string } {
  const [first] = repairsOf(lines);
  const isHere = first?.kind === "retryHere";
  if (first === undefined || (lines.some((line) => stands(line, "failed", "refused")) && !isHere)) return {};
  const retry = `retry --include-lost${isHere ? " --here" : ""}`;
  return {
    retryCommand: `${programName()} ${first.kind === "fetch" ? "download" : retry} ${shellWord(shownDir)}`,
  };
}

/** Loads the image library, which is large, only for a page that is written. Null if it does not load. */
export async function loadThumbnail(): Promise<MakeThumbnail | null> {
  try {
    const { Decoding } = await import("../../imaging/decoding.ts");
    const { thumbnail } = await import("../../imaging/thumbnail.ts");
    const decoding = new Decoding();
    return (bytes, maxEdgePx, source) =>
      thumbnail(bytes, maxEdgePx, decoding, { keepsAlpha: true, source: source ?? null });
  } catch {
    return null;
  }
}

/**
 * Throws `SAVE_FAILED` if a requested report cannot be written, before any paid request is sent. A missing directory is
 * no error: writing the report creates it. Throws `USAGE` for `--open` without a contact sheet. This function writes nothing.
 */
export async function requireReportPaths(options: SharedOptions, cwd: string): Promise<void> {
  for (const flag of ["--no-gallery", "--detach"] as const) {
    const isTyped = flag === "--detach" ? options.detach : options.noGallery;
    if (!options.open || !isTyped) continue;
    const message = `--open and ${flag}: ${flag} writes no contact sheet; use one of them.`;
    throw new ImgbatchError("USAGE", message, { param: "--open" });
  }
  for (const name of ["junit", "markdown"] as const) {
    const { [name]: named } = options;
    if (named === undefined) continue;
    const param = `--${name}`;
    const path = resolve(cwd, named);
    try {
      await saving(path, () => requireWritable(path));
    } catch (cause) {
      if (!(cause instanceof ImgbatchError)) throw cause;
      const advice = `name another file in ${param}, or make this path writable; nothing was sent`;
      throw new ImgbatchError(cause.code, `${param}: ${cause.message}`, { cause, param, advice });
    }
  }
}

/** Throws the system error that writing would throw later. */
async function requireWritable(path: string): Promise<void> {
  const existing = await nearestExisting(path);
  const isDirectory = (await stat(existing)).isDirectory();
  if (existing === path && isDirectory) throw systemError("EISDIR");
  if (existing === path) return access(path, constants.W_OK);
  if (!isDirectory) throw systemError("ENOTDIR");
  return access(existing, constants.W_OK | constants.X_OK);
}

function systemError(code: string): Error {
  return Object.assign(new Error(code), { code, syscall: "open" });
}
