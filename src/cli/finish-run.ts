import { collectRun, type RunOutcome } from "../runs/collect-run.ts";
import { retryIds, supersededIn } from "../runs/directory/run-state.ts";
import type { StartedRun } from "../runs/send.ts";
import { type Allowance, parseAllowance } from "../runs/standing.ts";
import { awaitBatches } from "../runs/wait.ts";
import type { CommandContext, CommandResult } from "./command.ts";
import type { ConnectedService } from "./connect/with-service.ts";
import { pollInterval } from "./interruption.ts";
import * as read from "./options.ts";
import { fetchAgain, readReportFlags, writeRunReports } from "./output/reports.ts";
import { describeRun } from "./output/run-summary.ts";

/** A run whose images are here, as far as they can be. */
interface FinishedRun extends Pick<StartedRun, "state" | "replayed" | "earlier"> {
  shownDir: string;
  allowance: Allowance;
  /** See `EndedRun`. */
  updateStep?: string | undefined;
}

interface RunToFinish extends StartedRun, FinishedRun {
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

/** The options that `submit` and `retry` share, checked. `runOptions` in commands/shared-options.ts declares them. */
export interface RunOptions {
  /** How many images may fail before the exit code reports a failure. Default: none. */
  allowance: Allowance;
  timeoutMs: number | undefined;
  intervalMs: number | undefined;
  maxCostMicroUsd: number | undefined;
  unitCostMicroUsd: number | undefined;
  cancelOnInterrupt: boolean;
}

/** Throws `USAGE` for the first option that has a wrong value. */
export function readRunOptions(options: read.TypedOptions): RunOptions {
  const advice = "write a number or a share such as 5%";
  return {
    allowance: read.readOption(options, "allowFailures", advice, parseAllowance) ?? {
      count: 0,
    },
    timeoutMs: read.positiveDurationOption(options, "timeout"),
    intervalMs: read.positiveDurationOption(options, "interval"),
    maxCostMicroUsd: read.usdOption(options, "maxCost"),
    unitCostMicroUsd: read.usdOption(options, "unitCost"),
    cancelOnInterrupt: read.flagOption(options, "cancelOnInterrupt"),
  };
}
