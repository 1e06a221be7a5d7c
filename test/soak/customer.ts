import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { readZip } from "../support/zip.ts";

const BATCHES = "/v1/images/batches";
const PATIENCE_MS = 60_000;
/** How far each status is: a batch never goes back. */
const RANK: Record<string, number> = {
  queued: 0,
  running: 1,
  processing_results: 2,
  settling: 3,
  completed: 4,
  failed: 4,
  cancelled: 4,
  output_deleted: 5,
};
const rank = (status: string) => RANK[status] ?? -1;
const hasEnded = (status: string) => rank(status) >= 4;

/** Checks a promise of the service; throws where it is not kept. */
export function expect(isRight: unknown, message: string): asserts isRight {
  if (!isRight) throw new Error(message);
}

/** The service went away before it answered. */
export class Gone extends Error {}

/** A create that was sent under an idempotency key. */
interface Want {
  idempotencyKey: string;
  key: string;
  body: object;
  /** Null before an answer came. */
  batchId: string | null;
}

type Deeds = Record<"cancel" | "deleteOutputs" | "deleteRecord", boolean>;

/** A batch as the last answer showed it. */
interface Entry {
  id: string;
  want: Want;
  view: BatchObject;
  /** What was asked of the service, and what it has confirmed. */
  tried: Deeds;
  done: Deeds;
}

/** What is known when a request is sent: its answer must agree with it. */
type Known = Pick<Entry, "view" | "done">;

export interface CustomerAnswer {
  status: number;
  headers: Headers;
  bytes: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: any document of the service
  json?: any;
  code: string | undefined;
  /** The request and its answer, for a report. */
  what: string;
}

/**
 * Talks to the service as its clients do, and holds every answer, over all kills, against what it was answered before. `Gone`
 * when there is no answer.
 */
export class Customer {
  /** Every create that was ever sent, by its idempotency key. */
  readonly wants = new Map<string, Want>();
  /** The last seen state of each batch, by id. */
  readonly batches = new Map<string, Entry>();
  url = "";

  /** Whether a service that does all right may answer with this status. */
  mayAnswer(status: number): boolean {
    return status < 500;
  }

  /** `path` is below the batches, or begins with `/v1beta`. */
  async ask(key: string, path: string, init: RequestInit = {}): Promise<CustomerAnswer> {
    const headers = { authorization: `Bearer ${key}`, ...(init.headers as object) };
    const url = this.url + (path.startsWith("/v1beta") ? path : BATCHES + path);
    let response: Response;
    let bytes: Buffer;
    try {
      response = await fetch(url, { ...init, headers });
      bytes = Buffer.from(await response.arrayBuffer());
    } catch (cause) {
      throw new Gone("the service is gone", { cause });
    }
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    const json = isJson ? JSON.parse(bytes.toString()) : undefined;
    const what = `${init.method ?? "GET"} ${path} answered ${response.status} ${bytes.subarray(0, 300)}`;
    expect(this.mayAnswer(response.status), what);
    return { status: response.status, headers: response.headers, bytes, json, code: json?.error?.code, what };
  }

  want(idempotencyKey: string, key: string, body: object): Want {
    const want = { idempotencyKey, key, body, batchId: null };
    this.wants.set(idempotencyKey, want);
    return want;
  }

