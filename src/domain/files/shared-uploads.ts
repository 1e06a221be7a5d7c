import { createHash } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { FileFacts } from "../ports/files.ts";
import type { UploadRecord } from "../ports/shared-records.ts";
import {
  bytesOfUploads,
  fileTooLarge,
  refuseBeyondQuota,
  refuseTakenName,
  storedBytes,
  type UploadLimits,
} from "./rules.ts";
import { newUploadId, Upload, type UploadDeps } from "./upload.ts";
import type { Parts } from "./upload-ties.ts";
import { IDLE_MS, type UploadStore } from "./uploads.ts";

/** Where the chunks of unfinished uploads are kept. */
const PARTS_PREFIX = "uploads/";

/**
 * Uploads whose chunks any process may take: what each request has brought is stored, and every request begins with what the
 * database knows.
 */
export class SharedUploads implements UploadStore {
  readonly #deps: UploadDeps;
  readonly #limits: UploadLimits;

  constructor(deps: UploadDeps, limits: UploadLimits) {
    this.#deps = deps;
    this.#limits = limits;
  }

  async begin(apiKeyId: string, facts: FileFacts, announcedBytes: number | null): Promise<Upload> {
    const { uploadBytes } = this.#limits;
    const { stores, clock } = this.#deps;
    if ((announcedBytes ?? 0) > uploadBytes) throw fileTooLarge(uploadBytes);
    if (facts.id !== null) await refuseTakenName(this.#deps, apiKeyId, facts.id);
    const stored = await storedBytes(this.#deps, apiKeyId);
    const id = newUploadId();
    const touchedAtMs = clock.nowMs();
    const record: UploadRecord = {
      id: sha256Hex(id),
      apiKeyId,
      facts,
      announcedBytes,
      receivedBytes: 0,
      parts: [],
      fileId: null,
      touchedAtMs,
    };
    const open = await stores.write(async (tx) => {
      await tx.lock("key", apiKeyId);
      const all = await tx.uploads.openOfKey(apiKeyId);
      const open = all.filter((each) => touchedAtMs - each.touchedAtMs < IDLE_MS);
      refuseBeyondQuota(this.#limits, open, stored + (announcedBytes ?? 0));
      await tx.uploads.insert(record);
      return open;
    });
    return this.#uploadOf(id, record, bytesOfUploads(open));
  }

  async find(id: string): Promise<Upload> {
    const { stores, clock } = this.#deps;
    const record = await stores.read.uploads.find(sha256Hex(id));
    if (record === null || clock.nowMs() - record.touchedAtMs >= IDLE_MS)
      throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    const open = await stores.read.uploads.openOfKey(record.apiKeyId);
    return this.#uploadOf(id, record, bytesOfUploads(open.filter((each) => each.id !== record.id)));
  }

  async endIdle(): Promise<void> {
    const { stores, clock } = this.#deps;
    for (const { id } of await stores.read.uploads.idleSince(clock.nowMs() - IDLE_MS)) await this.#forget(id);
  }

  async #uploadOf(id: string, record: UploadRecord, otherBytes: number): Promise<Upload> {
    const { apiKeyId, facts, announcedBytes, receivedBytes, fileId } = record;
    const file = fileId === null ? null : await this.#deps.stores.read.files.find(apiKeyId, fileId);
    const upload: Upload = new Upload(
      this.#deps,
      { apiKeyId, facts, announcedBytes },
      {
        limits: this.#limits,
        openBytes: () => otherBytes + upload.receivedBytes,
        onEnd: () => (upload.state === "final" ? this.#removeParts(record.id) : this.#forget(record.id)),
        parts: this.#partsOf(record),
      },
      { id, receivedBytes: file?.sizeBytes ?? receivedBytes, file },
    );
    return upload;
  }

  #partsOf({ id, parts }: UploadRecord): Parts {
    const { stores, blobs, clock } = this.#deps;
    let keys = parts;
    const keyOf = () => `${prefixOf(id)}${newUploadId()}`;
    return {
      keep: async (draft, from, to) => {
        const key = keyOf();
        await draft.keepAs(key);
        const change = { receivedBytes: to, parts: [...keys, key], touchedAtMs: clock.nowMs() };
        const { isChanged } = await stores.write((tx) =>
          tx.uploads.change({ id, receivedBytes: from }, change),
        );
        if (!isChanged) {
          await blobs.delete(key);
          throw takenOver();
        }
        keys = change.parts;
      },
      join: async (last) => {
        const lastKey = keyOf();
        // As a blob it can be read a little at a time.
        await last?.keepAs(lastKey);
        const draft = blobs.draft();
        const hash = createHash("sha256");
        try {
          for (const key of last === null ? keys : [...keys, lastKey]) {
            const stream = await blobs.open(key);
            if (stream === null) throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
            for await (const bytes of stream) {
              await draft.write(bytes);
              hash.update(bytes);
            }
          }
          return { draft, sha256: hash.digest("hex") };
        } catch (error) {
          await draft.discard();
          throw error;
        }
      },
      finish: async (tx, receivedBytes, fileId) => {
        const change = { fileId, touchedAtMs: clock.nowMs() };
        const { isChanged } = await tx.uploads.change({ id, receivedBytes }, change);
        if (!isChanged) throw takenOver();
      },
    };
  }

  /** Those that cannot be removed now are removed with the idle uploads. */
  async #removeParts(id: string): Promise<void> {
    await this.#deps.blobs.deleteAll(prefixOf(id)).catch(() => {});
  }

  async #forget(id: string): Promise<void> {
    await this.#deps.blobs.deleteAll(prefixOf(id)).catch(() => {});
    await this.#deps.stores.write((tx) => tx.uploads.remove(id));
  }
}

const prefixOf = (id: string) => `${PARTS_PREFIX}${id}/`;

const takenOver = () => new ImgbatchError("FILE_UPLOAD_TAKEN_OVER");
