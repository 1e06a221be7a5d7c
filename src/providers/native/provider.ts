import { tierOf } from "../../contract/image-formats.ts";
import type { EntryOf } from "../../contract/provider-entries.ts";
import { PATHS } from "../../contract/routes.ts";
import { REFUSING_FINISH_REASONS } from "../../contract/statuses.ts";
import {
  type Capabilities,
  DECISIVE_FIELDS,
  type GeneratedImages,
  type ImageRequest,
  type JobItem,
  type JobResult,
  type JobState,
  ProviderError,
  toldRatio,
  type UpstreamJob,
  type UpstreamUsage,
  type VerbatimAnswer,
} from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import { modelFacts, presetOf, type TokenCounts, tokenCost } from "../catalogue/catalogue.ts";
import {
  type AdapterDeps,
  credentialHeaders,
  repeatHeader,
  type UpstreamAdapter,
} from "../upstream/adapter.ts";
import { type ImagesJson, refuseMany, wholeWords } from "../upstream/answer-images.ts";
import {
  countAt,
  listAt,
  oneLine,
  ownersWords,
  textAt,
  upstreamWords,
  valueAt,
} from "../upstream/answer-json.ts";
import { ambiguous, answerError } from "../upstream/classify.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { type JobAdapter, jobWords, type ResultFile, withTimeLimit } from "../upstream/provider.ts";
import { jsonBody, jsonLinesBody, ReferenceText, type RequestBody } from "../upstream/request-body.ts";
import { resultLines } from "../upstream/result-lines.ts";

/** Requests name no image type: the real vendor refuses the field for it. */
const NATIVE_TAKES: Capabilities = {
  maxReferences: 14,
  ratios: "any",
  tiers: "any",
  options: ["seed", ...DECISIVE_FIELDS],
  api: "native",
};

/** `models/` and the id, unless the id names another collection itself, as `tunedModels/mine` does. */
function modelPath(model: string): string {
  const path = model.includes("/") ? model : `models/${model}`;
  return path.split("/").map(encodeURIComponent).join("/");
}

/** How long another imgbatch may take to list its models, and how long its list is used. */
const LIST_MS = 5000;
const LIST_EVERY_MS = 60_000;

/**
 * Returns whether a request has a seed: one that was asked for, or else where the model is known to take one. Of another imgbatch,
 * its list of models says so. It is read only for further outputs of an item, which would be drawn like the first one without.
 */
function seedRule(
  http: UpstreamHttp,
  entry: EntryOf<"native" | "native-batch">,
  deps: AdapterDeps,
): (request: ImageRequest, signal: AbortSignal) => Promise<boolean> {
  const { name, apiKeyEnv } = entry;
  const headers = credentialHeaders({ name, apiKeyEnv }, deps);
  const call = { method: "GET", path: PATHS.batchModels, headers } as const;
  const preset = presetOf(entry)?.name ?? null;
  let list: Promise<unknown> = Promise.resolve(null);
  let endsMs = Number.NEGATIVE_INFINITY;
  return async ({ model, options, outputIndex }, signal) => {
    if (options.seed !== null) return true;
    if (preset !== null) return modelFacts(preset, model)?.seed === true;
    if (outputIndex === 0) return false;
    const nowMs = deps.clock.monotonicMs();
    if (nowMs >= endsMs) {
      endsMs = nowMs + LIST_EVERY_MS;
      list = http.json(call, AbortSignal.timeout(LIST_MS)).catch(() => null);
    }
    const models = listAt(await unlessAborted(list, signal), "data");
    return models.some((each) => valueAt(each, "id") === model && valueAt(each, "options", "seed") === true);
  };
}

/**
 * The body of `generateContent`. The references in it are read when it is sent. `preset`: the vendor's, if it is known.
 * `hasSeed`: see `seedRule`. What a caller of the same API has said besides is in it as it came.
 */
function generateContentBody(request: ImageRequest, preset: string | null, hasSeed: boolean): object {
  const { model, prompt, earlier, references, options, seed, verbatim } = request;
  const ratio = toldRatio(request);
  const hasOneSize = modelFacts(preset, model)?.sizes.length === 1;
  const images = references.map((image) => ({
    inlineData: { mimeType: image.mimeType, data: new ReferenceText(image) },
  }));
  const { contents, generationConfig, ...fields } = verbatim?.api === "native" ? verbatim.fields : {};
  const config = fieldsOf(generationConfig) ?? {};
  return {
    ...fields,
    contents: Array.isArray(contents)
      ? contents.map((message) => withReferences(message, images))
      : [
          ...(earlier ? [{ role: "user", parts: [{ text: earlier }] }] : []),
          { role: "user", parts: [{ text: prompt }, ...images] },
        ],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      ...config,
      imageConfig: {
        ...fieldsOf(config.imageConfig),
        // Without one the vendor keeps that of the first reference.
        ...(ratio === null ? {} : { aspectRatio: ratio }),
        ...(hasOneSize ? {} : { imageSize: tierOf(options.size) }),
      },
      ...(hasSeed ? { seed } : {}),
    },
  };
}

