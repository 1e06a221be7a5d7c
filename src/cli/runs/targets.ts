import { statSync } from "node:fs";
import { resolve } from "node:path";
import type { Batch } from "../../client/batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { recordInRunState } from "../../runs/directory/lock.ts";
import {
  isUnsent,
  lastRound,
  makerOf,
  RUN_STATE_FILE,
  readRunState,
} from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import { otherMaker, type RunService } from "../../runs/directory/service-identity.ts";
import { isUnsentHere } from "../../runs/run-batches.ts";
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
    const unsent = runState.batches.filter(isUnsent).length;
    return { argument, ids, unsent, run: { dir, state: runState } };
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

/**
 * Throws `SUBMISSION_UNKNOWN` if this service may have made a batch of a run without an answer: the run cannot be judged as a
 * whole.
 */
export function requireSubmitted(targets: readonly Target[], service: RunService, where: Whereabouts): void {
  for (const target of targets) {
    const unknown = submissionUnknown(target, service, where);
    if (unknown !== null) throw unknown;
  }
}

/** The error for batches of a run whose ids are not known; null if all are. Such batches may exist and be billed. */
function submissionUnknown(
  { argument, run }: Target,
  service: RunService,
  where: Whereabouts,
): ImgbatchError | null {
  if (run === null) return null;
  const { batches } = run.state;
  const unsent = batches.filter((entry) => isUnsentHere(run.state, entry, service));
  if (unsent.length === 0) return null;
  const command = lastRound(run.state) > 0 ? "retry" : "submit";
  const numbers = unsent.map(({ index }) => index + 1);
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
  service: RunService,
  { output, global }: { output: Output; global: Whereabouts },
  result: CommandResult,
): CommandResult {
  const unknown = submissionUnknown(target, service, global);
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

/**
 * Returns the batches of a target, by id, that this service and key have made. Throws `DIRECTORY_CONFLICT` if a run has none
 * of them.
 */
export function ownIds({ argument, ids, run }: Target, service: RunService): readonly string[] {
  if (run === null) return ids;
  const { state } = run;
  const others = new Map(
    state.batches.map((entry) => [entry.id, otherMaker(makerOf(state, entry), service)]),
  );
  const own = ids.filter((id) => others.get(id) === null);
  const [other] = others.values();
  if (own.length > 0 || other == null) return own;
  throw new ImgbatchError("DIRECTORY_CONFLICT", `No batch of ${argument} is known here: ${other}.`, {
    advice: OWNER_ADVICE,
  });
}

/** Records the state of the batches in the run states of the targets. */
export async function recordAll(
  targets: readonly Target[],
  batches: readonly Batch[],
  clock: Clock,
): Promise<void> {
  for (const { run: named } of targets) if (named !== null) await recordInRunState(named.dir, batches, clock);
}
