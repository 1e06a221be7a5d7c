import { addAbortSignal, type Readable } from "node:stream";
import { type Entry, openPromise, type ZipFile } from "yauzl";
import { z } from "zod";
import { type Batch, type BatchItem, hasImages } from "../../client/answers.ts";
import { downloadFile } from "../../client/download.ts";
import { removeFile } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { parseJson } from "../../kernel/json.ts";
import { foldFileName, formatSize, replaceForbidden } from "../../kernel/text.ts";
import { type CheckedFile, inspect, moveInto, requireReplaceable } from "../directory/run-files.ts";
import type { RunReporter } from "../directory/run-service.ts";

interface ZipJob {
  http: Http;
  batch: Batch;
  items: readonly BatchItem[];
  /** The path of the ZIP. */
  target: string;
  signal?: AbortSignal | undefined;
  reporter: RunReporter;
}

/** Returns the file name of a batch's ZIP: its id, made safe if needed. */
export function zipName(batchId: string): string {
  if (/^[A-Za-z0-9_-]{1,100}$/.test(batchId)) return `${batchId}.zip`;
  return `${batchId.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60)}-${sha256Hex(batchId).slice(0, 12)}.zip`;
}

/** Downloads the ZIP of a batch, or resumes the download. Nothing in it is checked yet. Returns its size in bytes. */
export async function downloadZip({ http, batch, items, target, signal, reporter }: ZipJob): Promise<number> {
  // A batch larger than the usual limit must be asked for in full.
  const query = items.length > DEFAULT_LIMITS.zipItems ? `?max_items=${items.length}` : "";
  const { bytes } = await downloadFile({
    http,
    path: routes.download(batch.id) + query,
    target,
    signal,
    onProgress: (done, total) => {
      reporter.progress(`downloading ${formatSize(done)}${total === null ? "" : ` of ${formatSize(total)}`}`);
    },
  });
  return bytes;
}

/** Takes one image out of a ZIP. */
type TakeImage<T> = (image: ZippedImage) => Promise<T>;

/**
 * Takes the images of a ZIP one by one, in the order of each item's images. A wrong image (`VERIFY_FAILED`) does not stop
 * the others: `wrong` has the first error of each such item. `stated` holds the facts of the manifest.
 */
export async function takeImages<T>(
  path: string,
  items: readonly BatchItem[],
  take: TakeImage<T>,
  signal?: AbortSignal,
): Promise<{ taken: Map<string, T[]>; wrong: Map<string, ImgbatchError>; stated: ZipContents["stated"] }> {
  const zip = await openZip(path, signal);
  try {
    const taken = new Map<string, T[]>();
    const wrong = new Map<string, ImgbatchError>();
    const { images, stated } = await readContents(zip, items);
    for (const image of images) {
      signal?.throwIfAborted();
      const { customId } = image;
      try {
        const found = await take(image);
        const before = taken.get(customId);
        if (before === undefined) taken.set(customId, [found]);
        else before.push(found);
      } catch (error) {
        const isWrong = error instanceof ImgbatchError && error.code === "VERIFY_FAILED";
        if (!isWrong || signal?.aborted) throw error;
        if (!wrong.has(customId)) wrong.set(customId, error);
      }
    }
    return { taken, wrong, stated };
  } catch (error) {
    // An abort also cuts off an image; the abort is the reason to report.
    signal?.throwIfAborted();
    throw error;
  } finally {
    zip.close();
  }
}

/** Checks an image without unpacking it; `zip` is how the result names the ZIP. */
async function checkInPlace(zip: string, { entry, sha256, bytes }: ZippedImage): Promise<CheckedFile> {
  const expected = { sha256, bytes, crc32: entry.crc32 };
  const { file, verified } = await inspect(await entry.read(), expected, entry.name);
  return { file: { path: zip, entry: entry.name, ...file }, verified };
}

/** A ZIP that was saved, or that existed already. */
interface SavedZip {
  /** The images of each item, in their order. */
  images: Map<string, CheckedFile[]>;
  bytes: number;
  /** Whether the same file existed before. */
  wasThere: boolean;
}

