import { readEventStream, type StreamedEvent } from "../../contract/event-stream.ts";
import { PATHS } from "../../contract/routes.ts";
import { ApiError, type StoredSession, send, sleep } from "./request.ts";

/** The service sends a line every 15 s at least: a stream that is silent for longer is dead. */
const SILENCE_MS = 40_000;

/**
 * Reads the service's events until the stream ends (`EventSource` could not send the token). `onSign` is called for every sign
 * of life. Throws `ApiError` when there is no stream.
 */
async function readEvents(
  onChange: (change: Change) => void,
  onSign: () => void,
  signal: AbortSignal,
): Promise<void> {
  const dead = new AbortController();
  const response = await send(PATHS.events, { signal: AbortSignal.any([signal, dead.signal]) });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const live = () => {
    clearTimeout(timer);
    timer = setTimeout(() => dead.abort(), SILENCE_MS);
    onSign();
  };
  try {
    if (response.body === null) return;
    for await (const event of readEventStream(response.body)) {
      live();
      const change = changeOf(event);
      if (change !== null) onChange(change);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the change that an event reports; null for comments and unknown events. */
function changeOf({ name, id, items }: StreamedEvent): Change | null {
  switch (name) {
    case "ready":
      return { kind: "all" };
    case "batch":
      return { kind: "batch", id: id ?? "", items };
    case "batch_deleted":
      return { kind: "deleted", id: id ?? "" };
    case "account":
      return { kind: "account" };
    default:
      return null;
  }
}

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
  let receivedAtMs = 0;
  let isReader = false;
  const noteMessage = () => {
    receivedAtMs = Date.now();
  };
  const isReaderActive = () => Date.now() - receivedAtMs < PATIENCE_MS;
  const post = (message: Message) => channel.postMessage(message);
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data === "hello") {
      if (isReader && isReaderActive()) post("alive");
      return;
    }
    noteMessage();
    if (data !== "alive") tellChange(data.change);
  };
  post("hello");
  const poll = setInterval(() => {
    if (!isReaderActive() && !document.hidden) tellChange({ kind: "all" });
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
            noteMessage();
            post("alive");
          },
          signal,
        );
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) waitMs = NO_EVENTS_MS;
      }
      receivedAtMs = 0;
      await sleep(waitMs, signal).catch(() => {});
    }
  };
  // Without a secure context there are no locks: each tab has a stream of its own then.
  const done = navigator.locks ? navigator.locks.request(name, { signal }, read) : read();
  Promise.resolve(done).catch(() => {});
}

/** A change at the service, as far as the key may know it. */
export type Change =
  /** Anything: read again what is shown. */
  | { kind: "all" }
  /** `items` are ids; null when very many changed. */
  | { kind: "batch"; id: string; items: string[] | null }
  | { kind: "deleted"; id: string }
  | { kind: "account" };

const listeners = new Set<(change: Change) => void>();

/** Returns the function that ends the subscription. */
export function onChange(listener: (change: Change) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tellChange(change: Change): void {
  for (const listener of listeners) listener(change);
}
