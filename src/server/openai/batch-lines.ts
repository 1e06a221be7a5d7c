import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { type OpenaiBody, openaiErrorBody } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { ItemError, ItemErrorCode } from "../../contract/statuses.ts";
import { askedOf } from "../../domain/batches/create-batch.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { JobOfLines, LineReader } from "../../domain/jobs/take-in.ts";
import { MAX_INPUT_IMAGES } from "../../domain/models.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { invalidArgument } from "../http/errors.ts";
import { isObject, jsonLines, type LineFormat, type LineRules, lineReader } from "../jobs/lines.ts";
import { type ItemResult, withImages } from "../jobs/results.ts";
import { numberOf } from "../jobs/vendor-jobs.ts";
import { usageOf } from "../native-api/generate.ts";
import { plainFormat } from "../request-body/json-value.ts";
import { imageFacts, usageView } from "./images.ts";
import { checkFields, EDIT_IMAGES, IMAGES_SHAPE, imagesFormat, readJson } from "./read-request.ts";

/** Nothing else of the line is kept. */
const FORMAT = plainFormat({ body: { model: "any" } }, "REALTIME_INVALID_ARGUMENT");

/**
 * Returns the model that the first readable line of an input names, as it writes it; null when it names none. Reads no
 * more than the most bytes that one line can have.
 */
export async function firstModelName(
  { blobs, limits }: Pick<ApiDeps, "blobs" | "limits">,
  blobKey: string,
): Promise<string | null> {
  const maxBytes = limits.realtimeBodyBytes;
  const bytes = await (blobs as BlobStore).open(blobKey, { start: 0, end: maxBytes - 1 });
  if (bytes === null) return null;
  try {
    for await (const line of jsonLines({ format: FORMAT, images: null, maxBytes }, bytes)) {
      if ("problem" in line) continue;
      const { body }: { body?: { model?: unknown } | null } = line.value;
      return typeof body?.model === "string" && body.model !== "" ? body.model : null;
    }
    return null;
  } finally {
    bytes.destroy();
  }
}

/** A line as it was sent. */
interface SentLine {
  custom_id?: unknown;
  method?: unknown;
  url?: unknown;
  body?: unknown;
}

const LINE_SHAPE = { custom_id: "any", method: "any", url: "any", body: IMAGES_SHAPE } as const;

/**
 * Returns the reader of OpenAI's batches: a JSON object a line, with a `body` as the images API takes it as JSON, and a
 * `custom_id` that no other line has. A line asks for one image, of the model of its batch.
 */
export function openaiLines(rules: LineRules): LineReader {
  const format = imagesFormat(rules.limits, LINE_SHAPE);
  return lineReader(rules, { format, images: EDIT_IMAGES }, (job) => formatOf(rules, job));
}

/** The facts of a request for a batch that its record keeps. */
export type JobOrigin = {
  endpoint: string;
  /** The model that all its lines must name, as they write it; null when they name none. */
  modelName: string | null;
  /** Whether the file with its errors was deleted. */
  areErrorsDeleted?: boolean;
};

export function originOf({ input }: Pick<BatchRecord, "input">): JobOrigin | undefined {
  return input?.origin as JobOrigin | undefined;
}

function formatOf(rules: LineRules, job: JobOfLines): LineFormat {
  const { endpoint = "", modelName = null } = originOf(job) ?? {};
  const known = new Set<string>();
  return {
    keyOf: ({ custom_id: id }: SentLine) => (typeof id === "string" ? id : undefined),
    check: async (line: SentLine, { model, sent, findFileImage }) => {
      checkEnvelope(line, endpoint, known);
      if (!isObject(line.body)) throw invalidArgument("body", "must be an object");
      const request = await readJson(line.body, endpoint === PATHS.imageEdits, sent, findFileImage);
      const named = request.fields.model ?? null;
      if (named !== modelName) {
        throw invalidArgument(
          "body.model",
          `must be the same in all lines: ${modelName ?? "absent"}, as in the first one`,
        );
      }
      const asked = await checkFields(rules, model, MAX_INPUT_IMAGES, request);
      const { content, count, isByUrl, isStream } = asked;
      if (count !== 1) throw invalidArgument("body.n", "must be 1 in a batch: write a line for each image");
      if (isStream) throw invalidArgument("body.stream", "must not be true in a batch");
      if (isByUrl) throw invalidArgument("body.response_format", "must be b64_json in a batch");
      return content;
    },
  };
}