/**
 * Saves the ZIP of a batch after checking every image in it, and that none is missing. A ZIP that fails is removed. An
 * existing file at the target stays until the checks are done; then a different one is replaced if `mayReplace`, else
 * `FILE_EXISTS` is thrown. The images are named as parts of `name`.
 */
export async function saveZip(
  job: ZipJob,
  { name, mayReplace }: { name: string; mayReplace: boolean },
): Promise<SavedZip> {
  const { target, items, signal } = job;
  await requireReplaceable(target);
  const unchecked = `${target}.unchecked`;
  const bytes = await downloadZip({ ...job, target: unchecked });
  try {
    const images = await checkZip(unchecked, items, { name, signal });
    const wasThere = await moveInto(unchecked, target, mayReplace);
    return { images, bytes, wasThere };
  } catch (error) {
    await removeFile(unchecked);
    throw error;
  }
}

/** Returns the checked images of a ZIP. Throws `VERIFY_FAILED` if it lacks an image that an item has, or holds a wrong one. */
export async function checkZip(
  path: string,
  items: readonly BatchItem[],
  { name, signal }: { name: string; signal: AbortSignal | undefined },
): Promise<Map<string, CheckedFile[]>> {
  const { taken, wrong } = await takeImages(path, items, (image) => checkInPlace(name, image), signal);
  const absent = items.filter(
    (item) => hasImages(item) && (taken.get(item.customId)?.length ?? 0) < item.imageCount,
  );
  const problems = [
    ...[...wrong.values()].map((error) => error.message),
    ...absent
      .filter(({ customId }) => !wrong.has(customId))
      .map(({ customId }) => `the ZIP lacks an image of ${JSON.stringify(customId)}`),
  ];
  const [only, ...more] = problems;
  if (only === undefined) return taken;
  if (more.length === 0) throw new ImgbatchError("VERIFY_FAILED", only);
  const message = `${problems.length} downloaded files are not what they should be.`;
  throw new ImgbatchError("VERIFY_FAILED", message, { details: problems });
}

const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;
/** A manifest is parsed in one piece, so it may only be as large as the number of its images warrants. */
const MANIFEST_HEAD_BYTES = 1024 * 1024;
const MANIFEST_BYTES_PER_IMAGE = 64 * 1024;
const MANIFEST = "manifest.json";
const IMAGE_NAME = /\.(png|jpe?g|webp)$/i;

/** The part of a manifest that files are checked against. Other services may leave out the hashes. */
const manifestSchema = z.looseObject({
  files: z.array(
    z.looseObject({
      custom_id: z.string(),
      filename: z.string(),
      image_index: z.int().nullish().catch(null),
      size: z.int().min(0).nullish().catch(null),
      sha256: z
        .string()
        .regex(/^[0-9a-f]{64}$/i)
        .nullish()
        .catch(null),
    }),
  ),
});

/** The facts that a manifest states about an image. */
interface Stated {
  /** Lower case. Null when the manifest has none. */
  sha256: string | null;
  bytes: number | null;
}

/** An image of the ZIP and the item that it belongs to. */
export interface ZippedImage extends Stated {
  customId: string;
  /** The index of the image within its item, from 0. */
  index: number;
  entry: ZipEntry;
}

interface ZipContents {
  /** In the order of each item's images. */
  images: ZippedImage[];
  /** The manifest's facts about each item's images, in their order, including images that are not in the ZIP. */
  stated: ReadonlyMap<string, readonly Stated[]>;
}

/**
 * Finds the images of a batch's ZIP: by the manifest, or by their names when there is none. Returns at most as many
 * images of an item as the service announced, and no entry twice.
 */
async function readContents(zip: ZipReader, items: readonly BatchItem[]): Promise<ZipContents> {
  const manifest = await readManifest(zip, items);
  if (manifest === null) return { images: matchByName(zip, items), stated: new Map() };
  return matchByManifest(zip, manifest, items);
}

