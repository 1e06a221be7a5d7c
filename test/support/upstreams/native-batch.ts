import {
  type Answer,
  type FakeUpstream,
  type ImageService,
  type RequestKind,
  startUpstream,
  type UpstreamRequest,
} from "./fake-upstream.ts";
import { type Job, JobBook, repeatingKey } from "./job-book.ts";
import { listed, NATIVE_KEY, nativeErrors } from "./native.ts";
import { json, NativeFiles, page } from "./native-files.ts";
import { type NativeBatchSettings, NativeJobs, newId } from "./native-jobs.ts";

export interface NativeBatch extends FakeUpstream {
  book: JobBook;
  settings: NativeBatchSettings;
  /** Adds a job that another machine of the account made. */
  addForeign(label: string, prompts: readonly string[]): Job;
}

export const BATCH_MODEL = "gemini-3.1-flash-image";
const HOUR_MS = 3_600_000;
const V = "/(v1beta|v1)";
const ROUTES: [RequestKind, string, RegExp][] = [
  ["upload", "POST", new RegExp(`^/upload${V}/files$`)],
  ["create", "POST", new RegExp(`^${V}/models/([^/:]+):batchGenerateContent$`)],
  ["poll", "GET", new RegExp(`^${V}/(batches/[^/:]+)$`)],
  ["list", "GET", new RegExp(`^${V}/batches$`)],
  ["cancel", "POST", new RegExp(`^${V}/(batches/[^/:]+):cancel$`)],
  ["delete", "DELETE", new RegExp(`^${V}/((?:batches|files)/[^/:]+)$`)],
  ["download", "GET", new RegExp(`^(?:/download)?${V}/(files/[^/:]+):download$`)],
  ["files", "GET", new RegExp(`^${V}/(files(?:/[^/:]+)?)$`)],
  ["models", "GET", new RegExp(`^${V}/(models(?:/[^/:]+)?)$`)],
];

/** The vendor's files and batch jobs, as its documents describe them to strangers. `book` has the bill and the plans. */
export async function startNativeBatch(
  options: Partial<NativeBatchSettings> & { now?: () => number } = {},
): Promise<NativeBatch> {
  const { now = Date.now, ...chosen } = options;
  const settings: NativeBatchSettings = {
    ...{ key: NATIVE_KEY, models: [BATCH_MODEL, "gemini-3-pro-image", "gemini-2.5-flash-image"] },
    ...{ states: "BATCH", outputs: "both", hasRanges: true, echoesKey: false, openJobs: 100, ...chosen },
  };
  const book = new JobBook({ now, patienceMs: 48 * HOUR_MS, keptMs: 48 * HOUR_MS });
  const files = new NativeFiles(book);
  const jobs = new NativeJobs(book, settings);
  const routeOf = (method: string, path: string) => {
    const { pathname, searchParams } = new URL(path, "http://native");
    const [kind, , form] = ROUTES.find(([, verb, form]) => verb === method && form.test(pathname)) ?? [];
    const [, version = "", name = ""] = form?.exec(pathname) ?? [];
    const isChunk = kind === "upload" && searchParams.has("upload_id");
    return { kind: isChunk ? "chunk" : (kind ?? "other"), version, name, query: searchParams } as const;
  };

  const routed = async (request: UpstreamRequest): Promise<Answer> => {
    const { kind, version, name, query } = routeOf(request.method, request.path);
    if (kind === "chunk") return files.chunk(request);
    const key = request.headers["x-goog-api-key"] ?? query.get("key") ?? "";
    if (key === "") return nativeErrors.noKey();
    if (key !== settings.key) return nativeErrors.invalidKey();
    if (kind === "upload") return files.start(request);
    if (kind === "create") return jobs.create(request, name, version);
    if (kind === "models") return listed(name, settings.models, version);
    if (kind === "files") return name === "files" ? files.list(query) : files.get(name);
    if (kind === "list") {
      const all = book.listed(!query.has("pageToken"));
      return page(all, query, 50, "operations", (job) => jobs.shown(job));
    }
    if (kind === "download") return jobs.download(request, name, query);
    if (kind === "delete" && name.startsWith("files/")) return files.delete(name);
    const job = book.job(name);
    if (job === undefined) return nativeErrors.other(404, "NOT_FOUND", "Requested entity was not found.");
    if (kind === "poll") return json(200, await jobs.polled(job));
    if (kind === "delete") job.isDeleted = true;
    else if (!book.isOpen(job))
      return nativeErrors.other(400, "FAILED_PRECONDITION", "The batch is already in a terminal state.");
    else job.cancelledAt ??= book.now;
    return json(200, {});
  };

  const service: ImageService = {
    kindOf: (method, path) => routeOf(method, path).kind,
    promptOf: () => null,
    answer: async (request) => repeatingKey(await routed(request), settings.echoesKey ? settings.key : null),
  };
  const upstream = await startUpstream(service);
  const addForeign = (label: string, prompts: readonly string[]) => {
    const lines = prompts.map((prompt, at) => ({ key: `k${at}`, request: {}, prompt, problem: null }));
    const name = `batches/${newId()}`;
    return book.add({ name, label, model: BATCH_MODEL, file: "files/another00001", lines, isForeign: true });
  };
  return { ...upstream, book, settings, addForeign };
}
