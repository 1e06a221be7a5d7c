import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { mayPass } from "../http/retries.ts";
import type { Answer } from "../http/transport.ts";
import type { Clock } from "../kernel/clock.ts";

/** The pause before a stream that broke is opened again. */
const PAUSE_MS = 10_000;
/** No line of ours is longer; a longer one is none of ours. */
const MAX_LINE_CHARS = 64 * 1024;

/** Gets the name of an event, and the id of the batch that it is about. */
type EventListener = (name: string, batchId: string | null) => void;

/**
 * Passes the events of a service on until the signal aborts. A stream that breaks is opened again after ten seconds. Returns
 * for a service without the stream. Rejects with the signal's reason.
 */
export async function followEvents(
  http: Http,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
  onEvent: EventListener,
): Promise<void> {
  for (;;) {
    try {
      const request = { method: "GET", path: routes.events, maxRetries: 0, signal, isQuiet: true } as const;
      const isStream = await http.stream(
        async () => request,
        (response) => readEvents(response, onEvent),
      );
      if (!isStream) return;
    } catch (error) {
      // Without the stream it does not begin later either.
      if (!mayPass(error)) return;
    }
    await clock.sleep(PAUSE_MS, signal);
  }
}

/** Reads events to the end of a stream. Returns false for an answer that is none. */
async function readEvents(response: Answer, onEvent: EventListener): Promise<boolean> {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return false;
  const decoder = new TextDecoder();
  let [rest, name] = ["", ""];
  for await (const chunk of response.body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARS) return true;
    for (const line of lines) {
      if (line.startsWith("event: ")) name = line.slice("event: ".length).trim();
      else if (line.startsWith("data: ")) onEvent(name, /^data: \{"id":"([\w-]+)"/.exec(line)?.[1] ?? null);
    }
  }
  return true;
}
