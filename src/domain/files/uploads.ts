import { ImgbatchError } from "../../contract/errors.ts";
import type { FileFacts } from "../ports/files.ts";
import {
  bytesOfUploads,
  fileTooLarge,
  refuseBeyondQuota,
  refuseTakenName,
  storedBytes,
  type UploadLimits,
} from "./rules.ts";
import { Upload, type UploadDeps } from "./upload.ts";

/** An upload that nobody goes on with ends after an hour. A finished one is kept that long for a client that lost the answer. */
export const IDLE_MS = 3_600_000;
/** More finished ones are forgotten, the oldest first. */
const MOST_FINISHED = 10_000;

/** The uploads that are on their way. */
export interface UploadStore {
  /**
   * Begins an upload. `announcedBytes` is the size of the file; null when the caller does not say it. Throws
   * `REQUEST_TOO_LARGE`, `FILE_QUOTA_EXCEEDED` and `FILE_NAME_TAKEN`.
   */
  begin(apiKeyId: string, facts: FileFacts, announcedBytes: number | null): Promise<Upload>;
  /** The upload that is open, or was finished within the last hour. Throws `FILE_UPLOAD_NOT_FOUND`. */
  find(id: string): Promise<Upload>;
  /** Ends the uploads that nobody has gone on with for an hour. */
  endIdle(): Promise<void>;
}

/** The uploads of this process. They end with it: their bytes are removed at the next start. */
export class Uploads implements UploadStore {
  readonly #deps: UploadDeps;
  readonly #limits: UploadLimits;
  readonly #open = new Map<string, Upload>();
  /** Oldest first. */
  readonly #finished = new Map<string, Upload>();

  constructor(deps: UploadDeps, limits: UploadLimits) {
    this.#deps = deps;
    this.#limits = limits;
  }

  async begin(apiKeyId: string, facts: FileFacts, announcedBytes: number | null): Promise<Upload> {
    const { uploadBytes } = this.#limits;
    if ((announcedBytes ?? 0) > uploadBytes) throw fileTooLarge(uploadBytes);
    await this.endIdle();
    if (facts.id !== null) await refuseTakenName(this.#deps, apiKeyId, facts.id);
    const stored = await storedBytes(this.#deps, apiKeyId);
    // From here on nothing is awaited: no other upload can come in between.
    refuseBeyondQuota(this.#limits, this.#openOf(apiKeyId), stored + (announcedBytes ?? 0));
    const caller = { apiKeyId, facts, announcedBytes };
    const upload: Upload = new Upload(this.#deps, caller, {
      limits: this.#limits,
      openBytes: () => {
        const others = this.#openOf(apiKeyId).filter((other) => other !== upload);
        return bytesOfUploads(others) + upload.receivedBytes;
      },
      onEnd: () => this.#ended(upload),
      parts: null,
    });
    this.#open.set(upload.id, upload);
    return upload;
  }

  async find(id: string): Promise<Upload> {
    const upload = this.#open.get(id) ?? this.#finished.get(id);
    if (upload) return upload;
    throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
  }

  async endIdle(): Promise<void> {
    const isIdle = ({ touchedMs }: Upload) => this.#deps.clock.monotonicMs() - touchedMs >= IDLE_MS;
    for (const upload of [...this.#open.values()]) {
      if (!upload.isBusy && isIdle(upload)) await upload.cancel();
    }
    for (const [id, upload] of this.#finished) {
      if (this.#finished.size <= MOST_FINISHED && !isIdle(upload)) break;
      this.#finished.delete(id);
    }
  }

  #ended(upload: Upload): void {
    this.#open.delete(upload.id);
    if (upload.state === "final") this.#finished.set(upload.id, upload);
  }

  #openOf(apiKeyId: string): Upload[] {
    return [...this.#open.values()].filter((upload) => upload.apiKeyId === apiKeyId);
  }
}
