import { existsSync } from "node:fs";
import { lstat, readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Batch } from "../../client/batch.ts";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { PARTIAL_SUFFIX, syncDirectory } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { IMAGES_FOLDER, INPUT_FILE, REFERENCES_FOLDER, REMOVED_FOLDER } from "./names.ts";
import { adoptedBatch, newRunState, readRunState, writeRunState } from "./run-state.ts";
import type { RunState } from "./run-state-schema.ts";
import { isSameService, makerAt, type RunService } from "./service-identity.ts";

/** Names that a run writes. In a directory without a run state, files of these names are not the run's. */
const OWN_NAMES = [IMAGES_FOLDER, REFERENCES_FOLDER, "input.jsonl", "results.jsonl", "retry.jsonl"];

/**
 * Makes the directory when needed and returns its run state, null when it is new. `inputSha256` is null when images are
 * only fetched. Throws `DIRECTORY_CONFLICT` when it belongs to another input, or holds files that a run would mix with its
 * own.
 */
export async function claimDirectory(dir: string, inputSha256: string | null): Promise<RunState | null> {
  await saving(dir, () => makeDurably(dir));
  const runState = await checkDirectory(dir, inputSha256);
  if (runState !== null) await commitPendingInput(dir, runState);
  return runState;
}

/** Checks a directory as `claimDirectory` does, and writes nothing. */
export async function checkDirectory(dir: string, inputSha256: string | null): Promise<RunState | null> {
  await refuseLinks(dir);
  const runState = await readRunState(dir);
  if (runState === null) {
    if (existsSync(dir)) await refuseForeignFiles(dir);
    return null;
  }
  if (runState.input_sha256 !== inputSha256) {
    throw conflict(dir, "belongs to a run with other prompts or options");
  }
  return runState;
}

/** Throws `DIRECTORY_CONFLICT` unless the run is one of this service. */
export function requireSameService(dir: string, { base_url }: RunState, identity: string): void {
  if (isSameService(base_url, identity)) return;
  throw conflict(dir, `belongs to a run on another service (${base_url}, not ${identity})`);
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

/** Makes a directory and its missing parents, on disk when this resolves. Returns the topmost new one. */
export async function makeDurably(dir: string): Promise<string | undefined> {
  const first = await makeDirectory(dir);
  if (first === undefined) return undefined;
  for (let at = dir; at.length >= first.length; at = dirname(at)) await syncDirectory(dirname(at));
  return first;
}

/** Throws when a folder of the run is a link: the run must not write where it leads. */
async function refuseLinks(dir: string): Promise<void> {
  for (const name of [IMAGES_FOLDER, REFERENCES_FOLDER, REMOVED_FOLDER]) {
    const stats = await lstat(join(dir, name)).catch(() => null);
    if (stats?.isSymbolicLink()) throw conflict(dir, `has a link called ${JSON.stringify(name)}`);
  }
}

function conflict(dir: string, why: string): ImgbatchError {
  return new ImgbatchError("DIRECTORY_CONFLICT", `${dir} ${why}. Choose another directory with --output.`);
}

const LEFTOVER = new RegExp(`^(\\..+\\.[0-9a-f]{12}|[0-9a-f]{64})\\${PARTIAL_SUFFIX}$`);
/** The prefix of a ZIP that is deleted after unpacking. */
export const PASSING_PREFIX = ".imgbatch-";
const PASSING_ZIP = /^\.imgbatch-[\w-]+\.zip(\.part(\.etag)?)?$/;

/** Removes files that a crash left half written. Other files stay. */
export async function removeLeftovers(dir: string): Promise<void> {
  for (const folder of [dir, join(dir, IMAGES_FOLDER), join(dir, REFERENCES_FOLDER)])
    await removeMatching(folder, LEFTOVER);
}

/** Removes ZIPs, whole or in part, that were to be unpacked. A complete run does not need them. */
export async function removePassingZips(dir: string): Promise<void> {
  await removeMatching(dir, PASSING_ZIP);
}

async function removeMatching(folder: string, pattern: RegExp): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  for (const name of names.filter((each) => pattern.test(each))) {
    const path = join(folder, name);
    await saving(path, () => rm(path, { force: true }));
  }
}

const PENDING = /^\.input-([0-9a-f]{64})\.jsonl$/;

/** Returns the name of an input until the run state has its hash. */
export function pendingInputName(inputSha256: string): string {
  return `.input-${inputSha256}.jsonl`;
}

/**
 * Finishes the change of a run's input after a kill: the run state decides. An input that it names replaces the earlier one,
 * and any other one is removed.
 */
export async function commitPendingInput(
  dir: string,
  { input_sha256: inputSha256 }: Pick<RunState, "input_sha256">,
): Promise<void> {
  for (const name of await readdir(dir).catch(() => [])) {
    const [, sha256] = PENDING.exec(name) ?? [];
    if (sha256 === undefined) continue;
    const path = join(dir, name);
    await saving(path, async () => {
      if (sha256 === inputSha256) await rename(path, join(dir, INPUT_FILE));
      else await rm(path, { force: true });
      await syncDirectory(dir);
    });
  }
}

/**
 * Prepares a directory for the images of batches that were submitted elsewhere. A directory that
 * already belongs to these batches stays as it is. `from` is the run whose batches they are, if it is known. Throws `DIRECTORY_CONFLICT` when it belongs to others.
 */
export async function adoptDirectory(
  dir: string,
  batches: readonly Batch[],
  service: RunService,
  clock: Clock,
  from: RunState | null,
): Promise<RunState> {
  const { identity, keyFingerprint } = service;
  const existing = await readRunState(dir);
  if (existing !== null) {
    const ids = existing.batches.map((entry) => entry.id);
    if (ids.length === batches.length && batches.every((batch) => ids.includes(batch.id))) return existing;
    throw new ImgbatchError(
      "DIRECTORY_CONFLICT",
      `${dir} belongs to other batches. Choose another directory with --output.`,
    );
  }
  await claimDirectory(dir, null);
  await removeLeftovers(dir);
  const entries = batches.map((batch, index) => {
    const { round = 0, images } = from?.batches.find(({ id }) => id === batch.id) ?? {};
    return {
      ...adoptedBatch(index, makerAt(service), batch),
      round,
      ...(images === undefined ? {} : { images }),
    };
  });
  const fresh = newRunState({
    baseUrl: identity,
    keyFingerprint,
    upstream: service.upstream,
    inputSha256: null,
    isFresh: false,
    request: null,
    nowMs: clock.nowMs(),
    batches: entries,
  });
  const runState = from?.updates === undefined ? fresh : { ...fresh, updates: from.updates };
  await writeRunState(dir, runState);
  return runState;
}
