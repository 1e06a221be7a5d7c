import { createReadStream, existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { BatchItem } from "../client/read-lists.ts";
import { saving } from "../client/saving.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Fetched, FetchJob } from "./fetch-job.ts";
import { inspect, placeFile } from "./place-file.ts";
import { PASSING_PREFIX } from "./run-directory.ts";
import { checkInPlace, fetchZip, takeImages, type ZipJob, type ZippedFile, zipName } from "./save-zip.ts";
import { isImagePath } from "./sound-files.ts";
import type { ZippedImage } from "./zip-contents.ts";

/** Fetches the ZIP of a batch and unpacks the wanted items from it, or checks them in place when the ZIP is kept. */
export async function fetchByZip(job: FetchJob, wanted: readonly BatchItem[]): Promise<Map<string, Fetched>> {
  const { http, batch, items, signal, voice } = job;
  const name = job.keepZip ? zipName(batch.id) : `${PASSING_PREFIX}${zipName(batch.id)}`;
  const target = join(job.dir, name);
  const zip: ZipJob = { http, batch, items, target, signal, voice };
  const kept = existsSync(target) ? await takeAll(job, name, wanted).catch(refused(job)) : null;
  if (kept !== null && wanted.every((item) => kept.has(item.customId))) {
    if (!job.keepZip) await dropFile(target);
    return kept;
  }
  await fetchZip(zip);
  try {
    const fetched = await takeAll(job, name, wanted);
    if (!job.keepZip) await dropFile(target);
    return fetched;
  } catch (error) {
    // A ZIP that cannot be used is of no use to the next attempt either.
    await dropFile(target);
    throw error;
  }
}

/** A ZIP that is here already, kept or left by a crash, may be unusable; all else is no matter of the ZIP. */
function refused(job: FetchJob): (error: unknown) => null {
  return (error) => {
    job.signal?.throwIfAborted();
    if (error instanceof ImgbatchError && error.code === "VERIFY_FAILED") return null;
    throw error;
  };
}

async function takeAll(
  job: FetchJob,
  zip: string,
  wanted: readonly BatchItem[],
): Promise<Map<string, Fetched>> {
  const ids = new Set(wanted.map((item) => item.customId));
  const take = async (image: ZippedImage, index: number): Promise<ZippedFile | null> => {
    if (!ids.has(image.customId)) return null;
    return job.keepZip ? checkInPlace(zip, image) : unpack(job, image, index);
  };
  const fetched = new Map<string, Fetched>();
  for (const [customId, images] of await takeImages(join(job.dir, zip), job.items, take, job.signal)) {
    const taken = images.filter((image) => image !== null);
    const [first] = taken;
    if (first !== undefined)
      fetched.set(customId, { files: taken.map((image) => image.file), verified: first.verified });
  }
  return fetched;
}

/** A file that is already there as it should be is not written again. */
async function unpack(
  job: FetchJob,
  { customId, entry, sha256, bytes }: ZippedImage,
  index: number,
): Promise<ZippedFile> {
  const expected = { sha256, bytes, crc32: entry.crc32 };
  const known = job.earlier.get(customId)?.files[index]?.path;
  const path = known !== undefined && isImagePath(known) ? known : job.names.take(entry.name);
  const target = join(job.dir, path);
  const isThere = await inspect(createReadStream(target), expected, path).catch(() => null);
  const { file, verified } = isThere ?? (await placeFile(await entry.read(), target, expected, path));
  return { file: { path, ...file }, verified };
}

async function dropFile(path: string): Promise<void> {
  await saving(path, () => rm(path, { force: true }));
}
