import { randomUUID } from "node:crypto";
import {
  type Answer,
  type ImageService,
  type RequestKind,
  startUpstream,
  type UpstreamRequest,
} from "./fake-upstream.ts";
import { HUGE_BYTES, padded, type Size } from "./images.ts";
import {
  type Job,
  JobBook,
  type JobLine,
  type JobPhase,
  type LineFault,
  rangeOf,
  readJsonLines,
  repeatingKey,
  resultFile,
} from "./job-book.ts";
import {
  type Fields,
  fieldOf,
  listed,
  made,
  NATIVE_KEY,
  nativeBlocks,
  nativeErrors,
  problemOf,
  promptIn,
  shapeProblem,
} from "./native.ts";

/** How the service speaks; all of it may be changed while it runs. */
interface Settings {
  key: string;
  /** The spelling of states. Default `BATCH`. */
  states: "BATCH" | "JOB";
  /** Where an operation names its output. Default `both`. */
  outputs: "both" | "metadata" | "response";
  /** Whether downloads honour `Range`. Default true. */
  hasRanges: boolean;
  /** Repeats the caller's key in every error, those of jobs and lines too. */
  echoesKey: boolean;
  /** The size of all images. Default: what each request asks for. */
  size?: Size;
}

export const BATCH_MODEL = "gemini-3.1-flash-image";
const MODELS = [BATCH_MODEL, "gemini-3-pro-image", "gemini-2.5-flash-image"];
const HOUR_MS = 3_600_000;
const V = "/(v1beta|v1)";
const ROUTES: [RequestKind, string, RegExp][] = [
  ["upload", "POST", new RegExp(`^/upload${V}/files$`)],
  ["create", "POST", new RegExp(`^${V}/models/([^/:]+):batchGenerateContent$`)],
  ["poll", "GET", new RegExp(`^${V}/(batches/[^/:]+)$`)],
  ["list", "GET", new RegExp(`^${V}/batches$`)],
  ["cancel", "POST", new RegExp(`^${V}/(batches/[^/:]+):cancel$`)],
  ["delete", "DELETE", new RegExp(`^${V}/(files/[^/:]+)$`)],
  ["download", "GET", new RegExp(`^${V}/(files/[^/:]+):download$`)],
  ["models", "GET", new RegExp(`^${V}/(models(?:/[^/:]+)?)$`)],
];
const START_FIELDS: Fields = { file: { displayName: true, mimeType: true } };
const CREATE_FIELDS: Fields = { batch: { displayName: true, inputConfig: { fileName: true } } };
const TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main";
const STATES: Record<JobPhase, string> = {
  ...{ pending: "PENDING", running: "RUNNING", cancelling: "RUNNING", succeeded: "SUCCEEDED" },
  ...{ failed: "FAILED", expired: "EXPIRED", cancelled: "CANCELLED" },
};
/** Chunks but the last are multiples of this. */
const GRANULARITY = 262_144;

const json = (status: number, body: object, headers: Record<string, string> = {}): Answer => ({
  ...{ status, body: JSON.stringify(body), headers },
});
/** Ids of jobs have 36 characters. */
const newId = () => randomUUID().replaceAll("-", "").padEnd(36, "x1y2");
/** Times as the service writes them, with nine digits of a second. */
const timeOf = (ms: number) => new Date(ms).toISOString().replace("Z", "405218Z");
const noEntity = () => nativeErrors.other(404, "NOT_FOUND", "Requested entity was not found.");
/** A file that does not exist and one of somebody else get the same answer. */
const noFile = () =>
  nativeErrors.other(403, "PERMISSION_DENIED", "You do not have permission to access the File.");

