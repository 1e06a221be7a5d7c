import type { Batch } from "../client/answers.ts";
import { timeLimit } from "../client/poll.ts";
import { MAY_BE_PAID_TWICE } from "../contract/batch-api.ts";
import { type ErrorCode, EXIT_CODES, errorEntry, ImgbatchError } from "../contract/errors.ts";
import { DIFFERS } from "../contract/image-formats.ts";
import { isRefusalCode } from "../contract/statuses.ts";
import { programName, shellWord } from "../kernel/command-line.ts";
import {
  type Cost,
  costText,
  FREE_DRAWINGS,
  formatUsd,
  microsToNumber,
  numberToMicros,
  paidText,
  playMoneyField,
  sumCosts,
} from "../kernel/money.ts";
import { counted, firstLines } from "../kernel/text.ts";
import { formatProblem } from "../prompts/problems.ts";
import { findOddities, lookAtPictures, type Oddities, oddNote } from "../runs/checks.ts";
import { type DirectOutcome, NOT_REMADE, type RunOutcome } from "../runs/collect-run.ts";
import { makeFiles } from "../runs/derived-files.ts";
import { withRunLock } from "../runs/directory/claim.ts";
import { readRunInput } from "../runs/directory/input.ts";
import { RESULTS_FILE, RETRY_FILE, type ResultLine, readResults } from "../runs/directory/results.ts";
import type { RunState } from "../runs/directory/run-state-schema.ts";
import { refreshLocks } from "../runs/lock.ts";
import { notRemade, remakeFlags } from "../runs/plan/retry.ts";
import { GALLERY_FILE } from "../runs/reports/gallery.ts";
import type { EndedImage } from "../runs/reports/run-report.ts";
import type { StartedRun, Submissions } from "../runs/send.ts";
import { type Allowance, countImages, judgeMissing, stands } from "../runs/standing.ts";
import { inBatches, type SoFar, savingEarly, type Transport } from "../runs/transport.ts";
import type { CommandContext, CommandResult } from "./command.ts";
import { withService } from "./connect/connect.ts";
import type { ConnectedService, ServiceNeeds } from "./connect/connection.ts";
import { pollInterval, stoppable, stopReason } from "./interruption.ts";
import { judgePictures } from "./judge.ts";
import type { RunLocks } from "./locks.ts";
import { batchProblems, type Judgement, judgeBatches, judgeFailed } from "./output/batches.ts";
import { exitCodeOf, originLines } from "./output/finish.ts";
import { ALL_HERE, nextCommand, remakeCommand, unknownNote } from "./output/next-step.ts";
import { fetchAgain, SheetSoFar, writeRunReports } from "./output/reports.ts";
import { type EndedSteps, nextOfRun, remakeElsewhere } from "./output/run-steps.ts";
import type { Target } from "./targets.ts";

/** What `makeRun` needs besides the transport: how to describe the run, and what it reports. */
interface RunToEnd extends Omit<EndedRun, "outcome" | "state" | "replayed" | "found"> {
  dir: string;
  /** See `EndedRun`. Default: what `send` finds. */
  replayed?: boolean | null;
}

type StopOptions = Parameters<typeof stoppable>[2];

interface RunWork extends StopOptions {
  dir: string;
  timeoutMs: number | undefined;
  dryRun: boolean;
  needs: Partial<ServiceNeeds>;
}

/** Runs the work of a command in the directory of a run, where no other process works meanwhile. A stop is told as in `stoppable`. */
export async function workInRun(
  context: CommandContext,
  options: RunWork,
  work: (
    context: CommandContext,
    parts: { service: ConnectedService; submissions: Submissions },
  ) => Promise<CommandResult>,
): Promise<CommandResult> {
  const limit = timeLimit(context, options.timeoutMs);
  const { clock } = context;
  const { signal } = limit;
  const needs = { workers: !options.dryRun, images: true, ...options.needs };
  try {
    return await withService(context, needs, (service) =>
      stoppable({ ...context, signal }, service, options, (inner, submissions) =>
        withRunLock(options.dir, { clock, signal }, () => work(inner, { service, submissions })),
      ),
    );
  } finally {
    limit.stop();
  }
}

