import { createReadStream, existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { BatchItem } from "../../client/batch.ts";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { sniffImageType } from "../../contract/image-formats.ts";
import { PASSING_PREFIX } from "../directory/claim.ts";
import { inspect, writeVerified } from "../directory/verified-files.ts";
import { type Fetched, type Fetches, type FetchJob, pathFor, weakest } from "./fetch-job.ts";
import { checkInPlace, fetchZip, takeImages, type ZipJob, type ZippedFile, zipName } from "./save-zip.ts";
import { readStart, type ZippedImage } from "./zip.ts";

/**
 * Fetches the ZIP of a batch and unpacks the wanted items from it, or checks them in place when the ZIP is kept. An
 * item with a missing or wrong image has a problem. Throws errors that concern the whole ZIP.
 */
export async function fetchByZip(job: FetchJob, wanted: readonly BatchItem[]): Promise<Fetches> {
  const { http, batch, items, signal, reporter } = job;
  const name = nameOf(job);
  const target = join(job.dir, name);
  const zip: ZipJob = { http, batch, items, target, signal, reporter };
  const kept = await takeThere(job, wanted);
  if (kept !== null && kept.problems.size === 0) {
    if (!job.keepZip) await dropFile(target);
    return kept;
  }
  await fetchZip(zip);
  try {
    const fetches = await takeAll(job, name, wanted);
    if (!job.keepZip) await dropFile(target);
    return fetches;
  } catch (error) {
    // The next attempt could not use this ZIP either.
    await dropFile(target);
    throw error;
  }
}

function nameOf({ keepZip, batch }: FetchJob): string {
  return keepZip ? zipName(batch.id) : `${PASSING_PREFIX}${zipName(batch.id)}`;
}

/** Takes images from a ZIP that is already here. Null when there is none that can be used. */
export async function takeThere(
  job: FetchJob,
  wanted: readonly BatchItem[],
  name = nameOf(job),
): Promise<Fetches | null> {
  return existsSync(join(job.dir, name)) ? takeAll(job, name, wanted).catch(refused(job)) : null;
}

/** An existing ZIP, kept or left by a crash, may be unusable. Any other error is thrown. */
function refused(job: FetchJob): (error: unknown) => null {
  return (error) => {
    job.signal?.throwIfAborted();
    if (error instanceof ImgbatchError && error.code === "VERIFY_FAILED") return null;
    throw error;
  };
}

async function takeAll(job: FetchJob, zip: string, wanted: readonly BatchItem[]): Promise<Fetches> {
  const ids = new Set(wanted.map((item) => item.customId));
  const take = async (image: ZippedImage): Promise<(ZippedFile & { index: number }) | null> => {
    if (!ids.has(image.customId)) return null;
    const found = job.keepZip ? await checkInPlace(zip, image) : await unpack(job, image);
    return { ...found, index: image.index };
  };
  const { taken, wrong, stated } = await takeImages(join(job.dir, zip), job.items, take, job.signal);
  const fetches = { byItem: new Map<string, Fetched>(), problems: new Map<string, ImgbatchError>(), stated };
  for (const { customId, imageCount } of wanted) {
    const found = (taken.get(customId) ?? []).filter((image) => image !== null);
    const problem = wrong.get(customId) ?? (found.length < imageCount ? absent(customId) : undefined);
    if (problem !== undefined) fetches.problems.set(customId, problem);
    // When one image of an item is wrong, its others are not trusted.
    if (found.length === 0 || wrong.has(customId)) continue;
    const files = found.map(({ file, index }) =>
      problem === undefined ? file : { ...file, image_index: index },
    );
    fetches.byItem.set(customId, { files, verified: weakest(found.map(({ verified }) => verified)) });
  }
  return fetches;
}

/** Unpacks an image. A file that is already correct is not written again. */
async function unpack(
  job: FetchJob,
  { customId, index, entry, sha256, bytes }: ZippedImage,
): Promise<ZippedFile> {
  const expected = { sha256, bytes, crc32: entry.crc32 };
  const type = sniffImageType(await readStart(entry, HEAD_BYTES));
  if (type === null)
    throw new ImgbatchError("VERIFY_FAILED", `${entry.name} is not a PNG, JPEG or WebP image.`);
  const path = pathFor(job, customId, index, type);
  const target = join(job.dir, path);
  const isThere = await inspect(createReadStream(target), expected, path).catch(() => null);
  const { file, verified } = isThere ?? (await writeVerified(await entry.read(), target, expected, path));
  return { file: { path, ...file }, verified };
}

/** This many bytes show the type of an image. */
const HEAD_BYTES = 12;

function absent(customId: string): ImgbatchError {
  return new ImgbatchError("VERIFY_FAILED", `The ZIP lacks an image of ${JSON.stringify(customId)}.`);
}

async function dropFile(path: string): Promise<void> {
  await saving(path, () => rm(path, { force: true }));
}
