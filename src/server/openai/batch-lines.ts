import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { type Images, openaiErrorBody } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { type ItemError, type ItemErrorCode, isTerminal } from "../../contract/statuses.ts";
import { askedOf } from "../../domain/batches/new-batch.ts";
import type { Piece } from "../../domain/downloads/piece-stream.ts";
import type { GeneratedFile } from "../../domain/files/generated.ts";
import type { JobOfLines, LineReader } from "../../domain/lines/take-in.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import { MAX_INPUT_IMAGES } from "../../domain/realtime/models.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { fieldError } from "../http/errors.ts";
import { type LineFormat, type LineRules, lineReader } from "../jobs/lines.ts";
import { hasResults, type ItemResult, linesFile, ownJob, resultLines } from "../jobs/results.ts";
import { usageOf } from "../native-api/content-view.ts";
import { plainFormat } from "../request-body/body-shape.ts";
import { isObject, JsonLines } from "../request-body/json-lines.ts";
import { checkFields } from "./check-request.ts";
import { imageFacts, usageView } from "./images-view.ts";
import { EDIT_IMAGES, IMAGES_SHAPE, imagesFormat, readJson } from "./read-request.ts";

const OWN = "imgbatch_";
const SHOWN = "batch_";

/** The files that the service makes of an ended batch. */
type ResultKind = "output" | "errors";

/** The id of a batch in OpenAI's API. */
export function openaiBatchId(batchId: string): string {
  return batchId.replace(OWN, SHOWN);
}

/** The batch of such an id; it may not exist. */
export function batchOfOpenaiId(id: string): string {
  return id.startsWith(SHOWN) ? OWN + id.slice(SHOWN.length) : "";
}

/** The id of a file with results: `output-…` or `errors-…`. */
function resultFileId(kind: ResultKind, batchId: string): string {
  return `${kind}-${batchId.replace(OWN, "")}`;
}

/** The batch whose results a file has; null for another file. */
function batchOfResultFile(fileId: string): { kind: ResultKind; batchId: string } | null {
  const [, kind, rest] = /^(output|errors)-(\w+)$/.exec(fileId) ?? [];
  return kind === undefined ? null : { kind: kind as ResultKind, batchId: OWN + rest };
}

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
  const lines = new JsonLines({ format: FORMAT, images: null, maxBytes });
  try {
    for await (const line of lines.read(bytes)) {
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
  /** Whether the request repeats an earlier one, which may have been at work still. */
  isRepeat?: boolean;
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
      if (!isObject(line.body)) throw invalid("body", "must be an object");
      const request = await readJson(line.body, endpoint === PATHS.imageEdits, sent, findFileImage);
      const named = request.fields.model ?? null;
      if (named !== modelName) {
        throw invalid(
          "body.model",
          `must be the same in all lines: ${modelName ?? "absent"}, as in the first one`,
        );
      }
      const { content, count, isByUrl, isStream } = await checkFields(
        rules,
        model,
        MAX_INPUT_IMAGES,
        request,
      );
      if (count !== 1) throw invalid("body.n", "must be 1 in a batch: write a line for each image");
      if (isStream) throw invalid("body.stream", "must not be true in a batch");
      if (isByUrl) throw invalid("body.response_format", "must be b64_json in a batch");
      return content;
    },
  };
}

/** Checks all but the body. `known` has the names of the lines before, and gets this one's. */
function checkEnvelope({ custom_id: id, method, url }: SentLine, endpoint: string, known: Set<string>): void {
  if (typeof id !== "string" || id === "") throw invalid("custom_id", "is required: a text");
  if (known.has(id)) throw invalid("custom_id", "must differ from those of the lines before");
  known.add(id);
  if (method !== "POST") throw invalid("method", "must be POST");
  if (url !== endpoint) throw invalid("url", `must be the endpoint of the batch, ${endpoint}`);
}

