import type { Batch } from "../../client/answers.ts";
import { allWithCounts, listBatches } from "../../client/batches.ts";
import { EXIT_CODES } from "../../contract/errors.ts";
import { BATCH_STATUSES, isTerminal } from "../../contract/statuses.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { type ConnectedService, withService } from "../connect/with-service.ts";
import { explainStop, pollInterval, timeLimit } from "../interruption.ts";
import { positiveDurationOption } from "../options.ts";
import { describeEnd } from "../output/judge-batches.ts";
import { nextCommand } from "../output/next-command.ts";
import {
  recordAll,
  rememberedUpstream,
  requireBatches,
  requireImages,
  requireSubmitted,
  resolveTargets,
  type Target,
} from "../targets.ts";
import { mayShowDashboard } from "../terminal.ts";
import { intervalOption, targets, timeoutOption, waiting } from "./shared-options.ts";
import { createPlainView, watchBatches, watchLive } from "./watch-batches.ts";

export const command: CommandDetails = {
  arguments: [{ ...targets, name: "[id|dir...]" }],
  options: [timeoutOption, intervalOption],
  examples: ["imgbatch watch", "imgbatch watch prompts-images"],
  exits: [...waiting, "money", "saving"],
  run,
};

/** `imgbatch watch`: waits and shows progress. Without arguments it watches every running batch of the key. */
async function run(context: CommandContext): Promise<CommandResult> {
  const { options, results } = context;
  const interval = positiveDurationOption(options, "interval");
  const limit = timeLimit(context, positiveDurationOption(options, "timeout"));
  const targets = await resolveTargets(context);
  // The reader of the output has gone, so nothing is left to do.
  const signal = AbortSignal.any([limit.signal, results.closed]);
  try {
    const needs = { workers: true, ...rememberedUpstream(targets) };
    return await withService({ ...context, signal }, needs, (service) =>
      watch({ ...context, signal }, targets, service, pollInterval(interval, service, context.output)),
    );
  } catch (error) {
    if (results.closed.aborted && !limit.signal.aborted) return { exitCode: EXIT_CODES.ok.code, json: {} };
    throw error;
  } finally {
    limit.stop();
  }
}

async function watch(
  context: CommandContext,
  named: readonly Target[],
  service: ConnectedService,
  intervalMs: number | undefined,
): Promise<CommandResult> {
  const { signal, clock, output, results, global } = context;
  requireSubmitted(named, service, global);
  const isNamed = context.arguments.length > 0;
  const found = isNamed
    ? await requireBatches(service.http, named, signal)
    : await listRunning(service, signal);
  if (found.length === 0) {
    output.note("nothing is running");
    const next = `${nextCommand(global, "list")} (lists ended batches too)`;
    return { exitCode: EXIT_CODES.ok.code, json: { batches: [] }, next };
  }
  if (found.some(({ isDone }) => !isDone)) service.noteDrawings();
  const targets = isNamed
    ? named
    : found.map(({ id }) => ({ argument: id, ids: [id], unsent: 0, run: null }));
  const say = global.json || global.events === "-" ? output.note : results.line;
  const plain = createPlainView(global.progress === "none" ? () => {} : say, clock, output);
  try {
    const options = { service, clock, intervalMs, output };
    const ended = mayShowDashboard(context)
      ? await watchLive(context, found, targets, options)
      : await watchBatches(found, { ...options, signal, view: plain });
    if (ended === null) return { exitCode: EXIT_CODES.ok.code, json: {} };
    const batches = await allWithCounts(service.http, ended, signal);
    await recordAll(targets, batches, clock);
    if (isNamed) await requireImages(named, batches, service, global);
    const end = await describeEnd(context, service.http, targets, batches);
    // The view has already printed the lines.
    return { ...end, lines: [] };
  } catch (error) {
    throw explainStop(
      error,
      service.kind,
      found.map((batch) => batch.id),
    );
  }
}

async function listRunning({ http }: ConnectedService, signal: AbortSignal): Promise<Batch[]> {
  const found = new Map<string, Batch>();
  for (const status of BATCH_STATUSES.filter((each) => !isTerminal(each)))
    for (const batch of (await listBatches(http, { status }, null, signal)).batches)
      found.set(batch.id, batch);
  return [...found.values()];
}
