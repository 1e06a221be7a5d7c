import { EXIT_CODES } from "../../contract/exit-codes.ts";
import { formatUsd, microsToNumber } from "../../kernel/money.ts";
import { IMAGES_FOLDER } from "../../runs/directory/claim.ts";
import { RESULTS_FILE, RETRY_FILE } from "../../runs/directory/results-file.ts";
import type { RunOutcome } from "../../runs/outcome/collect-run.ts";
import { isFailed, isLost, isMissing, judgeMissing } from "../../runs/outcome/image-outcome.ts";
import { type Allowance, countImages, type ImageCounts } from "../../runs/outcome/verdict.ts";
import { type EndedImage, shellWord } from "../../runs/reports/run-report.ts";
import { isRefused } from "../../runs/retry/plan-retry.ts";
import type { CommandContext, CommandResult } from "../command-line/command-context.ts";
import { batchProblems, type Judgement, judgeBatches } from "./judge-batches.ts";
import { type Flag, nextCommand, type Whereabouts } from "./next-command.ts";
import { lookInto } from "./next-steps.ts";

export interface EndedRun {
  outcome: RunOutcome;
  /** Whether it was a run before; null where that is no question, as for a download. */
  replayed: boolean | null;
  shownDir: string;
  allowance?: Allowance;
  /** Whether `imgbatch retry` knows how the images were asked for; default true. */
  canRetry?: boolean;
}

/** A summary shows at most this many failures; the results have all of them. */
const SHOWN_FAILURES = 5;

/** Says how a run ended: on stderr for people, and as the command's result. */
export function describeRun({ output, global }: CommandContext, run: EndedRun): CommandResult {
  const { outcome, shownDir, replayed } = run;
  const { batches, deciding, lines, fetchedCount, hasRetry } = outcome;
  const counts = countImages(outcome);
  const { exitCode, error } = judgeLacking(outcome, counts) ?? judgeBatches(counts, deciding, run.allowance);
  const cost = actualCost(outcome);
  for (const line of failureLines(outcome.lines)) output.note(line);
  for (const problem of batchProblems(deciding))
    output.note(`${problem}; submit --new generates all of it again`);
  for (const batch of batches) {
    if (batch.status === "output_deleted" && counts.missing === 0)
      output.note(`the service has deleted the images of ${batch.id}; they are all here`);
  }
  const parts = [
    `${counts.success} of ${counts.total} images on disk and verified`,
    ...failureNote(counts),
    ...repairNote(run, counts.success),
  ];
  output.note([...parts, ...(cost === null ? [] : [formatUsd(cost)])].join(", "));
  return {
    exitCode,
    json: {
      directory: shownDir,
      ...(replayed === null ? {} : { replayed }),
      counts,
      fetched_count: fetchedCount,
      actual_cost: cost === null ? null : microsToNumber(cost),
      results: `${shownDir}/${RESULTS_FILE}`,
      retry: hasRetry ? `${shownDir}/${RETRY_FILE}` : null,
      batches: batches.map((batch) => batch.raw),
      items: lines,
      ...(error === null ? {} : { error }),
    },
    lines: [shownDir],
    next: nextStep(run, counts, global),
  };
}

function failureNote({ failed, missing }: ImageCounts): string[] {
  return [...(failed === 0 ? [] : [`${failed} failed`]), ...(missing === 0 ? [] : [`${missing} not here`])];
}

/** The outcome while images that have not failed are not here: the run has not come to its end. */
function judgeLacking({ lines }: RunOutcome, { missing, total }: ImageCounts): Judgement | null {
  const judged = judgeMissing(lines);
  if (judged === null) return null;
  const first = lines.find(isMissing);
  const message = `${missing} of ${total} images could not be had: ${first?.custom_id}: ${first?.error?.message}`;
  return { exitCode: EXIT_CODES[judged.exit].code, error: { code: judged.code, message } };
}

