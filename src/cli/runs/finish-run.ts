import { retryIds, supersededIn } from "../../runs/directory/run-state.ts";
import { collectRun } from "../../runs/outcome/collect-run.ts";
import type { Allowance } from "../../runs/outcome/verdict.ts";
import type { StartedRun } from "../../runs/submit/start-run.ts";
import { awaitBatches } from "../../runs/wait/await-batches.ts";
import type { CommandContext, CommandResult } from "../command-line/command-context.ts";
import { describeRun } from "../result/run-summary.ts";
import type { ConnectedService } from "../service/with-service.ts";
import { pollInterval } from "./poll-interval.ts";
import { fetchAgain, readReportFlags, writeRunReports } from "./reports.ts";

export interface RunToFinish extends StartedRun {
  dir: string;
  shownDir: string;
  keepZip: boolean;
  allowance: Allowance;
  intervalMs: number | undefined;
  /** See `EndedRun`. */
  updateStep?: string | undefined;
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
  const { dir, state: runState, keepZip, shownDir, replayed, allowance, isForgiving = false } = run;
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
  const outcome = await collectRun(collecting);
  reporter.settle();
  const { model = null, task_name: name = null } = runState.request ?? {};
  const flags = readReportFlags(context);
  await writeRunReports(context, { outcome, shownDir, model, name, flags, ...fetchAgain(outcome, shownDir) });
  const { earlier, updateStep } = run;
  return describeRun(context, { outcome, replayed, earlier, shownDir, allowance, updateStep });
}
