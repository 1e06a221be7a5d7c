import { randomUUID } from "node:crypto";
import {
  type Answer,
  type ImageService,
  isForm,
  type RequestKind,
  startUpstream,
  type UpstreamRequest,
} from "./fake-upstream.ts";
import { HUGE_BYTES, imageOf, padded, type Size } from "./images.ts";
import {
  type Job,
  JobBook,
  type JobEnd,
  type JobLine,
  type JobPhase,
  type LineFault,
  rangeOf,
  readJsonLines,
  repeatingKey,
  resultFile,
} from "./job-book.ts";
import { OPENAI_KEY } from "./openai.ts";
import { DIALECTS, json, openaiErrors, silentModeration, type Wish } from "./openai-dialects.ts";

/** How the service speaks; all of it may be changed while it runs. */
interface Settings {
  key: string;
  /** Whether downloads honour `Range`. Default true. */
  hasRanges: boolean;
  /** Repeats the caller's key in every error, those of jobs and lines too. */
  echoesKey: boolean;
  /** For how long before its end a job says `finalizing`. Default 0. */
  finalizingMs: number;
  /** The size of all images. Default: what each request asks for. */
  size?: Size;
}

const MODELS = ["gpt-image-2", "gpt-image-1-mini"];
const DAY_MS = 86_400_000;
const ROUTES: [RequestKind, string, RegExp][] = [
  ["upload", "POST", /^\/v1\/files$/],
  ["download", "GET", /^\/v1\/files\/([^/]+)\/content$/],
  ["delete", "DELETE", /^\/v1\/files\/([^/]+)$/],
  ["create", "POST", /^\/v1\/batches$/],
  ["list", "GET", /^\/v1\/batches$/],
  ["poll", "GET", /^\/v1\/batches\/([^/]+)$/],
  ["cancel", "POST", /^\/v1\/batches\/([^/]+)\/cancel$/],
  ["models", "GET", /^\/v1\/models$/],
];
const ENDPOINTS = ["/v1/images/generations", "/v1/images/edits"];
const UPLOAD_FIELDS = ["purpose", "expires_after[anchor]", "expires_after[seconds]"];
const CREATE_FIELDS = ["input_file_id", "endpoint", "completion_window", "metadata"];
const STATUSES: Record<JobPhase, string> = {
  ...{ pending: "validating", running: "in_progress", cancelling: "cancelling", succeeded: "completed" },
  ...{ failed: "failed", expired: "expired", cancelled: "cancelled" },
};
const UNMADE: Partial<Record<JobEnd, object>> = {
  expired: { code: "batch_expired", message: "This request could not be executed in time." },
  cancelled: { code: "batch_cancelled", message: "This request was cancelled." },
};

const seconds = (ms: number) => Math.floor(ms / 1000);
const newId = (prefix: string) => `${prefix}${randomUUID().replaceAll("-", "")}`;

