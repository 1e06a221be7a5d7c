import { ImgbatchError } from "../../contract/errors.ts";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { Clock } from "../../kernel/clock.ts";
import { imageInBlob, type SentImage } from "../images/sent-image.ts";
import { type BlobStore, StorageUnavailable } from "../ports/blob-store.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { InteractionPicture, InteractionRecord } from "../records.ts";
import { KEPT, picturesPrefix } from "../retention.ts";

interface Deps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
}

/** How many earlier interactions of a conversation a request continues at most. Older interactions are left out. */
const MOST_EARLIER = 100;

/** An image of an interaction that is to be stored. */
interface NewPicture {
  from: InteractionPicture["from"];
  mimeType: ImageMimeType;
  image: SentImage;
}

/**
 * An interaction that is being made. Its images become blobs first. Its answer is written in the transaction of the payment, so
 * that nobody can fetch what is not paid.
 */
export class NewInteraction {
  readonly id: string;
  readonly #deps: Deps;
  readonly #facts: Pick<InteractionRecord, "apiKeyId" | "api" | "previousId">;
  readonly #pictures: InteractionPicture[] = [];
  #content: Pick<InteractionRecord, "input" | "answer"> = { input: {}, answer: {} };
  /** Whether its row was written when the work began, because its caller does not wait for the answer. */
  #isBegun = false;

  constructor(deps: Deps, id: string, facts: Pick<InteractionRecord, "apiKeyId" | "api" | "previousId">) {
    this.#deps = deps;
    this.id = id;
    this.#facts = facts;
  }

  /**
   * Stores an image durably. Returns the key of its blob, which stands for its Base64 in `input` and `answer`. `isKept`: whether
   * the bytes are stored; false for an interaction that nobody can fetch later.
   */
  async add({ from, mimeType, image }: NewPicture, isKept = true): Promise<string> {
    const blobKey = `${picturesPrefix(this.id)}${this.#pictures.length}`;
    const { sizeBytes, sha256 } = image;
    if (isKept) await this.#deps.blobs.put(blobKey, await image.read());
    this.#pictures.push({ blobKey, mimeType, sizeBytes, sha256, from });
    return blobKey;
  }

  /** Writes the row of an interaction whose caller does not wait. `worker`: the process that works on it. */
  begin(
    tx: Transaction,
    content: Pick<InteractionRecord, "input" | "answer">,
    worker: string,
  ): Promise<void> {
    this.#isBegun = true;
    this.#content = content;
    return tx.interactions.insert(this.#record({ status: "in_progress", worker }));
  }

  /** Sets the content that `write` writes. */
  complete(content: Pick<InteractionRecord, "input" | "answer">): void {
    this.#content = content;
  }

  /** Writes the interaction with its answer. Throws `REALTIME_CANCELLED` when it was cancelled or deleted meanwhile. */
  async write(tx: Transaction): Promise<void> {
    if (!this.#isBegun) return tx.interactions.insert(this.#record({ status: "completed", worker: null }));
    const ended = { status: "completed" as const, ...this.#content, pictures: this.#pictures };
    const { isChanged } = await tx.interactions.end(this.id, ended);
    if (!isChanged) throw new ImgbatchError("REALTIME_CANCELLED", "The interaction was cancelled.");
  }

  /**
   * Writes that the interaction has failed. `answer`: the body that says why. An interaction whose row was not written at
   * its beginning leaves nothing: its images are removed.
   */
  async fail(error: unknown, answer: InteractionRecord["answer"]): Promise<void> {
    const { stores, blobs } = this.#deps;
    if (!this.#isBegun) {
      // The row may have been written all the same. Images without a row are removed later.
      if (!StorageUnavailable.mayHaveHappened(error)) await blobs.deleteAll(picturesPrefix(this.id));
      return;
    }
    const { input } = this.#content;
    const pictures = this.#pictures.filter(({ from }) => from === "input");
    await stores.write((tx) => tx.interactions.end(this.id, { status: "failed", input, answer, pictures }));
  }

  #record(state: Pick<InteractionRecord, "status" | "worker">): InteractionRecord {
    const createdAtMs = this.#deps.clock.nowMs();
    const times = { createdAtMs, expiresAtMs: createdAtMs + KEPT.interactions.forMs };
    return { id: this.id, ...this.#facts, ...this.#content, ...state, pictures: this.#pictures, ...times };
  }
}

/**
 * Finds an interaction by its id. Returns null unless it belongs to this key, was made by this API and has not expired. An
 * interaction whose process has ended counts as failed.
 */
export async function findInteraction(
  { stores, clock }: Pick<Deps, "stores" | "clock">,
  { apiKeyId, api }: Pick<InteractionRecord, "apiKeyId" | "api">,
  id: string,
): Promise<InteractionRecord | null> {
  const found = await stores.read.interactions.find(id);
  const isVisible = found?.apiKeyId === apiKeyId && found.api === api && found.expiresAtMs > clock.nowMs();
  if (!isVisible) return null;
  if (found.worker === null || (await stores.read.workers.isAlive(found.worker)).isAlive) return found;
  // It may have ended between the two reads.
  const now = await stores.read.interactions.find(id);
  return now?.status === "in_progress" ? { ...now, status: "failed" } : now;
}

/**
 * Returns an interaction and the interactions that it continues, the oldest first. A conversation begins after an interaction that
 * was deleted.
 */
export async function conversationOf(
  deps: Pick<Deps, "stores" | "clock">,
  last: InteractionRecord | null,
): Promise<InteractionRecord[]> {
  const conversation: InteractionRecord[] = [];
  for (let next = last; next !== null && conversation.length < MOST_EARLIER; ) {
    conversation.unshift(next);
    const { previousId }: InteractionRecord = next;
    next = previousId === null ? null : await findInteraction(deps, next, previousId);
  }
  return conversation;
}

/** Removes an interaction with its images. */
export async function deleteInteraction(
  { stores, blobs }: Pick<Deps, "stores" | "blobs">,
  { id }: Pick<InteractionRecord, "id">,
): Promise<void> {
  await stores.write((tx) => tx.interactions.remove(id));
  // The next start removes what cannot be removed now.
  await blobs.deleteAll(picturesPrefix(id)).catch(() => {});
}

/** Returns an image of an interaction. Reading throws `BATCH_IMAGE_RESULT_MISSING` when it is missing or damaged. */
export function pictureOf(blobs: BlobStore, { blobKey, ...facts }: InteractionPicture): SentImage {
  return imageInBlob(blobs, blobKey, facts, () => new ImgbatchError("BATCH_IMAGE_RESULT_MISSING"));
}

/**
 * Returns JSON text in which the Base64 of the images stands where the keys of their blobs were. `bytesOf`: the bytes of images
 * that need not be read again. Throws as `pictureOf`.
 */
export async function withPictures<Picture extends Pick<InteractionPicture, "blobKey">>(
  value: object,
  pictures: readonly Picture[],
  bytesOf: (picture: Picture) => Promise<Buffer>,
): Promise<string> {
  let text = JSON.stringify(value);
  for (const picture of pictures) {
    const name = JSON.stringify(picture.blobKey);
    if (!text.includes(name)) continue;
    const base64 = (await bytesOf(picture)).toString("base64");
    text = text.replaceAll(name, () => `"${base64}"`);
  }
  return text;
}
