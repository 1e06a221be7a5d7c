import { IMAGE_EXTENSIONS, tierOf } from "../../contract/image-formats.ts";
import { MAX_PARTIALS } from "../../contract/openai-api.ts";
import type { EntryOf } from "../../contract/provider-entries.ts";
import {
  type Carried,
  type GeneratedImages,
  type ImageOptions,
  type ImageRequest,
  type JobItem,
  type JobResult,
  type JobState,
  type LargeImage,
  ProviderError,
  toldRatio,
  type UpstreamJob,
  type UpstreamUsage,
} from "../../domain/ports/image-provider.ts";
import { joinTurns } from "../../kernel/text.ts";
import { modelFacts, pixelsOf, presetOf, type TokenCounts, tokenCost } from "../catalogue/catalogue.ts";
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
  costOf as reportedCost,
  textAt,
  upstreamWords,
  valueAt,
} from "../upstream/answer-json.ts";
import { ambiguous, answerError } from "../upstream/classify.ts";
import { fetchImage } from "../upstream/fetch-image.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { type JobAdapter, jobWords, type ResultFile } from "../upstream/provider.ts";
import { dataUrlOf, formBody, jsonBody, jsonLinesBody, type RequestBody } from "../upstream/request-body.ts";
import { resultLines } from "../upstream/result-lines.ts";

/** The most references of one edit, as OpenAI documents it. */
const MAX_REFERENCES = 16;

type Entry = EntryOf<"openai">;
/** The keys of an entry that decide the fields of a request. `preset`: the vendor's, if it is known. */
type FieldRules = Pick<Entry, "sizeAs" | "resolution" | "responseFormat" | "extra" | "preset">;
type Fields = Record<string, unknown>;

/** The request for an image: a generation, or with references an edit. */
function imagesRequest(entry: Entry, request: ImageRequest): { path: string; body: RequestBody } {
  const { path, editPath, edits } = entry;
  const { references, mask } = request;
  const fields = imageFields(entry, request);
  if (references.length === 0) return { path, body: jsonBody(fields) };
  if (edits === "input_references") {
    const input_references = references.map((image) => ({
      type: "image_url",
      image_url: { url: dataUrlOf(image) },
    }));
    return { path, body: jsonBody({ ...fields, input_references }) };
  }
  if (edits === "json") {
    const images = references.map((image) => ({ type: "image_url", url: dataUrlOf(image) }));
    return {
      path: editPath,
      body: jsonBody({ ...fields, ...(images[1] ? { images } : { image: images[0] }) }),
    };
  }
  // One file goes by the plain name, several as a list: all servers that were looked at read both.
  const field = references.length === 1 ? "image" : "image[]";
  const files = references.map((image, i) => ({
    field,
    fileName: `reference-${i + 1}.${IMAGE_EXTENSIONS[image.mimeType]}`,
    content: image,
  }));
  if (mask) files.push({ field: "mask", fileName: "mask.png", content: mask });
  return { path: editPath, body: formBody(asTexts(fields), files) };
}

/** The fields of a request for an image, without its references. */
function imageFields(entry: FieldRules, request: ImageRequest): Fields {
  const { model, prompt, earlier = "", options } = request;
  const tier = tierOf(options.size);
  const { formats, defaultQuality: ofVendor } = modelFacts(entry.preset, model) ?? {};
  const { defaultQuality = ofVendor } = request;
  const { responseFormat, resolution } = entry;
  const { verbatim, partialImages } = request;
  // Without a type, some servers make a JPEG, which has no transparency.
  const hasType = formats !== undefined || options.background === "transparent";
  return {
    ...sizeFields(entry, request),
    // Models that can be asked for a type refuse `response_format`: they always return Base64.
    ...(hasType ? { output_format: IMAGE_EXTENSIONS[options.mimeType].replace("jpg", "jpeg") } : {}),
    ...(formats || responseFormat === "omit" ? {} : { response_format: responseFormat }),
    // The price depends on it.
    ...(defaultQuality !== undefined && { quality: defaultQuality }),
    ...(verbatim?.api === "openai" ? verbatim.fields : {}),
    ...(partialImages && { stream: true, partial_images: partialImages }),
    ...entry.extra,
    ...(resolution !== null &&
      tier !== "1K" && { resolution: resolution === "lower" ? tier.toLowerCase() : tier }),
    ...optionFields(options),
    model,
    prompt: joinTurns(earlier, prompt),
  };
}

