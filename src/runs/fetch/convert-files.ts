import { rename } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { BatchItem } from "../../client/answers.ts";
import { getContent } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { DIFFERS, type ImageMimeType, sniffImageType } from "../../contract/image-formats.ts";
import { makeDirectory, syncDirectory } from "../../kernel/files.ts";
import { VERSIONS_FOLDER } from "../directory/names.ts";
import { freeVersion, type ResultLine } from "../directory/results.ts";
import { isImagePath, NOTHING_KNOWN, type ResultFile } from "../directory/run-files.ts";
import { scopeOf } from "../standing.ts";
import { type fetchImages, placeImage } from "./fetch-images.ts";

type FetchJob = Parameters<typeof fetchImages>[0];

/** Whether the service notes that the upstream did not keep the type that was asked for. */
export function isOfOtherType({ notes = [] }: Pick<ResultLine, "notes">): boolean {
  return notes.some((note) => note.startsWith(OTHER_TYPE));
}

const OTHER_TYPE = `${DIFFERS}image/`;

/** Returns the notes on an image. One that was converted has the type that was asked for. */
export function notesOf({ notes = [] }: Pick<ResultLine, "notes">, files: readonly ResultFile[]): string[] {
  const converted = files.flatMap(({ mime_type: type, original }) =>
    original === undefined
      ? []
      : [`converted to ${type}; the upstream sent ${original.mime_type}, see ${original.path}`],
  );
  if (converted.length === 0) return [...notes];
  return [...notes.filter((note) => !note.startsWith(OTHER_TYPE)), ...converted];
}

/**
 * Converts images into the type that was asked for where the upstream sent another one, and keeps them as they came in
 * `versions/`. The service converts; where it does not, they stay as they are. `kept`: the files of an earlier command, whose
 * names stay.
 */
export async function convertFiles(
  { http, dir, batch, signal, pathFor, reporter }: FetchJob,
  { customId }: BatchItem,
  { files, kept, type }: { files: readonly ResultFile[]; kept: readonly ResultFile[]; type: ImageMimeType },
): Promise<ResultFile[]> {
  const converted: ResultFile[] = [];
  for (const [position, file] of files.entries()) {
    const { path: from, image_index: index = position, sha256, bytes, mime_type } = file;
    const isWanted = mime_type !== type && isImagePath(from);
    const options = { signal, type, isEarly: !batch.isDone };
    const content = isWanted
      ? await getContent(http, batch.id, customId, index, options).catch((error: unknown) => {
          if (scopeOf(error, { signal }) === "run") throw error;
          return null;
        })
      : null;
    if (content === null || sniffImageType(content.data) !== type) {
      converted.push(file);
      continue;
    }
    const before = kept.find((each, at) => (each.image_index ?? at) === index && each.mime_type === type);
    const path =
      before !== undefined && isImagePath(before.path) ? before.path : pathFor(customId, index, type);
    const expected = { ...NOTHING_KNOWN, sha256: content.sha256 };
    const made = await placeImage(
      { dir, reporter },
      { bytes: [content.data], path, expected, known: before },
    );
    const folder = join(dir, VERSIONS_FOLDER);
    const original = { path: await freeVersion(dir, basename(from), sha256), sha256, bytes, mime_type };
    await saving(folder, async () => {
      await makeDirectory(folder);
      await rename(join(dir, from), join(dir, original.path));
      await syncDirectory(folder);
      await syncDirectory(dirname(join(dir, path)));
    });
    const { image_index } = file;
    converted.push({ path, ...made.file, ...(image_index !== undefined && { image_index }), original });
    const { bytes: size, sha256: hash } = made.file;
    reporter.event?.({
      event: "file_saved",
      batch_id: batch.id,
      custom_id: customId,
      path,
      bytes: size,
      sha256: hash,
    });
  }
  return converted;
}
