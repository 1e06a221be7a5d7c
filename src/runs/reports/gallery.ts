import { createHash } from "node:crypto";
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { DigitalSource } from "../../contract/image-formats.ts";
import { isRefusalCode } from "../../contract/statuses.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { writeFileDurably } from "../../kernel/files.ts";
import { costText, formatUsd, numberToMicros } from "../../kernel/money.ts";
import { packageFile } from "../../kernel/package-file.ts";
import { counted } from "../../kernel/text.ts";
import { type Comparison, compareImages } from "../../prompts/comparison.ts";
import type { ResultFile } from "../directory/run-files.ts";
import {
  escapeMarkup,
  fileFacts,
  fileHref,
  type ReportImage,
  type RunReport,
  shortDate,
} from "./run-report.ts";

export const GALLERY_FILE = "index.html";
/** The fingerprint stands within this many bytes of the beginning of a page. */
const HEAD_BYTES = 512;
/** Marks our own pages. A page without it is never replaced. */
const MARK = '<meta name="imgbatch-report"';
/** A browser that has to lay out more cards than this becomes slow. It gets this many first, and the others later. */
const MOST_AT_ONCE = 1000;
const FIRST_CARDS = 300;
const SLOT = /\{\{(\w+)\}\}/g;

/**
 * Writes `index.html` into the directory of a run: one page that needs no network and no other file than the images.
 * A page that already shows this is left as it is. `thumbnail` is asked for only when there is something to write;
 * null when pictures cannot be made small here: then the page shows the files themselves. Returns the path. Throws
 * `DIRECTORY_CONFLICT` when another program's page is there, and `SAVE_FAILED`.
 */
export async function writeGallery(
  dir: string,
  report: RunReport,
  options: { loadThumbnail: () => Promise<MakeThumbnail | null>; signal?: AbortSignal | undefined },
): Promise<string> {
  const path = join(dir, GALLERY_FILE);
  const template = await readTemplate();
  // Reading a complete run again changes only the time.
  const fingerprint = fingerprintOf(template, report);
  const before = await beginningOf(path);
  if (before?.includes(`content="${fingerprint}"`)) return path;
  if (before !== null && before !== "" && !before.includes(MARK))
    throw new ImgbatchError("DIRECTORY_CONFLICT", `${path} is not a contact sheet and stays as it is`);
  const thumbnail = await options.loadThumbnail();
  const read = (name: string) => readFile(join(dir, name));
  const page = pageText(template, { read, report, fingerprint, thumbnail, signal: options.signal });
  await saving(path, () => writeFileDurably(path, page));
  return path;
}

/** The text of a contact sheet for another place than the directory of the run, piece by piece. */
export async function* contactSheet(page: Omit<Page, "fingerprint">): AsyncGenerator<string> {
  const template = await readTemplate();
  yield* pageText(template, { ...page, fingerprint: fingerprintOf(template, page.report) });
}

function readTemplate(): Promise<string> {
  return readFile(packageFile("templates/contact-sheet.html"), "utf8");
}

/** Image by image: all of them as one text take much memory. */
function fingerprintOf(template: string, report: RunReport): string {
  const hash = createHash("sha256").update(template);
  hash.update(JSON.stringify({ ...report, images: [], endedAt: null }));
  for (const image of report.images)
    hash.update(JSON.stringify({ ...image, variant: [...image.variant.values] }));
  return hash.digest("hex");
}

interface Page {
  /** Reads a picture by its path in the report. */
  read: (path: string) => Promise<Buffer>;
  report: RunReport;
  fingerprint: string;
  thumbnail: MakeThumbnail | null;
  signal: AbortSignal | undefined;
}