function optionFields({ quality, background, seed, negativePrompt }: ImageOptions): Fields {
  const fields = Object.entries({ quality, background, seed, negative_prompt: negativePrompt });
  return Object.fromEntries(fields.filter(([, value]) => value !== null));
}

/** Pixels are sent for an edit that keeps the ratio of its reference, too: without them many servers make a square. */
function sizeFields({ sizeAs }: FieldRules, request: ImageRequest): Fields {
  const ratio = toldRatio(request);
  if (sizeAs === "aspect_ratio") return ratio === null ? {} : { aspect_ratio: ratio };
  const { widthPx: width, heightPx: height } = request.pixels;
  return sizeAs === "size" ? { size: `${width}x${height}` } : { width, height };
}

/** A form has texts only. A null is left out. */
function asTexts(fields: Fields): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}

/**
 * Reads a success of the Images API, and fetches images that it has by address. Throws `ProviderError` for a silent
 * refusal, for an answer without an image, when no address gives an image, and for JSON of another kind.
 */
async function readImages(
  http: UpstreamHttp,
  { value: answer, ...inJson }: ImagesJson,
  headers: Readonly<Record<string, string>>,
  { costOf, signal }: { costOf: (tokens: TokenCounts) => number | null; signal: AbortSignal },
): Promise<GeneratedImages> {
  const { name } = http;
  if (!Array.isArray(valueAt(answer, "data"))) throw ambiguous(name, "HTTP 200 with other JSON", 200);
  const data = listAt(answer, "data");
  const isRefused = (entry: unknown) => valueAt(entry, "respect_moderation") === false;
  const kept = isRefused(answer) ? [] : data.filter((entry) => !isRefused(entry));
  refuseMany(name, kept.length);
  const images: (Buffer | LargeImage)[] = [];
  const failures: unknown[] = [];
  for (const entry of kept) {
    const [base64, url] = [textAt(entry, "b64_json") ?? textAt(entry, "b64"), textAt(entry, "url")];
    if (base64 !== null) images.push(inJson.decode(base64));
    else if (url !== null) {
      await fetchImage(http, url, headers, signal, inJson).then(
        (image) => images.push(image),
        (error) => failures.push(error),
      );
      signal.throwIfAborted();
    }
  }
  const version = textAt(answer, "model");
  const modelVersion = version === null ? null : upstreamWords(version);
  const usage = usageOf(answer, costOf);
  const facts = { upstreamStatus: 200, modelVersion, usage };
  if (images.length === 0 && failures.length > 0) throw failures[0];
  if (images.length === 0 && (data.some(isRefused) || isRefused(answer))) {
    throw new ProviderError("SAFETY_BLOCKED", `${name} refused the content.`, facts);
  }
  if (images.length === 0) {
    throw new ProviderError("EMPTY_IMAGE_OUTPUT", `${name} made no image (an empty list).`, facts);
  }
  const lost = failures.length === 0 ? [] : [`images that could not be fetched: ${failures.length}`];
  const revised = kept.flatMap((entry) => textAt(entry, "revised_prompt") ?? []);
  const words = kept.map((entry) => ({ revised_prompt: textAt(entry, "revised_prompt") ?? undefined }));
  const fields = wholeWords({ data: words, usage: valueAt(answer, "usage") }, inJson.decode);
  const notes = [...new Set(revised)].map((text) => `the prompt was rewritten: ${upstreamWords(text)}`);
  const said = { answer: { api: "openai", fields } } as const;
  const partials = listAt(answer, "partials").slice(0, MAX_PARTIALS);
  const unfinished = partials.flatMap((entry) => {
    const base64 = textAt(entry, "b64_json");
    return base64 === null ? [] : [inJson.decode(base64)];
  });
  const rough = unfinished.length > 0 && { partials: unfinished };
  return { images, modelVersion, usage, notes: [...notes, ...lost], ...rough, ...said };
}

