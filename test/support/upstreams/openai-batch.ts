import { randomUUID } from "node:crypto";
import {
  type Answer,
  type FakeUpstream,
  type ImageService,
  isForm,
  type RequestKind,
  startUpstream,
  type UpstreamRequest,
} from "./fake-upstream.ts";
import { type Job, JobBook, rangeOf, repeatingKey, type StoredFile } from "./job-book.ts";
import { OPENAI_KEY } from "./openai.ts";
import { json, openaiErrors } from "./openai-dialects.ts";
import { type OpenaiBatchSettings, OpenaiJobs, seconds } from "./openai-jobs.ts";

export interface OpenaiBatch extends FakeUpstream {
  book: JobBook;
  settings: OpenaiBatchSettings;
  /** Adds a job that another machine of the account made. */
  addForeign(label: string, prompts: readonly string[]): Job;
}

const DAY_MS = 86_400_000;
const ROUTES: [RequestKind, string, RegExp][] = [
  ["upload", "POST", /^\/v1\/files$/],
  ["files", "GET", /^\/v1\/files(?:\/([^/]+))?$/],
  ["download", "GET", /^\/v1\/files\/([^/]+)\/content$/],
  ["delete", "DELETE", /^\/v1\/files\/([^/]+)$/],
  ["create", "POST", /^\/v1\/batches$/],
  ["list", "GET", /^\/v1\/batches$/],
  ["poll", "GET", /^\/v1\/batches\/([^/]+)$/],
  ["cancel", "POST", /^\/v1\/batches\/([^/]+)\/cancel$/],
  ["models", "GET", /^\/v1\/models(?:\/([^/]+))?$/],
];
const PURPOSES = ["batch", "vision", "user_data"];
const UPLOAD_FIELDS = ["purpose", "expires_after[anchor]", "expires_after[seconds]"];
const BATCH_FILE_BYTES = 200 * 1024 ** 2;

