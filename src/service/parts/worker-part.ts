import type { Config } from "../../config/schema.ts";
import type { WorkerDeps } from "../../workers/deps.ts";
import { startRetention } from "../../workers/retention-sweep.ts";
import type { Scheduler } from "../../workers/scheduler.ts";
import type { Teardown } from "./teardown.ts";

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;

/** Begins to work on batches and to delete what has expired. */
export async function startWorkers(
  scheduler: Scheduler,
  { retention }: Pick<Config, "retention">,
  deps: WorkerDeps,
  teardown: Teardown,
): Promise<void> {
  // An image library that does not load is reported now, and not with each image.
  await import("../../imaging/sharp-config.ts");
  await scheduler.start();
  const { inputHours, sweepMinutes } = retention;
  const sweeping = { inputRetentionMs: inputHours * HOUR_MS, everyMs: sweepMinutes * MINUTE_MS };
  teardown.add(startRetention(deps, sweeping));
}
