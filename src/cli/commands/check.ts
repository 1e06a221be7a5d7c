import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { rawLink, readCommit, readRepositoryRoot } from "../../environment.ts";
import { shellWord } from "../../kernel/command-line.ts";
import { formatUsd, microsToNumber } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import { formatProblem } from "../../prompts/problems.ts";
import {
  compareLock,
  countStates,
  type Lock,
  type LockCounts,
  type LockedLine,
  type LockState,
  readLock,
  requireOwnStems,
} from "../../runs/lock.ts";
import { STDIN } from "../../runs/plan/prompt-files.ts";
import {
  type ChangedPicture,
  type CheckedPicture,
  priceText,
  writeComparison,
} from "../../runs/reports/write-reports.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { checkedPicture, fixFiles, lockedWords, readLocked } from "../locks.ts";
import * as option from "../options.ts";
import { defaultRunDirectory, nextCommand } from "../output/next-step.ts";
import { pathsFrom, requireReportPaths, writeLockReports } from "../output/reports.ts";
import { reportOptions } from "./shared-options.ts";

const options = {
  root: option.path({
    flags: "--root <dir>",
    description: "the files may lie anywhere below this directory",
    default: "that of the lock file",
  }),
  fix: option.flag({
    flags: "--fix",
    description:
      "make the files that cost nothing, from the originals in the directory of the run, and write the lock file",
  }),
  output: option.path({
    flags: "-o, --output <dir>",
    description: "the directory of the run, for --fix",
    default: "<stem of the prompt file>-images",
  }),
  before: option.path({
    flags: "--before <dir>",
    description:
      "this directory in an earlier state, such as another checkout: the reports show its pictures beside those of today",
  }),
  compare: option.path({
    flags: "--compare <dir>",
    description:
      "with --before: write a page with the old and the new pictures, and the pictures, into this directory",
  }),
  junit: { ...reportOptions.junit, description: "write JUnit XML with a test case for each prompt" },
  markdown: {
    ...reportOptions.markdown,
    description: "write a Markdown summary of what is not right, with what it costs",
  },
};

type Typed = option.Values<typeof options>;

export const command = defineCommand({
  arguments: [{ name: "<file...>", description: "prompt files that have lock files beside them" }],
  options,
  examples: [
    "imgbatch check prompts.jsonl",
    "imgbatch check prompts.jsonl icons.csv --json",
    "imgbatch check prompts.jsonl --junit check.xml --markdown check.md",
  ],
  notes: [
    "Needs no network, key, service, data directory or directory of a run: it reads the prompts with their reference images, the lock file beside them (prompts.lock) and the files that it names. Without --fix it writes nothing but reports.",
    "ok: the picture is that of its prompt. stale: the prompt, an option or a reference has changed. missing: it has no picture, or the file does not exist. altered: the file was changed by hand. unused: no prompt has this entry of the lock file.",
  ],
  exits: ["someFailed", "conflict", "saving"],
  run,
});

/** A prompt file with its lock file, compared. */
interface CheckedFile {
  file: string;
  lock: Lock | null;
  lines: LockedLine[];
}

/** `imgbatch check`: proves that the pictures in a repository are those of their prompts, and says what is not right and its price. */
async function run(context: CommandContext<Typed>): Promise<CommandResult> {
  const { arguments: files, options, cwd, signal } = context;
  if (files.includes(STDIN))
    throw new ImgbatchError("USAGE", "Standard input has no lock file: name a prompt file.");
  if (options.compare !== undefined && options.before === undefined)
    throw new ImgbatchError("USAGE", "--compare: name the earlier state with --before.", {
      param: "--compare",
    });
  await requireReportPaths(options, cwd);
  requireOwnStems(files);
  const { root: typed } = options;
  const root = typed === undefined ? undefined : resolve(cwd, typed);
  const checked: CheckedFile[] = [];
  for (const file of new Set(files)) {
    signal.throwIfAborted();
    const path = resolve(cwd, file);
    const from = dirname(path);
    const lock = await readLock(path, cwd, root);
    const flags = lock?.head.flags ?? {};
    const place = { flags, cwd, from, root: lock?.root ?? root ?? from };
    // Only what a person typed says where files may be written.
    const writable = options.fix ? (root ?? from) : undefined;
    const prompts = await readLocked(context, file, { ...place, writable });
    const lines = await compareLock(lock, prompts, signal);
    const dir = resolve(cwd, options.output ?? defaultRunDirectory(file));
    if (
      writable === undefined ||
      !(await fixFiles(context, { path, dir, lock, lines, flags, root: writable }))
    )
      checked.push({ file, lock, lines });
    else {
      const fixed = await readLock(path, cwd, root);
      checked.push({ file, lock: fixed, lines: await compareLock(fixed, prompts, signal) });
    }
  }
  const found = checked.flatMap(({ file, lock, lines }) =>
    lines.map((line) => checkedPicture(cwd, file, line, lock)),
  );
  const totals = totalsOf(found);
  const changed = await changedPictures(context, checked);
  const { compare } = options;
  if (compare !== undefined) await writeComparison(resolve(cwd, compare), changed, files.join(", "));
  await writeLockReports(context, found, {
    changed,
    title: files.join(", "),
    summary: summaryOf(totals),
  });
  return describe(context, checked, found, totals);
}