/** The vendor's files and batch jobs, as its documents describe them to strangers. `book` has the bill and the plans. */
export async function startNativeBatch(options: Partial<Settings> & { now?: () => number } = {}) {
  const { now = Date.now, ...chosen } = options;
  const settings: Settings = {
    ...{ key: NATIVE_KEY, states: "BATCH", outputs: "both", hasRanges: true, echoesKey: false, ...chosen },
  };
  const book = new JobBook({ now, patienceMs: 48 * HOUR_MS, keptMs: 48 * HOUR_MS });
  const routeOf = (method: string, path: string) => {
    const { pathname, searchParams } = new URL(path, "http://native");
    const [kind, , form] = ROUTES.find(([, verb, form]) => verb === method && form.test(pathname)) ?? [];
    const [, version = "", name = ""] = form?.exec(pathname) ?? [];
    const isChunk = kind === "upload" && searchParams.has("upload_id");
    return { kind: isChunk ? "chunk" : (kind ?? "other"), version, name, query: searchParams } as const;
  };
  const upload = uploadsOf(book);
  const results = new Map<string, Promise<Buffer>>();
  const download = async ({ headers }: UpstreamRequest, name: string, query: URLSearchParams) => {
    const job = book.job(name.replace("files/batch-", "batches/"));
    if (query.get("alt") !== "media") return nativeErrors.invalid("Use alt=media to download a file.");
    if (!job || book.isOpen(job)) return noFile();
    const draw = (line: JobLine, fault: LineFault | null, copy: number) =>
      drawLine({ job, line, fault, copy }, settings);
    const bytes = results.get(name) ?? resultFile(book.made(job), job.plan.isShuffled, draw);
    results.set(name, bytes);
    return rangeOf(await bytes, settings.hasRanges ? headers.range : undefined);
  };

  const routed = async (request: UpstreamRequest): Promise<Answer> => {
    const { kind, version, name, query } = routeOf(request.method, request.path);
    // The id in the URL of a chunk is secret: it needs no key.
    if (kind === "chunk") return upload.chunk(request, query.get("upload_id") ?? "");
    const key = request.headers["x-goog-api-key"] ?? "";
    if (key !== settings.key) return key === "" ? nativeErrors.noKey() : nativeErrors.invalidKey();
    if (kind === "upload") return upload.start(request);
    if (kind === "models") return listed(name, MODELS, version);
    if (kind === "download") return download(request, name, query);
    if (kind === "list") return page(book.listed(), query);
    if (kind === "create") {
      const job = await create(book, request.body, name, version);
      return "status" in job ? job : json(200, shown(job, "pending"));
    }
    if (kind === "delete") {
      if (!book.file(name)) return noFile();
      book.deleteFile(name);
      return json(200, {});
    }
    const job = book.job(name);
    if (job === undefined) return noEntity();
    if (kind === "poll") return json(200, shown(job));
    if (!book.isOpen(job))
      return nativeErrors.other(400, "FAILED_PRECONDITION", "The batch is already in a terminal state.");
    job.cancelledAt ??= book.now;
    return json(200, {});
  };

  /** The operation of a job. */
  const shown = (job: Job, phase: JobPhase = book.phase(job)): object => {
    const end = phase === "pending" || book.isOpen(job) ? null : book.end(job);
    const hasOutput = end !== null && (phase === "succeeded" || book.made(job).length > 0);
    const output = { responsesFile: `files/${job.name.replace("batches/", "batch-")}` };
    const isCancelled = phase === "cancelled";
    const reason = job.plan.reason ?? (isCancelled ? "The operation was cancelled." : "Internal error.");
    const state = `${settings.states}_STATE_${STATES[phase]}`;
    const hasResponse = hasOutput && (phase === "succeeded" || settings.outputs === "response");
    return {
      name: job.name,
      metadata: {
        ...{ "@type": `${TYPE}.GenerateContentBatch`, model: `models/${job.model}` },
        ...(job.label && { displayName: job.label }),
        ...{ inputConfig: { fileName: job.file }, state, name: job.name },
        ...(hasOutput && settings.outputs !== "response" && { output }),
        ...{ createTime: timeOf(job.createdAt), updateTime: timeOf(end?.at ?? job.createdAt) },
        ...(end && { endTime: timeOf(end.at) }),
        batchStats: { requestCount: String(job.lines.length) },
      },
      ...(end && { done: true }),
      ...(hasResponse
        ? settings.outputs !== "metadata" && {
            response: { "@type": `${TYPE}.GenerateContentBatchOutput`, ...output },
          }
        : end &&
          phase !== "succeeded" && {
            error: { code: isCancelled ? 1 : 13, message: said(reason, settings) },
          }),
    };
  };

  /** One page of the jobs. An empty list has no field, and the last page no token. */
  const page = (all: readonly Job[], query: URLSearchParams): Answer => {
    const start = Number(query.get("pageToken") ?? 0);
    const end = start + Math.min(Number(query.get("pageSize") ?? 50), 100);
    const operations = all.slice(start, end).map((job) => shown(job));
    return json(200, {
      ...(operations.length > 0 && { operations }),
      ...(end < all.length && { nextPageToken: String(end) }),
    });
  };

  const service: ImageService = {
    kindOf: (method, path) => routeOf(method, path).kind,
    promptOf: () => null,
    answer: async (request) => repeatingKey(await routed(request), settings.echoesKey ? settings.key : null),
  };
  const upstream = await startUpstream(service);
  /** Adds a job that another machine of the account made. */
  const addForeign = (label: string, prompts: readonly string[]) => {
    const lines = prompts.map((prompt, at) => ({ key: `k${at}`, request: {}, prompt, problem: null }));
    const name = `batches/${newId()}`;
    return book.add({ name, label, model: BATCH_MODEL, file: "files/another00001", lines, isForeign: true });
  };
  return { ...upstream, book, settings, addForeign };
}

/** A message as the service writes it. */
const said = (message: string, { echoesKey, key }: Settings) =>
  echoesKey ? `${message} (key ${key})` : message;

