import { randomUUID } from "node:crypto";
import type { Answer, UpstreamRequest } from "./fake-upstream.ts";
import { HUGE_BYTES, imageOf, padded, type Size } from "./images.ts";
import {
  type Job,
  type JobBook,
  type JobEnd,
  type JobLine,
  type JobPhase,
  type LineFault,
  readJsonLines,
  resultFile,
} from "./job-book.ts";
import { DIALECTS, json, openaiErrors, silentModeration, type Wish } from "./openai-dialects.ts";

/** How the service speaks; all of it may be changed while it runs. */
export interface OpenaiBatchSettings {
  key: string;
  models: readonly string[];
  /** Whether downloads honour `Range`. Default true. */
  hasRanges: boolean;
  /** Repeats the caller's key in every error, those of jobs and lines too. */
  echoesKey: boolean;
  /** For how long before its end a job says `finalizing`. Default 0. */
  finalizingMs: number;
  /** The size of all images. Default: what each request asks for. */
  size?: Size;
}

/** Why a job was refused after its creation. */
interface JobError {
  code: string;
  message: string;
  line: number | null;
  param: string | null;
}

const ENDPOINTS = ["/v1/images/generations", "/v1/images/edits"];
const CREATE_FIELDS = ["input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after"];
const LINE_FIELDS = ["custom_id", "method", "url", "body"];
const EDIT_FIELDS = ["images", "mask", "input_fidelity"];
const LINES = 50_000;
const WINDOW_SECONDS = 86_400;
const STATUSES: Record<JobPhase, string> = {
  ...{ pending: "validating", running: "in_progress", cancelling: "cancelling", succeeded: "completed" },
  ...{ failed: "failed", expired: "expired", cancelled: "cancelled" },
};
const UNMADE: Partial<Record<JobEnd, object>> = {
  expired: {
    code: "batch_expired",
    message: "This request could not be executed before the completion window expired.",
  },
  cancelled: { code: "batch_cancelled", message: "This request was cancelled." },
};

export const seconds = (ms: number) => Math.floor(ms / 1000);

/** A line of a job, with the answer that the service gives to it. */
interface Ran {
  line: JobLine;
  fault: LineFault | null;
  isError: boolean;
}

/** Batch jobs of OpenAI: creation, what a job shows, and its two result files. */
export class OpenaiJobs {
  readonly #book: JobBook;
  readonly #settings: OpenaiBatchSettings;
  readonly #errors = new Map<string, JobError[]>();
  readonly #endpoints = new Map<string, string>();
  readonly #results = new Map<string, Promise<Buffer>>();
  /** Result files that somebody deleted. */
  readonly deleted = new Set<string>();

  constructor(book: JobBook, settings: OpenaiBatchSettings) {
    this.#book = book;
    this.#settings = settings;
  }

  /** Bad lines are found later: the job is there, and fails. */
  async create({ body }: UpstreamRequest): Promise<Answer> {
    const { invalid } = openaiErrors;
    const fields = (body ?? {}) as Record<string, unknown>;
    const unknown = Object.keys(fields).find((name) => !CREATE_FIELDS.includes(name));
    if (unknown) return invalid(`Unknown parameter: '${unknown}'.`, unknown, "unknown_parameter");
    const { input_file_id: id, endpoint, completion_window: window, metadata = {} } = fields;
    if (window !== "24h")
      return invalid(`Invalid value: '${window}'. Supported: '24h'.`, "completion_window");
    if (!ENDPOINTS.includes(String(endpoint))) return invalid(`Invalid value: '${endpoint}'.`, "endpoint");
    const file = this.#book.file(String(id));
    if (file === undefined) return invalid(`No such File object: ${id}`, "input_file_id", "invalid_file_id");
    if (file.type !== "batch") return invalid(`Invalid file purpose: ${file.type}.`, "input_file_id");
    const pairs = Object.entries((metadata ?? {}) as object);
    if (
      pairs.length > 16 ||
      pairs.some(([key, value]) => key.length > 64 || typeof value !== "string" || value.length > 512)
    )
      return invalid("Invalid 'metadata': at most 16 pairs of strings.", "metadata");
    const read = readJsonLines(file.bytes);
    const values = "values" in read ? read.values : [];
    const errors = "values" in read ? this.#lineErrors(values, String(endpoint)) : [badLine(read.badLine)];
    const lines = errors.length > 0 ? [] : await Promise.all(values.map((value) => this.#line(value)));
    const job = this.#book.add({
      ...{
        name: `batch_${randomUUID().replaceAll("-", "")}`,
        label: pairs.map(([, value]) => value).join(" "),
      },
      ...{ model: String((values[0]?.body as { model?: unknown })?.model), file: file.name, lines },
      metadata: Object.fromEntries(pairs),
    });
    this.#endpoints.set(job.name, String(endpoint));
    if (errors.length > 0) {
      this.#errors.set(job.name, errors);
      job.plan = { pendingMs: job.plan.pendingMs ?? 0, end: "failed" };
    }
    return json(200, this.shown(job, "pending"));
  }