function usageOf(answer: unknown, costOf: (tokens: TokenCounts) => number | null): UpstreamUsage | null {
  const count = (...path: string[]) => countAt(answer, "usage", ...path);
  const tokens = {
    input: count("input_tokens") ?? count("prompt_tokens"),
    imageInput: count("input_tokens_details", "image_tokens"),
    output: count("output_tokens") ?? count("completion_tokens"),
    textOutput: count("output_tokens_details", "text_tokens"),
  };
  const usage = {
    inputTokens: tokens.input,
    outputTokens: tokens.output,
    costMicroUsd:
      reportedCost(valueAt(answer, "usage", "cost")) ??
      reportedCost(valueAt(answer, "usage", "cost_in_usd_ticks"), 1 / TICKS) ??
      costOf(tokens),
  };
  return Object.values(usage).every((each) => each === null) ? null : usage;
}

/** The ticks of xAI that are a US dollar. */
const TICKS = 1e10;

/** Talks to OpenAI Images, and to the services that speak it. */
export function createOpenaiAdapter(configured: EntryOf<"openai">, deps: AdapterDeps): UpstreamAdapter {
  const entry = { ...configured, preset: presetOf(configured)?.name ?? null };
  const { name, edits } = entry;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(configured, deps);
  const maxReferences = edits === "none" ? 0 : MAX_REFERENCES;
  return {
    address: http.baseUrl,
    takes: {
      maxReferences,
      ratios: "any",
      // A ratio alone says nothing about the size.
      tiers: entry.sizeAs === "aspect_ratio" && entry.resolution === null ? ["1K"] : "any",
      ...(entry.sizeAs !== "aspect_ratio" && { pixelsOf: pixelsOf(entry) }),
      options: carriedBy(entry),
      api: "openai",
    },
    async generate(request, signal, onSent, onAnswered) {
      if (request.references.length > maxReferences) {
        const most = maxReferences === 0 ? "no" : `at most ${maxReferences}`;
        throw new ProviderError("INVALID_ARGUMENT", `${name} takes ${most} reference images.`);
      }
      const { path, body } = imagesRequest(entry, request);
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const repeatable = { ...headers, ...repeatHeader(configured, request) };
      const call = { method: "POST", path, headers: repeatable, body, asked } as const;
      const seed = request.options.seed;
      const costOf = (tokens: TokenCounts) => tokenCost(configured, request, tokens);
      return http.images(call, signal, { onSent, onAnswered }, async (answer) => {
        const made = await readImages(http, answer, headers, { costOf, signal });
        return seed === null ? made : { ...made, seed };
      });
    },
    async probe(signal) {
      await http.json({ method: "GET", path: "/models", headers }, signal);
    },
    close: () => http.close(),
  };
}

/** The options that a server of this kind has fields for. A mask needs a form. */
function carriedBy({ edits, takes }: Pick<Entry, "edits" | "takes">): Carried[] {
  const more = takes.map((field) => (field === "seed" ? "seed" : "negativePrompt"));
  return ["quality", "background", ...more, ...(edits === "multipart" ? (["mask"] as const) : [])];
}

/** OpenAI's own names of what a job may ask for, whatever the base URL is. */
const GENERATIONS = "/v1/images/generations";
const EDITS = "/v1/images/edits";
const FIELDS = { sizeAs: "size", resolution: null, responseFormat: "omit" } as const;
const PAGE = 100;
/** The upstream deletes an input that could not be deleted after this time: by then no job can be made of it any more. */
const EXPIRY = { "expires_after[anchor]": "created_at", "expires_after[seconds]": String(3 * 86_400) };