/** What a second run found to do. */
function repairNote({ outcome, replayed }: EndedRun, successCount: number): string[] {
  const { fetchedCount } = outcome;
  if (successCount === 0 || fetchedCount === successCount) return [];
  if (fetchedCount === 0) return outcome.lines.some(isMissing) ? [] : ["nothing was missing"];
  return replayed === false ? [] : [`${fetchedCount} of them fetched now`];
}

function actualCost({ batches }: RunOutcome): number | null {
  const costs = batches.map((batch) => batch.actualCostMicroUsd);
  return costs.some((cost) => cost === null)
    ? null
    : costs.reduce<number>((sum, cost) => sum + (cost ?? 0), 0);
}

/** The first failed images of a run, one line each, and how many more there are. */
export function failureLines(lines: readonly EndedImage[]): string[] {
  const failures = lines.filter((line) => line.error !== undefined);
  const shown = failures
    .slice(0, SHOWN_FAILURES)
    .map(
      ({ custom_id, error }) =>
        `  ${custom_id}: ${error?.code}: ${error?.message}${error?.request_id === undefined ? "" : ` (request id ${error.request_id})`}`,
    );
  return failures.length > SHOWN_FAILURES
    ? [...shown, `  and ${failures.length - SHOWN_FAILURES} more`]
    : shown;
}

/** What to do about images that have not failed and are not here. Those that are lost come back only for money. */
function missingStep({ shownDir, outcome, canRetry = true }: EndedRun, where: Whereabouts): string {
  const missing = outcome.lines.filter(isMissing);
  const lost = missing.filter(isLost);
  const retry = (...flags: Flag[]) => nextCommand(where, "retry", ...flags, shownDir);
  const hasOthers =
    canRetry && outcome.hasRetry && outcome.lines.some((line) => isFailed(line) && !isRefused(line));
  const others = hasOthers ? `; ${retry()} sends what has failed` : "";
  if (lost.length === 0) return `run the same command again, later: nothing is paid twice${others}`;
  const isAllGone = missing.every(({ error }) => error?.code === "BATCH_IMAGE_OUTPUT_DELETED");
  const again = isAllGone ? "" : "run the same command again: it fetches what is missing; ";
  const anew = canRetry
    ? `${retry({ flag: "--include-lost" })} makes what is lost anew, and is paid again`
    : "what is lost can be made anew, and paid again, by `imgbatch retry --include-lost` with the directory that submitted it, or by submitting its prompts again";
  return `${again}${anew}${others}`;
}

function nextStep(run: EndedRun, counts: ImageCounts, where: Whereabouts): string {
  const { shownDir, outcome } = run;
  if (counts.missing > 0) return missingStep(run, where);
  const failed = outcome.lines.filter(isFailed);
  const refused = failed.filter(isRefused).length;
  if (outcome.hasRetry && refused < failed.length) return nextCommand(where, "retry", shownDir);
  if (outcome.hasRetry) {
    const output: Flag = { flag: "--output" };
    const submit = nextCommand(where, "submit", `${shownDir}/${RETRY_FILE}`, output, `${shownDir}-retry`);
    return `change the prompts that were refused in ${shellWord(`${shownDir}/${RETRY_FILE}`)}, then ${submit}`;
  }
  if (failed.length > 0 || counts.success === 0) return lookInto(shownDir, RESULTS_FILE);
  return `${lookInto(shownDir, ...placesOf(outcome))} (the same command again repairs)`;
}

const MOST_PLACES = 5;

/** Where the images are: the folder, or the ZIPs that were kept. */
function placesOf({ lines }: RunOutcome): string[] {
  const files = lines.flatMap((line) => line.files);
  const zips = new Set(files.flatMap(({ path, entry }) => (entry === undefined ? [] : [path])));
  if (zips.size === 0) return [IMAGES_FOLDER];
  const isMixed = files.some(({ entry }) => entry === undefined);
  return [...(isMixed ? [IMAGES_FOLDER] : []), ...zips].slice(0, MOST_PLACES);
}