/** A message of `VerbatimRequest`, with its references in their places. */
function withReferences(message: unknown, images: readonly object[]): object {
  const parts = listAt(message, "parts").map((part) => {
    const { reference, ...rest } = fieldsOf(part) ?? {};
    return typeof reference === "number" ? { ...images[reference], ...rest } : rest;
  });
  return { ...fieldsOf(message), parts };
}

const REFUSING: ReadonlySet<string> = new Set(REFUSING_FINISH_REASONS);
/** An answer of this protocol has at least one of these. */
const FIELDS = ["candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"];

/** The price of counted tokens in micro-dollars; null when it is not known. */
type CostOf = (tokens: TokenCounts) => number | null;

/**
 * Reads a success of `generateContent`. Every image counts but the interim ones of a model that thinks. Throws
 * `ProviderError` for a refusal, for an answer without an image, and for JSON of another kind.
 */
function readContent(
  name: string,
  answer: unknown,
  decode: ImagesJson["decode"],
  costOf: CostOf,
): GeneratedImages {
  if (!FIELDS.some((field) => valueAt(answer, field) !== undefined)) {
    throw ambiguous(name, "HTTP 200 with other JSON", 200);
  }
  const candidates = listAt(answer, "candidates");
  const parts = candidates
    .flatMap((candidate) => listAt(candidate, "content", "parts"))
    .filter((part) => valueAt(part, "thought") !== true);
  const texts = parts.map(imageTextOf).filter((data) => data !== null);
  refuseMany(name, texts.length);
  const images = texts.map(decode);
  const version = textAt(answer, "modelVersion");
  const modelVersion = version === null ? null : upstreamWords(version);
  const said = verbatimAnswer(answer, decode);
  const usage = usageOf(answer, costOf);
  if (images.length > 0) return { images, modelVersion, usage, answer: said };

  const blocked = textAt(answer, "promptFeedback", "blockReason");
  const reasons = candidates.map((candidate) => textAt(candidate, "finishReason"));
  const refusing = reasons.find((reason) => reason !== null && REFUSING.has(reason)) ?? null;
  const told = [
    textAt(answer, "promptFeedback", "blockReasonMessage"),
    ...candidates.map((candidate) => textAt(candidate, "finishMessage")),
    ...parts.map((part) => textAt(part, "text")),
  ].flatMap((text) => text ?? []);
  const words = upstreamWords(ownersWords(told.join("\n")));
  const facts = { upstreamStatus: 200, modelVersion, answer: said, usage };
  if (blocked !== null) {
    const message = words || `${name} refused the prompt (${upstreamWords(blocked)}).`;
    throw new ProviderError("SAFETY_BLOCKED", message, facts);
  }
  const finish = refusing ?? reasons.find((each) => each !== null) ?? "no candidate";
  const what = refusing === null ? "made no image" : "refused to show what it made";
  const message = `${name} ${what} (${upstreamWords(finish)})${words && `: ${words}`}`;
  const code = refusing === null ? "EMPTY_IMAGE_OUTPUT" : "SAFETY_BLOCKED";
  throw new ProviderError(code, message.replace(/(?<![.!?…])$/, "."), facts);
}

const imageTextOf = (part: unknown) =>
  textAt(part, "inlineData", "data") ?? textAt(part, "inline_data", "data");

/** The fields of an answer that say something beside its images. */
const SAID = ["promptFeedback", "usageMetadata"];

