import type { Batch } from "../../client/answers.ts";
import { listBatches, withCounts } from "../../client/batches.ts";
import { timeLimit } from "../../client/poll.ts";
import { BATCH_STATUSES, isTerminal } from "../../contract/statuses.ts";
import type { Clock } from "../../kernel/clock.ts";
import { EMBEDDED } from "../../runs/directory/run-service.ts";
import { hasChanged, outageText, pollBatches } from "../../runs/wait.ts";
import {
  type CommandContext,
  type CommandResult,
  defineCommand,
  type Lines,
  type Output,
} from "../command.ts";
import { withService } from "../connect/connect.ts";
import type { ConnectedService } from "../connect/connection.ts";
import { savingEarlyOf } from "../finish-run.ts";
import { explainStop, pollInterval } from "../interruption.ts";
import type { Values } from "../options.ts";
import { batchLine, describeEnd } from "../output/batches.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import {
  recordAll,
  rememberedUpstream,
  requireBatches,
  requireImages,
  requireSubmitted,
  resolveTargets,
  type Target,
} from "../targets.ts";
import { mayColor, mayShowDashboard } from "../terminal.ts";
import { targets, waiting, waitOptions } from "./shared-options.ts";

export const command = defineCommand({
  arguments: [{ ...targets, name: "[id|dir...]" }],
  options: waitOptions,
  examples: ["imgbatch watch", "imgbatch watch prompts-images"],
  exits: [...waiting, "money", "saving"],
  run,
});

/**
 * `imgbatch watch`: waits and shows progress. Without arguments it watches every running batch of the key, shows those that
 * are stopped, and begins nothing.
 */
