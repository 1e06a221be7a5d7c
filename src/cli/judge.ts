import { randomUUID } from "node:crypto";
import { basename, join } from "node:path";
import PQueue from "p-queue";
import { z } from "zod";
import { ImgbatchError } from "../contract/errors.ts";
import { VERDICTS } from "../contract/review-api.ts";
import { environmentWith } from "../environment.ts";
import { commandWords } from "../kernel/command-line.ts";
import { formatDuration } from "../kernel/durations.ts";
import { hideUsedKeys } from "../kernel/hide-keys.ts";
import { parseJson } from "../kernel/json.ts";
import { linkSignals } from "../kernel/signals.ts";
import { counted, firstLines, truncateCodePoints } from "../kernel/text.ts";
import { type Leftovers, MARK, startGuard } from "../processes/guard.ts";
import { startFailure } from "../processes/programs.ts";
import {
  ALWAYS_SEEN,
  NotStarted,
  type ProgramEnd,
  runProgram,
  startProblem,
} from "../processes/run-program.ts";
import { optionsOf } from "../prompts/options.ts";
import { readRunInput } from "../runs/directory/input.ts";
import { readResults } from "../runs/directory/results.ts";
import { isIntact, type ResultFile } from "../runs/directory/run-files.ts";
import {
  addDecisions,
  chooseAmong,
  type Decision,
  type Review,
  type ReviewedLine,
  readReview,
  readReviewedLines,
  versionOf,
} from "../runs/review.ts";
import type { CommandContext } from "./command.ts";

/** A program of one's own that decides about pictures. */
interface Judge {
  argv: readonly [string, ...string[]];
  /** What it is called in messages and in the review. */
  name: string;
  timeoutMs: number;
  /** Of several images of a prompt, the one with the highest score is chosen. */
  choosesBest: boolean;
}

const DEFAULT_TIMEOUT_MS = 60_000;
/** A judge may need a graphics card: few at a time. */
const AT_ONCE = 4;
const MOST_WORDS = 2000;
const SHOWN_FAILURES = 5;

/**
 * Reads `--judge`, `--judge-timeout` and `--best`; null without a judge. Throws `USAGE` for a wrong value, and for a program that
 * cannot be started. It is called before anything is sent, too.
 */
export async function readJudge({
  options,
  cwd,
}: Pick<CommandContext, "options" | "cwd">): Promise<Judge | null> {
  const { judge: text, judgeTimeoutMs: timeoutMs, isBest: choosesBest = false } = options;
  if (text === undefined) {
    const param = timeoutMs !== undefined ? "--judge-timeout" : choosesBest ? "--best" : null;
    if (param === null) return null;
    throw new ImgbatchError("USAGE", `${param}: name the program that judges with --judge.`, { param });
  }
  const wrong = (problem: string) => new ImgbatchError("USAGE", `--judge: ${problem}`, { param: "--judge" });
  const words = commandWords(text);
  if (words === null) throw wrong("a quote or a backslash has no end.");
  const [file, ...args] = words;
  if (file === undefined || file === "") throw wrong("name a program, such as 'node judge.mjs'.");
  const problem = await startProblem(file, environmentWith({}).PATH ?? "", cwd);
  if (problem !== null) throw wrong(`${startFailure(file, cwd, problem).message}. Nothing was sent.`);
  return {
    argv: [file, ...args],
    name: nameOf(file, args[0]),
    timeoutMs: timeoutMs ?? DEFAULT_TIMEOUT_MS,
    choosesBest,
  };
}

/** The name of the program, or of the script that it runs. */
function nameOf(file: string, first = ""): string {
  return basename(/^[^-].*\.(?:[cm]?[jt]s|py|rb|sh|pl|php)$/.test(first) ? first : file);
}

/** What a judge is given of a picture, as one line of JSON on its standard input. */
interface Judged {
  /** Absolute. */
  path: string;
  id: string;
  prompt: string | null;
  metadata: Record<string, unknown>;
  /** What it was asked for besides the prompt: `aspect_ratio`, `quality`, … */
  options: object;
  sha256: string;
}

/** What a judge has decided about the pictures of a run. */
interface Judgements {
  keep: number;
  again: number;
  drop: number;
  failed: number;
  /** The judge has written a note about every picture to make again. */
  hasWords: boolean;
  /** Lines for a person: the failures of the judge, and how many pictures it has kept, dropped and wanted again. */
  notes: string[];
}