const invalid = (param: string, problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", param, problem);

/**
 * Marks where the Base64 of the image belongs. No text of a caller looks like it: such texts come later in the line, or
 * have escaped quotes.
 */
const NO_DATA = '"b64_json":""';

/** Item errors with the status and the code that the request would have failed with in real time. */
const CODES: Partial<Record<ItemErrorCode, ServiceErrorCode>> = {
  SAFETY_BLOCKED: "REALTIME_REFUSED",
  EMPTY_IMAGE_OUTPUT: "REALTIME_NO_IMAGE",
  INVALID_ARGUMENT: "REALTIME_INVALID_ARGUMENT",
  PROVIDER_RATE_LIMITED: "REALTIME_PROVIDER_LIMITED",
  PROVIDER_TIMEOUT: "REALTIME_TIMEOUT",
};

/** An ended item as a line of the file that it belongs to: a response, or why the request was not run. */
function resultLine(batch: BatchRecord, result: ItemResult): Piece[] {
  const { item, outputs } = result;
  const name = batch.id.replace(/^.*_/, "");
  const id = `batch_req_${name}_${item.position + 1}`;
  const custom_id = item.clientKey === null ? null : JSON.parse(item.clientKey);
  const notRun = notRunOf(item.error);
  if (notRun !== null) return [JSON.stringify({ id, custom_id, response: null, error: notRun })];
  const failure = item.error && errorOf(item.error);
  const status_code = failure?.httpStatus ?? 200;
  const body = failure ? openaiErrorBody(failure) : bodyOf(batch, result);
  const response = { status_code, request_id: `${name}-${item.position + 1}`, body };
  const line = JSON.stringify({ id, custom_id, response, error: null });
  const [output] = outputs;
  if (failure || output === undefined) return [line];
  const at = line.indexOf(NO_DATA) + NO_DATA.length - 1;
  const { blobKey, sizeBytes, crc32 } = output;
  return [line.slice(0, at), { blobKey, sizeBytes, crc32, isBase64: true }, line.slice(at)];
}

/** Only the first image counts: a request of a batch asks for one. */
function bodyOf(batch: BatchRecord, { item, outputs: [output], inputImages }: ItemResult): Images {
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

/** A batch of which a file has results. */
export interface ResultOf {
  kind: ResultKind;
  batch: BatchRecord;
}

/** Returns which results a file id of this key stands for; null for every other id, and for a file that was deleted. */
export async function findResult(
  { stores }: Pick<ApiDeps, "stores">,
  keyId: string,
  fileId: string,
): Promise<ResultOf | null> {
  const named = batchOfResultFile(fileId);
  const batch = named && (await ownJob(stores, keyId, "openai", named.batchId));
  if (!named || !batch || resultIdOf(batch, named.kind) === null) return null;
  return { kind: named.kind, batch };
}

/** Returns the id of a file with results of a batch; null when it has none. */
export function resultIdOf(batch: BatchRecord, kind: ResultKind): string | null {
  const { successCount, failCount } = batch;
  // Errors need no image: they outlast the images.
  const exists =
    kind === "output"
      ? hasResults(batch) && successCount > 0
      : isTerminal(batch.status) && failCount > 0 && !originOf(batch)?.areErrorsDeleted;
  return exists ? resultFileId(kind, batch.id) : null;
}

/** Returns the download of the results of a batch: JSON lines, whose size is known before the first byte. */
export async function resultFile(
  deps: Pick<ApiDeps, "stores" | "blobs">,
  keyId: string,
  fileId: string,
): Promise<GeneratedFile | null> {
  const found = await findResult(deps, keyId, fileId);
  if (found === null) return null;
  const { batch, kind } = found;
  const isAsked = (hasError: boolean) => hasError === (kind === "errors");
  const lines = await resultLines(deps.stores, batch, (result) =>
    isAsked(result.item.error !== null) ? resultLine(batch, result) : null,
  );
  return linesFile(deps.blobs, batch, fileId, lines);
}
