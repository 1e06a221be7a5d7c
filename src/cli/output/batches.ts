import type { Batch } from "../../client/answers.ts";
import { type ErrorCode, EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { jobsText, waitingText } from "../../contract/waiting.ts";
import type { Http } from "../../http/http.ts";
import { costText, FREE_DRAWINGS, formatUsd, numberToMicros } from "../../kernel/money.ts";
import { escapeControls } from "../../kernel/text.ts";
import { lastRound } from "../../runs/directory/run-state.ts";
import { askedCounts } from "../../runs/run-batches.ts";
import { type Allowance, type Counts, verdict } from "../../runs/standing.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import type { Target } from "../targets.ts";
import { nextCommand, nextSteps, type Whereabouts } from "./next-step.ts";

/** An exit code, and the error of the JSON document if the code is not 0. */
export interface Judgement {
  exitCode: number;
  error: { code: ErrorCode; message: string } | null;
}

/** The judgement of ended batches. */
export function judgeBatches(counts: Counts, batches: readonly Batch[], allowance?: Allowance): Judgement {
  const name = verdict(
    counts,
    batches.map((batch) => batch.status),
    allowance,
  );
  if (name === "ok") return { exitCode: EXIT_CODES.ok.code, error: null };
  return judgeFailed(name, counts, batchProblems(batches));
}

/** The judgement when images failed: none of them was made (`noImages`), or too few (`someFailed`). */
export function judgeFailed(
  name: "noImages" | "someFailed",
  counts: Pick<Counts, "total" | "failed" | "unknown">,
  problems: readonly string[] = [],
): Judgement {
  const code = name === "noImages" ? "NO_IMAGES" : "ITEMS_FAILED";
  const { total, failed, unknown = 0 } = counts;
  const lost = unknown === 0 ? "" : ` (the answers for ${unknown} of them were lost)`;
  const message = [`${failed} of ${total} images failed${lost}`, ...problems].join("; ");
  return { exitCode: EXIT_CODES[name].code, error: { code, message } };
}

/** The batches that failed or were cancelled as a whole, one message each. */
export function batchProblems(batches: readonly Batch[]): string[] {
  return batches.flatMap(({ id, status, error }) => {
    if (status !== "failed" && status !== "cancelled") return [];
    const reason = error === null ? "" : ` (${error.code}: ${error.message})`;
    return [`${id} ${status === "failed" ? "failed" : "was cancelled"}${reason}`];
  });
}

/** The batches of some targets, as they ended. */
interface EndedBatches {
  counts: Counts;
  /** The batches that decide the exit code: for a retried run, those of its last retry. */
  deciding: Batch[];
}

/** Sums the counts of batches, in which each image counts once. */
function countTargets(targets: readonly Target[], batches: readonly Batch[]): EndedBatches {
  const superseded = new Set<string | null>();
  for (const { run } of targets) {
    if (run === null) continue;
    const last = lastRound(run.state);
    for (const { id, round } of run.state.batches) {
      if (round < last) superseded.add(id);
    }
  }
  const sum = (value: (batch: Batch) => number) => batches.reduce((total, batch) => total + value(batch), 0);
  const success = sum((batch) => batch.successCount);
  const total = sum((batch) => batch.itemCount ?? batch.successCount + batch.failCount);
  const counts = { total, success, failed: total - success };
  return { counts, deciding: batches.filter((batch) => !superseded.has(batch.id)) };
}

/** The error of a command that needs the end of a batch. */
export function notEnded({ id, status, waiting }: Batch): ImgbatchError {
  const how = waiting === null ? status : `${status}, ${waitingText(waiting)}`;
  return new ImgbatchError("BATCH_IMAGE_NOT_READY", `${id} has not ended yet (${how}).`);
}

/** The result of a command that waited for batches (`ended`). Their images are still on the service. */
export async function describeEnd(
  { output, global, signal }: CommandContext,
  http: Http,
  targets: readonly Target[],
  ended: readonly Batch[],
): Promise<CommandResult> {
  const runs = targets.flatMap(({ run }) => run ?? []);
  const batches = await askedCounts(http, ended, runs, signal);
  const { counts, deciding } = countTargets(targets, batches);
  const { exitCode, error } = judgeBatches(counts, deciding);
  if (error !== null) output.note(error.message);
  const json = { batches: batches.map((batch) => batch.raw), counts, ...(error === null ? {} : { error }) };
  return {
    exitCode,
    json,
    lines: batches.map((batch) => batchLine(batch, global)),
    next: nextSteps(global, targets, batches),
  };
}

/**
 * Describes a batch in one line: id, status, counts, cost, name, its API when that is not the batch API, the
 * reason why it waits, and error, separated by two spaces. The commands in it have the options of `where`.
 */
export function batchLine(batch: Batch, where: Whereabouts = {}): string {
  const whyItWaits = (waiting: NonNullable<Batch["waiting"]>) =>
    waiting.code === "STOPPED" ? stoppedText(batch, where) : waitingText(waiting);
  const fields = [
    batch.id,
    batch.status,
    `${batch.hasCounts ? batch.successCount : "?"}/${batch.itemCount ?? "?"} images`,
    `${batch.hasCounts ? batch.failCount : "?"} failed`,
    batchCost(batch),
    batch.name ?? "",
    batch.source === null || batch.source === "batch" ? "" : `(${batch.source} job)`,
    batch.waiting === null ? (jobsText(batch.jobs, Date.now()) ?? "") : whyItWaits(batch.waiting),
    batch.error === null ? "" : `${batch.error.code}: ${batch.error.message}`,
  ];
  return fields.filter((field) => field !== "").join("  ");
}

/** Says how a batch goes on that nobody works on, and how it is given up. */
export function stoppedText({ id }: Pick<Batch, "id">, where: Whereabouts): string {
  const [goOn, giveUp] = ["wait", "cancel"].map((name) => nextCommand(where, name, id));
  return `stopped; go on with ${goOn}, or give up with ${giveUp}`;
}

/** What a batch has cost, or will cost about; empty when the service does not say. */
export function batchCost({ actualCostMicroUsd, estimatedCostMicroUsd, isPlay }: Batch): string {
  if (actualCostMicroUsd !== null) return costText({ micros: actualCostMicroUsd, isPlay });
  if (estimatedCostMicroUsd === null) return "";
  return `${isPlay ? "" : "about "}${costText({ micros: estimatedCostMicroUsd, isPlay }, "limit")}`;
}

/** Describes what a cancelled batch costs and what was released. Leaves out amounts that the service does not report. */
export function describeCancel(batch: Batch): string {
  const { id, successCount, itemCount, failCount } = batch;
  if (!batch.isDone)
    return `${id} is being cancelled; ${batch.waiting?.message ?? "the upstream is awaited"}`;
  if (batch.status !== "cancelled") return `${id} had already ended (${batch.status}); nothing was cancelled`;
  const total = itemCount ?? successCount + failCount;
  const released = releasedMicroUsd(batch);
  const billed = batch.actualCostMicroUsd;
  const stay = `${successCount} of ${total} images were finished and stay`;
  const parts = batch.isPlay
    ? [`${id} cancelled`, stay, FREE_DRAWINGS]
    : [
        `${id} cancelled`,
        `${stay}${billed === null ? "" : `, billed ${formatUsd(billed, "sum")}`}`,
        ...(released === null ? [] : [`${formatUsd(released, "sum")} released`]),
      ];
  return parts.join("; ");
}

/** The released part of the hold, in micro-dollars; null if the service does not report the hold or the cost. */
export function releasedMicroUsd({ raw, actualCostMicroUsd }: Batch): number | null {
  const held = raw.hold_amount;
  if (typeof held !== "number" || actualCostMicroUsd === null) return null;
  const heldMicroUsd = numberToMicros(held);
  return Number.isSafeInteger(heldMicroUsd) ? Math.max(0, heldMicroUsd - actualCostMicroUsd) : null;
}

/** A record of a list for programs: fields between tabs, on one line, always the same number of fields. */
export function recordLine(fields: readonly (string | number)[]): string {
  return fields.map((field) => escapeControls(String(field))).join("\t");
}