/** Compares the lock files with those of an earlier state of the directory. Returns the pictures whose files differ; none without `--before`. */
async function changedPictures(
  { cwd, options: { before: typed } }: CommandContext<Typed>,
  checked: readonly CheckedFile[],
): Promise<ChangedPicture[]> {
  if (typed === undefined) return [];
  const before = resolve(cwd, typed);
  const changed: ChangedPicture[] = [];
  const fromRoot = pathsFrom(readRepositoryRoot(), cwd);
  const linkOf = (path: string, sha: string | null) => rawLink(fromRoot(path), sha);
  const [old, now] = [headOf(before), readCommit()];
  for (const { file, lock } of checked) {
    const earlier = await readLock(resolve(before, file), cwd).catch(() => null);
    const entries = (each: Lock | null) =>
      new Map(each?.lines.flatMap(({ entry }) => (entry.files?.[0] ? [[entry.files[0].path, entry]] : [])));
    const [was, is] = [entries(earlier), entries(lock)];
    const folder = dirname(file);
    for (const path of new Set([...was.keys(), ...is.keys()])) {
      const hash = (each: ReturnType<typeof entries>) => each.get(path)?.files?.[0]?.sha256;
      if (hash(was) === hash(is)) continue;
      const shown = join(folder, path).replaceAll(sep, "/");
      const id = is.get(path)?.id ?? was.get(path)?.id ?? path;
      const side = (has: boolean, base: string, sha: string | null) => {
        const full = resolve(base, shown);
        return has && existsSync(full) ? { path: full, link: linkOf(shown, sha) } : null;
      };
      changed.push({
        id,
        file: shown,
        before: side(was.has(path), before, old),
        now: side(is.has(path), cwd, now),
      });
    }
  }
  return changed;
}

/** Returns the commit that is checked out in a directory; null where git would have to be asked. */
function headOf(dir: string): string | null {
  try {
    const text = readFileSync(join(dir, ".git", "HEAD"), "utf8").trim();
    return /^[0-9a-f]{40}$/.test(text) ? text : null;
  } catch {
    return null;
  }
}

interface Totals {
  counts: LockCounts;
  /** Null where the price of a picture is not known. */
  costMicroUsd: number | null;
  undecided: number;
}

function totalsOf(found: readonly CheckedPicture[]): Totals {
  const costs = found.map((line) => line.costMicroUsd);
  return {
    counts: countStates(found),
    costMicroUsd: costs.includes(null) ? null : costs.reduce((sum: number, cost) => sum + (cost ?? 0), 0),
    undecided: found.filter(({ isUndecided }) => isUndecided).length,
  };
}

/** `58 ok, 1 stale, 1 missing; to make them costs about $0.08`. */
function summaryOf({ counts, costMicroUsd, undecided }: Totals): string {
  const parts = Object.entries(counts).filter(([state, count]) => count > 0 || state === "ok");
  const said = parts.map(([state, count]) => `${count} ${state}`).join(", ");
  const cost =
    counts.stale + counts.missing === 0
      ? ""
      : costMicroUsd === null
        ? "; what it costs to make them is not known here"
        : costMicroUsd === 0
          ? "; nothing has to be paid"
          : `; to make them costs about ${formatUsd(costMicroUsd, "limit")}`;
  const open =
    undecided === 0
      ? ""
      : `; of ${counted(undecided, "prompt")} the first picture is used, since none is chosen`;
  return `${said}${cost}${open}`;
}

function describe(
  context: CommandContext,
  checked: readonly CheckedFile[],
  found: readonly CheckedPicture[],
  totals: Totals,
): CommandResult {
  const { counts, costMicroUsd: cost, undecided } = totals;
  const wrong = found.filter(({ state }) => state !== "ok");
  const isOk = wrong.length === 0;
  const altered = wrong.filter(({ state }) => state === "altered").flatMap(({ files }) => files);
  if (altered.length > 0)
    context.output.note(
      `to take files from the repository: git checkout -- ${altered.map(shellWord).join(" ")}`,
    );
  return {
    exitCode: isOk ? EXIT_CODES.ok.code : EXIT_CODES.someFailed.code,
    json: {
      counts,
      lines: found.map(({ id, file, fileLine, state, reason, files, costMicroUsd }) => ({
        id,
        file,
        line: fileLine?.line ?? null,
        state,
        ...(reason === "" ? {} : { reason }),
        files,
        cost: costMicroUsd === null ? null : microsToNumber(costMicroUsd),
      })),
      missing_cost: cost === null ? null : microsToNumber(cost),
      undecided,
    },
    lines: [
      ...wrong.map(({ id, file, fileLine, state, reason, ...cost }) => {
        const price = priceText(cost);
        const message = `${state}: ${reason}${price === "" ? "" : ` (${price})`}`;
        return formatProblem({ file, line: fileLine?.line ?? null, field: id, message });
      }),
      summaryOf(totals),
    ],
    next: nextOf(context, checked),
  };
}

/** Returns the command that makes stale and missing pictures and removes unused ones, for the first prompt file that has any. */
function nextOf({ cwd }: CommandContext, checked: readonly CheckedFile[]): string | null {
  for (const { file, lock, lines } of checked) {
    const isIn = (...states: LockState[]) => lines.some(({ state }) => states.includes(state));
    if (!isIn("stale", "missing", "unused")) continue;
    const update = isIn("stale", "unused") ? [{ flag: "--update" } as const] : [];
    return nextCommand({}, "submit", file, ...lockedWords(lock, cwd), ...update);
  }
  return null;
}