/**
 * Starts the judge of the options for each picture that has no verdict and no choice yet. A person's verdict stays. Where the judge
 * fails, the picture stays undecided, and a note says so. Null without a judge, and where there is nothing to judge.
 */
export async function judgePictures(context: CommandContext, dir: string): Promise<Judgements | null> {
  const judge = await readJudge(context);
  if (judge === null || context.signal.aborted) return null;
  const { clock, output, signal } = context;
  const lines = await readReviewedLines(dir);
  const wanted = await undecided(dir, lines, await readReview(dir));
  if (wanted.length === 0) return null;
  const processes = createProcesses(context, judge);
  const queue = new PQueue({ concurrency: AT_ONCE });
  const failures: string[] = [];
  const counts: Judgements = { keep: 0, again: 0, drop: 0, failed: 0, hasWords: true, notes: [] };
  let begunCount = 0;
  try {
    await queue.addAll(
      wanted.map(({ picture, version }) => async () => {
        if (signal.aborted) return;
        output.progress(`${judge.name} judges the pictures (${++begunCount} of ${wanted.length})`);
        try {
          const { verdict, score, note = "" } = await processes.ask(picture);
          const { id } = picture;
          // A person may have decided meanwhile.
          const before = (await readReview(dir)).verdicts.get(id);
          if (before?.version === version) return;
          const words = truncateCodePoints(hideUsedKeys(note).trim(), MOST_WORDS, "…");
          const said = { ...(score !== undefined && { score }), ...(words !== "" && { words }) };
          await addDecisions(dir, [{ id, version, verdict, ...said, judge: judge.name }], clock);
          counts[verdict]++;
          if (verdict === "again" && words === "") counts.hasWords = false;
        } catch (error) {
          // The person has stopped the command: the judge has not failed.
          if (signal.aborted) return;
          failures.push(`${picture.id}: the judge ${judge.name} ${(error as Error).message}`);
          counts.failed++;
        }
      }),
    );
  } finally {
    await processes.close();
    output.settle();
  }
  if (judge.choosesBest && !signal.aborted) await chooseBest(context, dir, lines);
  const parts = [
    `${counts.keep} kept`,
    `${counts.again} to make again`,
    `${counts.drop} dropped`,
    ...(counts.failed === 0 ? [] : [`${counted(counts.failed, "picture")} undecided, because it failed`]),
  ];
  const notes = [
    ...firstLines(failures, SHOWN_FAILURES).map((line) => `  ${line}`),
    `judged by ${judge.name}: ${parts.join(", ")}`,
  ];
  return { ...counts, notes };
}

/** Returns the pictures that are here and have no verdict. Lines with a chosen image are left out: they are decided. */
async function undecided(
  dir: string,
  lines: readonly ReviewedLine[],
  { verdicts, choices }: Review,
): Promise<{ picture: Judged; version: string }[]> {
  const input = await readRunInput(dir);
  const files = new Map<string, ResultFile>();
  for (const {
    custom_id: id,
    files: [file],
  } of await readResults(dir))
    if (file) files.set(id, file);
  const found: { picture: Judged; version: string }[] = [];
  for (const { id: lineId, images, earlier } of lines) {
    const chosen = choices.get(lineId)?.version;
    if ([...images, ...earlier].some(({ version }) => version !== null && version === chosen)) continue;
    for (const { id, version } of images) {
      const file = files.get(id);
      if (version === null || verdicts.get(id)?.version === version || file === undefined) continue;
      if (versionOf(file) !== version || !(await isIntact(dir, file))) continue;
      const line = input.get(id);
      const options = line === undefined ? {} : optionsOf(line);
      const asked = { prompt: line?.prompt ?? null, metadata: line?.metadata ?? {}, options };
      found.push({ version, picture: { path: join(dir, file.path), id, ...asked, sha256: file.sha256 } });
    }
  }
  return found;
}

/**
 * Of each line with several images, chooses the kept image with the highest score. A line about which a person has decided stays
 * as it is.
 */
