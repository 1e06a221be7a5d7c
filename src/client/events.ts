import { readEventStream } from "../contract/event-stream.ts";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { mayPass } from "../http/retries.ts";
import type { Answer } from "../http/transport.ts";
import type { Clock } from "../kernel/clock.ts";

/** The pause before a stream that broke is opened again. */
const PAUSE_MS = 10_000;

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
  for await (const { name, id } of readEventStream(response.body)) if (name !== "") onEvent(name, id);
  return true;
}