/** Returns the transport of a run whose images are made in batches. */
export function batchesOf(
  { clock, output: reporter, signal, beganMs }: CommandContext,
  service: ConnectedService,
  { intervalMs, ...run }: BatchRun & { intervalMs: number | undefined },
  send: Transport["send"],
): Transport {
  const typed = { ...run, intervalMs: pollInterval(intervalMs, service, reporter) };
  return inBatches({ ...typed, service, clock, reporter, signal, beganMs }, send);
}

type BatchRun = Pick<Parameters<typeof inBatches>[0], "dir" | "shownDir" | "keepZip" | "isForgiving">;

/**
 * Makes the images of a run: asks for those that are missing, waits until nothing is under way, and shows meanwhile what is
 * saved; fetches the rest, writes the reports, and returns the result.
 */
export async function makeRun(
  context: CommandContext,
  service: Pick<ConnectedService, "noteDrawings">,
  transport: Transport,
  run: RunToEnd,
): Promise<CommandResult> {
  const started = await transport.send();
  if (started.batches.some(({ isDone }) => !isDone)) service.noteDrawings();
  const sheet = new SheetSoFar(context, run);
  const done = await transport.untilDone(started, (soFar) => sheet.show(soFar)).finally(() => sheet.end());
  const outcome = await transport.fetch(done);
  // `withService` replaces a service that ended with its command, and runs this work again.
  if (outcome.direct?.stop?.code === "SERVICE_GONE") throw outcome.direct.stop;
  return describeFinished(context, { ...started, ...run, outcome });
}

/**
 * Waits for the batches of some targets with `wait`. Meanwhile saves their images in the directories of their runs, and shows
 * them in the contact sheets.
 */
export async function savingEarlyOf(
  context: CommandContext,
  service: ConnectedService,
  targets: readonly Target[],
  wait: Parameters<typeof savingEarly>[2],
): Promise<Batch[]> {
  const { clock, output: reporter, signal } = context;
  const runs = targets.flatMap(({ argument: shownDir, run }) => {
    if (run === null) return [];
    const sheet = new SheetSoFar(context, { ...run, shownDir });
    const onSaved = (soFar: SoFar) => sheet.show(soFar);
    return { ...run, shownDir, isLocked: false, onSaved, sheet };
  });
  try {
    return (await savingEarly({ service, clock, reporter, signal }, runs, wait)).batches;
  } finally {
    for (const { sheet } of runs) await sheet.end();
  }
}

/** Describes batches that were made and go on. */
export function describeDetached(
  context: CommandContext,
  { shownDir }: { shownDir: string },
  started: StartedRun,
): CommandResult {
  const { batches, replayed } = started;
  context.output.settle();
  return {
    json: {
      directory: shownDir,
      detached: true,
      replayed,
      batches: batches.map((batch) => batch.raw),
    },
    lines: batches.map((batch) => batch.id),
    next: nextCommand(context.global, "wait", shownDir),
  };
}

/** Writes the reports of a run, unless it was interrupted, and returns the result. */
export async function describeFinished(context: CommandContext, run: EndedRun): Promise<CommandResult> {
  const { state, shownDir } = run;
  context.output.settle();
  const { direct, paidNowMicroUsd } = run.outcome;
  // A choice of the judge decides which image becomes a file.
  const judged = await judgementsOf(context, run);
  const files = await filesOf(context, run);
  const outcome = files === null ? run.outcome : { ...run.outcome, lines: files.lines };
  const { task_name: name = null } = state.request ?? {};
  const model = modelsOf(state).join(", ") || null;
  const money = direct === undefined ? { paidNowMicroUsd } : { cost: direct.isPlay ? FREE : null };
  const facts = { outcome, shownDir, model, name, ...money, ...retryOf({ ...run, outcome }) };
  const oddities = await odditiesOf(context, outcome);
  if (stopReason(direct?.stop) === null) await writeRunReports(context, { ...facts, oddities });
  const result = describeRun(context, { ...run, outcome });
  const odd = oddNote(oddities);
  if (odd !== null) context.output.note(`${odd}; see ${programName()} review ${shellWord(shownDir)}`);
  const told = files === null ? result : withFiles(context, result, files);
  return judged === null ? told : withJudgements(context, run, told, judged);
}

type Judgements = NonNullable<Awaited<ReturnType<typeof judgePictures>>>;