/** OpenAI's files and batch jobs, as its documents describe them to strangers. `book` has the bill and the plans. */
export async function startOpenaiBatch(
  options: Partial<OpenaiBatchSettings> & { now?: () => number } = {},
): Promise<OpenaiBatch> {
  const { now = Date.now, ...chosen } = options;
  const settings: OpenaiBatchSettings = {
    ...{ key: OPENAI_KEY, models: ["gpt-image-2", "gpt-image-1-mini"], hasRanges: true, echoesKey: false },
    ...{ finalizingMs: 0, ...chosen },
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
    const { invalid } = openaiErrors;
    if (!isForm(body)) return invalid("Content-Type must be multipart/form-data.", null);
    const fields = Object.fromEntries(body.fields);
    const unknown = Object.keys(fields).find((name) => !UPLOAD_FIELDS.includes(name));
    if (unknown) return invalid(`Unknown parameter: '${unknown}'.`, unknown, "unknown_parameter");
    const file = body.files.find(({ name }) => name === "file");
    if (!file) return invalid("Missing required parameter: 'file'.", "file", "missing_required_parameter");
    const { purpose = "", "expires_after[anchor]": anchor, "expires_after[seconds]": lasts } = fields;
    if (!PURPOSES.includes(purpose)) return invalid(`Invalid value: '${purpose}'.`, "purpose");
    if (
      lasts !== undefined &&
      (anchor !== "created_at" || !(Number(lasts) >= 3600 && Number(lasts) <= 2_592_000))
    )
      return invalid(
        "Invalid 'expires_after': anchor 'created_at', 3600 to 2592000 seconds.",
        "expires_after",
      );
    if (purpose === "batch" && !file.filename.endsWith(".jsonl"))
      return invalid("Invalid file format for Batch API. Must be .jsonl", "file");
    if (file.bytes.length === 0) return invalid("File is empty.", "file", "empty_file");
    if (purpose === "batch" && file.bytes.length > BATCH_FILE_BYTES)
      return invalid("The batch input file is larger than the 200 MB maximum.", "file");
    const name = `file-${randomUUID().replaceAll("-", "").slice(0, 22)}`;
    const stored = { name, label: file.filename, type: purpose, bytes: file.bytes, createdAt: book.now };
    book.files.set(name, stored);
    return json(200, shownFile(stored));
  };

  const shownFile = ({ name, label, type, bytes, createdAt }: StoredFile) => ({
    ...{ id: name, object: "file", bytes: bytes.length, filename: label, purpose: type, status: "processed" },
    ...{ created_at: seconds(createdAt), expires_at: seconds(createdAt + book.keptMs) },
  });

  const aboutFile = async (request: UpstreamRequest, kind: RequestKind, id: string): Promise<Answer> => {
    const file = book.file(id);
    const bytes = file?.bytes ?? (await jobs.result(id));
    if (bytes === undefined) return noFile(id);
    if (kind === "download") return rangeOf(bytes, settings.hasRanges ? request.headers.range : undefined);
    if (kind === "delete") {
      if (file) book.deleteFile(id);
      else jobs.deleted.add(id);
      return json(200, { id, object: "file", deleted: true });
    }
    const result = { name: id, label: "output.jsonl", type: "batch_output", bytes, createdAt: book.now };
    return json(200, shownFile(file ?? result));
  };

  const aboutJob = (kind: RequestKind, id: string): Answer => {
    const job = book.job(id);
    if (!job) {
      const message = `No batch found with id '${id}'.`;
      return failure(404, message, null);
    }
    if (kind === "poll") return json(200, jobs.shown(job));
    if (!book.isOpen(job)) {
      const { status } = jobs.shown(job) as { status: string };
      return failure(409, `Cannot cancel a batch with status '${status}'.`, "invalid_status");
    }
    job.cancelledAt ??= book.now;
    return json(200, jobs.shown(job, "cancelling"));
  };

  const routed = async (request: UpstreamRequest): Promise<Answer> => {
    const { kind, id, query } = routeOf(request.method, request.path);
    if (request.headers.authorization !== `Bearer ${settings.key}`) return openaiErrors.invalidKey();
    if (kind === "upload") return upload(request);
    if (kind === "create") return jobs.create(request);
    if (kind === "list") {
      const all = book.listed(!query.has("after"));
      return page(
        all,
        query,
        20,
        ({ name }) => name,
        (job) => jobs.shown(job),
      );
    }
    if (kind === "files" && id === "") {
      const all = [...book.files.values()].filter(({ name }) => book.file(name)).reverse();
      return page(all, query, 10_000, ({ name }) => name, shownFile);
    }
    if (kind === "models") {
      const data = settings.models.map((model) => ({
        id: model,
        object: "model",
        created: 1,
        owned_by: "system",
      }));
      if (id === "") return json(200, { object: "list", data });
      const one = data.find((model) => model.id === id);
      return one ? json(200, one) : openaiErrors.noModel(id);
    }
    if (kind === "poll" || kind === "cancel") return aboutJob(kind, id);
    return kind === "other" ? openaiErrors.noPath(request.path) : aboutFile(request, kind, id);
  };

  const service: ImageService = {
    kindOf: (method, path) => routeOf(method, path).kind,
    promptOf: () => null,
    answer: async (request) => repeatingKey(await routed(request), settings.echoesKey ? settings.key : null),
  };
  const upstream = await startUpstream(service);
  const addForeign = (label: string, prompts: readonly string[]) => {
    const lines = prompts.map((prompt, at) => ({ key: `k${at}`, request: {}, prompt, problem: null }));
    const name = `batch_${randomUUID().replaceAll("-", "")}`;
    const model = settings.models[0] ?? "";
    return book.add({
      name,
      label,
      model,
      file: "file-of-another",
      lines,
      metadata: { label },
      isForeign: true,
    });
  };
  return { ...upstream, book, settings, addForeign };
}

function failure(status: number, message: string, code: string | null): Answer {
  return json(status, { error: { message, type: "invalid_request_error", param: null, code } });
}

const noFile = (id: string) => failure(404, `No such File object: ${id}`, null);

/** One page of a list, from behind the id `after`. */
function page<T>(
  all: readonly T[],
  query: URLSearchParams,
  usual: number,
  idOf: (one: T) => string,
  show: (one: T) => object,
): Answer {
  const limit = Number(query.get("limit") ?? usual);
  if (!Number.isInteger(limit) || limit < 1 || limit > Math.max(usual, 100))
    return openaiErrors.invalid(`Invalid 'limit': integer between 1 and ${Math.max(usual, 100)}.`, "limit");
  const after = query.get("after");
  const at = after === null ? -1 : all.findIndex((one) => idOf(one) === after);
  if (after !== null && at < 0)
    return openaiErrors.invalid(`Invalid 'after': no object '${after}'.`, "after");
  const shown = all.slice(at + 1, at + 1 + limit);
  const [first, last] = [shown.at(0), shown.at(-1)].map((one) => (one === undefined ? null : idOf(one)));
  const more = { first_id: first, last_id: last, has_more: at + 1 + limit < all.length };
  return json(200, { object: "list", data: shown.map(show), ...more });
}
