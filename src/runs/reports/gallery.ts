import { createHash } from "node:crypto";
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { writeFileDurably } from "../../kernel/files/durable-file.ts";
import { packageFile } from "../../kernel/files/package-file.ts";
import { cardOf } from "./cards.ts";
import { pageSlots } from "./page-head.ts";
import type { RunReport } from "./run-report.ts";
import { type MakeThumbnail, withSmallPictures } from "./small-pictures.ts";

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
  const template = await readFile(packageFile("templates/contact-sheet.html"), "utf8");
  // Reading a complete run again changes only the time.
  const fingerprint = fingerprintOf(template, report);
  const before = await beginningOf(path);
  if (before?.includes(`content="${fingerprint}"`)) return path;
  if (before !== null && before !== "" && !before.includes(MARK))
    throw new ImgbatchError("DIRECTORY_CONFLICT", `${path} is not a contact sheet and stays as it is`);
  const thumbnail = await options.loadThumbnail();
  const page = pageText(template, { dir, report, fingerprint, thumbnail, signal: options.signal });
  await saving(path, () => writeFileDurably(path, page));
  return path;
}

/** Image by image: all of them as one text take much memory. */
function fingerprintOf(template: string, report: RunReport): string {
  const hash = createHash("sha256").update(template);
  hash.update(JSON.stringify({ ...report, images: [], endedAt: null }));
  for (const image of report.images) hash.update(JSON.stringify(image));
  return hash.digest("hex");
}

interface Page {
  dir: string;
  report: RunReport;
  fingerprint: string;
  thumbnail: MakeThumbnail | null;
  signal: AbortSignal | undefined;
}

async function* pageText(template: string, page: Page): AsyncGenerator<string> {
  const { dir, report, fingerprint, thumbnail, signal } = page;
  const slots: Record<string, string> = { ...pageSlots(report), fingerprint, policy: policyOf(template) };
  const fill = (text: string) => text.replace(SLOT, (_, name: string) => slots[name] ?? "");
  const [head = "", tail = ""] = template.split("{{items}}");
  yield fill(head);
  const total = report.images.length;
  const first = total > MOST_AT_ONCE ? FIRST_CARDS : total;
  let count = 0;
  for await (const { image, sources } of withSmallPictures(dir, report.images, thumbnail, signal)) {
    if (count++ === first) yield "<template>\n";
    yield cardOf(image, sources);
  }
  if (first < total)
    yield `</template><noscript>Without scripts, only ${first} of ${total} images are shown.</noscript>\n`;
  yield fill(tail);
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