/** Lets the judge of the options decide. What goes wrong here changes nothing of how the run ends. */
async function judgementsOf(
  context: CommandContext,
  { outcome: { dir } }: EndedRun,
): Promise<Judgements | null> {
  return judgePictures(context, dir).catch((error: Error) => {
    context.output.note(`nothing was judged: ${error.message}`);
    return null;
  });
}

/** Says what a judge has decided. After a run that has succeeded, the next step makes the pictures again that the judge wants again. */
function withJudgements(
  { output, global }: CommandContext,
  run: EndedRun,
  result: CommandResult,
  { notes, hasWords, ...counts }: Judgements,
): CommandResult {
  for (const note of notes) output.note(note);
  const json = { ...(result.json as object), judged: counts };
  const { shownDir, outcome } = run;
  const isRemade = outcome.direct === undefined && canRetry(run);
  const isNext = counts.again > 0 && result.exitCode === EXIT_CODES.ok.code && isRemade;
  if (!isNext) return { ...result, json };
  const edit = hasWords ? [{ flag: "--edit" } as const] : [];
  return { ...result, json, next: nextCommand(global, "retry", shownDir, { flag: "--rejected" }, ...edit) };
}

/** Looks at the pictures of a run that are no drawings. What goes wrong here changes nothing of how the run ends. */
async function odditiesOf(
  { clock, signal, output }: CommandContext,
  { dir, lines, direct }: RunOutcome,
): Promise<Oddities> {
  if (direct?.isPlay || lines.every(({ play_money: isPlay }) => isPlay)) return new Map();
  try {
    await lookAtPictures(dir, lines, { clock, signal, onLook: output.progress });
    return findOddities(dir, lines, await readRunInput(dir));
  } catch {
    return new Map();
  } finally {
    output.settle();
  }
}

type Files = NonNullable<Awaited<ReturnType<typeof makeFiles>>>;

/** Makes the files that the lines of a run want of its images; null if they want none. */
async function filesOf(
  { options, signal, cwd }: CommandContext,
  {
    outcome: { dir, lines },
    shownDir,
    locks,
  }: Pick<EndedRun, "shownDir" | "locks"> & {
    outcome: Pick<RunOutcome, "dir" | "lines">;
  },
): Promise<Files | null> {
  const { force = false, isStrict = false } = options;
  try {
    const files = await makeFiles({ dir, lines, force, isStrict, isKnown: locks?.isKnown, signal });
    if (files !== null && locks === undefined) await refreshLocks(dir, cwd);
    return files;
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "SAVE_FAILED") throw error;
    const { code, message, cause } = error;
    const advice = `all images are in ${shellWord(shownDir)}; run the same command again: it makes the files and pays nothing`;
    throw new ImgbatchError(code, message, { cause, advice });
  }
}

/**
 * Makes the files of a run again after a person has chosen other pictures for them, which pays nothing. A command that works in
 * the run makes them at its end. Returns the result of the command with the files that were made.
 */
export async function withChosenFiles(
  context: CommandContext,
  { dir, shownDir }: { dir: string; shownDir: string },
  result: CommandResult,
): Promise<CommandResult> {
  const { clock, signal } = context;
  const make = async () => filesOf(context, { outcome: { dir, lines: await readResults(dir) }, shownDir });
  try {
    const files = await withRunLock(dir, { clock, signal, patienceMs: 0 }, make);
    return files === null ? result : withFiles(context, result, files);
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "DIRECTORY_IN_USE") throw error;
    return result;
  }
}

/** Says which files were made of the images of a run, and which were not. */
function withFiles({ output }: CommandContext, result: CommandResult, files: Files): CommandResult {
  const { lines, writtenCount, problems, enlarged, undecided, removed } = files;
  const count = lines.reduce((sum, { derived = [] }) => sum + derived.length, 0);
  output.note(`${counted(count, "file")} made of the images, ${writtenCount} of them written now`);
  for (const path of removed) output.note(`removed ${shellWord(path)}: no line names it any more`);
  if (enlarged.length > 0)
    output.note(`${listed(enlarged)}: larger than the image, which has fewer pixels (--strict refuses that)`);
  if (undecided.length > 0)
    output.note(`${listed(undecided)}: the first image became the file; imgbatch review chooses another one`);
  const json = { ...(result.json as object), derived_count: count, derived_written: writtenCount };
  for (const problem of problems) output.note(`  ${formatProblem(problem)}`);
  const taken = problems.filter(({ code }) => code === "FILE_EXISTS");
  if (taken.length > 0)
    output.note(
      `${counted(taken.length, "file")} left as ${taken.length === 1 ? "it is" : "they are"}: submit --force replaces such files`,
    );
  const first = taken[0] ?? problems[0];
  if (first === undefined || result.exitCode !== EXIT_CODES.ok.code) return { ...result, json };
  const { code } = first;
  const message = `${counted(problems.length, "file")} could not be made: ${formatProblem(first)}`;
  return {
    ...result,
    exitCode: EXIT_CODES[errorEntry(code).exit].code,
    json: { ...json, error: { code, message } },
  };
}