/** Talks to OpenAI's files and batch jobs for images, at half the price. */
export function createOpenaiBatchAdapter(entry: EntryOf<"openai-batch">, deps: AdapterDeps): JobAdapter {
  const { name, extra } = entry;
  const http = new UpstreamHttp(entry, deps);
  const rules = { ...FIELDS, extra, preset: presetOf(entry)?.name ?? null };
  const headers = credentialHeaders(entry, deps);
  const at = (collection: string, id: string) => `/${collection}/${encodeURIComponent(id)}`;
  const lineOf = ({ key, request }: JobItem) => {
    const images = request.references.map((image) => ({ image_url: dataUrlOf(image) }));
    const mask = request.mask && { image_url: dataUrlOf(request.mask) };
    const body = {
      ...imageFields(rules, request),
      ...(images.length > 0 && { images }),
      ...(mask && { mask }),
    };
    return { custom_id: key, method: "POST", url: images.length > 0 ? EDITS : GENERATIONS, body };
  };
  return {
    address: http.baseUrl,
    takes: {
      maxReferences: MAX_REFERENCES,
      ratios: "any",
      tiers: "any",
      pixelsOf: pixelsOf(entry),
      options: ["quality", "background", "mask"],
      api: "openai",
    },
    // All requests of a job have one address.
    splitsReferences: true,
    lineBytes: async (item) => jsonLinesBody([lineOf(item)]).length(),
    async upload(jobId, items, signal) {
      const content = jsonLinesBody(items.map(lineOf));
      const body = formBody({ purpose: "batch", ...EXPIRY }, [
        { field: "file", fileName: `${jobId}.jsonl`, content },
      ]);
      const answer = await http.json({ method: "POST", path: "/files", headers, body }, signal);
      const id = textAt(answer, "id");
      if (id === null) throw ambiguous(name, "an upload without the name of its file", 200);
      return id;
    },
    async create({ jobId, input, hasReferences }, signal) {
      const body = jsonBody({
        input_file_id: input,
        endpoint: hasReferences ? EDITS : GENERATIONS,
        completion_window: "24h",
        metadata: { [JOB_ID]: jobId },
      });
      const job = readBatch(
        name,
        await http.json({ method: "POST", path: "/batches", headers, body }, signal),
        deps.clock.nowMs(),
      );
      if (job === null) throw ambiguous(name, "HTTP 200 without the name of a job", 200);
      return job.name;
    },
    async page(mark, signal) {
      const query = new URLSearchParams({ limit: String(PAGE), ...(mark && { after: mark }) });
      const page = await http.json({ method: "GET", path: `/batches?${query}`, headers }, signal);
      const jobs = listAt(page, "data").flatMap((each) => readBatch(name, each, deps.clock.nowMs()) ?? []);
      const last = textAt(page, "last_id") ?? jobs.at(-1)?.name ?? null;
      return { jobs, next: valueAt(page, "has_more") === true ? last : null };
    },
    async show(id, signal) {
      const batch = await http.json({ method: "GET", path: at("batches", id), headers }, signal);
      const job = readBatch(name, batch, deps.clock.nowMs());
      return job && { job, files: outputFilesOf(batch) };
    },
    async *read(file, model, signal) {
      const costOf = (tokens: TokenCounts) => tokenCost(entry, { model }, tokens);
      const path = `${at("files", file)}/content`;
      for await (const line of resultLines(http, { path, headers }, deps.clock, signal))
        yield "value" in line
          ? await readResult(http, line, { costOf, signal, nowMs: deps.clock.nowMs() })
          : line;
    },
    async cancel(id, signal) {
      const request = { method: "POST", path: `${at("batches", id)}/cancel`, headers } as const;
      await http.json({ ...request, body: jsonBody({}), mayBeEmpty: true }, signal);
    },
    async discard(input, signal) {
      await http.json({ method: "DELETE", path: at("files", input), headers, mayBeEmpty: true }, signal);
    },
    async probe(signal) {
      await http.json({ method: "GET", path: "/models", headers }, signal);
    },
    close: () => http.close(),
  };
}

const ID = /^[\w.:-]{1,200}$/;

/** The key of a job's metadata that has our id. */
const JOB_ID = "imgbatch_job";

/** Final states. Every other one, also an unknown one, is `running`. */
const ENDS: Readonly<Record<string, Exclude<JobState, "running">>> = {
  completed: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
  expired: "expired",
};