/** Returns what an answer says beside its images. Interim images of a model that thinks are left out. */
function verbatimAnswer(answer: unknown, decode: ImagesJson["decode"]): VerbatimAnswer {
  let image = 0;
  const partOf = (part: unknown) => {
    const { inlineData: _, inline_data: __, ...rest } = fieldsOf(part) ?? {};
    if (imageTextOf(part) === null) return [rest];
    return rest.thought === true ? [] : [{ image: image++, ...rest }];
  };
  const candidates = listAt(answer, "candidates").map((candidate) => {
    const content = fieldsOf(valueAt(candidate, "content"));
    const parts = listAt(content, "parts").flatMap(partOf);
    return { ...fieldsOf(candidate), ...(content && { content: { ...content, parts } }) };
  });
  const said = SAID.map((name) => [name, valueAt(answer, name)]).filter(([, value]) => value !== undefined);
  const fields = { ...(candidates.length > 0 && { candidates }), ...Object.fromEntries(said) };
  return { api: "native", fields: wholeWords(fields, decode) };
}

function usageOf(answer: unknown, costOf: CostOf): UpstreamUsage | null {
  const count = (field: string) => countAt(answer, "usageMetadata", field);
  const [input, made, thought] = [
    count("promptTokenCount"),
    count("candidatesTokenCount"),
    count("thoughtsTokenCount"),
  ];
  if (input === null && made === null && thought === null) return null;
  const outputTokens = made === null && thought === null ? null : (made ?? 0) + (thought ?? 0);
  const tokens = {
    input,
    imageInput: tokensOf(answer, "promptTokensDetails", "IMAGE"),
    output: outputTokens,
    textOutput: (tokensOf(answer, "candidatesTokensDetails", "TEXT") ?? 0) + (thought ?? 0),
  };
  return { inputTokens: input, outputTokens, costMicroUsd: costOf(tokens) };
}

/** Returns how many of the tokens are of a kind; null when the kinds are not told apart. */
function tokensOf(answer: unknown, field: string, kind: "TEXT" | "IMAGE"): number | null {
  const details = listAt(answer, "usageMetadata", field);
  if (details.length === 0) return null;
  const ofKind = details.filter((detail) => textAt(detail, "modality") === kind);
  return ofKind.reduce<number>((sum, detail) => sum + (countAt(detail, "tokenCount") ?? 0), 0);
}

/** Talks to the vendor's own `generateContent`, or to another imgbatch. */
export function createNativeAdapter(entry: EntryOf<"native">, deps: AdapterDeps): UpstreamAdapter {
  const { name, apiVersion } = entry;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(entry, deps);
  const preset = presetOf(entry)?.name ?? null;
  const takesSeed = seedRule(http, entry, deps);
  return {
    address: `${http.baseUrl}/${apiVersion}`,
    takes: NATIVE_TAKES,
    async generate(request, signal, onSent, onAnswered) {
      const path = `/${apiVersion}/${modelPath(request.model)}:generateContent`;
      const hasSeed = await takesSeed(request, signal);
      const body = jsonBody(generateContentBody(request, preset, hasSeed));
      const { earlier = "", prompt, verbatim } = request;
      const asked = [earlier, prompt, JSON.stringify(verbatim?.fields ?? "")].join("\n");
      const repeatable = { ...headers, ...repeatHeader(entry, request) };
      const call = { method: "POST", path, headers: repeatable, body, asked } as const;
      return http.images(call, signal, { onSent, onAnswered }, ({ value, decode }) => ({
        ...readContent(name, value, decode, (tokens) => tokenCost(entry, request, tokens)),
        seed: hasSeed ? request.seed : null,
      }));
    },
    async probe(signal) {
      await http.json({ method: "GET", path: `/${apiVersion}/models?pageSize=1`, headers }, signal);
    },
    close: () => http.close(),
  };
}

const PAGE = 50;

