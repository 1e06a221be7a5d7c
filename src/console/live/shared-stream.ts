import { ApiError, sleep } from "../api/request.ts";
import type { StoredSession } from "../api/session.ts";
import { type Change, tellChange } from "./changes.ts";
import { readEvents } from "./event-stream.ts";

/** When nothing has been heard for this long, the tab asks again and again instead. */
const PATIENCE_MS = 45_000;
const POLL_EVERY_MS = 4000;
const RECONNECT_MS = 2000;
/** A service without events is asked for them rarely. */
const NO_EVENTS_MS = 60_000;

type Message = { change: Change } | "alive" | "hello";

/**
 * Reports changes until the signal aborts. All tabs of a session share one stream. The tab that has the lock reads it
 * and passes on its events. A tab that receives nothing polls.
 */
export function followChanges(session: StoredSession, signal: AbortSignal): void {
  const name = `imgbatch.events.${session.id}`;
  const channel = new BroadcastChannel(name);
  let heardAtMs = 0;
  let isReader = false;
  const hear = () => {
    heardAtMs = Date.now();
  };
  const isHeard = () => Date.now() - heardAtMs < PATIENCE_MS;
  const post = (message: Message) => channel.postMessage(message);
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data === "hello") {
      if (isReader && isHeard()) post("alive");
      return;
    }
    hear();
    if (data !== "alive") tellChange(data.change);
  };
  post("hello");
  const poll = setInterval(() => {
    if (!isHeard() && !document.hidden) tellChange({ kind: "all" });
  }, POLL_EVERY_MS);
  signal.addEventListener("abort", () => {
    clearInterval(poll);
    channel.close();
  });

  const read = async () => {
    isReader = true;
    while (!signal.aborted) {
      let waitMs = RECONNECT_MS;
      try {
        await readEvents(
          (change) => {
            tellChange(change);
            post({ change });
          },
          () => {
            hear();
            post("alive");
          },
          signal,
        );
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) waitMs = NO_EVENTS_MS;
      }
      heardAtMs = 0;
      await sleep(waitMs, signal).catch(() => {});
    }
  };
  // Without a secure context there are no locks: each tab has a stream of its own then.
  const done = navigator.locks ? navigator.locks.request(name, { signal }, read) : read();
  Promise.resolve(done).catch(() => {});
}