/** `a, b, c, …`. */
function listed(names: readonly string[]): string {
  return `${names.slice(0, SHOWN_FAILURES).join(", ")}${names.length > SHOWN_FAILURES ? ", …" : ""}`;
}

/** Drawings are always free. For other runs of `generate --file`, nobody knows what earlier commands have paid. */
const FREE: Cost = { micros: 0, isPlay: true };

function modelsOf({ batches, request, model }: RunState): string[] {
  return [
    ...new Set([
      ...(model === undefined ? [] : [model]),
      ...batches.flatMap((batch) => batch.model ?? request?.model ?? []),
    ]),
  ];
}

/** The command that reports show for the images that are not here. Default: `imgbatch retry`; null: none. */
function retryOf(run: EndedRun): { retryCommand?: string | null } {
  const { outcome, shownDir } = run;
  if (outcome.direct === undefined)
    return canRetry(run) ? fetchAgain(outcome, shownDir) : { retryCommand: null };
  if (outcome.direct.stop !== null) return { retryCommand: null };
  if (outcome.hasRetry) return { retryCommand: remakeElsewhere(stepsOf(run)) };
  return { retryCommand: null, ...fetchAgain(outcome, shownDir) };
}

/** Whether `imgbatch retry` knows the prompts. */
const canRetry = ({ state }: Pick<EndedRun, "state">) => state.request !== null;

interface EndedRun {
  outcome: RunOutcome;
  state: RunState;
  /** Whether the run existed before; null where this does not apply, as for a download. */
  replayed: boolean | null;
  /** The batches, by id, that the command found. Default: it paid for none. */
  found?: ReadonlyMap<string, Batch>;
  shownDir: string;
  /** The lock files of its prompt files. Default: none are known. */
  locks?: Pick<RunLocks, "isKnown"> | undefined;
  allowance?: Allowance;
  /** The command makes other pictures: that it could not make one is its outcome. Default: no. */
  remakes?: boolean;
  /** The step that makes the images of edited prompts. Default: none, where the prompt files are not known. */
  updateStep?: string | undefined;
}

/** A summary shows at most this many failures; the results have all of them. */
const SHOWN_FAILURES = 5;

/** Writes the outcome of a run to stderr, and returns the command's result. */
export function describeRun({ output, global }: CommandContext, run: EndedRun): CommandResult {
  const { outcome, shownDir } = run;
  const { batches, deciding, lines, hasRetry, direct } = outcome;
  const counts = countImages(outcome);
  const left = notRemade(run.state, lines);
  const { exitCode, error } =
    judgeStop(outcome) ??
    judgeLacking(outcome, counts) ??
    judgeNotRemade(run, left) ??
    judgePassing(outcome, counts) ??
    judgeBatches(counts, deciding, run.allowance);
  const cost = direct === undefined ? actualCost(batches) : direct.cost;
  for (const line of failureLines(outcome.lines)) output.note(line);
  for (const problem of batchProblems(deciding)) output.note(problem);
  for (const batch of counts.missing === 0 ? batches : []) {
    const unknown = outcome.unknown.get(batch.id);
    if (unknown !== undefined) output.note(unknownNote(unknown, ALL_HERE));
    else if (batch.status === "output_deleted")
      output.note(`the service has deleted the images of ${batch.id}; ${ALL_HERE}`);
  }
  const said = [
    ...notRemadeLines(left),
    ...paidTwiceNote(lines, shownDir),
    ...unknownOutcomeNote(lines, left),
    ...differsNote(lines, shownDir),
  ];
  for (const line of said) output.note(line);
  if (direct?.stop && error !== null)
    for (const line of [`error: ${error.message}`, ...originLines(direct.stop)]) output.note(line);
  output.note(direct === undefined ? summaryOf(run, counts, cost) : directSummary(direct, counts));
  const bill = direct?.isPlay ? null : upstreamBill(direct?.asked ?? lines);
  if (bill !== null) output.note(billNote(bill));
  return {
    exitCode,
    json: {
      directory: shownDir,
      ...(direct === undefined ? batchFacts(run, counts, cost) : directFacts(direct, counts)),
      ...playMoneyField(cost),
      upstream_cost: bill === null ? null : microsToNumber(bill.micros),
      ...(bill?.isAbout ? { upstream_cost_about: true } : {}),
      results: `${shownDir}/${RESULTS_FILE}`,
      retry: hasRetry ? `${shownDir}/${RETRY_FILE}` : null,
      ...(direct === undefined ? { batches: batches.map((batch) => batch.raw) } : {}),
      items: lines,
      ...(error === null ? {} : { error }),
    },
    lines: [shownDir],
    next: remakeStep(run, left, global) ?? nextOfRun({ ...stepsOf(run), exitCode }, global),
  };
}

