import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { type FindFileImage, fileImagesOf } from "../../domain/files/files.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import type { JobOfLines, Line, LineReader } from "../../domain/lines/line.ts";
import type { ModelEntry } from "../../domain/models.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { CheckedContent } from "../../domain/realtime/checked-content.ts";
import type { Clock } from "../../kernel/clock.ts";
import { JsonLines, type LineImages } from "./json-lines.ts";

export interface LineRules {
  stores: Stores;
  clock: Clock;
  limits: Limits;
  features: { strictImageConfig: boolean };
  inspector: ImageInspector;
  blobs: BlobStore;
}

/** How a surface reads the lines of one job. */
export interface LineFormat {
  /** Returns the client's name of the line, as JSON; null when it has none. */
  keyOf(line: object): string | null;
  /** Checks the request of a line. Throws `ImgbatchError` with the problem. */
  check(line: object, asked: LineContext): Promise<CheckedContent>;
}

export interface LineContext {
  model: ModelEntry;
  sent: SentTexts;
  findFileImage: FindFileImage;
}

/** Returns a reader of lines whose format begins anew with each job. */
export function lineReader(
  rules: LineRules,
  images: LineImages,
  formatOf: (job: JobOfLines) => LineFormat,
): LineReader {
  const { blobs, limits } = rules;
  const lines = new JsonLines({ blobs, images, maxBytes: limits.realtimeBodyBytes });
  return async function* (model, input, job) {
    const format = formatOf(job);
    for await (const line of lines.read(input)) {
      if ("problem" in line) {
        yield { key: null, ...line };
        continue;
      }
      // A line keeps the files that it names only until its images are stored.
      const files = fileImagesOf(rules, job.apiKeyId);
      try {
        yield await checked(format, line.value, { model, sent: line.sent, findFileImage: files.find });
      } finally {
        await files.release();
      }
    }
  };
}

async function checked(format: LineFormat, line: object, asked: LineContext): Promise<Line> {
  const key = format.keyOf(line);
  try {
    return { key, content: await format.check(line, asked) };
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    return { key, problem: error.message };
  }
}
