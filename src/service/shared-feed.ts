import { isTerminal } from "../contract/statuses.ts";
import type { ServiceEvent } from "../domain/feed.ts";
import { fieldsOf } from "../kernel/json.ts";
import { coalesced } from "../kernel/pacing.ts";
import type { Notices } from "../storage/dialects/postgres-notices.ts";
import type { WorkerDeps } from "../workers/deps.ts";
import type { OpenStorage } from "./storage/open-storage.ts";

/** How long changes are gathered: a notice of each commit would hold up all of them, one behind the other. */
const GATHER_MS = 200;
/** How often the database is read while no notices arrive, and while they do: a killed process has not sent them all. */
const POLL_MS = 2000;
const LISTENING_POLL_MS = 15_000;
/** PostgreSQL takes a notice of less than 8000 bytes. The rest is for the name of the process. */
const BATCHES_BYTES = 7800;
const FAILURES_PER_BATCH = 3;
const LATEST = 100;

/** A poll reads all that is at work: a hundred notices a second must not become as many polls. */
const WORK_PAUSE_MS = 200;

/** The changes of a batch since the last notice. */
interface Change {
  images: number;
  /** The custom ids of the first items that failed. */
  failed: string[];
  isGone: boolean;
}

type Deps = Pick<WorkerDeps, "feed" | "stores" | "clock" | "log" | "ids">;

/**
 * Brings the changes that other processes make to the feed of this one, and the changes of this one to the others, before the
 * next heartbeat. By notices where they arrive, and by reading the database where they do not.
 */
export class SharedFeed {
  readonly #deps: Deps;
  /** Distinguishes its own notices from those of others. */
  readonly #from: string;
  readonly #notices: Notices | null;
  readonly #resumeProvider: (name: string) => unknown;
  readonly #changes = new Map<string, Change>();
  readonly #unsubscribe: () => void;
  readonly #timer: NodeJS.Timeout;
  /** The batches as they were at the last poll; null before. */
  #polled: Map<string, { state: string; images: number }> | null = null;
  #pollAtMs = 0;
  #isPolling = false;
  /** The events that are published now come from another process. */
  #isRepeating = false;

  /**
   * `listen` is null where there are no notices. `pollWork` looks for work that others have called for. `resumeProvider`
   * forgets the troubles of a provider that another process was told to ask again.
   */
  constructor(
    deps: Deps,
    listen: OpenStorage["listen"],
    { pollWork, resumeProvider }: { pollWork(): Promise<unknown>; resumeProvider(name: string): unknown },
  ) {
    this.#deps = deps;
    this.#resumeProvider = resumeProvider;
    this.#from = deps.ids.recordId("process");
    const poll = coalesced(async () => {
      await pollWork().catch((error) => {
        deps.log.error("the work of others could not be looked at", { error: String(error) });
      });
      await deps.clock.sleep(WORK_PAUSE_MS);
    });
    this.#notices = listen?.((text) => this.#read(text) && void poll()) ?? null;
    this.#unsubscribe = deps.feed.subscribe((event) => this.#note(event));
    this.#timer = setInterval(() => this.#tick(), GATHER_MS).unref();
  }

  /** Notifies the other processes at once that there is work for them, or that some of theirs has ended. */
  notifyWorkers(): void {
    this.#notices?.send(JSON.stringify({ from: this.#from, look: true }));
  }

  /** Lets the other processes ask a provider again at once. */
  notifyResume(name: string): void {
    this.#notices?.send(JSON.stringify({ from: this.#from, resume: name }));
  }