  /** `phase`: as which a job is shown that has only just changed. */
  shown(job: Job, phase: JobPhase = this.#book.phase(job)): object {
    const isOver = phase === this.#book.phase(job) && !this.#book.isOpen(job);
    const { at } = this.#book.end(job);
    const isFinalizing = phase === "running" && this.#book.now >= at - this.#settings.finalizingMs;
    const runsAt = job.createdAt + (job.plan.pendingMs ?? 0);
    const ran = isOver ? this.#ran(job) : [];
    const failed = ran.filter(({ isError }) => isError).length;
    const when = (isSo: boolean, ms: number) => (isSo ? seconds(ms) : null);
    const errors = this.#errors.get(job.name) ?? [
      {
        code: "token_limit_exceeded",
        message: job.plan.reason ?? "Enqueued token limit reached.",
        line: null,
        param: null,
      },
    ];
    const data = errors.map((error) => ({ ...error, message: this.#said(error.message) }));
    return {
      ...{
        id: job.name,
        object: "batch",
        endpoint: this.#endpoints.get(job.name) ?? ENDPOINTS[0],
        model: job.model,
      },
      ...{ errors: phase === "failed" ? { object: "list", data } : null, input_file_id: job.file },
      ...{ completion_window: "24h", status: isFinalizing ? "finalizing" : STATUSES[phase] },
      output_file_id: ran.length > failed ? this.#resultId(job, "o") : null,
      error_file_id: failed > 0 ? this.#resultId(job, "e") : null,
      ...{ created_at: seconds(job.createdAt), expires_at: seconds(job.createdAt) + WINDOW_SECONDS },
      in_progress_at: when(phase !== "pending" && phase !== "failed", runsAt),
      finalizing_at: when(isFinalizing || phase === "succeeded", at - this.#settings.finalizingMs),
      ...{ completed_at: when(phase === "succeeded", at), failed_at: when(phase === "failed", at) },
      ...{ expired_at: when(phase === "expired", at), cancelled_at: when(phase === "cancelled", at) },
      cancelling_at: when(job.cancelledAt !== null, job.cancelledAt ?? 0),
      request_counts: { total: job.lines.length, completed: ran.length - failed, failed },
      metadata: Object.keys(job.metadata).length > 0 ? job.metadata : null,
    };
  }

  /** The bytes of a result file of a job that ended. */
  result(id: string): Promise<Buffer> | undefined {
    const job = this.#book.jobs.find((one) => id.slice(0, -1) === this.#resultId(one, ""));
    if (!job || !this.#book.job(job.name) || this.#book.isOpen(job) || this.deleted.has(id)) return undefined;
    const mine = this.#ran(job).filter(({ isError }) => isError === id.endsWith("e"));
    if (mine.length === 0) return undefined;
    const build = () => resultFile(mine, job.plan.isShuffled, (...line) => this.#draw(job, ...line));
    const bytes = this.#results.get(id) ?? build();
    this.#results.set(id, bytes);
    return bytes;
  }

  #resultId(job: Job, kind: string): string {
    return `file-${job.name.replace("batch_", "")}${kind}`;
  }

  /** The lines that have a row in one of the result files. Those that an end left unmade are errors. */
  #ran(job: Job): Ran[] {
    const made = this.#book.made(job);
    const rows = made.map(({ line, fault }) => {
      const isError = line.problem !== null || ["error", "statusError", "refused"].includes(fault ?? "");
      return { line, fault, isError };
    });
    if (!UNMADE[this.#book.end(job).how]) return rows;
    const unmade = job.lines.filter((line) => !made.some((one) => one.line === line));
    return [...rows, ...unmade.map((line) => ({ line, fault: "statusError" as const, isError: true }))];
  }

  #lineErrors(values: readonly Record<string, unknown>[], endpoint: string): JobError[] {
    const errors: JobError[] = [];
    const seen = new Set<unknown>();
    const models = new Set(values.map(({ body }) => (body as { model?: unknown } | undefined)?.model));
    const bad = (line: number, code: string, param: string | null, message: string) =>
      errors.push({ code, message, line, param });
    if (values.length === 0) bad(1, "empty_file", null, "The input file is empty.");
    if (values.length > LINES) bad(LINES + 1, "too_many_tasks", null, "The batch has too many requests.");
    for (const [at, value] of values.entries()) {
      const { custom_id: id, method, url, body } = value;
      const strange = Object.keys(value).find((name) => !LINE_FIELDS.includes(name));
      if (strange) bad(at + 1, "unknown_parameter", strange, `Unknown parameter: '${strange}'.`);
      if (typeof id !== "string" || id === "")
        bad(at + 1, "missing_required_parameter", "custom_id", "Missing required parameter: 'custom_id'.");
      else if (seen.has(id)) bad(at + 1, "duplicate_custom_id", "custom_id", "The custom_id is not unique.");
      if (method !== "POST") bad(at + 1, "invalid_method", "method", "The method must be POST.");
      if (url !== endpoint)
        bad(
          at + 1,
          "invalid_url",
          "url",
          "The URL provided for this request does not match the batch endpoint.",
        );
      if (typeof body !== "object" || body === null)
        bad(at + 1, "missing_required_parameter", "body", "Missing required parameter: 'body'.");
      seen.add(id);
    }
    if (errors.length === 0 && models.size > 1)
      bad(1, "mismatched_model", "body.model", "All requests of a batch must name one model.");
    const [model] = models;
    if (errors.length === 0 && !this.#settings.models.includes(String(model)))
      bad(
        1,
        "model_not_found",
        "body.model",
        `The provided model '${model}' is not supported by the Batch API.`,
      );
    return errors;
  }

  async #line(value: Record<string, unknown>): Promise<JobLine> {
    const line = { key: String(value.custom_id), request: value, problem: null };
    const wish = await this.#wish(line.request);
    const fields = value.body as { prompt?: unknown };
    const problem = "status" in wish ? JSON.parse(String(wish.body)).error.message : null;
    return { ...line, prompt: String(fields.prompt ?? ""), problem };
  }

  /** Edits in a job are JSON: their images come as data URLs, addresses or files. */
  #wish(request: unknown): Promise<Wish | Answer> | Answer {
    const { url, body } = request as { url: string; body: Record<string, unknown> };
    const isEdit = url === "/v1/images/edits";
    const fields = Object.fromEntries(
      Object.entries(body).filter(([name]) => !(isEdit && EDIT_FIELDS.includes(name))),
    );
    const images = (body.images ?? []) as { image_url?: unknown; file_id?: unknown }[];
    if (isEdit && (!Array.isArray(images) || images.length === 0 || images.length > 16))
      return openaiErrors.invalid("Missing required parameter: 'images'.", "images");
    const lost = images.find(
      ({ image_url: address, file_id: id }) =>
        !(
          /^(https:|data:image\/(png|jpeg|webp);base64,)/.test(String(address)) || this.#book.file(String(id))
        ),
    );
    if (isEdit && lost) return openaiErrors.invalid("Invalid image.", "images");
    return DIALECTS.openai.read({ body: fields }, fields, false);
  }

  /** The row of a result file. */
  async #draw(job: Job, line: JobLine, fault: LineFault | null, copy: number): Promise<object> {
    const row = (response: object | null, error: object | null = null) => ({
      ...{ id: `batch_req_${randomUUID().replaceAll("-", "")}`, custom_id: line.key, response, error },
    });
    const unmade = UNMADE[this.#book.end(job).how] ?? UNMADE.expired ?? null;
    if (fault === "statusError") return row(null, unmade);
    const answered = ({ status, body }: Answer) => {
      const parsed = JSON.parse(String(body));
      if (parsed.error) parsed.error.message = this.#said(parsed.error.message);
      return row({ status_code: status, request_id: "req_of_the_fake", body: parsed });
    };
    if (fault === "error") return answered(openaiErrors.server());
    if (fault === "refused") return answered(openaiErrors.refused());
    if (fault === "noImage") return answered(silentModeration.empty());
    const wish = await this.#wish(line.request);
    if ("status" in wish) return answered(wish);
    const image = await imageOf(wish.prompt, { ...wish, ...this.#settings.size, index: copy });
    const bytes = fault === "huge" ? padded(image, HUGE_BYTES) : image;
    const created = seconds(this.#book.end(job).at);
    return answered(json(200, { created, data: [{ b64_json: bytes.toString("base64") }], ...wish.usage }));
  }

  #said(message: string): string {
    return this.#settings.echoesKey ? `${message} (key ${this.#settings.key})` : message;
  }
}

const badLine = (line: number): JobError => ({
  ...{ code: "invalid_json_line", message: "This line is not parseable as valid JSON.", line, param: null },
});
