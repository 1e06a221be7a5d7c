import { randomUUID } from "node:crypto";
import type { Answer, UpstreamRequest } from "./fake-upstream.ts";
import { HUGE_BYTES, padded, type Size } from "./images.ts";
import {
  type Job,
  type JobBook,
  type JobLine,
  type JobPhase,
  type LineFault,
  rangeOf,
  readJsonLines,
  resultFile,
} from "./job-book.ts";
import { type Fields, fieldOf, made, nativeErrors, problemOf, promptIn, shapeProblem } from "./native.ts";
import { json, noFile, timeOf } from "./native-files.ts";

/** How the service speaks; all of it may be changed while it runs. */
export interface NativeBatchSettings {
  key: string;
  models: readonly string[];
  /** The spelling of states. Default `BATCH`. */
  states: "BATCH" | "JOB";
  /** Where an operation names its output. Default `both`. */
  outputs: "both" | "metadata" | "response";
  /** Whether downloads honour `Range`. Default true. */
  hasRanges: boolean;
  /** Repeats the caller's key in every error, those of jobs and lines too. */
  echoesKey: boolean;
  /** How many jobs may be open. Default 100. */
  openJobs: number;
  /** The size of all images. Default: what each request asks for. */
  size?: Size;
}

const CREATE_FIELDS: Fields = {
  batch: {
    ...{ displayName: true, priority: true, model: true, name: true, webhookConfig: true },
    inputConfig: { fileName: true, requests: { requests: { request: true, metadata: true } } },
  },
};
const INPUT_TYPES = ["jsonl", "application/jsonl", "application/json", "text/plain"];
const TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main";
const STATES: Record<JobPhase, string> = {
  ...{ pending: "PENDING", running: "RUNNING", cancelling: "RUNNING", succeeded: "SUCCEEDED" },
  ...{ failed: "FAILED", expired: "EXPIRED", cancelled: "CANCELLED" },
};

/** The batch jobs of the vendor's API: creation, operations and results. */
export class NativeJobs {
  readonly #book: JobBook;
  readonly #settings: NativeBatchSettings;
  readonly #results = new Map<string, Promise<Buffer>>();

  constructor(book: JobBook, settings: NativeBatchSettings) {
    this.#book = book;
    this.#settings = settings;
  }

