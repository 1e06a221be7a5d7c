import type { Batch } from "../../client/answers.ts";
import { type ErrorCode, EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { waitingText } from "../../contract/waiting.ts";
import type { Http } from "../../http/http.ts";
import { lastRound } from "../../runs/directory/run-state.ts";
import { askedCounts } from "../../runs/run-batches.ts";
import { type Allowance, type Counts, verdict } from "../../runs/standing.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import type { Target } from "../targets.ts";
import { batchLine } from "./batch-text.ts";
import { nextSteps } from "./next-steps.ts";

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
  counts: Pick<Counts, "total" | "failed">,
  problems: readonly string[] = [],
): Judgement {
  const code = name === "noImages" ? "NO_IMAGES" : "ITEMS_FAILED";
  const message = [`${counts.failed} of ${counts.total} images failed`, ...problems].join("; ");
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
  return { exitCode, json, lines: batches.map(batchLine), next: nextSteps(global, targets, batches) };
}