/** Reads a job of OpenAI's Batch API. Null when the value shows none. `provider` is named in what it says. */
function readBatch(provider: string, batch: unknown, nowMs: number): UpstreamJob | null {
  const name = textAt(batch, "id");
  if (name === null || !ID.test(name)) return null;
  const word = textAt(batch, "status") ?? "";
  const reason = listAt(batch, "errors", "data")
    .map((error) => upstreamWords(textAt(error, "message") ?? ""))
    .find((message) => message !== "");
  const state = ENDS[word] ?? "running";
  const createdAt = countAt(batch, "created_at");
  const jobId = textAt(batch, "metadata", JOB_ID);
  return {
    name,
    jobId: jobId === null ? null : oneLine(jobId.slice(0, 512)),
    input: textAt(batch, "input_file_id"),
    // A second that has only begun counts as its end.
    createdAtMs: createdAt === null ? null : (createdAt + 1) * 1000 - 1,
    state,
    said: jobWords(provider, state, word, reason ?? ""),
    refusal: state === "failed" ? refusalOf(provider, batch, nowMs) : null,
  };
}

/** Codes of a batch that was not run for a limit, or for money. */
const LIMITS: readonly (string | null)[] = [
  ...["token_limit_exceeded", "request_limit_exceeded", "rate_limit_exceeded"],
  ...["billing_hard_limit_reached", "billing_not_active", "insufficient_quota"],
];

/** Returns why a batch has failed before any of its requests ran, if that may pass; null when it may not. */
function refusalOf(provider: string, batch: unknown, nowMs: number): ProviderError | null {
  const hasRun = (["completed", "failed"] as const).some((name) => countAt(batch, "request_counts", name));
  const error = listAt(batch, "errors", "data").find((each) => LIMITS.includes(textAt(each, "code")));
  if (hasRun || error === undefined || textAt(batch, "output_file_id") !== null) return null;
  return answerError(provider, { status: 429, body: { error } }, nowMs);
}

/** Returns the files with results: successes, then errors. Either may be missing. */
function outputFilesOf(batch: unknown): ResultFile[] {
  return (["completed", "failed"] as const).flatMap((count) => {
    const id = textAt(batch, count === "completed" ? "output_file_id" : "error_file_id");
    const name = id !== null && ID.test(id) ? id : null;
    const results = countAt(batch, "request_counts", count);
    // Requests that were never run may count as failed.
    return name !== null || (results && count === "completed") ? [{ name, results }] : [];
  });
}

/** Reads a line of a result file: a response with its status, or an error of the job, for a key. */
async function readResult(
  http: UpstreamHttp,
  { value: line, ...images }: ImagesJson,
  { nowMs, ...reading }: Parameters<typeof readImages>[3] & { nowMs: number },
): Promise<JobResult> {
  const key = textAt(line, "custom_id");
  if (key === null) return { unreadable: "a line without a custom_id" };
  const status = countAt(line, "response", "status_code");
  const body = valueAt(line, "response", "body");
  try {
    if (status === null) throw jobError(http.name, line);
    if (status < 200 || status >= 300 || valueAt(body, "error") !== undefined)
      throw answerError(http.name, { status, body }, nowMs);
    // An address in a result needs no key of ours.
    return { key, output: await readImages(http, { value: body, ...images }, {}, reading) };
  } catch (failure) {
    if (!(failure instanceof ProviderError)) throw failure;
    return { key, error: failure };
  }
}

/** Codes of requests that were not run, because their job has ended before. */
const UNRUN: readonly unknown[] = ["batch_expired", "batch_cancelled"];

/** The request has no response. `RESULT_MISSING`: it was not run. */
function jobError(name: string, line: unknown): ProviderError {
  const words = upstreamWords(textAt(line, "error", "message") ?? textAt(line, "error", "code") ?? "");
  const code = UNRUN.includes(valueAt(line, "error", "code")) ? "RESULT_MISSING" : "PROVIDER_ITEM_FAILED";
  return new ProviderError(code, words || `${name} returned no response for this image.`, {
    retryable: false,
  });
}