  async create({ body }: UpstreamRequest, model: string, version: string): Promise<Answer> {
    const { invalid } = nativeErrors;
    const problem = shapeProblem(body, CREATE_FIELDS);
    if (problem) return problem;
    if (!this.#settings.models.includes(model)) return nativeErrors.noModel(model, version);
    const batch = fieldOf(body, "batch");
    const config = fieldOf(batch, "inputConfig");
    const [name, inline] = [fieldOf(config, "fileName"), fieldOf(fieldOf(config, "requests"), "requests")];
    if ((name === undefined) === (inline === undefined))
      return invalid("* BatchGenerateContentRequest.batch.input_config: exactly one source must be set");
    const file = name === undefined ? null : this.#book.file(String(name));
    if (file === undefined) return nativeErrors.other(404, "NOT_FOUND", "Requested entity was not found.");
    if (file && !INPUT_TYPES.includes(file.type)) return invalid(`Unsupported MIME type: ${file.type}`);
    const read = file ? readJsonLines(file.bytes) : { values: keyed(inline) };
    if ("badLine" in read) return invalid(`Line ${read.badLine} of ${name} is not one JSON object.`);
    for (const value of read.values) {
      const strange = shapeProblem(value, { key: true, request: true });
      if (strange) return strange;
    }
    if (read.values.length === 0) return invalid("The batch has no requests.");
    if (this.#book.jobs.filter((job) => this.#book.isOpen(job)).length >= this.#settings.openJobs)
      return nativeErrors.limited({ quota: "ConcurrentBatches", retryDelay: null });
    const lines = await this.#linesOf(read.values);
    const label = String(fieldOf(batch, "displayName") ?? "");
    const job = this.#book.add({ name: `batches/${newId()}`, label, model, file: file?.name ?? null, lines });
    return json(200, this.shown(job, "pending"));
  }

  /** The operation of a job, without the results of one whose requests came inline. */
  shown(job: Job, phase: JobPhase = this.#book.phase(job)): object {
    const end = phase === "pending" || this.#book.isOpen(job) ? null : this.#book.end(job);
    const result = end && this.#book.made(job);
    const good = result?.filter(({ line, fault }) => !line.problem && fault !== "error").length ?? 0;
    const hasOutput = result !== null && (phase === "succeeded" || result.length > 0);
    const responsesFile = `files/${job.name.replace("batches/", "batch-")}`;
    const output = job.file ? { responsesFile } : { inlinedResponses: { inlinedResponses: [] as object[] } };
    const counts = {
      requestCount: job.lines.length,
      ...(end
        ? { successfulRequestCount: good, failedRequestCount: job.lines.length - good }
        : { pendingRequestCount: job.lines.length }),
    };
    const code = phase === "cancelled" ? 1 : 13;
    const reason =
      job.plan.reason ?? (phase === "cancelled" ? "The operation was cancelled." : "Internal error.");
    return {
      name: job.name,
      metadata: {
        ...{ "@type": `${TYPE}.GenerateContentBatch`, model: `models/${job.model}` },
        ...(job.label && { displayName: job.label }),
        ...(job.file && { inputConfig: { fileName: job.file } }),
        ...(hasOutput && this.#settings.outputs !== "response" && { output }),
        ...{ createTime: timeOf(job.createdAt), updateTime: timeOf(end?.at ?? job.createdAt) },
        ...(end && { endTime: timeOf(end.at) }),
        batchStats: Object.fromEntries(
          Object.entries(counts).flatMap(([name, count]) => (count > 0 ? [[name, String(count)]] : [])),
        ),
        ...{ state: `${this.#settings.states}_STATE_${STATES[phase]}`, name: job.name },
      },
      ...(end && { done: true }),
      ...(hasOutput && (phase === "succeeded" || this.#settings.outputs === "response")
        ? this.#settings.outputs !== "metadata" && {
            response: { "@type": `${TYPE}.GenerateContentBatchOutput`, ...output },
          }
        : end && phase !== "succeeded" && { error: { code, message: this.#said(reason) } }),
    };
  }

  /** The operation of a job with the results of requests that came inline. */
  async polled(job: Job): Promise<object> {
    const shown: Loose = this.shown(job);
    if (job.file) return shown;
    const responses: object[] = [];
    for (const { line, fault } of this.#book.made(job)) {
      const { key, ...drawn } = (await this.#draw(job, line, fault, 0)) as { key?: string };
      responses.push({ ...drawn, ...(key !== undefined && { metadata: { key } }) });
    }
    for (const output of [shown.metadata.output, shown.response])
      if (output) output.inlinedResponses.inlinedResponses = responses;
    return shown;
  }

  /** The result file of a job, or a part of it. */
  async download({ headers }: UpstreamRequest, name: string, query: URLSearchParams): Promise<Answer> {
    if (query.get("alt") !== "media") return nativeErrors.invalid("Use alt=media to download a file.");
    if (this.#book.file(name))
      return nativeErrors.invalid(`File ${name} was uploaded and cannot be downloaded.`);
    const job = this.#book.job(name.replace("files/batch-", "batches/"));
    if (!job?.file || this.#book.isOpen(job)) return noFile(name);
    const build = () =>
      resultFile(this.#book.made(job), job.plan.isShuffled, (...line) => this.#draw(job, ...line));
    const bytes = this.#results.get(name) ?? build();
    this.#results.set(name, bytes);
    return rangeOf(await bytes, this.#settings.hasRanges ? headers.range : undefined);
  }

  /** A message as the service writes it. */
  #said(message: string): string {
    return this.#settings.echoesKey ? `${message} (key ${this.#settings.key})` : message;
  }

  async #linesOf(values: readonly Record<string, unknown>[]): Promise<JobLine[]> {
    const lines: JobLine[] = [];
    for (const { key, request } of values) {
      const body = request ?? {};
      const problem = await problemOf(body);
      const message = problem
        ? JSON.parse(String(problem.body)).error.message
        : foreignFile(body, this.#book);
      lines.push({
        key: key === undefined ? null : String(key),
        request: body,
        prompt: promptIn(body) ?? "",
        problem: message,
      });
    }
    return lines;
  }

  /** The line of a result file. */
  async #draw(job: Job, line: JobLine, fault: LineFault | null, copy: number): Promise<object> {
    const key = line.key === null ? {} : { key: line.key };
    const message = this.#said(line.problem ?? "The request could not be completed.");
    if (line.problem !== null) return { ...key, error: { code: 3, message } };
    if (fault === "error") return { ...key, error: { code: 13, message } };
    if (fault === "statusError") return { ...key, error: { status: "INTERNAL", message } };
    if (fault === "refused")
      return {
        response: { promptFeedback: { blockReason: "PROHIBITED_CONTENT" }, modelVersion: job.model },
        ...key,
      };
    if (fault === "noImage")
      return {
        response: { candidates: [{ index: 0, finishReason: "NO_IMAGE" }], modelVersion: job.model },
        ...key,
      };
    const answer = await made(line.request, job.model, {
      images: copy + 1,
      ...(this.#settings.size && { size: this.#settings.size }),
    });
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
}

// biome-ignore lint/suspicious/noExplicitAny: an answer of the fake is changed in place.
type Loose = any;

/** Ids of jobs have 36 characters. */
export const newId = () => randomUUID().replaceAll("-", "").padEnd(36, "x1y2");

/** Requests in the create call, as lines of a file. */
function keyed(inline: unknown): Record<string, unknown>[] {
  return (Array.isArray(inline) ? inline : []).map((one) => {
    const key = fieldOf(fieldOf(one, "metadata"), "key");
    return { request: fieldOf(one, "request"), ...(key !== undefined && { key }) };
  });
}

/** The complaint about a file in a request that the caller did not upload; null when all are there. */
function foreignFile(body: unknown, book: JobBook): string | null {
  const uris = JSON.stringify(body).matchAll(/"file_?[uU]ri":"([^"]*)"/g);
  for (const [, uri = ""] of uris) {
    const name = /files\/[^/]+$/.exec(uri)?.[0] ?? "";
    if (!book.file(name)) return JSON.parse(String(noFile(name).body)).error.message;
  }
  return null;
}
