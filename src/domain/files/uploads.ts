import { randomBytes } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { FileFacts, UploadRecord } from "../ports/stores.ts";
import { refuseTakenName } from "./files.ts";
import {
  bytesOfUploads,
  fileOf,
  fileTooLarge,
  forget,
  quotaExceeded,
  Upload,
  type UploadContext,
} from "./upload.ts";

/** An upload that nobody goes on with ends after an hour. A finished one is kept that long for a client that lost the answer. */
const IDLE_MS = 3_600_000;

/**
 * The uploads that are on their way. What each request has brought is stored, so that any process can take the next chunk, also
 * after a restart.
 */
export class Uploads {
  readonly #context: UploadContext;

  constructor(deps: Omit<UploadContext, "limits" | "active">, limits: UploadContext["limits"]) {
    this.#context = { ...deps, limits, active: new Map() };
  }

  /**
   * Begins an upload. `announcedBytes` is the size of the file; null when the caller does not say it. Throws
   * `REQUEST_TOO_LARGE`, `FILE_QUOTA_EXCEEDED` and `FILE_NAME_TAKEN`.
   */
  async begin(apiKeyId: string, facts: FileFacts, announcedBytes: number | null): Promise<Upload> {
    const { stores, clock, limits } = this.#context;
    const { uploadBytes, uploadBytesPerKey, openUploadsPerKey } = limits;
    if ((announcedBytes ?? 0) > uploadBytes) throw fileTooLarge(uploadBytes);
    if (facts.id !== null) await refuseTakenName(this.#context, apiKeyId, facts.id);
    const id = randomBytes(16).toString("hex");
    const touchedAtMs = clock.nowMs();
    const stored = await stores.read.files.bytesOf(apiKeyId, touchedAtMs);
    const rowId = sha256Hex(id);
    const progress = { receivedBytes: 0, parts: [], fileId: null, touchedAtMs };
    const record: UploadRecord = { id: rowId, apiKeyId, facts, announcedBytes, ...progress };
    await stores.write(async (tx) => {
      await tx.lock("key", apiKeyId);
      const all = await tx.uploads.openOfKey(apiKeyId);
      const open = all.filter((each) => !this.#isIdle(each));
      if (open.length >= openUploadsPerKey) {
        const message = `This key has ${openUploadsPerKey} open uploads; finish or cancel one of them.`;
        throw new ImgbatchError("FILE_QUOTA_EXCEEDED", message);
      }
      const bytes = bytesOfUploads(open, this.#context.active) + stored + (announcedBytes ?? 0);
      if (bytes > uploadBytesPerKey) throw quotaExceeded(uploadBytesPerKey);
      await tx.uploads.insert(record);
    });
    return new Upload(this.#context, id, record, null);
  }

  /** The upload that is open, or was finished within the last hour. Throws `FILE_UPLOAD_NOT_FOUND`. */
  async find(id: string): Promise<Upload> {
    const { stores } = this.#context;
    const record = await stores.read.uploads.find(sha256Hex(id));
    if (record === null || this.#isIdle(record)) throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    const file = await fileOf(stores, record);
    if (record.fileId !== null && file === null) throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    return new Upload(this.#context, id, record, file);
  }

  /** Ends the uploads that nobody has gone on with for an hour. */
  async endIdle(): Promise<void> {
    const { stores, clock } = this.#context;
    for (const record of await stores.read.uploads.idleSince(clock.nowMs() - IDLE_MS))
      if (this.#isIdle(record)) await forget(this.#context, record.id);
  }

  #isIdle({ id, touchedAtMs }: UploadRecord): boolean {
    const { clock, active } = this.#context;
    return !active.has(id) && clock.nowMs() - touchedAtMs >= IDLE_MS;
  }
}