/** OpenAI's files and batch jobs, as its documents describe them to strangers. `book` has the bill and the plans. */
export async function startOpenaiBatch(options: Partial<Settings> & { now?: () => number } = {}) {
  const { now = Date.now, ...chosen } = options;
  const settings: Settings = {
    ...{ key: OPENAI_KEY, hasRanges: true, echoesKey: false, finalizingMs: 0, ...chosen },
  };
  const book = new JobBook({ now, patienceMs: DAY_MS, keptMs: 30 * DAY_MS });
  const jobs = new OpenaiJobs(book, settings);
  const routeOf = (method: string, path: string) => {
    const { pathname, searchParams } = new URL(path, "http://openai");
    const [kind = "other", , form] =
      ROUTES.find(([, verb, form]) => verb === method && form.test(pathname)) ?? [];
    return { kind, id: form?.exec(pathname)?.[1] ?? "", query: searchParams } as const;
  };

  const upload = ({ body }: UpstreamRequest): Answer => {
    if (!isForm(body)) return openaiErrors.invalid("Content-Type must be multipart/form-data.", null);
    const fields = Object.fromEntries(body.fields);
    const file = body.files.find(({ name }) => name === "file");
    const isExpiry =
      fields["expires_after[anchor]"] === "created_at" && Number(fields["expires_after[seconds]"]) >= 3600;
    const isRight = fields.purpose === "batch" && isExpiry && file?.filename.endsWith(".jsonl");
    if (!isRight || !file || Object.keys(fields).some((name) => !UPLOAD_FIELDS.includes(name)))
      return openaiErrors.invalid("Invalid upload.", "file");
    const name = newId("file-");
    const stored = { name, label: file.filename, type: "batch", bytes: file.bytes, createdAt: book.now };
    book.files.set(name, stored);
    return json(200, { id: name, object: "file", purpose: "batch", status: "processed" });
  };

  /** One page of the jobs, from behind the id `after`. */
  const page = (query: URLSearchParams): Answer => {
    const after = query.get("after");
    const all = book.listed();
    const start = all.findIndex(({ name }) => name === after) + 1;
    const listed = all.slice(start, start + Number(query.get("limit") ?? 20));
    const more = { last_id: listed.at(-1)?.name ?? null, has_more: start + listed.length < all.length };
    return json(200, { object: "list", data: listed.map((job) => jobs.shown(job)), ...more });
  };

  const routed = async (request: UpstreamRequest): Promise<Answer> => {
    const { kind, id, query } = routeOf(request.method, request.path);
    if (request.headers.authorization !== `Bearer ${settings.key}`) return openaiErrors.invalidKey();
    if (kind === "upload") return upload(request);
    if (kind === "create") return jobs.create(request);
    if (kind === "list") return page(query);
    if (kind === "models") return json(200, { object: "list", data: MODELS.map((model) => ({ id: model })) });
    if (kind === "delete") {
      if (!book.file(id)) return notFound(`No such File object: ${id}`);
      book.deleteFile(id);
      return json(200, { id, object: "file", deleted: true });
    }
    if (kind === "download") {
      const bytes = await jobs.result(id);
      if (bytes === undefined) return notFound(`No such File object: ${id}`);
      return rangeOf(bytes, settings.hasRanges ? request.headers.range : undefined);
    }
    const job = book.job(id);
    if (!job) return notFound(`No batch found with id '${id}'.`);
    if (kind === "poll") return json(200, jobs.shown(job));
    if (!book.isOpen(job)) return failure(409, "Cannot cancel a batch that has ended.", "invalid_status");
    job.cancelledAt ??= book.now;
    return json(200, jobs.shown(job, "cancelling"));
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
    const facts = { label, model: MODELS[0] ?? "", file: "file-of-another", metadata: { label } };
    return book.add({ name: newId("batch_"), ...facts, lines, isForeign: true });
  };
  return { ...upstream, book, settings, addForeign };
}

/** A line of a job, with the answer that the service gives to it. */
interface Ran {
  line: JobLine;
  fault: LineFault | null;
  isError: boolean;
}

/** Creation of jobs, what they show, and their two result files. */
class OpenaiJobs {
  readonly #book: JobBook;
  readonly #settings: Settings;
  readonly #endpoints = new Map<string, string>();
  readonly #results = new Map<string, Promise<Buffer>>();

  constructor(book: JobBook, settings: Settings) {
    this.#book = book;
    this.#settings = settings;
  }

  /** Bad lines are found later: the job is there, and fails. */
  async create({ body }: UpstreamRequest): Promise<Answer> {
    const { invalid } = openaiErrors;
    const fields = (body ?? {}) as Record<string, unknown>;
    const unknown = Object.keys(fields).find((name) => !CREATE_FIELDS.includes(name));
    if (unknown) return invalid(`Unknown parameter: '${unknown}'.`, unknown, "unknown_parameter");
    const { input_file_id: id, endpoint, completion_window: window, metadata } = fields;
    if (window !== "24h") return invalid("Supported: '24h'.", "completion_window");
    if (!ENDPOINTS.includes(String(endpoint))) return invalid(`Invalid value: '${endpoint}'.`, "endpoint");
    const file = this.#book.file(String(id));
    if (file === undefined) return invalid(`No such File object: ${id}`, "input_file_id", "invalid_file_id");
    const pairs = Object.entries((metadata ?? {}) as Record<string, string>);
    const read = readJsonLines(file.bytes);
    const values = "values" in read ? read.values : [];
    const isGood = areLines(values, String(endpoint));
    const job = this.#book.add({
      ...{ name: newId("batch_"), label: pairs.map(([, value]) => value).join(" "), file: file.name },
      ...{
        model: String((values[0]?.body as { model?: unknown })?.model),
        metadata: Object.fromEntries(pairs),
      },
      lines: isGood ? await Promise.all(values.map((value) => this.#line(value))) : [],
    });
    this.#endpoints.set(job.name, String(endpoint));
    if (!isGood)
      job.plan = { pendingMs: job.plan.pendingMs ?? 0, end: "failed", reason: "A line is invalid." };
    return json(200, this.shown(job, "pending"));
  }

