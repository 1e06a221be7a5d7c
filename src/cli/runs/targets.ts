import { statSync } from "node:fs";
import { resolve } from "node:path";
import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { otherOwner } from "../../runs/directory/claim.ts";
import { recordInRunState } from "../../runs/directory/record-run-state.ts";
import { lastRound, RUN_STATE_FILE, readRunState } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import type { RunService } from "../../runs/directory/service-identity.ts";
import type { CommandContext, CommandResult, Output } from "../command-line/command-context.ts";
import { OWNER_ADVICE } from "../result/advice.ts";
import { exitCodeOf } from "../result/error-document.ts";
import type { Whereabouts } from "../result/next-command.ts";
import { finishing } from "../result/next-steps.ts";

/** The meaning of an `<id|dir>` argument. */
export interface Target {
  /** The argument as typed. */
  argument: string;
  ids: string[];
  /** The number of batches of the run without an id here: their submission was not finished. */
  unsent: number;
  /** The run in that directory; null for an id. */
  run: { dir: string; state: RunState } | null;
}

/** Reads an argument: a directory with a run state, else a batch id. Throws `USAGE` if it is neither, or has no batch. */
export async function resolveTarget(argument: string, cwd: string): Promise<Target> {
  const dir = resolve(cwd, argument);
  const runState = await readRunState(dir);
  if (runState?.kind === "realtime") {
    const message = `${argument} was made by \`imgbatch generate\`: it has no batch. Run that command again to continue.`;
    throw new ImgbatchError("USAGE", message);
  }
  if (runState !== null) {
    const ids = runState.batches.flatMap(({ id }) => (id === null ? [] : [id]));
    return { argument, ids, unsent: runState.batches.length - ids.length, run: { dir, state: runState } };
  }
  if (isDirectory(dir))
    throw new ImgbatchError("USAGE", `${argument} has no ${RUN_STATE_FILE}: it is not the output of a run.`);
  if (/[/\\\s]/.test(argument) || argument === "") {
    throw new ImgbatchError(
      "USAGE",
      `${JSON.stringify(argument)} is neither a batch id nor the directory of a run.`,
    );
  }
  return { argument, ids: [argument], unsent: 0, run: null };
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** Reads all arguments. A batch that two of them name counts once. */
export async function resolveTargets(context: CommandContext): Promise<Target[]> {
  const seen = new Set<string>();
  const targets: Target[] = [];
  for (const argument of context.arguments) {
    const target = await resolveTarget(argument, context.cwd);
    const ids = target.ids.filter((id) => !seen.has(id));
    for (const id of ids) seen.add(id);
    targets.push({ ...target, ids });
  }
  return targets;
}

/** Throws `SUBMISSION_UNKNOWN` if the id of a batch of a run is not known: the run cannot be judged as a whole. */
export function requireSubmitted(targets: readonly Target[], where: Whereabouts): void {
  for (const target of targets) {
    const unknown = submissionUnknown(target, where);
    if (unknown !== null) throw unknown;
  }
}

/** The error for batches of a run whose ids are not known; null if all are. Such batches may exist and be billed. */
function submissionUnknown({ argument, unsent, run }: Target, where: Whereabouts): ImgbatchError | null {
  if (unsent === 0 || run === null) return null;
  const { batches } = run.state;
  const command = lastRound(run.state) > 0 ? "retry" : "submit";
  const numbers = batches.flatMap(({ id, index }) => (id === null ? [index + 1] : []));
  const which =
    batches.length === 1
      ? `The submission of ${argument} was not finished`
      : `The submission of ${argument} was not finished: ${numbers.length === 1 ? "batch" : "batches"} ${numbers.join(", ")} of ${batches.length} may exist without being known here`;
  const message = `${which}: run its ${command} command again.`;
  return new ImgbatchError("SUBMISSION_UNKNOWN", message, { advice: finishing(where, { argument, run }) });
}

/**
 * Adds the error of `submissionUnknown` to the result of a command that worked on the known batches of a target only.
 * Returns the result unchanged if all batches are known.
 */
export function withUnknown(
  target: Target,
  { output, global }: { output: Output; global: Whereabouts },
  result: CommandResult,
): CommandResult {
  const unknown = submissionUnknown(target, global);
  if (unknown === null) return result;
  const { code, message, advice } = unknown;
  output.warn(message);
  return {
    ...result,
    ...(advice === undefined ? {} : { next: advice }),
    exitCode: exitCodeOf(unknown),
    json: { ...(result.json as object), error: { code, message } },
  };
}

/** Throws `DIRECTORY_CONFLICT` if a target's run belongs to another service or key. */
export function requireReachable(targets: readonly Target[], service: RunService): void {
  for (const { run } of targets) {
    const other = run === null ? null : otherOwner(run.state, service);
    if (run !== null && other !== null)
      throw new ImgbatchError("DIRECTORY_CONFLICT", `${run.dir} ${other}.`, { advice: OWNER_ADVICE });
  }
}

/** Records the state of the batches in the run states of the targets. */
export async function recordAll(
  targets: readonly Target[],
  batches: readonly Batch[],
  clock: Clock,
): Promise<void> {
  for (const { run: named } of targets) if (named !== null) await recordInRunState(named.dir, batches, clock);
}