  /** Sends a create, or sends it again. Returns the batch; null when it was refused for money. */
  async create(want: Want): Promise<Entry | null> {
    const entry = want.batchId === null ? undefined : this.batches.get(want.batchId);
    const known = entry && knownOf(entry);
    const headers = { "content-type": "application/json", "idempotency-key": want.idempotencyKey };
    const init = { method: "POST", headers, body: JSON.stringify(want.body) };
    const answer = await this.ask(want.key, "", init);
    if (answer.status === 409 && entry?.tried.deleteRecord) return entry;
    if (answer.status === 402 && want.batchId === null) return null;
    expect(answer.status === 200, `${answer.what} (key ${want.idempotencyKey}, before: ${want.batchId})`);
    expect(!known?.done.deleteRecord, `the record of ${want.batchId} was deleted; its key is answered again`);
    if (known) expect(answer.headers.get("idempotency-replayed") === "true", `${want.batchId} is no replay`);
    const batch: BatchObject = answer.json;
    const isSame = want.batchId === null || want.batchId === batch.id;
    expect(isSame, `key ${want.idempotencyKey} made ${want.batchId}, and now ${batch.id}`);
    want.batchId = batch.id;
    const none = { cancel: false, deleteOutputs: false, deleteRecord: false };
    const made = this.batches.get(batch.id) ?? {
      ...{ id: batch.id, want, view: batch, done: { ...none }, tried: { ...none } },
    };
    this.batches.set(batch.id, made);
    saw(made, batch, known ?? { view: batch, done: none });
    return made;
  }

  /** Asks something of a batch; null when its record is rightly gone. */
  async #of(entry: Entry, path: string, init?: RequestInit): Promise<(CustomerAnswer & Known) | null> {
    const known = knownOf(entry);
    const answer = await this.ask(entry.want.key, `/${entry.id}${path}`, init);
    if (answer.status === 404 && answer.code === "BATCH_IMAGE_NOT_FOUND") {
      expect(entry.tried.deleteRecord, `${entry.id} was accepted (${known.view.status}) and is not known`);
      return null;
    }
    expect(!known.done.deleteRecord, `the record of ${entry.id} was deleted and is there`);
    return { ...answer, ...known };
  }

  async poll(entry: Entry): Promise<BatchObject | null> {
    const answer = await this.#of(entry, "");
    if (!answer) return null;
    expect(answer.status === 200, answer.what);
    saw(entry, answer.json, answer);
    return answer.json;
  }

  async cancel(entry: Entry): Promise<void> {
    entry.tried.cancel = true;
    const answer = await this.#of(entry, "/cancel", { method: "POST" });
    if (!answer) return;
    expect(answer.status === 200 && hasEnded(answer.json.status), answer.what);
    saw(entry, answer.json, answer);
    entry.done.cancel = true;
  }

  async deleteOutputs(entry: Entry): Promise<void> {
    const answer = await this.#delete(entry, "deleteOutputs", "/outputs");
    if (!answer) return;
    expect(answer.status === 200 && answer.json.status === "output_deleted", answer.what);
    saw(entry, answer.json, answer);
    entry.done.deleteOutputs = true;
  }

  async deleteRecord(entry: Entry): Promise<void> {
    const answer = await this.#delete(entry, "deleteRecord", "");
    if (!answer) return;
    expect(answer.status === 200 || answer.status === 204, answer.what);
    entry.done.deleteRecord = true;
  }

  /** Null when the batch is gone, or has not ended and rightly stays. */
  async #delete(entry: Entry, deed: keyof Deeds, path: string) {
    const wasEnded = hasEnded(entry.view.status);
    entry.tried[deed] = true;
    const answer = await this.#of(entry, path, { method: "DELETE" });
    return answer?.status === 409 && !wasEnded ? null : answer;
  }

  async items(entry: Entry): Promise<{ status: string; image_count: number }[] | null> {
    const answer = await this.#of(entry, "/items?limit=500");
    if (!answer) return null;
    expect(answer.status === 200, answer.what);
    return answer.json.data;
  }

  /** The bytes of an image; null when there rightly is none. */
  async content(entry: Entry, customId = "i0", index = 0): Promise<Buffer | null> {
    return this.#output(entry, `/items/${encodeURIComponent(customId)}/content?image_index=${index}`);
  }

  /** The ZIP of a batch; null when there rightly is none. */
  async zip(entry: Entry): Promise<Buffer | null> {
    return this.#output(entry, "/download?status=all");
  }

  async #output(entry: Entry, path: string): Promise<Buffer | null> {
    const answer = await this.#of(entry, path);
    if (!answer) return null;
    const { status, code, view, done } = answer;
    if (status === 200) {
      expect(!done.deleteOutputs, `outputs of ${entry.id} were deleted and are sent`);
      return answer.bytes;
    }
    const isRight =
      (status === 410 && entry.tried.deleteOutputs) ||
      (code === "BATCH_IMAGE_NOT_READY" && (!hasEnded(view.status) || view.success_count === 0)) ||
      code === "BATCH_IMAGE_ITEM_FAILED" ||
      code === "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE" ||
      status === 429;
    expect(isRight, answer.what);
    return null;
  }

  /** Resolves when `is` holds of the batch, it has ended, or its record is gone. */
  async until(entry: Entry, is = (_: BatchObject) => false): Promise<void> {
    const deadline = Date.now() + PATIENCE_MS;
    for (
      let batch = await this.poll(entry);
      batch && !is(batch) && !hasEnded(batch.status);
      batch = await this.poll(entry)
    ) {
      expect(Date.now() < deadline, `${entry.id} does not end: ${JSON.stringify(batch)}`);
      await sleep(5);
    }
  }

  /** Sends every create once more, waits until everything has ended, and checks every batch and image. */
  async drain(): Promise<void> {
    for (const want of this.wants.values()) await this.create(want);
    for (const entry of this.batches.values()) {
      await this.until(entry);
      await this.#checkBatch(entry);
    }
  }

  async #checkBatch(entry: Entry): Promise<void> {
    const items = await this.items(entry);
    if (items === null) return;
    const { success_count, fail_count, item_count } = entry.view;
    const count = (status: string) => items.filter((item) => item.status === status).length;
    const isRight =
      [count("success"), count("failed"), items.length].join() ===
      [success_count, fail_count, item_count].join();
    expect(isRight, `${entry.id}: its items are not what it counts`);
    const zip = await this.zip(entry);
    if (zip === null) return;
    const entries = await readZip(zip);
    const { files } = JSON.parse(String(entries.get("manifest.json")));
    const images = items.reduce((sum, item) => sum + item.image_count, 0);
    expect(files.length === images, `${entry.id}: ${images} images, ${files.length} in the manifest`);
    for (const { custom_id, image_index, sha256: hash, filename } of files) {
      const bytes = await this.content(entry, custom_id, image_index);
      const what = `${entry.id} ${custom_id}`;
      expect(bytes && sha256(bytes) === hash, `${what}: its bytes are not those of the manifest`);
      expect(sha256(entries.get(filename) ?? "") === hash, `${what}: the ZIP has other bytes`);
    }
  }
}

