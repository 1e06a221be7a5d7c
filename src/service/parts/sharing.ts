import { coalesced } from "../../kernel/coalesced.ts";
import type { WorkerDeps } from "../../workers/deps.ts";
import type { Scheduler } from "../../workers/scheduler.ts";
import type { OpenStorage } from "../storage/open-storage.ts";
import { SharedFeed } from "./shared-feed.ts";
import type { Teardown } from "./teardown.ts";

/** A look reads all that is at work: a hundred calls a second must not become as many looks. */
const LOOK_PAUSE_MS = 200;

/**
 * Lets the processes of a shared database know of each other's changes before the next beat. Returns the function that
 * calls all workers to look for work. `usesNotices`: false leaves it to beats and reading.
 */
export function shareChanges(
  { listen }: Pick<OpenStorage, "listen">,
  deps: WorkerDeps,
  scheduler: Scheduler,
  { usesNotices, teardown }: { usesNotices: boolean; teardown: Teardown },
): () => void {
  const feed = new SharedFeed(deps, deps.ids.recordId("process"));
  if (listen === null || !usesNotices) {
    teardown.add(() => feed.close());
    return () => {};
  }
  const look = coalesced(async () => {
    await scheduler.poll().catch((error) => {
      deps.log.error("the work of others could not be looked at", { error: String(error) });
    });
    await deps.clock.sleep(LOOK_PAUSE_MS);
  });
  const notices = listen((text) => {
    if (feed.read(text).isCall) void look();
  });
  feed.use(notices);
  teardown.add(() => {
    feed.close();
    // The work that this process gave back is taken up at once.
    feed.callWorkers();
    return notices.close();
  });
  return () => feed.callWorkers();
}
