import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { mayPass } from "../http/retries.ts";
import type { Answer } from "../http/transport.ts";
import type { Clock } from "../kernel/clock.ts";
import { linkSignals } from "../kernel/linked-signal.ts";

/** The pause before a stream that broke is opened again. */
const PAUSE_MS = 10_000;
/** The shortest pause of a poller, however often its batch changes. */
const SHORTEST_SLEEP_MS = 1_000;
/** No line of ours is longer; a longer one is none of ours. */
const MAX_LINE_CHARS = 64 * 1024;

/** Learns from the events of a service which batches have changed, so that pollers need not wait for their next look. */
export class Changes {
  readonly #clock: Clock;
  readonly #stopping = new AbortController();
  readonly #sleepers = new Map<string, () => void>();
  /** Batches with a poller. A service may report any number of others. */
  readonly #polled = new Set<string>();
  /** Batches that changed while their pollers could not be woken. */
  readonly #early = new Set<string>();

  /** A service without the stream, or one that breaks, costs nothing: then every sleep takes its time. */
  constructor(http: Http, clock: Clock) {
    this.#clock = clock;
    this.#follow(http).catch(() => {});
  }

  stop(): void {
    this.#stopping.abort();
  }

  /** Sleeps until the batch has changed, at least a second and at most `ms`. Rejects with the signal's reason. */
  async sleep(batchId: string, ms: number, signal?: AbortSignal): Promise<void> {
    this.#polled.add(batchId);
    const shortestMs = Math.min(ms, SHORTEST_SLEEP_MS);
    await this.#clock.sleep(shortestMs, signal);
    if (this.#early.delete(batchId)) return;
    const changed = new AbortController();
    const { signal: either, unlink } = linkSignals(changed.signal, ...(signal ? [signal] : []));
    this.#sleepers.set(batchId, () => changed.abort());
    try {
      await this.#clock.sleep(ms - shortestMs, either);
    } catch (error) {
      if (!changed.signal.aborted) throw error;
    } finally {
      this.#sleepers.delete(batchId);
      unlink();
    }
  }

  async #follow(http: Http): Promise<void> {
    const { signal } = this.#stopping;
    for (;;) {
      try {
        const request = { method: "GET", path: routes.events, maxRetries: 0, signal, isQuiet: true } as const;
        await http.stream(
          async () => request,
          (response) => this.#read(response),
        );
      } catch (error) {
        // Without the stream it does not begin later either.
        if (!mayPass(error)) return;
      }
      await this.#clock.sleep(PAUSE_MS, signal);
    }
  }

  async #read(response: Answer): Promise<void> {
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
      this.stop();
      return;
    }
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of response.body) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > MAX_LINE_CHARS) return;
      for (const line of lines) this.#note(line);
    }
  }

  #note(line: string): void {
    const [, batchId] = /^data: \{"id":"([\w-]+)"/.exec(line) ?? [];
    if (batchId === undefined) return;
    const wake = this.#sleepers.get(batchId);
    if (wake) wake();
    else if (this.#polled.has(batchId)) this.#early.add(batchId);
  }
}

/** Follows a service elsewhere, whose pollers sleep long. Null for one on this machine, and for a fixed interval. */
export function followChanges(
  { http, isLocal }: { http: Http; isLocal: boolean },
  clock: Clock,
  intervalMs: number | undefined,
): Changes | null {
  return isLocal || intervalMs !== undefined ? null : new Changes(http, clock);
}
