import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../client/saving.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { PARTIAL_SUFFIX } from "../kernel/durable-file.ts";
import { type Ledger, readLedger } from "./ledger.ts";
import { isSameService } from "./service-identity.ts";

export const IMAGES_FOLDER = "images";

/** Names that a run writes: in a directory without a ledger they belong to somebody else. */
const OWN_NAMES = [IMAGES_FOLDER, "references", "input.jsonl", "results.jsonl", "retry.jsonl"];

export interface Owner {
  identity: string;
  keyFingerprint: string;
  /** Null when images are only fetched. */
  inputSha256: string | null;
}

/**
 * Makes the directory when needed and answers its ledger, null when it is new. Throws `DIRECTORY_CONFLICT` when it
 * belongs to another input, service or key, or holds files that a run would mix with its own.
 * Rules: RUN-5, RUN-6.
 */
export async function claimDirectory(dir: string, owner: Owner): Promise<Ledger | null> {
  await saving(dir, () => mkdir(dir, { recursive: true }));
  const ledger = await readLedger(dir);
  if (ledger === null) {
    await refuseForeignFiles(dir);
    return null;
  }
  requireSameService(dir, ledger, owner);
  if (ledger.input_sha256 !== owner.inputSha256) {
    throw conflict(dir, "belongs to a run with other prompts or options");
  }
  return ledger;
}

/** Throws `DIRECTORY_CONFLICT` unless the ledger's batches are of this service and key. */
export function requireSameService(dir: string, ledger: Ledger, owner: Omit<Owner, "inputSha256">): void {
  if (!isSameService(ledger.base_url, owner.identity)) {
    throw conflict(dir, `belongs to a run on another service (${ledger.base_url}, not ${owner.identity})`);
  }
  if (ledger.key_fingerprint !== owner.keyFingerprint) {
    throw conflict(dir, "belongs to a run with another API key, which alone can see its batches");
  }
}

async function refuseForeignFiles(dir: string): Promise<void> {
  for (const name of await saving(dir, () => readdir(dir))) {
    if (!OWN_NAMES.includes(name)) continue;
    const inside = await readdir(join(dir, name)).catch(() => null);
    if (inside === null || inside.length > 0) {
      throw conflict(dir, `already has ${JSON.stringify(name)}, which is not of an earlier run`);
    }
  }
}

function conflict(dir: string, why: string): ImgbatchError {
  return new ImgbatchError("DIRECTORY_CONFLICT", `${dir} ${why}. Choose another directory with --output.`);
}

const LEFTOVER = new RegExp(`^\\..+\\.[0-9a-f]{12}\\${PARTIAL_SUFFIX}$`);

/**
 * Removes files that a crash left half written. Files of other names are nobody's business here.
 * Rule: RUN-14.
 */
export async function removeLeftovers(dir: string): Promise<void> {
  for (const folder of [dir, join(dir, IMAGES_FOLDER)]) {
    const names = await readdir(folder).catch(() => []);
    for (const name of names.filter((each) => LEFTOVER.test(each))) {
      const path = join(folder, name);
      await saving(path, () => rm(path, { force: true }));
    }
  }
}
