import { collectRun, type RunOutcome } from "../../runs/collect-run.ts";
import { retryIds, supersededIn } from "../../runs/directory/run-state.ts";
import type { StartedRun } from "../../runs/send.ts";
import type { Allowance } from "../../runs/standing.ts";
import { awaitBatches } from "../../runs/wait.ts";
import type { CommandContext, CommandResult } from "../command-line/command-context.ts";
import { describeRun } from "../result/run-summary.ts";
import type { ConnectedService } from "../service/with-service.ts";
import { pollInterval } from "./poll-interval.ts";
import { fetchAgain, readReportFlags, writeRunReports } from "./reports.ts";

/** A run whose images are here, as far as they can be. */
export interface FinishedRun extends Pick<StartedRun, "state" | "replayed" | "earlier"> {
  shownDir: string;
  allowance: Allowance;
  /** See `EndedRun`. */
  updateStep?: string | undefined;
}

export interface RunToFinish extends StartedRun, FinishedRun {
  dir: string;
  keepZip: boolean;
  intervalMs: number | undefined;
  /** See `CollectOptions`. */
  isForgiving?: boolean;
}

/** Waits until the batches of a run have ended, fetches their images, writes the reports, and returns the result. */
export async function finishRun(
  context: CommandContext,
  service: ConnectedService,
  run: RunToFinish,
): Promise<CommandResult> {
  const { signal, clock, output: reporter } = context;
  const { dir, state: runState, keepZip, isForgiving = false } = run;
  const intervalMs = pollInterval(run.intervalMs, service, reporter);
  const random = Math.random;
  if (run.batches.some(({ isDone }) => !isDone)) service.noteDrawings();
  const retries = new Set(retryIds(runState));
  const superseded = new Map(
    runState.batches.map(({ id, round }) => [id ?? "", supersededIn(runState, round).size]),
  );
  const waiting = { service, clock, random, intervalMs, signal, reporter, retries, superseded };
  const batches = await awaitBatches(run.batches, waiting);
  const collecting = {
    dir,
    state: runState,
    batches,
    service,
    keepZip,
    clock,
    reporter,
    signal,
    isForgiving,
  };
  return describeFinished(context, await collectRun(collecting), run);
}

/** Writes the reports of a run, and returns the result. */
export async function describeFinished(
  context: CommandContext,
  outcome: RunOutcome,
  { state, shownDir, replayed, earlier, allowance, updateStep }: FinishedRun,
): Promise<CommandResult> {
  context.output.settle();
  const { model = null, task_name: name = null } = state.request ?? {};
  const flags = readReportFlags(context);
  await writeRunReports(context, { outcome, shownDir, model, name, flags, ...fetchAgain(outcome, shownDir) });
  return describeRun(context, { outcome, replayed, earlier, shownDir, allowance, updateStep });
}