async function readManifest(
  zip: ZipReader,
  items: readonly BatchItem[],
): Promise<z.infer<typeof manifestSchema> | null> {
  const entry =
    zip.entries.find((each) => each.name === MANIFEST) ??
    zip.entries.find((each) => each.name.endsWith(`/${MANIFEST}`));
  const imageCount = items.reduce((sum, item) => sum + item.imageCount, 0);
  const maxBytes = Math.min(MAX_MANIFEST_BYTES, MANIFEST_HEAD_BYTES + imageCount * MANIFEST_BYTES_PER_IMAGE);
  if (entry === undefined || entry.bytes > maxBytes) return null;
  const data = await entry.start(entry.bytes);
  try {
    return manifestSchema.parse(parseJson(data.toString("utf8")));
  } catch {
    return null;
  }
}

function matchByManifest(
  zip: ZipReader,
  manifest: z.infer<typeof manifestSchema>,
  items: readonly BatchItem[],
): ZipContents {
  const entries = new Map(zip.entries.map((entry) => [entry.name, entry]));
  const counts = new Map(items.map((item) => [item.customId, item.imageCount]));
  const stated = new Map<string, Stated[]>();
  const named = new Map<ZipEntry, ZippedImage[]>();
  for (const file of manifest.files.toSorted((a, b) => (a.image_index ?? 0) - (b.image_index ?? 0))) {
    const { custom_id: customId, filename } = file;
    const before = stated.get(customId) ?? [];
    const index = before.length;
    if (index >= (counts.get(customId) ?? 0)) continue;
    const said = { sha256: file.sha256?.toLowerCase() ?? null, bytes: file.size ?? null };
    before.push(said);
    stated.set(customId, before);
    const entry = entries.get(filename) ?? entries.get(`images/${filename}`);
    if (entry !== undefined) append(named, entry, { customId, index, entry, ...said });
  }
  // An entry that several images claim belongs to none of them for certain.
  return { images: [...named.values()].filter((claims) => claims.length === 1).flat(), stated };
}

function append<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

/**
 * Finds the images by their names. `cat.png` belongs to item `cat`, and so does `cat_2.png` when no item is called
 * `cat_2`. An item gets no image when its name fits more or fewer files than it has images, or when two items have the
 * same file name, since a ZIP may then hold only the last one.
 */