async function create(book: JobBook, body: unknown, model: string, version: string): Promise<Job | Answer> {
  const problem = shapeProblem(body, CREATE_FIELDS);
  if (problem) return problem;
  if (!MODELS.includes(model)) return nativeErrors.noModel(model, version);
  const batch = fieldOf(body, "batch");
  const file = book.file(String(fieldOf(fieldOf(batch, "inputConfig"), "fileName")));
  if (file === undefined) return noEntity();
  const read = readJsonLines(file.bytes);
  if ("badLine" in read) return nativeErrors.invalid(`Line ${read.badLine} is not one JSON object.`);
  const lines: JobLine[] = [];
  for (const value of read.values) {
    const strange = shapeProblem(value, { key: true, request: true });
    if (strange) return strange;
    const { key, request = {} } = value;
    const wrong = await problemOf(request);
    lines.push({
      ...{ key: key === undefined ? null : String(key), request, prompt: promptIn(request) ?? "" },
      problem: wrong && JSON.parse(String(wrong.body)).error.message,
    });
  }
  if (lines.length === 0) return nativeErrors.invalid("The batch has no requests.");
  const label = String(fieldOf(batch, "displayName") ?? "");
  return book.add({ name: `batches/${newId()}`, label, model, file: file.name, lines });
}

/** Uploads in chunks. */
function uploadsOf(book: JobBook) {
  const uploads = new Map<string, { label: string; type: string; length: number; received: Buffer }>();
  const { invalid } = nativeErrors;
  return {
    start({ headers, body }: UpstreamRequest): Answer {
      const length = Number(headers["x-goog-upload-header-content-length"]);
      const type = headers["x-goog-upload-header-content-type"];
      if (headers["x-goog-upload-protocol"] !== "resumable" || headers["x-goog-upload-command"] !== "start")
        return invalid("Use X-Goog-Upload-Protocol: resumable and X-Goog-Upload-Command: start.");
      if (!(length > 0) || type !== "application/jsonl") return invalid("Length or media type is missing.");
      const problem = shapeProblem(body, START_FIELDS);
      if (problem) return problem;
      const id = randomUUID();
      const label = String(fieldOf(fieldOf(body, "file"), "displayName") ?? "");
      uploads.set(id, { label, type, length, received: Buffer.alloc(0) });
      const url = `http://${headers.host}/upload/v1beta/files?upload_id=${id}&upload_protocol=resumable`;
      return json(200, {}, { "x-goog-upload-url": url, "x-goog-upload-status": "active" });
    },
    chunk({ headers, bytes }: UpstreamRequest, id: string): Answer {
      const upload = uploads.get(id);
      if (upload === undefined) return noEntity();
      const commands = String(headers["x-goog-upload-command"] ?? "").split(/, ?/);
      const isLast = commands.includes("finalize");
      const offset = Number(headers["x-goog-upload-offset"] ?? Number.NaN);
      if (!commands.includes("upload") || !(offset <= upload.received.length))
        return invalid("Invalid X-Goog-Upload-Command or X-Goog-Upload-Offset.");
      if (!isLast && bytes.length % GRANULARITY !== 0)
        return invalid(`Chunks must be multiples of ${GRANULARITY} bytes, except the last.`);
      upload.received = Buffer.concat([upload.received.subarray(0, offset), bytes]);
      if (!isLast) return json(200, {}, { "x-goog-upload-status": "active" });
      const { label, type, length, received } = upload;
      if (received.length !== length) return invalid("Upload is not as long as it promised.");
      const name = `files/${id.replaceAll("-", "").slice(0, 12)}`;
      book.files.set(name, { name, label, type, bytes: received, createdAt: book.now });
      return json(200, { file: { name, state: "ACTIVE" } }, { "x-goog-upload-status": "final" });
    },
  };
}

/** The line of a result file. */
async function drawLine(
  { job, line, fault, copy }: { job: Job; line: JobLine; fault: LineFault | null; copy: number },
  settings: Settings,
): Promise<object> {
  const key = line.key === null ? {} : { key: line.key };
  const message = said(line.problem ?? "The request could not be completed.", settings);
  if (line.problem !== null) return { ...key, error: { code: 3, message } };
  if (fault === "error") return { ...key, error: { code: 13, message } };
  if (fault === "statusError") return { ...key, error: { status: "INTERNAL", message } };
  if (fault === "refused") return { response: JSON.parse(String(nativeBlocks.prompt().body)), ...key };
  if (fault === "noImage") return { response: JSON.parse(String(nativeBlocks.noImage().body)), ...key };
  const size = settings.size ? { size: settings.size } : {};
  const answer = await made(line.request, job.model, { images: copy + 1, ...size });
  const response = JSON.parse(String(answer.body));
  const { parts } = response.candidates[0].content;
  // The copy keeps the last image only, which has another colour.
  if (copy > 0) parts.splice(1, parts.length - 2);
  if (fault === "huge") {
    const image = padded(Buffer.from(parts[1].inlineData.data, "base64"), HUGE_BYTES);
    parts[1].inlineData.data = image.toString("base64");
  }
  return { response, ...key };
}