async function* pageText(template: string, page: Page): AsyncGenerator<string> {
  const { read, report, fingerprint, thumbnail, signal } = page;
  const slots: Record<string, string> = { ...pageSlots(report), fingerprint, policy: policyOf(template) };
  const fill = (text: string) => text.replace(SLOT, (_, name: string) => slots[name] ?? "");
  const [head = "", tail = ""] = template.split("{{items}}");
  yield fill(head);
  const comparison = compareImages(report.images);
  const ordered = comparison?.rows.flatMap(({ cells }) => cells.flat()) ?? report.images;
  const cards = withSmallPictures(read, ordered, thumbnail, signal);
  const total = report.images.length;
  const first = total > MOST_AT_ONCE ? FIRST_CARDS : total;
  let count = 0;
  let isLater = false;
  const begin = function* () {
    if (count >= first && !isLater && count < total) {
      isLater = true;
      yield "<template>\n";
    }
  };
  if (total === 0) yield `<p class="none">This run has no images.</p>\n`;
  yield comparison === null ? `<ul class="cards sheet">\n` : tableHead(comparison);
  if (comparison === null)
    for await (const { image, sources } of cards) {
      yield* begin();
      count++;
      yield cardOf(image, sources);
    }
  else
    for (const { prompt, cells } of comparison.rows) {
      yield* begin();
      yield `<tr><th scope="row"><p class="prompt" dir="auto">${escapeMarkup(prompt ?? "")}</p></th>`;
      for (const [i, cell] of cells.entries()) {
        yield '<td><ul class="cards cell">';
        for (const _ of cell) {
          const next = await cards.next();
          count++;
          if (next.done !== true)
            yield cardOf(next.value.image, next.value.sources, {
              prompt,
              variant: comparison.columns[i] ?? "",
            });
        }
        yield "</ul></td>";
      }
      yield "</tr>\n";
    }
  if (isLater) yield "</template>";
  yield comparison === null ? "</ul>\n" : "</tbody>\n</table></div>\n";
  if (isLater) yield `<noscript>Without scripts, not all of the ${total} images are shown.</noscript>\n`;
  yield fill(tail);
}

function tableHead({ columns }: Comparison<ReportImage>): string {
  const names = columns.map((name) => `<th scope="col" dir="auto">${escapeMarkup(name)}</th>`).join("");
  const head = columns.length === 1 ? "" : `<thead><tr><th scope="col">Prompt</th>${names}</tr></thead>`;
  return `<div class="compared"><table class="of-${columns.length}">${head}<tbody class="sheet">\n`;
}

/** Only the style and the script of the template may run, whatever a prompt holds; nothing is fetched from afar. */
function policyOf(template: string): string {
  const hashOf = (tag: string) => {
    const text = template.split(`<${tag}>`)[1]?.split(`</${tag}>`)[0] ?? "";
    return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  };
  const rules = [
    "default-src 'none'",
    "img-src 'self' data: file:",
    `style-src ${hashOf("style")}`,
    `script-src ${hashOf("script")}`,
    "base-uri 'none'",
    "form-action 'none'",
  ];
  return rules.join("; ");
}

/** Returns null if the file is missing or cannot be read. */
async function beginningOf(path: string): Promise<string | null> {
  const file = await open(path, "r").catch(() => null);
  if (file === null) return null;
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
    return buffer.subarray(0, bytesRead).toString("utf8");
  } catch {
    return null;
  } finally {
    await file.close();
  }
}

/** The texts above and below the images of the contact sheet: the values for the slots of its template. */
function pageSlots(report: RunReport): Record<string, string> {
  const { title, images, failedCount, refusedCount } = report;
  return {
    title: escapeMarkup(title),
    facts: factsOf(report),
    failures: failuresOf(report),
    all: String(images.length),
    ok: String(images.length - failedCount),
    failed: String(failedCount - refusedCount),
    refused: String(refusedCount),
    odd: String(images.filter((image) => image.odd.length > 0).length),
    details: images.some(({ metadata }) => metadata.length > 0) ? DETAILS : "",
    brief: report.hasOwnIds ? "" : "brief",
    footer: `Made by imgbatch. The images lie beside this page, in <code>images/</code>; what is known of each is in <code>results.jsonl</code>.`,
  };
}

/** Shows all metadata. Without it, each card has the first two fields, if nothing else names the images. */
const DETAILS = `<label class="details"><input type="checkbox"> Metadata</label>`;