/** The fields of `--json` that only runs in batches have. */
function batchFacts({ outcome, replayed }: EndedRun, counts: ImageCounts, cost: Cost | null): object {
  return {
    ...(replayed === null ? {} : { replayed }),
    counts,
    fetched_count: outcome.fetchedCount,
    actual_cost: cost === null ? null : microsToNumber(cost.micros),
    paid_now: cost === null || cost.isPlay ? 0 : microsToNumber(outcome.paidNowMicroUsd),
  };
}

/** The fields of `--json` that only runs of `generate --file` have. */
function directFacts({ keptCount, cost }: DirectOutcome, { missing, ...counts }: ImageCounts): object {
  return {
    counts: { ...counts, pending: missing },
    made_count: counts.success - keptCount,
    cost: cost === null ? null : microsToNumber(cost.micros),
  };
}

function summaryOf(run: EndedRun, counts: ImageCounts, cost: Cost | null): string {
  const parts = [
    `${counts.success} of ${counts.total} images on disk and verified`,
    ...failureNote(counts),
    ...repairNote(run, counts),
  ];
  return `${parts.join(", ")}${costNote(run, cost)}`;
}

function directSummary({ keptCount, cost }: DirectOutcome, counts: ImageCounts): string {
  const { success, total, missing } = counts;
  const parts = [
    `${success} of ${total} images on disk`,
    ...(keptCount > 0 ? [`${success - keptCount} of them made now`] : []),
    ...failureNote({ ...counts, missing: 0 }),
    ...(missing > 0 ? [`${missing} not requested yet`] : []),
    ...(cost === null || cost.isPlay ? [] : [`${costText(cost)} now`]),
  ];
  return `${parts.join(", ")}${cost?.isPlay ? `; ${costText(cost)}` : ""}`;
}

/**
 * The command that makes the pictures again that could not be made, and no others; null where all were made, or the same prompt
 * would be refused again.
 */
function remakeStep(
  { state, shownDir, remakes = false }: EndedRun,
  left: readonly ResultLine[],
  where: CommandContext["global"],
): string | null {
  const isRefused = ({ notes = [] }: ResultLine) =>
    notes.some(
      (note) =>
        note.startsWith(NOT_REMADE) && isRefusalCode(note.slice(NOT_REMADE.length).split(":")[0] ?? ""),
    );
  const ids = left.filter((line) => !isRefused(line)).map((line) => line.custom_id);
  const flags = remakeFlags(state);
  if (!remakes || flags === null || ids.length === 0) return null;
  return remakeCommand(where, shownDir, { ...flags, "--only": ids.join(",") });
}

function stepsOf(run: EndedRun): EndedSteps {
  const { outcome, state, shownDir, updateStep } = run;
  const { upstream = null, request, model = request?.model ?? null } = state;
  const remake = outcome.direct !== undefined ? "generate" : canRetry(run) ? "retry" : null;
  return { ...outcome, ...outcome.direct, shownDir, updateStep, remake, model, upstream };
}

