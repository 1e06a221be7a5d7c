import { wallClock } from "../kernel/clock.ts";
import { awaitBatches } from "../run/await-run.ts";
import { collectRun } from "../run/collect-run.ts";
import { retryIds } from "../run/ledger.ts";
import type { StartedRun } from "../run/start-run.ts";
import type { Allowance } from "../run/verdict.ts";
import type { CommandContext, CommandResult } from "./command.ts";
import { describeRun } from "./describe-run.ts";
import { fairInterval } from "./fair-interval.ts";
import { fetchAgain, readReportFlags, writeRunReports } from "./run-reports.ts";
import type { ConnectedService } from "./with-service.ts";

export interface RunToFinish extends StartedRun {
  dir: string;
  shownDir: string;
  keepZip: boolean;
  allowance: Allowance;
  intervalMs: number | undefined;
  /** See `CollectOptions`. */
  isForgiving?: boolean;
}

/** Waits until the batches of a run have ended, brings their images here, and says how it went. */
export async function finishRun(
  context: CommandContext,
  service: ConnectedService,
  run: RunToFinish,
): Promise<CommandResult> {
  const { signal, output: voice } = context;
  const { dir, ledger, keepZip, shownDir, replayed, allowance, isForgiving = false } = run;
  const intervalMs = fairInterval(run.intervalMs, service, voice);
  const clock = wallClock;
  const random = Math.random;
  const retries = new Set(retryIds(ledger));
  const waiting = { service, clock, random, intervalMs, signal, voice, retries };
  const batches = await awaitBatches(run.batches, waiting);
  const collecting = { dir, ledger, batches, service, keepZip, clock, voice, signal, isForgiving };
  const outcome = await collectRun(collecting);
  voice.settle();
  const { model = null, task_name: name = null } = ledger.request ?? {};
  const flags = readReportFlags(context);
  await writeRunReports(context, { outcome, shownDir, model, name, flags, ...fetchAgain(outcome, shownDir) });
  return describeRun(context, { outcome, replayed, shownDir, allowance });
}