  /** The work that this process gave back is taken up at once. */
  async close(): Promise<void> {
    this.#unsubscribe();
    clearInterval(this.#timer);
    this.#flush();
    this.notifyWorkers();
    await this.#notices?.close();
  }

  /** Reads a notice. Returns whether it calls this process to look for work. */
  #read(text: string): boolean {
    const { from, look, batches, resume } = fieldsOf(parsed(text)) ?? {};
    if (from === this.#from) return false;
    if (typeof resume === "string") this.#resumeProvider(resume);
    for (const each of Array.isArray(batches) ? batches : []) {
      const { id, images = 0, failed = [], gone } = fieldsOf(each) ?? {};
      if (typeof id !== "string") continue;
      if (gone === true) this.#publish({ type: "batch-gone", batchId: id });
      else
        this.#publish({ type: "elsewhere", batchId: id, images: Number(images), failed: failed as string[] });
    }
    return look === true;
  }

  #publish(event: ServiceEvent): void {
    this.#isRepeating = true;
    this.#deps.feed.publish(event);
    this.#isRepeating = false;
  }

  #note(event: ServiceEvent): void {
    if (this.#isRepeating || event.type === "log" || event.type === "request" || event.type === "elsewhere")
      return;
    const { batchId } = event;
    const change = this.#changes.get(batchId) ?? { images: 0, failed: [], isGone: false };
    this.#changes.set(batchId, change);
    if (event.type === "batch-gone") change.isGone = true;
    if (event.type !== "item") return;
    if (event.status === "success") change.images++;
    if (event.status === "failed" && change.failed.length < FAILURES_PER_BATCH)
      change.failed.push(event.customId);
  }

  #tick(): void {
    this.#flush();
    const isListening = this.#notices?.isListening === true;
    const nowMs = this.#deps.clock.monotonicMs();
    if (this.#isPolling || nowMs - this.#pollAtMs < (isListening ? LISTENING_POLL_MS : POLL_MS)) return;
    this.#pollAtMs = nowMs;
    this.#isPolling = true;
    this.#poll(isListening)
      .catch((error) => this.#deps.log.warn("changes of others could not be read", { error: String(error) }))
      .finally(() => {
        this.#isPolling = false;
      });
  }

  #flush(): void {
    let batches: string[] = [];
    let bytes = 0;
    const send = () => {
      if (batches.length === 0) return;
      this.#notices?.send(`{"from":${JSON.stringify(this.#from)},"batches":[${batches.join()}]}`);
      batches = [];
      bytes = 0;
    };
    for (const [id, { images, failed, isGone }] of this.#changes) {
      const batch = JSON.stringify({
        id,
        ...(images > 0 ? { images } : {}),
        ...(failed.length > 0 ? { failed } : {}),
        ...(isGone ? { gone: true } : {}),
      });
      const batchBytes = Buffer.byteLength(batch) + 1;
      if (bytes + batchBytes > BATCHES_BYTES) send();
      batches.push(batch);
      bytes += batchBytes;
    }
    send();
    this.#changes.clear();
  }

  /** Publishes what differs from the last poll. Notices, where they arrive, have counted the images. */
  async #poll(isListening: boolean): Promise<void> {
    const { batches } = this.#deps.stores.read;
    const atWork = await batches.withStatus(["running", "processing_results", "settling"]);
    const found = [...atWork, ...(await batches.latest(LATEST))];
    const before = this.#polled ?? new Map();
    const now = new Map(
      found.map(({ id, status, successCount, failCount, waitingSinceMs }) => [
        id,
        { state: `${status} ${successCount} ${failCount} ${waitingSinceMs}`, images: successCount, status },
      ]),
    );
    const isFirst = this.#polled === null;
    this.#polled = now;
    for (const [batchId, { state, images, status }] of now) {
      const last = before.get(batchId);
      if (last?.state === state || (isFirst && isTerminal(status))) continue;
      const made = last === undefined || isListening ? 0 : Math.max(0, images - last.images);
      this.#publish({ type: "elsewhere", batchId, images: made, failed: [] });
    }
    for (const batchId of before.keys()) {
      if (now.has(batchId)) continue;
      const isThere = (await batches.byId(batchId))?.recordDeletedAtMs === null;
      if (isThere) this.#publish({ type: "elsewhere", batchId, images: 0, failed: [] });
      else this.#publish({ type: "batch-gone", batchId });
    }
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