/** Talks to the vendor's files and batch jobs, at half the price, or to another imgbatch. */
export function createNativeBatchAdapter(entry: EntryOf<"native-batch">, deps: AdapterDeps): JobAdapter {
  const { name, apiVersion } = entry;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(entry, deps);
  const preset = presetOf(entry)?.name ?? null;
  const at = (resource: string) => `/${apiVersion}/${resource.split("/").map(encodeURIComponent).join("/")}`;
  const takesSeed = seedRule(http, entry, deps);
  const linesOf = async (items: readonly JobItem[], signal: AbortSignal) => {
    const lines: object[] = [];
    for (const { key, request } of items) {
      const hasSeed = await takesSeed(request, signal);
      lines.push({ key, request: generateContentBody(request, preset, hasSeed) });
    }
    return jsonLinesBody(lines);
  };
  return {
    address: `${http.baseUrl}/${apiVersion}`,
    takes: NATIVE_TAKES,
    splitsReferences: false,
    lineBytes: async (item) => (await linesOf([item], new AbortController().signal)).length(),
    upload: async (jobId, items, signal) =>
      uploadFile(
        { http, apiVersion, headers, clock: deps.clock },
        { label: jobId, body: await linesOf(items, signal) },
        signal,
      ),
    async create({ jobId, model, input }, signal) {
      const path = `/${apiVersion}/${modelPath(model)}:batchGenerateContent`;
      const body = jsonBody({ batch: { displayName: jobId, inputConfig: { fileName: input } } });
      const answer = await http.json({ method: "POST", path, headers, body, shows: ["name"] }, signal);
      const job = readOperation(name, answer, deps.clock.nowMs());
      if (job === null) throw ambiguous(name, "HTTP 200 without the name of a job", 200);
      return job.name;
    },
    async page(mark, signal) {
      const query = new URLSearchParams({ pageSize: String(PAGE), ...(mark && { pageToken: mark }) });
      const path = `/${apiVersion}/batches?${query}`;
      const page = await http.json({ method: "GET", path, headers }, signal);
      const jobs = listAt(page, "operations").flatMap(
        (each) => readOperation(name, each, deps.clock.nowMs()) ?? [],
      );
      return { jobs, next: textAt(page, "nextPageToken") ?? textAt(page, "next_page_token") };
    },
    async show(resource, signal) {
      const path = at(resource);
      const operation = await http.json({ method: "GET", path, headers, shows: ["name"] }, signal);
      const job = readOperation(name, operation, deps.clock.nowMs());
      return job && { job, files: outputFilesOf(operation) };
    },
    async *read(file, model, signal) {
      const costOf = (tokens: TokenCounts) => tokenCost(entry, { model }, tokens);
      const path = `${at(file)}:download?alt=media`;
      for await (const line of resultLines(http, { path, headers }, deps.clock, signal))
        yield "value" in line ? readResult(name, line, costOf, deps.clock.nowMs()) : line;
    },
    async cancel(resource, signal) {
      const request = { method: "POST", path: `${at(resource)}:cancel`, headers } as const;
      await http.json({ ...request, body: jsonBody({}), mayBeEmpty: true }, signal);
    },
    async discard(input, signal) {
      await http.json({ method: "DELETE", path: at(input), headers, mayBeEmpty: true }, signal);
    },
    async probe(signal) {
      await http.json({ method: "GET", path: `/${apiVersion}/models?pageSize=1`, headers }, signal);
    },
    close: () => http.close(),
  };
}

const NAME = /^[\w.-]+\/[\w.:-]{1,200}$/;

/** Final states, without `BATCH_STATE_` or `JOB_STATE_`. Every other one, also an unknown one, is `running`. */
const ENDS: Readonly<Record<string, Exclude<JobState, "running">>> = {
  SUCCEEDED: "succeeded",
  PARTIALLY_SUCCEEDED: "succeeded",
  FAILED: "failed",
  CANCELLED: "cancelled",
  EXPIRED: "expired",
};

/** Reads an operation of the vendor's batch API. Null when it shows no job. `provider` is named in what it says. */
function readOperation(provider: string, operation: unknown, nowMs: number): UpstreamJob | null {
  const name = textAt(operation, "name") ?? textAt(operation, "metadata", "name");
  if (name === null || !NAME.test(name)) return null;
  const metadata = valueAt(operation, "metadata");
  const at = (camel: string, snake: string) => textAt(metadata, camel) ?? textAt(metadata, snake);
  const config = valueAt(metadata, "inputConfig") ?? valueAt(metadata, "input_config");
  const word = wordOf(metadata);
  const reason = upstreamWords(textAt(operation, "error", "message") ?? "");
  const state = stateOf(operation);
  const createdAtMs = Date.parse(at("createTime", "create_time") ?? "");
  const jobId = at("displayName", "display_name");
  return {
    name,
    jobId: jobId === null ? null : oneLine(jobId.slice(0, 512)),
    input: textAt(config, "fileName") ?? textAt(config, "file_name"),
    createdAtMs: Number.isNaN(createdAtMs) ? null : createdAtMs,
    state,
    said: jobWords(provider, state, word, reason),
    refusal: state === "failed" ? refusalOf(provider, operation, nowMs) : null,
  };
}