async function chooseBest(
  { clock }: CommandContext,
  dir: string,
  lines: readonly ReviewedLine[],
): Promise<void> {
  const review = await readReview(dir);
  const chosen = lines.flatMap((line): Omit<Decision, "date">[] => {
    const { id, images } = line;
    if (images.length < 2 || review.choices.has(id)) return [];
    const judged = images.flatMap((image, index) => {
      const verdict = review.verdicts.get(image.id);
      return verdict !== undefined && verdict.version === image.version ? [{ index, verdict }] : [];
    });
    if (judged.some(({ verdict }) => verdict.judge === undefined)) return [];
    const [best] = judged
      .filter(({ verdict }) => verdict.verdict === "keep" && verdict.score !== undefined)
      .sort((a, b) => (b.verdict.score ?? 0) - (a.verdict.score ?? 0));
    if (best === undefined || best.verdict.version === null) return [];
    const { date: _, ...kept } = best.verdict;
    return chooseAmong(line, { ...kept, version: best.verdict.version }, best.index + 1, review);
  });
  await addDecisions(dir, chosen, clock);
}

const answerSchema = z.object({
  verdict: z.enum(VERDICTS),
  score: z
    .number()
    .min(0)
    .max(1)
    .nullish()
    .transform((score) => score ?? undefined),
  note: z
    .string()
    .nullish()
    .transform((note) => note ?? undefined),
});
type Answer = z.infer<typeof answerSchema>;

/** `ask` starts the judge for a picture. If this process is killed, a guard ends the judges that still run. */
function createProcesses({ clock, cwd, signal: stopped }: CommandContext, { argv, timeoutMs }: Judge) {
  const leftovers = new Set<Leftovers>();
  const guard = startGuard();
  const seen = environmentWith({});
  const known = Object.fromEntries(ALWAYS_SEEN.flatMap((name) => (seen[name] ? [[name, seen[name]]] : [])));
  const ask = async (picture: Judged): Promise<Answer> => {
    const left: Leftovers = { mark: randomUUID(), directory: null };
    const late = new AbortController();
    const { signal, unlink } = linkSignals(stopped, late.signal);
    const timer = new AbortController();
    void clock.sleep(timeoutMs, timer.signal).then(
      () => late.abort(new Error(`said nothing within ${formatDuration(timeoutMs)} and was ended`)),
      () => {},
    );
    leftovers.add(left);
    try {
      const end = await runProgram(argv, {
        cwd,
        env: { ...known, [MARK]: left.mark },
        input: `${JSON.stringify(picture)}\n`,
        mark: left.mark,
        clock,
        signal,
        onStarted: (pid) => {
          left.child = { pid, group: process.platform === "win32" ? null : pid };
          guard.update([...leftovers]);
        },
        onTooMuch: () => late.abort(new Error("printed too much and was ended")),
      });
      return answerOf(end);
    } catch (error) {
      if (!(error instanceof NotStarted)) throw error;
      const { message } = startFailure(argv[0], cwd, error.cause as NodeJS.ErrnoException);
      throw new Error(`could not be started: ${message}`);
    } finally {
      timer.abort();
      unlink();
      leftovers.delete(left);
      guard.update([...leftovers]);
    }
  };
  return { ask, close: () => guard.dismiss() };
}

const MOST_REASON = 300;

/** Reads the answer of a judge. Throws an error that says why there is no answer. */
function answerOf({ exitCode, signal, stdout, stderr }: ProgramEnd): Answer {
  if (exitCode !== 0) {
    const how = exitCode === null ? `was ended by ${signal}` : `ended with exit code ${exitCode}`;
    const words = truncateCodePoints(
      hideUsedKeys(stderr.text()).trim().split("\n").at(-1) ?? "",
      MOST_REASON,
      "…",
    );
    throw new Error(words === "" ? how : `${how}: ${words}`);
  }
  let said: unknown;
  try {
    said = parseJson(stdout.text().trim());
  } catch {
    throw new Error(`must print one JSON object, such as {"verdict": "keep", "score": 0.8, "note": ""}`);
  }
  const read = answerSchema.safeParse(said);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  const field = issue?.path.join(".") || "its answer";
  const right =
    field === "verdict"
      ? `must be ${VERDICTS.join(", ")}`
      : field === "score"
        ? "must be from 0 to 1"
        : "is of the wrong type";
  throw new Error(`said nothing that counts: ${field} ${right}`);
}