/** Checks all but the body. `known` has the names of the lines before, and gets this one's. */
function checkEnvelope({ custom_id: id, method, url }: SentLine, endpoint: string, known: Set<string>): void {
  if (typeof id !== "string" || id === "") throw invalidArgument("custom_id", "is required: a text");
  if (known.has(id)) throw invalidArgument("custom_id", "must differ from those of the lines before");
  known.add(id);
  if (method !== "POST") throw invalidArgument("method", "must be POST");
  if (url !== endpoint) throw invalidArgument("url", `must be the endpoint of the batch, ${endpoint}`);
}

/** Item errors with the status and the code that the request would have failed with in real time. */
const CODES: Partial<Record<ItemErrorCode, ServiceErrorCode>> = {
  SAFETY_BLOCKED: "REALTIME_REFUSED",
  EMPTY_IMAGE_OUTPUT: "REALTIME_NO_IMAGE",
  INVALID_ARGUMENT: "REALTIME_INVALID_ARGUMENT",
  PROVIDER_RATE_LIMITED: "REALTIME_PROVIDER_LIMITED",
  PROVIDER_TIMEOUT: "REALTIME_TIMEOUT",
};

/** An ended item as a line of the file that it belongs to: a response, or why the request was not run. */
export function resultLine(batch: BatchRecord, result: ItemResult): Piece[] {
  const { item, outputs } = result;
  const name = numberOf(batch);
  const id = `batch_req_${name}_${item.position + 1}`;
  const custom_id = item.clientKey === null ? null : JSON.parse(item.clientKey);
  const notRun = notRunOf(item.error);
  if (notRun !== null) return [JSON.stringify({ id, custom_id, response: null, error: notRun })];
  const failure = item.error && errorOf(item.error);
  const status_code = failure?.httpStatus ?? 200;
  const body = failure ? openaiErrorBody(failure) : bodyOf(batch, result);
  const response = { status_code, request_id: `${name}-${item.position + 1}`, body };
  const line = JSON.stringify({ id, custom_id, response, error: null });
  return failure ? [line] : withImages(line, "b64_json", outputs.slice(0, 1));
}

/** Only the first image counts: a request of a batch asks for one. */
function bodyOf(
  batch: BatchRecord,
  { item, outputs: [output], inputImages }: ItemResult,
): OpenaiBody<"Images"> {
  if (output === undefined) throw new Error(`the image of ${batch.id}/${item.customId} is not recorded`);
  const { prompt, modelVersion, finishedAtMs } = item;
  const size = askedOf(batch, item).tier;
  const model = modelVersion ?? batch.model;
  return {
    created: Math.floor((finishedAtMs ?? batch.createdAtMs) / 1000),
    data: [{ b64_json: "" }],
    ...imageFacts(output, output.mimeType),
    usage: usageView(usageOf({ model, prompt, size, inputImages, outputImages: 1 })),
  };
}

/** Why a request was not run at all; null when it has an outcome of its own. */
function notRunOf(error: ItemError | null): { code: string; message: string } | null {
  return error?.code === "CANCELLED" ? { code: "batch_cancelled", message: error.message } : null;
}

/** The parameter of a line that could not be read stands before its problem. */
function errorOf({ code, message }: ItemError): ImgbatchError {
  const param = code === "INVALID_ARGUMENT" ? /^([\w[\].]+): /.exec(message)?.[1] : undefined;
  return new ImgbatchError(CODES[code] ?? "REALTIME_PROVIDER_FAILED", message, { param });
}