function factsOf(report: RunReport): string {
  const { images, failedCount, versionCount, askedCount, makers, cost, endedAt, batches } = report;
  const all = counted(askedCount, "image");
  const madeCount = images.length - failedCount;
  const openCount = askedCount - images.length;
  const facts = [
    madeCount === askedCount ? all : `${madeCount} of ${all}`,
    ...(openCount === 0 ? [] : [`${openCount} not here yet`]),
    ...(versionCount === 0 ? [] : [`${versionCount} earlier, in <code>versions/</code>`]),
    ...makers.map((name) => `<code>${escapeMarkup(name)}</code>`),
    ...(cost === null ? [] : [costText(cost)]),
    `<time datetime="${escapeMarkup(endedAt)}">${escapeMarkup(shortDate(endedAt))}</time>`,
  ];
  const ids = batches.map(({ id, status }) => `<code>${escapeMarkup(id)}</code> ${escapeMarkup(status)}`);
  if (ids.length === 1) facts.push(...ids);
  const line = `<p class="facts">${facts.map((fact) => `<span>${fact}</span>`).join("")}</p>`;
  if (ids.length < 2) return line;
  const list = ids.map((id) => `<li>${id}</li>`).join("");
  return `${line}\n<details class="batches"><summary>${ids.length} batches</summary><ul>${list}</ul></details>`;
}

function failuresOf({ images, failedCount, refusedCount, retryCommand }: RunReport): string {
  if (failedCount === 0) return "";
  const broken = failedCount - refusedCount;
  const said = [
    ...(broken === 0 ? [] : [`${counted(broken, "image")} failed`]),
    ...(refusedCount === 0 ? [] : [`${counted(refusedCount, "image")} refused: change what the prompts ask`]),
  ];
  const codes = countCodes(images).map(([code, count]) => `${escapeMarkup(code)} ${count}`);
  const command =
    retryCommand === null || broken === 0
      ? ""
      : `<div class="command"><code>${escapeMarkup(retryCommand)}</code><button type="button" class="plain copy">Copy</button></div>`;
  return `<div class="failed-note"><p><strong>${said.join(", ")}</strong></p><p class="codes">${codes.join(" · ")}</p>${command}</div>`;
}