/** Returns why a job has failed for a limit or money before any of its requests ran; null for any other end. */
function refusalOf(provider: string, operation: unknown, nowMs: number): ProviderError | null {
  const metadata = valueAt(operation, "metadata");
  const stats = valueAt(metadata, "batchStats") ?? valueAt(metadata, "batch_stats");
  const counts = [
    "successfulRequestCount",
    "successful_request_count",
    "failedRequestCount",
    "failed_request_count",
  ];
  // The vendor leaves out counts of 0. Without any count nothing is known.
  if (stats === undefined || counts.some((name) => wholeAt(stats, name))) return null;
  const error = lineError(provider, valueAt(operation, "error"), nowMs);
  return error.trouble === "limited" || error.trouble === "billing" ? error : null;
}

const wordOf = (metadata: unknown) => (textAt(metadata, "state") ?? "").replace(/^(?:BATCH|JOB)_STATE_/, "");

function stateOf(operation: unknown): JobState {
  const end = ENDS[wordOf(valueAt(operation, "metadata"))];
  if (end || valueAt(operation, "done") !== true) return end ?? "running";
  return valueAt(operation, "error") === undefined ? "succeeded" : "failed";
}

/** Returns the file with the results; none when there are none. */
function outputFilesOf(operation: unknown): ResultFile[] {
  const outputs = [valueAt(operation, "metadata", "output"), valueAt(operation, "response")];
  const names = outputs.flatMap((output) => [
    textAt(output, "responsesFile"),
    textAt(output, "responses_file"),
  ]);
  const name = names.find((name) => name !== null && NAME.test(name)) ?? null;
  const results = resultsOf(operation);
  return name !== null || results ? [{ name, results }] : [];
}

/** How many lines the file has at least; null when nothing is said. A job that was stopped may count requests as failed that were never run. */
function resultsOf(operation: unknown): number | null {
  const metadata = valueAt(operation, "metadata");
  const stats = valueAt(metadata, "batchStats") ?? valueAt(metadata, "batch_stats");
  const made = wholeAt(stats, "successfulRequestCount") ?? wholeAt(stats, "successful_request_count");
  const failed = wholeAt(stats, "failedRequestCount") ?? wholeAt(stats, "failed_request_count");
  if (made === null && failed === null) return null;
  return (made ?? 0) + (stateOf(operation) === "succeeded" ? (failed ?? 0) : 0);
}

/** The vendor writes 64-bit numbers as text (the JSON mapping of Protocol Buffers). */
function wholeAt(stats: unknown, name: string): number | null {
  const text = textAt(stats, name);
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : countAt(stats, name);
}

/** The HTTP statuses of the codes of `google.rpc.Status`, as the vendor's API maps them. */
const HTTP_STATUSES: Readonly<Record<number, number>> = {
  1: 499,
  3: 400,
  4: 504,
  5: 404,
  7: 403,
  8: 429,
  9: 400,
  11: 400,
  14: 503,
  16: 401,
};

/** Reads a line of a result file: a response or an error for a key. */
function readResult(
  name: string,
  { value: line, decode }: ImagesJson,
  costOf: Parameters<typeof readContent>[3],
  nowMs: number,
): JobResult {
  const key = textAt(line, "key") ?? textAt(line, "metadata", "key");
  if (key === null) return { unreadable: "a line without a key" };
  const error = valueAt(line, "error");
  if (error !== undefined && error !== null) return { key, error: lineError(name, error, nowMs) };
  try {
    return { key, output: readContent(name, valueAt(line, "response") ?? line, decode, costOf) };
  } catch (failure) {
    if (!(failure instanceof ProviderError)) throw failure;
    return { key, error: failure };
  }
}

function lineError(name: string, error: unknown, nowMs: number): ProviderError {
  const code = valueAt(error, "code");
  const isHttp = typeof code === "number" && code >= 400 && code < 600;
  const status = isHttp ? code : (HTTP_STATUSES[Number(code)] ?? (code === undefined ? 200 : 500));
  return answerError(name, { status, body: { error } }, nowMs);
}

const CHUNK_BYTES = 8 * 1024 * 1024;
/** A chunk that takes longer has not arrived. */
const CALL_MS = 300_000;
const MOST_TRIES = 4;
const AGAIN_MS = 1000;
const FILE_NAME = /^files\/[\w.-]{1,200}$/;
const MEDIA_TYPE = "application/jsonl";

interface Target {
  http: UpstreamHttp;
  apiVersion: string;
  /** With the key. Chunks are sent without it: the address of an upload is secret. */
  headers: Readonly<Record<string, string>>;
  clock: Clock;
}

/**
 * Uploads a file in chunks (the vendor's resumable protocol) and returns its name. A chunk that may not have arrived is
 * sent again at its place. Rejects with `ProviderError`.
 */