async function run(context: CommandContext<Values<typeof waitOptions>>): Promise<CommandResult> {
  const { options, results } = context;
  const limit = timeLimit(context, options.timeoutMs);
  const targets = await resolveTargets(context);
  // The reader of the output has gone, so nothing is left to do.
  const signal = AbortSignal.any([limit.signal, results.closed]);
  try {
    const needs = { workers: true, ...rememberedUpstream(targets) };
    return await withService({ ...context, signal }, needs, (service) =>
      watch(
        { ...context, signal },
        targets,
        service,
        pollInterval(options.intervalMs, service, context.output),
      ),
    );
  } catch (error) {
    if (results.closed.aborted && !limit.signal.aborted) return { json: {} };
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
  const isLive = mayShowDashboard(context);
  const open = isNamed ? [] : await listOpen(service, signal);
  const stopped = open.filter(isStopped);
  // Whoever watches all batches lets none go on that is stopped; in the live view a key does.
  const found = isNamed
    ? await requireBatches(service.http, named, signal)
    : open.filter((batch) => isLive || !isStopped(batch));
  if (!isLive) for (const batch of stopped) results.line(batchLine(batch, global));
  if (found.length === 0) {
    output.note("nothing is running");
    const [first] = stopped;
    const next = first
      ? `to give up: ${nextCommand(global, "cancel", first.id)}\n${nextCommand(global, "wait", first.id)}`
      : `to list ended batches, too: ${nextCommand(global, "list")}`;
    return { json: { batches: stopped.map((batch) => batch.raw) }, next };
  }
  if (found.some(({ isDone }) => !isDone)) service.noteDrawings();
  const targets = isNamed
    ? named
    : found.map(({ id }) => ({ argument: id, ids: [id], unsent: 0, run: null }));
  const say = global.json || global.events === "-" ? output.note : results.line;
  const plain = createPlainView(global.progress === "none" ? () => {} : say, clock, output, global);
  try {
    const options = { service, clock, intervalMs, output, names: isNamed };
    const ended = isLive
      ? await watchLive(context, found, targets, options)
      : await savingEarlyOf(context, service, targets, (onLook) =>
          watchBatches(found, { ...options, signal }, withLook(plain, onLook)),
        ).finally(output.settle);
    if (ended === null) return { json: {} };
    const batches = await withCounts(service.http, ended, signal);
    await recordAll(targets, batches, clock);
    if (isNamed) await requireImages(named, batches, service, global);
    const end = await describeEnd(context, service.http, targets, batches);
    // The view has already printed the lines.
    return { ...end, lines: [] };
  } catch (error) {
    throw explainStop(
      error,
      service,
      found.map((batch) => batch.id),
    );
  }
}

const isStopped = ({ waiting }: Batch) => waiting?.code === "STOPPED";

async function listOpen({ http }: ConnectedService, signal: AbortSignal): Promise<Batch[]> {
  const found = new Map<string, Batch>();
  for (const status of BATCH_STATUSES.filter((each) => !isTerminal(each)))
    for (const batch of (await listBatches(http, { status }, null, signal)).batches)
      found.set(batch.id, batch);
  return [...found.values()];
}

/** Shows batches while they run: as lines in a log, or as a dashboard on a terminal. */
interface View {
  /** Called with all batches each time one of them was read. */
  show(batches: readonly Batch[]): void;
  /** Called with a description of each failure that is being waited out. */
  trouble(text: string): void;
}

interface WatchOptions {
  service: ConnectedService;
  clock: Clock;
  intervalMs: number | undefined;
  output: Output;
  /** Whether the command names the batches, so that stopped ones go on. */
  names: boolean;
}

function withLook(view: View, onLook: View["show"]): View {
  const show = (batches: readonly Batch[]) => {
    view.show(batches);
    onLook(batches);
  };
  return { ...view, show };
}

/** Polls all batches, shows them, and returns them when every one has ended. */
function watchBatches(
  batches: readonly Batch[],
  { output, ...options }: WatchOptions & { signal: AbortSignal },
  view: View,
): Promise<Batch[]> {
  view.show(batches);
  return pollBatches(
    batches,
    { ...options, random: Math.random, reporter: output },
    {
      onLook: view.show,
      onFailure: (error, _, untilMs) => view.trouble(outageText(error, untilMs)),
    },
  );
}

/** The time between two lines of one batch, which may be unchanged. */
const CHANGE_MS = 10_000;
const HEARTBEAT_MS = 60_000;

/** Writes a line for each batch that has changed, and for its end at once. `lines` gets the requests that failed. */
function createPlainView(
  say: (line: string) => void,
  clock: Clock,
  lines: Pick<Lines, "progress" | "settle">,
  where: Whereabouts,
): View {
  const told = new Map<string, { batch: Batch; atMs: number }>();
  return {
    show: (batches) => {
      lines.settle();
      const nowMs = clock.nowMs();
      for (const batch of batches) {
        const last = told.get(batch.id);
        if (last !== undefined && nowMs - last.atMs < pauseAfter(last.batch, batch)) continue;
        told.set(batch.id, { batch, atMs: nowMs });
        say(batchLine(batch, where));
      }
    },
    trouble: (text) => lines.progress(text),
  };
}

function pauseAfter(before: Batch, now: Batch): number {
  if (before.isDone) return Number.POSITIVE_INFINITY;
  if (now.isDone) return 0;
  return hasChanged(before, now) ? CHANGE_MS : HEARTBEAT_MS;
}

/**
 * Watches with the live view. It prints a line for each batch after the view closes. Returns null if the person quits
 * before the end.
 */
async function watchLive(
  context: CommandContext,
  found: readonly Batch[],
  targets: readonly Target[],
  options: WatchOptions,
): Promise<Batch[] | null> {
  const { results, global, signal } = context;
  const [{ createDashboardSource }, { showDashboard }] = await Promise.all([
    import("../dashboard-source.ts"),
    context.loadView(),
  ]);
  const quit = new AbortController();
  const ended = new AbortController();
  const both = AbortSignal.any([signal, quit.signal]);
  const directories = new Map(
    targets.flatMap(({ ids, run }) => (run === null ? [] : ids.map((id) => [id, run.dir] as const))),
  );
  const { http, identity, goOn } = options.service;
  const source = createDashboardSource({
    http,
    url: identity === EMBEDDED ? "the embedded service" : identity,
    clock: options.clock,
    own: null,
    goOn,
    directoryOf: (id) => (id === null ? null : (directories.get(id) ?? null)),
    signal: both,
  });
  const shown = showDashboard(source, {
    stdin: process.stdin,
    stdout: process.stdout,
    signal: AbortSignal.any([both, ended.signal]),
    hasColor: mayColor(process.stdout, global.color),
  }).then(() => {
    if (!ended.signal.aborted && !signal.aborted) quit.abort();
  });
  let last = found;
  const show = (batches: readonly Batch[]) => {
    last = batches;
    source.show(batches);
  };
  try {
    const view = { show, trouble: source.trouble };
    return await savingEarlyOf({ ...context, signal: both }, options.service, targets, (onLook) =>
      watchBatches(found, { ...options, signal: both }, withLook(view, onLook)),
    );
  } catch (error) {
    if (quit.signal.aborted && !signal.aborted) return null;
    throw error;
  } finally {
    ended.abort();
    await shown;
    for (const batch of last) results.line(batchLine(batch, global));
  }
}