/** The codes of the failures, the most frequent first. */
function countCodes(images: readonly ReportImage[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const { error } of images)
    if (error !== null) counts.set(error.code, (counts.get(error.code) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a);
}

/**
 * A list element of the contact sheet. `sources` are the addresses of the small pictures, in the order of the files. In a
 * comparison, the row has the prompt, and the column the variant.
 */
function cardOf(
  image: ReportImage,
  sources: readonly string[],
  compared: { prompt: string | null; variant: string } | null = null,
): string {
  const { id, prompt, files, options, metadata, origin, notes, odd, error, cost, tookMs } = image;
  const pictures = error === null ? picturesOf(image, sources) : failurePanel(error);
  const isKnown = prompt === null || prompt === compared?.prompt;
  // The large view and the filter read it.
  const hidden = compared === null ? "" : " hidden";
  const said = isKnown ? "" : `<p class="prompt" dir="auto"${hidden}>${escapeMarkup(prompt)}</p>`;
  const variant = compared === null || compared.variant === "" ? "" : line("variant", compared.variant);
  const asked = options.length === 0 ? "" : line("asked", options.join(" · "));
  const [first] = files;
  const price = cost === null ? [] : [formatUsd(numberToMicros(cost))];
  const time = compared === null || tookMs === null ? [] : [formatDuration(tookMs)];
  const facts = [...(first === undefined ? [] : sizeOf(first, files.length)), ...price, ...time];
  const size = facts.length === 0 ? "" : line("size", facts.join(" · "));
  const made = origin.length === 0 ? "" : line("made", origin.join(" · "));
  const noted = notes.map((note) => line("note", note)).join("");
  const looks = odd.length === 0 ? "" : line("odd", `looks odd: ${odd.join("; ")}`);
  const fields = metadata.map(
    ([name, text]) => `<p dir="auto"><span>${escapeMarkup(name)}:</span> ${escapeMarkup(text)}</p>`,
  );
  const more = fields.length === 0 ? "" : `<div class="meta">${fields.join("")}</div>`;
  const about = `${said}${variant}<p class="id"><bdi>${escapeMarkup(id)}</bdi></p>${more}${asked}${size}${made}${looks}${noted}`;
  // The filters read these words.
  const kind =
    error === null
      ? odd.length === 0
        ? "ok"
        : "ok odd"
      : isRefusalCode(error.code)
        ? "refused fail"
        : "fail";
  return `<li class="${kind}">${pictures}<div class="about">${about}</div></li>\n`;
}

function line(name: string, text: string): string {
  return `<p class="${name}" dir="auto">${escapeMarkup(text)}</p>`;
}

function picturesOf({ id, files }: ReportImage, sources: readonly string[]): string {
  const [main = "", ...others] = files.map((file, i) => picture(id, file, sources[i] ?? ""));
  return others.length === 0 ? main : `${main}<div class="more">${others.join("")}</div>`;
}

function picture(id: string, file: ResultFile, source: string): string {
  const href = escapeMarkup(fileHref(file.path));
  if (file.entry !== undefined)
    return `<a class="pic zip" href="${href}">${escapeMarkup(file.entry)}<br>in ${escapeMarkup(file.path)}</a>`;
  const name = escapeMarkup(`Open ${id}`);
  const { width, height } = file;
  const sized = width === null || height === null ? "" : ` width="${width}" height="${height}"`;
  const tall = (height ?? 0) > (width ?? 0) ? ' class="tall"' : "";
  return `<a class="pic" href="${href}" aria-label="${name}"><img${tall} src="${escapeMarkup(source)}" alt=""${sized} loading="lazy" decoding="async"></a>`;
}

function failurePanel({ code, message }: { code: string; message: string }): string {
  return `<button type="button" class="pic"><span class="code">${escapeMarkup(code)}</span>\n<span class="why" dir="auto">${escapeMarkup(message)}</span></button>`;
}

function sizeOf(file: ResultFile, count: number): string[] {
  return [...fileFacts(file), ...(count > 1 ? [`${count} files`] : [])];
}

/** Makes a small WebP of a picture, its longer side at most `maxEdgePx`; null when it cannot. `source`: the kind that it says it is of. */
export type MakeThumbnail = (
  bytes: Buffer,
  maxEdgePx: number,
  source?: DigitalSource,
) => Promise<Uint8Array | null>;

/** The most pictures in the page itself; the others are read from their files when they come into sight. */
const MAX_EMBEDDED = 2000;
const MAX_EMBEDDED_BYTES = 32_000_000;
/** The number of pictures that are made small at once. */
const AHEAD = 4;

/** Few pictures may be sharp on every screen; of many, each must be small. */
function edgeFor(count: number): number {
  if (count <= 120) return 480;
  return count <= 600 ? 320 : 224;
}

/**
 * The images in order, each with the addresses for its small pictures: data in the page itself, within bounds, else
 * its file. Never holds more than a few pictures at once.
 */
async function* withSmallPictures(
  read: Page["read"],
  images: readonly ReportImage[],
  thumbnail: MakeThumbnail | null,
  signal?: AbortSignal,
): AsyncGenerator<{ image: ReportImage; sources: string[] }> {
  const count = images.reduce((sum, { files }) => sum + files.length, 0);
  const edgePx = edgeFor(count);
  let embedded = 0;
  let embeddedBytes = 0;
  const sourceOf = async (path: string, isZipped: boolean): Promise<string> => {
    const isFull = embedded >= MAX_EMBEDDED || embeddedBytes >= MAX_EMBEDDED_BYTES;
    if (thumbnail === null || isZipped || isFull) return fileHref(path);
    embedded++;
    const bytes = await read(path).catch(() => null);
    const small = bytes === null ? null : await thumbnail(bytes, edgePx).catch(() => null);
    if (small === null) return fileHref(path);
    embeddedBytes += small.byteLength;
    return `data:image/webp;base64,${Buffer.from(small).toString("base64")}`;
  };
  const prepare = async (image: ReportImage) => ({
    image,
    sources: await Promise.all(image.files.map(({ path, entry }) => sourceOf(path, entry !== undefined))),
  });
  const pending: ReturnType<typeof prepare>[] = [];
  for (const image of images) {
    signal?.throwIfAborted();
    pending.push(prepare(image));
    if (pending.length >= AHEAD) yield await (pending.shift() as (typeof pending)[number]);
  }
  for (const each of pending) yield await each;
}