/** Says how many images upstreams may bill twice; nothing when there are none. */
function paidTwiceNote(lines: readonly Pick<ResultLine, "notes">[], shownDir: string): string[] {
  const isTwice = ({ notes = [] }: Pick<ResultLine, "notes">) =>
    notes.some((note) => note.startsWith(MAY_BE_PAID_TWICE));
  const count = lines.filter(isTwice).length;
  if (count === 0) return [];
  return [`${counted(count, "image")} may be paid twice, see ${shellWord(`${shownDir}/${RESULTS_FILE}`)}`];
}

/** Says how many images are not what was asked for, and in what; nothing when there are none. */
function differsNote(lines: readonly Pick<ResultLine, "notes">[], shownDir: string): string[] {
  const found = lines.map(({ notes = [] }) => notes.filter((note) => note.startsWith(DIFFERS)));
  const count = found.filter((notes) => notes.length > 0).length;
  if (count === 0) return [];
  const isOfType = (note: string) => note.startsWith(`${DIFFERS}image/`);
  const all = found.flat();
  const what = [
    ...(all.some((note) => !isOfType(note)) ? ["size"] : []),
    ...(all.some(isOfType) ? ["type"] : []),
  ];
  const differ = count === 1 ? "1 image differs" : `${count} images differ`;
  return [
    `${differ} from what was asked: ${what.join(", ")}; see ${shellWord(`${shownDir}/${GALLERY_FILE}`)}`,
  ];
}

type ImageCounts = ReturnType<typeof countImages>;

function failureNote({ failed, unknown, missing }: ImageCounts): string[] {
  const parts = { failed: failed - unknown, unknown, "not here": missing };
  return Object.entries(parts).flatMap(([word, count]) => (count === 0 ? [] : [`${count} ${word}`]));
}

/**
 * Says how many images have no known outcome, and what they may cost at most; nothing where there are none. `left`: images whose
 * earlier pictures stay, because no other one could be made.
 */
function unknownOutcomeNote(lines: readonly ResultLine[], left: readonly ResultLine[] = []): string[] {
  const unknown = [
    ...lines.filter((line) => stands(line, "unknown")),
    ...left.filter(({ may_be_billed: billed }) => billed !== undefined),
  ];
  if (unknown.length === 0) return [];
  const usd = unknown.map((line) => line.may_be_billed);
  const known = usd.every((each) => typeof each === "number") ? (usd as number[]) : null;
  const sum = known?.reduce((total, each) => total + numberToMicros(each), 0);
  const most =
    sum === undefined
      ? "may be billed"
      : `at most ${formatUsd(sum, "limit")} may be billed for ${unknown.length === 1 ? "it" : "them"}`;
  return [
    `the answers for ${counted(unknown.length, "image")} were lost: ${most}, and nothing was asked again`,
  ];
}

/** The judgement of a run that ended before all its images were asked for; null for any other run. */
function judgeStop({ direct }: RunOutcome): Judgement | null {
  if (direct === undefined || direct.stop === null) return null;
  const { stop, abandonedCount, cost } = direct;
  const why = stopReason(stop);
  const bill = cost?.isPlay ? "" : " and may be billed";
  const were = abandonedCount === 1 ? "was" : "were";
  const left =
    abandonedCount === 0
      ? "what had left was awaited"
      : `${counted(abandonedCount, "request")} ${were} under way${bill}`;
  const message = why === null ? stop.message : `${why}; ${left}.`;
  return { exitCode: exitCodeOf(stop), error: { code: stop.code, message } };
}

/** The judgement of a run whose requests have all failed for temporary reasons; null for any other run. */
function judgePassing({ direct, lines }: RunOutcome, counts: ImageCounts): Judgement | null {
  const codes = lines.flatMap((line) => line.error?.code ?? []) as ErrorCode[];
  const [code] = codes;
  if (direct === undefined || code === undefined) return null;
  if (!codes.every((each) => errorEntry(each).exit === "temporary")) return null;
  const { error } = judgeFailed("someFailed", counts);
  return { exitCode: EXIT_CODES.temporary.code, error: { code, message: error?.message ?? "" } };
}

/** The judgement of a run whose finished images could not all be fetched; null if all were. */
function judgeLacking({ lines }: RunOutcome, { missing, total }: ImageCounts): Judgement | null {
  const judged = judgeMissing(lines);
  if (judged === null) return null;
  const { exit, code, line } = judged;
  const message = `${missing} of ${total} images could not be fetched: ${line.custom_id}: ${line.error?.message}`;
  return { exitCode: EXIT_CODES[exit].code, error: { code, message } };
}

