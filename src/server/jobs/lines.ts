import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { type FindFileImage, fileImagesOf } from "../../domain/files/files.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import { invalidLine, type JobOfLines, type Line, type LineReader } from "../../domain/jobs/take-in.ts";
import type { ModelEntry } from "../../domain/models.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { CheckedContent } from "../../domain/realtime/checked-content.ts";
import type { Clock } from "../../kernel/clock.ts";
import { isLongerThan } from "../../kernel/text.ts";
import { JsonLines, type LinesFormat } from "../request-body/json-lines.ts";
import { simulation } from "./simulated-jobs.ts";

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
  /** Returns the client's name of the line; undefined when it has none. */
  keyOf(line: object): unknown;
  /** Checks the request of a line. Throws `ImgbatchError` with the problem. */
  check(line: object, asked: LineContext): Promise<CheckedContent>;
}

interface LineContext {
  model: ModelEntry;
  sent: SentTexts;
  findFileImage: FindFileImage;
}

/** Returns a reader of lines whose format begins anew with each job. */
export function lineReader(
  rules: LineRules,
  { format: lineFormat, images }: LinesFormat,
  formatOf: (job: JobOfLines) => LineFormat,
): LineReader {
  const { blobs, limits } = rules;
  const lines = new JsonLines({
    format: lineFormat,
    images: images && { ...images, blobs },
    maxBytes: limits.realtimeBodyBytes,
  });
  return async function* (model, input, job) {
    const format = formatOf(job);
    const simulated = simulation(job, rules.clock);
    for await (const line of lines.read(input)) {
      if ("problem" in line) {
        yield { key: null, error: invalidLine(line.problem) };
        continue;
      }
      // A line keeps the files that it names only until its images are stored.
      const files = fileImagesOf(rules, job.apiKeyId);
      try {
        const asked = { model, sent: line.sent, findFileImage: files.find };
        yield simulated(await checked(format, line.value, asked));
      } finally {
        await files.release();
      }
    }
  };
}

async function checked(format: LineFormat, line: object, asked: LineContext): Promise<Line> {
  const given = format.keyOf(line);
  const problem = keyProblem(given);
  if (problem !== null) return { key: null, error: invalidLine(problem) };
  const key = given === undefined ? null : JSON.stringify(given);
  try {
    return { key, content: await format.check(line, asked) };
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    return { key, error: invalidLine(error.message) };
  }
}

/** The names of all lines are in memory together when the items of their job are written. */
function keyProblem(key: unknown): string | null {
  const { lineKeyChars, lineKeyJsonChars } = FIXED_LIMITS;
  if (typeof key === "string") {
    return isLongerThan(key, lineKeyChars)
      ? `The name of the line has more than ${lineKeyChars} characters.`
      : null;
  }
  const isLong = key !== undefined && JSON.stringify(key).length > lineKeyJsonChars;
  return isLong ? `The name of the line has more than ${lineKeyJsonChars} characters as JSON.` : null;
}
