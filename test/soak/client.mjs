import { createHash } from "node:crypto";
import { expect, hasEnded } from "./memory.mjs";

const BATCHES = "/v1/images/batches";

/** The service went away before it answered. */
export class Gone extends Error {}

const codeOf = (answer) => answer.json?.error?.code;

/** Talks to the service as its clients do, and holds every answer against what it remembers. */
export class Client {
  constructor(url, memory) {
    this.url = url;
    this.memory = memory;
  }

  /** Whether a service that does all right may answer with this status. */
  mayAnswer(status) {
    return status < 500;
  }

  async ask(key, path, init = {}) {
    let answer;
    try {
      const headers = { authorization: `Bearer ${key}`, ...init.headers };
      const response = await fetch(this.url + (path.startsWith("/v1beta") ? path : BATCHES + path), {
        ...init,
        headers,
      });
      answer = {
        status: response.status,
        headers: response.headers,
        bytes: Buffer.from(await response.arrayBuffer()),
      };
    } catch (cause) {
      throw new Gone("the service is gone", { cause });
    }
    const isJson = answer.headers.get("content-type")?.startsWith("application/json");
    if (isJson) answer.json = JSON.parse(answer.bytes.toString());
    const code = codeOf(answer);
    const what = `${init.method ?? "GET"} ${path} answered ${answer.status} ${answer.bytes.subarray(0, 300)}`;
    expect(this.mayAnswer(answer.status), what);
    return { ...answer, code, what };
  }

  /** Sends a create, or sends it again. Answers what is remembered of the batch; null when it was refused. */
  async create(want) {
    const known = want.batchId && this.memory.known(want.batchId);
    const tried = want.batchId && this.memory.batches.get(want.batchId).tried;
    const headers = { "content-type": "application/json", "idempotency-key": want.idempotencyKey };
    const answer = await this.ask(want.key, "", { method: "POST", headers, body: JSON.stringify(want.body) });
    if (answer.status === 409 && tried?.deleteRecord) return this.memory.batches.get(want.batchId);
    if (answer.status === 402 && want.batchId === null) return null;
    expect(answer.status === 200, `${answer.what} (key ${want.idempotencyKey}, before: ${want.batchId})`);
    expect(!known?.done.deleteRecord, `the record of ${want.batchId} was deleted; its key is answered again`);
    if (known) expect(answer.headers.get("idempotency-replayed") === "true", `${want.batchId} is no replay`);
    const entry = this.memory.accepted(want, answer.json);
    this.memory.saw(answer.json, known || { view: answer.json, done: {} });
    return entry;
  }

  /** Asks something of a batch; null when its record is rightly gone. */
  async #of(entry, path, init) {
    const known = this.memory.known(entry.id);
    const answer = await this.ask(entry.want.key, `/${entry.id}${path}`, init);
    if (answer.status === 404 && answer.code === "BATCH_IMAGE_NOT_FOUND") {
      expect(entry.tried.deleteRecord, `${entry.id} was accepted (${known.view.status}) and is not known`);
      return null;
    }
    expect(!known.done.deleteRecord, `the record of ${entry.id} was deleted and is there`);
    return { ...answer, known };
  }

  async look(entry) {
    const answer = await this.#of(entry, "");
    if (!answer) return null;
    expect(answer.status === 200, answer.what);
    this.memory.saw(answer.json, answer.known);
    return answer.json;
  }

  async cancel(entry) {
    entry.tried.cancel = true;
    const answer = await this.#of(entry, "/cancel", { method: "POST" });
    if (!answer) return;
    expect(answer.status === 200 && hasEnded(answer.json.status), answer.what);
    this.memory.saw(answer.json, answer.known);
    entry.done.cancel = true;
  }

  async deleteOutputs(entry) {
    const wasEnded = hasEnded(entry.view.status);
    entry.tried.deleteOutputs = true;
    const answer = await this.#of(entry, "/outputs", { method: "DELETE" });
    if (!answer) return;
    if (!wasEnded && answer.status === 409) return;
    expect(answer.status === 200 && answer.json.status === "output_deleted", answer.what);
    this.memory.saw(answer.json, answer.known);
    entry.done.deleteOutputs = true;
  }

  async deleteRecord(entry) {
    const wasEnded = hasEnded(entry.view.status);
    entry.tried.deleteRecord = true;
    const answer = await this.#of(entry, "", { method: "DELETE" });
    if (!answer) return;
    if (!wasEnded && answer.status === 409) return;
    expect(answer.status === 200 || answer.status === 204, answer.what);
    entry.done.deleteRecord = true;
  }

  async items(entry) {
    const answer = await this.#of(entry, "/items?limit=500");
    if (!answer) return null;
    expect(answer.status === 200, answer.what);
    return answer.json.data;
  }

  /** The bytes of an image; null when there rightly is none. */
  async content(entry, customId, index = 0) {
    const path = `/items/${encodeURIComponent(customId)}/content?image_index=${index}`;
    const answer = await this.#of(entry, path);
    if (!answer || !this.#hasOutputs(entry, answer)) return null;
    return answer.bytes;
  }

  /** The ZIP of a batch; null when there rightly is none. */
  async zip(entry) {
    const answer = await this.#of(entry, "/download?status=all");
    return answer && this.#hasOutputs(entry, answer) ? answer.bytes : null;
  }

  #hasOutputs(entry, answer) {
    if (answer.status === 200) {
      expect(!answer.known.done.deleteOutputs, `outputs of ${entry.id} were deleted and are sent`);
      return true;
    }
    const { view } = answer.known;
    const isRight =
      (answer.status === 410 && entry.tried.deleteOutputs) ||
      (answer.code === "BATCH_IMAGE_NOT_READY" && (!hasEnded(view.status) || view.success_count === 0)) ||
      answer.code === "BATCH_IMAGE_ITEM_FAILED" ||
      answer.code === "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE" ||
      answer.status === 429;
    expect(isRight, answer.what);
    return false;
  }
}

export const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