async function uploadFile(
  target: Target,
  { label, body }: { label: string; body: RequestBody },
  signal: AbortSignal,
): Promise<string> {
  const path = await start(target, label, await body.length(), signal);
  let offset = 0;
  let name: string | null = null;
  for await (const { bytes, isLast } of chunks(body)) {
    name = await send(target, { path, bytes, offset, isLast }, signal);
    offset += bytes.length;
  }
  if (name === null || !FILE_NAME.test(name))
    throw ambiguous(target.http.name, "an upload without the name of its file", 200);
  return name;
}

/** Returns the path of the upload. Its host is ours, whatever the answer says: the upstream may not know its own. */
async function start(
  { http, apiVersion, headers, clock }: Target,
  label: string,
  length: number,
  signal: AbortSignal,
): Promise<string> {
  const upload = {
    "x-goog-upload-protocol": "resumable",
    "x-goog-upload-command": "start",
    "x-goog-upload-header-content-length": String(length),
    "x-goog-upload-header-content-type": MEDIA_TYPE,
  };
  const request = {
    method: "POST",
    path: `/upload/${apiVersion}/files`,
    headers: { ...headers, ...upload },
    body: jsonBody({ file: { displayName: label, mimeType: MEDIA_TYPE } }),
    mayBeEmpty: true,
  } as const;
  const answer = await withTimeLimit(limitOf(http, clock), signal, (inTime) =>
    http.exchange(request, inTime),
  );
  const url = answer.headers.get("x-goog-upload-url") ?? "";
  if (!URL.canParse(url, http.baseUrl)) throw ambiguous(http.name, "an upload without an address", 200);
  const { pathname, search } = new URL(url, http.baseUrl);
  const base = new URL(http.baseUrl).pathname.replace(/\/+$/, "");
  // A gateway in front of the upstream may have a path that the upstream does not know.
  return (pathname.startsWith(`${base}/`) ? pathname.slice(base.length) : pathname) + search;
}

function limitOf({ name }: UpstreamHttp, clock: Clock) {
  const message = `${name} did not take a part of an upload within ${CALL_MS / 1000} s.`;
  const late = () => new ProviderError("PROVIDER_TIMEOUT", message, { trouble: "ambiguous" });
  return { clock, ms: CALL_MS, late };
}

async function send(
  { http, clock }: Target,
  { path, bytes, offset, isLast }: { path: string; bytes: Buffer; offset: number; isLast: boolean },
  signal: AbortSignal,
): Promise<string | null> {
  const headers = {
    "x-goog-upload-command": isLast ? "upload, finalize" : "upload",
    "x-goog-upload-offset": String(offset),
  };
  const body = bytesBody(MEDIA_TYPE, bytes);
  for (let tries = 1; ; tries++) {
    try {
      const request = { method: "POST", path, headers, body, mayBeEmpty: !isLast } as const;
      const answer = await withTimeLimit(limitOf(http, clock), signal, (inTime) =>
        http.json(request, inTime),
      );
      return textAt(answer, "file", "name");
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      const { upstreamStatus: status, trouble } = error;
      // The part may have arrived the first time. Another upload costs nothing.
      if (tries > 1 && status !== null && status >= 400 && status < 500 && trouble !== "limited")
        throw ambiguous(http.name, `HTTP ${status} to a part that was sent again`, status);
      if (!error.retryable || tries >= MOST_TRIES) throw error;
      await clock.sleep(AGAIN_MS * 2 ** (tries - 1), signal);
    }
  }
}

/** A body of these bytes. */
function bytesBody(contentType: string, bytes: Buffer): RequestBody {
  return {
    contentType,
    length: async () => bytes.length,
    open: async function* () {
      yield bytes;
    },
  };
}

/** The body in chunks of 8 MiB, the last one shorter. */
async function* chunks(body: RequestBody): AsyncGenerator<{ bytes: Buffer; isLast: boolean }> {
  let pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of body.open()) {
    pieces.push(piece);
    length += piece.length;
    if (length <= CHUNK_BYTES) continue;
    let whole = Buffer.concat(pieces, length);
    // Something is always kept, for the last chunk.
    for (; whole.length > CHUNK_BYTES; whole = whole.subarray(CHUNK_BYTES))
      yield { bytes: whole.subarray(0, CHUNK_BYTES), isLast: false };
    pieces = [Buffer.from(whole)];
    length = whole.length;
  }
  yield { bytes: Buffer.concat(pieces, length), isLast: true };
}
