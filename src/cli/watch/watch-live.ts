import type { Batch } from "../../client/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { EMBEDDED } from "../../run/service-identity.ts";
import { batchLine } from "../batch-lines.ts";
import type { CommandContext } from "../command.ts";
import type { Target } from "../targets.ts";
import { mayColor } from "../terminal.ts";
import type { ConnectedService } from "../with-service.ts";
import { type WatchOptions, watchBatches } from "./watch-batches.ts";

/**
 * Watches with the live view, and leaves a line for each batch when it closes. Throws `INTERRUPTED` when the person
 * quits before the end.
 * Rule: VIEW-9.
 */
export async function watchLive(
  context: CommandContext,
  found: readonly Batch[],
  targets: readonly Target[],
  options: Omit<WatchOptions, "signal" | "view"> & { service: ConnectedService },
): Promise<Batch[]> {
  const [{ createLiveWatch }, { loadDashboard }] = await Promise.all([
    import("./live-view.ts"),
    import("../load-dashboard.ts"),
  ]);
  const { showDashboard } = await loadDashboard();
  const { results, global, signal } = context;
  const quit = new AbortController();
  const ended = new AbortController();
  const both = AbortSignal.any([signal, quit.signal]);
  const directories = new Map(
    targets.flatMap(({ ids, run }) => (run === null ? [] : ids.map((id) => [id, run.dir] as const))),
  );
  const { http, identity } = options.service;
  const { view, source } = createLiveWatch({
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
    if (!ended.signal.aborted && !signal.aborted) quit.abort(new ImgbatchError("INTERRUPTED"));
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
  } finally {
    ended.abort();
    await shown;
    for (const batch of last) results.line(batchLine(batch));
  }
}