export const sha256 = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");

const knownOf = ({ view, done }: Entry): Known => ({ view, done: { ...done } });

/** Checks a batch as it was answered, and remembers it. */
function saw(entry: Entry, now: BatchObject, { view: before, done }: Known): void {
  const text = (batch: BatchObject) => `${batch.status} (${batch.success_count}+${batch.fail_count})`;
  const what = `${now.id} was ${text(before)}, is ${text(now)}`;
  expect(rank(now.status) >= rank(before.status), what);
  const isKept = now.status === before.status || now.status === "output_deleted";
  expect(rank(before.status) !== 4 || isKept, what);
  expect(now.success_count >= before.success_count && now.fail_count >= before.fail_count, what);
  expect(now.hold_amount === before.hold_amount, `${now.id}: the hold was changed`);
  if (hasEnded(before.status)) {
    expect(
      now.actual_cost === before.actual_cost,
      `${what}: the cost ${before.actual_cost} is ${now.actual_cost}`,
    );
    expect(now.success_count === before.success_count, what);
  }
  expect(!done.cancel || hasEnded(now.status), `${now.id} was cancelled and is ${now.status}`);
  expect(
    !done.deleteOutputs || now.status === "output_deleted",
    `outputs of ${now.id} were deleted: ${what}`,
  );
  if (rank(now.status) >= rank(entry.view.status)) entry.view = now;
}
