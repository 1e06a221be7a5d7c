import type { EntryOf } from "../../contract/provider-entries.ts";
import {
  type JobItem,
  type JobResult,
  type JobState,
  ProviderError,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import { pixelsOf, presetOf } from "../catalogue/catalogue.ts";
import { type AdapterDeps, credentialHeaders } from "../upstream/adapter.ts";
import type { ImagesJson } from "../upstream/answer-images.ts";
import { ambiguous, answerError } from "../upstream/classify.ts";
import { countAt, listAt, oneLine, textAt, upstreamWords, valueAt } from "../upstream/error-facts.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { type JobAdapter, jobWords, type ResultFile } from "../upstream/job-provider.ts";
import { dataUrlOf, formBody, jsonBody, jsonLinesBody } from "../upstream/request-body.ts";
import { resultLines } from "../upstream/result-lines.ts";
import { imageFields, MAX_REFERENCES, readImages } from "./provider.ts";

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
    async *read(file, signal) {
      const path = `${at("files", file)}/content`;
      for await (const line of resultLines(http, { path, headers }, deps.clock, signal))
        yield "value" in line ? await readResult(http, line, signal, deps.clock.nowMs()) : line;
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
  signal: AbortSignal,
  nowMs: number,
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
    return { key, output: await readImages(http, { value: body, ...images }, {}, signal) };
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