function matchByName(zip: ZipReader, items: readonly BatchItem[]): ZippedImage[] {
  const owners = new Map<string, BatchItem | null>();
  for (const item of items) {
    // Services commonly name a file after the id in this way.
    const name = foldFileName(replaceForbidden(item.customId));
    owners.set(name, owners.has(name) ? null : item);
  }
  const found = new Map<BatchItem, ZipEntry[]>();
  for (const entry of zip.entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!IMAGE_NAME.test(entry.name)) continue;
    const stem = foldFileName(entry.name.replace(/^.*\//, "").replace(/\.[^.]*$/, ""));
    const owner = owners.has(stem) ? owners.get(stem) : owners.get(stem.replace(/[_-]\d+$/, ""));
    if (owner != null) append(found, owner, entry);
  }
  return [...found].flatMap(([{ customId, imageCount }, entries]) =>
    entries.length === imageCount
      ? entries.map((entry, index) => ({ customId, index, entry, sha256: null, bytes: null }))
      : [],
  );
}

/** Bounds for a ZIP from elsewhere. Images hardly compress: a ZIP that unpacks to far more is an attack. */
const MAX_ENTRIES = 20_000;
const MAX_NAME_BYTES = 4096;
const MAX_ENTRY_BYTES = 512 * 1024 * 1024;
const MAX_TOTAL_BYTES = 16 * 1024 * 1024 * 1024;
const MAX_RATIO = 200;
const RATIO_FREE_BYTES = 1024 * 1024;

const SYMLINK = 0o120000;
const FILE_TYPE_MASK = 0o170000;

/** A file in a ZIP. Its name and its declared sizes were checked. */
interface ZipEntry {
  name: string;
  bytes: number;
  crc32: number;
  /** Returns the unpacked bytes. The stream fails when there are more or fewer than declared, and when the signal aborts. */
  read(): Promise<Readable>;
  /** Returns the first bytes, or all of a shorter file. Throws `VERIFY_FAILED` for a damaged one. */
  start(bytes: number): Promise<Buffer>;
}

interface ZipReader {
  entries: ZipEntry[];
  close(): void;
}

/**
 * Opens a ZIP and checks its whole table of contents before anything is unpacked. Throws `VERIFY_FAILED` for a damaged
 * ZIP and for a hostile one: names that lead elsewhere, links, encryption, the same name twice, too many or too large
 * files. Names that are equal only on some file systems are allowed here; files get distinct names when written. Throws
 * the signal's reason after an abort.
 */
export async function openZip(path: string, signal?: AbortSignal): Promise<ZipReader> {
  let zip: ZipFile;
  try {
    zip = await openPromise(path, { lazyEntries: true, autoClose: false, strictFileNames: true });
  } catch (error) {
    throw unusable(`it cannot be read (${messageOf(error)})`, error);
  }
  // Entries may share bytes of the file: each looks harmless, all together are not.
  const mostBytes = Math.min(MAX_TOTAL_BYTES, RATIO_FREE_BYTES + zip.fileSize * MAX_RATIO);
  try {
    const entries: ZipEntry[] = [];
    const names = new Set<string>();
    let count = 0;
    let total = 0;
    for await (const entry of zip.eachEntry()) {
      signal?.throwIfAborted();
      // Folders count too: a ZIP can hold very many of them.
      if (++count > MAX_ENTRIES) throw unusable("it holds too much");
      if (entry.fileName.endsWith("/")) continue;
      const problem = entryProblem(entry, names);
      if (problem !== null) throw unusable(`${JSON.stringify(entry.fileName)} ${problem}`);
      names.add(entry.fileName);
      total += entry.uncompressedSize;
      if (total > mostBytes) throw unusable("it holds too much");
      entries.push(toEntry(zip, entry, signal));
    }
    return { entries, close: () => zip.close() };
  } catch (error) {
    zip.close();
    signal?.throwIfAborted();
    throw error instanceof ImgbatchError ? error : unusable(messageOf(error), error);
  }
}

function entryProblem(entry: Entry, names: ReadonlySet<string>): string | null {
  const { fileName, uncompressedSize, compressedSize } = entry;
  if (Buffer.byteLength(fileName) > MAX_NAME_BYTES) return "is too long a name";
  const parts = fileName.split("/");
  // The reader refuses absolute names, drive letters, backslashes and `..`; the rest is refused here.
  if (parts.some((part) => part === "" || part === "." || part === "..")) return "is an unsafe name";
  if (/\p{Cc}/u.test(fileName)) return "is an unsafe name";
  if (parts.some((part) => Buffer.byteLength(part) > 255)) return "is too long a name";
  if (((entry.externalFileAttributes >>> 16) & FILE_TYPE_MASK) === SYMLINK) return "is a link";
  if (entry.isEncrypted()) return "is encrypted";
  if (names.has(fileName)) return "appears twice";
  if (uncompressedSize > MAX_ENTRY_BYTES) return "is too large";
  if (uncompressedSize > RATIO_FREE_BYTES + compressedSize * MAX_RATIO) return "unpacks to suspiciously much";
  return null;
}

function toEntry(zip: ZipFile, entry: Entry, signal: AbortSignal | undefined): ZipEntry {
  const name = entry.fileName;
  const read = async () => {
    try {
      const stream = await zip.openReadStreamPromise(entry);
      return signal === undefined ? stream : addAbortSignal(signal, stream);
    } catch (error) {
      throw unusable(`${JSON.stringify(name)} cannot be read (${messageOf(error)})`, error);
    }
  };
  const start = async (bytes: number) => {
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of await read()) {
        chunks.push(chunk);
        size += chunk.length;
        if (size >= bytes) break;
      }
    } catch (cause) {
      throw new ImgbatchError("VERIFY_FAILED", `${name} is damaged: ${messageOf(cause)}`, { cause });
    }
    return Buffer.concat(chunks);
  };
  return { name, bytes: entry.uncompressedSize, crc32: entry.crc32, read, start };
}

function unusable(why: string, cause?: unknown): ImgbatchError {
  return new ImgbatchError("VERIFY_FAILED", `The downloaded ZIP cannot be used: ${why}.`, { cause });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
