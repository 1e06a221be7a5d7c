import type { Batch } from "../../../client/batch.ts";
import { EMBEDDED } from "../../../runs/directory/service-identity.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import { batchLine } from "../../result/batch-line.ts";
import type { Target } from "../../runs/targets.ts";
import type { ConnectedService } from "../../service/with-service.ts";
import { mayColor } from "../../terminal/terminal.ts";
import { type WatchOptions, watchBatches } from "./watch-batches.ts";

/**
 * Watches with the live view. It prints a line for each batch after the view closes. Returns null if the person quits
 * before the end.
 */
export async function watchLive(
  context: CommandContext,
  found: readonly Batch[],
  targets: readonly Target[],
  options: Omit<WatchOptions, "signal" | "view"> & { service: ConnectedService },
): Promise<Batch[] | null> {
  const { results, global, signal } = context;
  const [{ createHttpDashboardSource }, { showDashboard }] = await Promise.all([
    import("./http-dashboard-source.ts"),
    context.loadView(),
  ]);
  const quit = new AbortController();
  const ended = new AbortController();
  const both = AbortSignal.any([signal, quit.signal]);
  const directories = new Map(
    targets.flatMap(({ ids, run }) => (run === null ? [] : ids.map((id) => [id, run.dir] as const))),
  );
  const { http, identity } = options.service;
  const { view, source } = createHttpDashboardSource({
    http,
    url: identity === EMBEDDED ? "the embedded service" : identity,
    nowMs: options.clock.nowMs,
    directoryOf: (id) => directories.get(id) ?? null,
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
  const remembering = {
    ...view,
    show: (batches: readonly Batch[]) => {
      last = batches;
      view.show(batches);
    },
  };
  try {
    return await watchBatches(found, { ...options, signal: both, view: remembering });
  } catch (error) {
    if (quit.signal.aborted && !signal.aborted) return null;
    throw error;
  } finally {
    ended.abort();
    await shown;
    for (const batch of last) results.line(batchLine(batch));
  }
}