  /** `phase`: as which a job is shown that has only just changed. */
  shown(job: Job, phase: JobPhase = this.#book.phase(job)): object {
    const isOver = phase === this.#book.phase(job) && !this.#book.isOpen(job);
    const { at } = this.#book.end(job);
    const isFinalizing = phase === "running" && this.#book.now >= at - this.#settings.finalizingMs;
    const ran = isOver ? this.#ran(job) : [];
    const failed = ran.filter(({ isError }) => isError).length;
    const { reason } = job.plan;
    const message = this.#said(reason ?? "Enqueued token limit reached.");
    const code = reason === undefined ? "token_limit_exceeded" : "batch_failed";
    const data = [{ code, message, line: null, param: null }];
    return {
      ...{ id: job.name, object: "batch", endpoint: this.#endpoints.get(job.name) ?? ENDPOINTS[0] },
      ...{ errors: phase === "failed" ? { object: "list", data } : null, input_file_id: job.file },
      ...{ completion_window: "24h", status: isFinalizing ? "finalizing" : STATUSES[phase] },
      output_file_id: ran.length > failed ? resultId(job, "o") : null,
      error_file_id: failed > 0 ? resultId(job, "e") : null,
      created_at: seconds(job.createdAt),
      request_counts: { total: job.lines.length, completed: ran.length - failed, failed },
      metadata: Object.keys(job.metadata).length > 0 ? job.metadata : null,
    };
  }

  /** The bytes of a result file of a job that ended. */
  result(id: string): Promise<Buffer> | undefined {
    const job = this.#book.jobs.find((one) => id.slice(0, -1) === resultId(one, ""));
    if (!job || !this.#book.job(job.name) || this.#book.isOpen(job)) return undefined;
    const mine = this.#ran(job).filter(({ isError }) => isError === id.endsWith("e"));
    if (mine.length === 0) return undefined;
    const build = () => resultFile(mine, job.plan.isShuffled, (...line) => this.#draw(job, ...line));
    const bytes = this.#results.get(id) ?? build();
    this.#results.set(id, bytes);
    return bytes;
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

  async #line(value: Record<string, unknown>): Promise<JobLine> {
    const wish = await this.#wish(value);
    const problem = "status" in wish ? JSON.parse(String(wish.body)).error.message : null;
    const prompt = String((value.body as { prompt?: unknown }).prompt ?? "");
    return { key: String(value.custom_id), request: value, prompt, problem };
  }

  /** Edits in a job are JSON: their images come as data URLs. */
  #wish(request: unknown): Promise<Wish | Answer> | Answer {
    const { url, body } = request as { url: string; body: Record<string, unknown> };
    const { images, ...fields } = body;
    if (url !== ENDPOINTS[1]) return DIALECTS.openai.read({ body }, body, false);
    const all = (Array.isArray(images) ? images : []) as { image_url?: unknown }[];
    const isImage = (one: { image_url?: unknown }) =>
      /^data:image\/(png|jpeg|webp);base64,/.test(String(one.image_url));
    if (all.length === 0 || all.length > 16 || !all.every(isImage))
      return openaiErrors.invalid("Invalid image.", "images");
    return DIALECTS.openai.read({ body: fields }, fields, false);
  }

  /** The row of a result file. */
  async #draw(job: Job, line: JobLine, fault: LineFault | null, copy: number): Promise<object> {
    const row = (response: object | null, error: object | null = null) => ({
      ...{ id: newId("batch_req_"), custom_id: line.key, response, error },
    });
    if (fault === "statusError") return row(null, UNMADE[this.#book.end(job).how] ?? UNMADE.expired);
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

const resultId = (job: Job, kind: string) => `file-${job.name.replace("batch_", "")}${kind}`;

/** Whether these are requests for one endpoint and one model, each with an id of its own. */
function areLines(values: readonly Record<string, unknown>[], endpoint: string): boolean {
  const ids = new Set(values.map(({ custom_id: id }) => id));
  const models = new Set(values.map(({ body }) => (body as { model?: unknown } | undefined)?.model));
  const isLine = ({ custom_id: id, method, url, body, ...more }: Record<string, unknown>) =>
    typeof id === "string" && method === "POST" && url === endpoint && Object.keys(more).length === 0 && body;
  const isOne = models.size === 1 && MODELS.includes(String([...models][0]));
  return values.length > 0 && ids.size === values.length && isOne && values.every(isLine);
}

function failure(status: number, message: string, code: string | null): Answer {
  return json(status, { error: { message, type: "invalid_request_error", param: null, code } });
}

const notFound = (message: string) => failure(404, message, null);