/** The judgement of a command that could not make all the pictures that were wanted again; null for any other. */
function judgeNotRemade({ remakes = false }: EndedRun, left: readonly ResultLine[]): Judgement | null {
  const [first] = left;
  if (!remakes || first === undefined) return null;
  const why = first.notes?.find((note) => note.startsWith(NOT_REMADE)) ?? NOT_REMADE;
  const message = `${counted(left.length, "image")} ${left.length === 1 ? "was" : "were"} not made again: ${first.custom_id}: ${why.slice(NOT_REMADE.length)}`;
  return { exitCode: EXIT_CODES.someFailed.code, error: { code: "ITEMS_FAILED", message } };
}

function notRemadeLines(left: readonly ResultLine[]): string[] {
  return left.slice(0, SHOWN_FAILURES).flatMap(({ custom_id: id, notes = [] }) => {
    const why = notes.find((note) => note.startsWith(NOT_REMADE));
    return why === undefined ? [] : [`  ${id}: ${why}; the earlier picture stays`];
  });
}

/** What was paid since the command began, and before; and how many images were drawn beside those that were paid. */
function costNote({ outcome }: EndedRun, cost: Cost | null): string {
  if (cost === null) return "";
  if (cost.isPlay) return `; ${costText(cost)}`;
  const drawn = outcome.lines.filter(({ play_money: isPlay, files }) => isPlay && files.length > 0).length;
  const beside = drawn === 0 ? "" : `; ${drawn} ${FREE_DRAWINGS}`;
  const text = paidText(cost, outcome.paidNowMicroUsd);
  return `${text.includes(" now ") ? ";" : ","} ${text}${beside}`;
}

/** What upstreams billed for images. */
interface Bill {
  micros: number;
  /** It has list prices, because not every request has a known bill. */
  isAbout: boolean;
  /** The list price of the images that were made. */
  listMicroUsd: number;
}

/**
 * Adds up the bills of upstreams for the images of a run, those of failures included. The list price stands for what no
 * upstream reports, and for requests whose answers were lost. Null where no upstream reports anything.
 */
export function upstreamBill(
  lines: readonly Pick<ResultLine, "upstream_cost" | "cost" | "may_be_billed" | "play_money">[],
): Bill | null {
  if (lines.every(({ upstream_cost: known }) => known === undefined)) return null;
  const bill = { micros: 0, isAbout: false, listMicroUsd: 0 };
  for (const { upstream_cost: known, cost = 0, may_be_billed: lost = 0, play_money: isPlay } of lines) {
    if (isPlay) continue;
    const list = numberToMicros(cost);
    bill.micros += (known === undefined ? list : numberToMicros(known)) + numberToMicros(lost);
    bill.listMicroUsd += list;
    bill.isAbout ||= lost > 0 || (known === undefined && list > 0);
  }
  return bill;
}

export function billNote({ micros, isAbout, listMicroUsd }: Bill): string {
  const most = isAbout
    ? `about ${formatUsd(micros)}, with list prices where it reports nothing`
    : formatUsd(micros);
  return `billed by the upstream: ${most} (the list price of the images is ${formatUsd(listMicroUsd)})`;
}

/** Reports how many images a repeated run fetched. */
function repairNote({ outcome, replayed }: EndedRun, { success, missing }: ImageCounts): string[] {
  const { fetchedCount } = outcome;
  if (success === 0 || fetchedCount === success) return [];
  if (fetchedCount === 0) return missing > 0 ? [] : ["nothing to fetch"];
  return replayed === false ? [] : [`${fetchedCount} of them fetched now`];
}

function actualCost(batches: readonly Batch[]): Cost | null {
  return sumCosts(batches.map(({ actualCostMicroUsd: micros, isPlay }) => ({ micros, isPlay })));
}

/** The first failed images of a run, one line each, and how many more there are. */
function failureLines(lines: readonly EndedImage[]): string[] {
  const failures = lines.filter((line) => line.error !== undefined);
  const described = failures.map(
    ({ custom_id, error }) =>
      `${custom_id}: ${error?.code}: ${error?.message}${error?.request_id === undefined ? "" : ` (request id ${error.request_id})`}`,
  );
  return firstLines(described, SHOWN_FAILURES).map((line) => `  ${line}`);
}
