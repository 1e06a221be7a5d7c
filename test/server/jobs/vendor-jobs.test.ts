import { describe, expect, it } from "vitest";
import type { NativeBody } from "../../../src/contract/native-api.ts";
import type { OpenaiBody } from "../../../src/contract/openai-api.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { resultLineSchema } from "../../support/jobs.ts";
import * as openai from "../../support/openai-batches.ts";
import { content, generate, imagesOf } from "../../support/realtime.ts";
import { MODEL, openBeside, otherKey, startTestService, type TestService } from "../../support/service.ts";
import { ask as askNative, upload } from "../../support/uploads.ts";

/** A job as either API shows it. */
interface Shown {
  id: string;
  batchId: string;
  state: string;
  /** All lines, those with an image, and those without. */
  counts: [number, number, number];
  error: string | number | null;
  /** The ids of its files with results. */
  files: string[];
}

/** A line of a file with results: its name, and its image or an error. */
type Result = [key: string, outcome: Buffer | string | number];

/** One vendor's API, as its clients use it. */
interface Dialect {
  source: string;
  ask(service: TestService, path: string, init?: RequestInit & { key?: string }): Promise<Response>;
  /** Uploads a file with these lines, and returns its id. */
  send(service: TestService, lines: readonly string[], key?: string): Promise<string>;
  create(service: TestService, fileId: string, key?: string): Promise<Response>;
  line(key: string, prompt: string): string;
  shown(body: unknown): Shown;
  cancelPath(id: string): string;
  /** The ids of a page of a list of jobs or of files, and the query of the next one. */
  page(body: unknown): [ids: string[], next: string | null];
  contentPath(fileId: string): string;
  resultsOf(text: string): Result[];
  states: Record<"cancelled" | "completed" | "failed" | "expired", string>;
  /** The errors of a balance that is too low, and of a file that cannot be used. */
  errors: { poor: string | number; unusable: string | number; cancelled: string | number };
}

const jsonLines = (text: string) =>
  text
    .split("\n")
    .slice(0, -1)
    .map((each) => JSON.parse(each));

const NATIVE: Dialect = {
  source: "native",
  ask: (service, path, init) => askNative(service, `/v1beta/${path}`, init),
  send: async (service, lines, key) =>
    (await upload(service, lines.join("\n"), { mimeType: "jsonl" }, key ? { key } : {})).name.replace(
      "files/",
      "",
    ),
  create: (service, fileId, key) =>
    generate(
      service,
      { batch: { displayName: "foxes", inputConfig: { fileName: `files/${fileId}` } } },
      { verb: "batchGenerateContent", model: MODEL, ...(key && { headers: { "x-vendorx-api-key": key } }) },
    ),
  line: (key, prompt) => JSON.stringify({ key, request: content(prompt) }),
  shown: (body) => {
    const { name, metadata, error } = body as NativeBody<"Job">;
    const { state, batchStats, output } = metadata;
    const { requestCount = 0, successfulRequestCount = 0, failedRequestCount = 0 } = batchStats ?? {};
    const file = output?.responsesFile;
    return {
      id: name.replace("batches/", ""),
      batchId: name.replace("batches/", "imgbatch_"),
      state,
      counts: [Number(requestCount), Number(successfulRequestCount), Number(failedRequestCount)],
      error: error?.code ?? null,
      files: file ? [file.replace("files/", "")] : [],
    };
  },
  cancelPath: (id) => `batches/${id}:cancel`,
  page: (body) => {
    const { operations, files, nextPageToken } = body as Record<string, { name: string }[] | undefined>;
    const ids = (operations ?? files ?? []).map(({ name }) => name.replace(/^\w+\//, ""));
    return [ids, nextPageToken ? `pageSize=2&pageToken=${nextPageToken}` : null];
  },
  contentPath: (fileId) => `files/${fileId}:download?alt=media`,
  resultsOf: (text) =>
    jsonLines(text).map((each) => {
      const { key, response, error } = resultLineSchema.parse(each);
      return [String(key), error?.code ?? imagesOf(response ?? {})[0]?.bytes ?? "none"];
    }),
  states: {
    cancelled: "BATCH_STATE_CANCELLED",
    completed: "BATCH_STATE_SUCCEEDED",
    failed: "BATCH_STATE_FAILED",
    expired: "BATCH_STATE_EXPIRED",
  },
  errors: { poor: 9, unusable: 3, cancelled: 1 },
};

const OPENAI: Dialect = {
  source: "openai",
  ask: openai.ask,
  send: async (service, lines, key) => {
    const body = new FormData();
    body.append("purpose", "batch");
    body.append("file", new Blob([lines.join("\n")]), "lines.jsonl");
    return (
      await openai.fileOf(await openai.ask(service, "files", { method: "POST", body, ...(key && { key }) }))
    ).id;
  },
  create: (service, fileId, key) =>
    openai.create(service, { input_file_id: fileId }, key ? { authorization: `Bearer ${key}` } : {}),
  line: (key, prompt) => JSON.stringify(openai.line(key, prompt)),
  shown: (body) => {
    const {
      id,
      status,
      request_counts: counts,
      errors,
      output_file_id,
      error_file_id,
    } = body as OpenaiBody<"OpenaiBatch">;
    return {
      id,
      batchId: openai.batchIdOf(id),
      state: status,
      counts: [counts.total, counts.completed, counts.failed],
      error: errors?.data[0]?.code ?? null,
      files: [output_file_id, error_file_id].flatMap((file) => file ?? []),
    };
  },
  cancelPath: (id) => `batches/${id}/cancel`,
  page: (body) => {
    const { data, has_more, last_id } = body as OpenaiBody<"OpenaiBatchList" | "OpenaiFileList">;
    return [data.map(({ id }) => id), has_more ? `limit=2&after=${last_id}` : null];
  },
  contentPath: (fileId) => `files/${fileId}/content`,
  resultsOf: (text) =>
    jsonLines(text).map(({ custom_id, response, error }: openai.ResultLine) => {
      const data = response?.body.data?.[0]?.b64_json;
      return [
        String(custom_id),
        data ? Buffer.from(data, "base64") : (error?.code ?? response?.body.error?.code ?? ""),
      ];
    }),
  states: { cancelled: "cancelled", completed: "completed", failed: "failed", expired: "expired" },
  errors: {
    poor: "BATCH_IMAGE_INSUFFICIENT_BALANCE",
    unusable: "BATCH_IMAGE_INVALID_ITEMS",
    cancelled: "batch_cancelled",
  },
};

describe.each([NATIVE, OPENAI])("a job of the $source API", (api) => {
  const now = async (service: TestService, { id }: Pick<Shown, "id">, key?: string) =>
    api.shown(await (await api.ask(service, `batches/${id}`, key ? { key } : {})).json());

  const created = async (service: TestService, fileId: string, key?: string): Promise<Shown> => {
    const answer = await api.create(service, fileId, key);
    const body = await answer.json();
    if (answer.status !== 200) throw new Error(`answered ${answer.status}: ${JSON.stringify(body)}`);
    return api.shown(body);
  };

  const createOf = async (service: TestService, prompts: readonly string[]) =>
    created(
      service,
      await api.send(
        service,
        prompts.map((prompt, i) => api.line(String(i), prompt)),
      ),
    );

  const ended = async (service: TestService, job: Shown): Promise<Shown> => {
    await service.until(job.batchId);
    return now(service, job);
  };

  const textOf = async (service: TestService, fileId: string, init: RequestInit = {}) => {
    const answer = await api.ask(service, api.contentPath(fileId), init);
    return { status: answer.status, headers: answer.headers, bytes: Buffer.from(await answer.arrayBuffer()) };
  };

  const resultsOf = async (service: TestService, { files }: Shown): Promise<Result[]> => {
    const results: Result[] = [];
    for (const file of files) results.push(...api.resultsOf(String((await textOf(service, file)).bytes)));
    return results;
  };

  const expectSound = async (service: TestService) => {
    await service.expectBooks();
  };

  it("is cancelled with what was made, which is paid for; an ended one stays as it is", async () => {
    const running = gate();
    const provider = new FakeProvider({ concurrency: 1 });
    provider.answer = async ({ prompt }, signal) => {
      if (prompt === "quick") return made(await tinyPng());
      running.open();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const service = await startTestService({ providers: [provider] });
    const job = await createOf(service, ["quick", "slow", "slow"]);
    await running.promise;
    await expect.poll(async () => (await now(service, job)).counts).toEqual([3, 1, 0]);
    expect(Object.values(api.states)).not.toContain((await now(service, job)).state);
    const cancel = () => api.ask(service, api.cancelPath(job.id), { method: "POST" });
    const answer = await cancel();
    expect(answer.status).toBe(200);
    const last = await ended(service, job);
    expect([last.state, last.counts]).toEqual([api.states.cancelled, [3, 1, 2]]);
    if (api.source === "openai") expect(api.shown(await answer.json())).toEqual(last);
    else expect(await answer.json()).toEqual({});
    expect(await resultsOf(service, last)).toEqual([
      ["0", await tinyPng()],
      ["1", api.errors.cancelled],
      ["2", api.errors.cancelled],
    ]);
    expect((await cancel()).status).toBe(200);
    expect(await now(service, job)).toEqual(last);
    const batch = await service.batch(job.batchId);
    expect(batch).toMatchObject({ source: api.source, status: "cancelled", actual_cost: 0.0335 });
    await expectSound(service);
  });

  it("has failed with the reason when its lines cannot be used or paid, and as a drawn one was asked to end", async () => {
    const service = await startTestService({ config: { limits: { linesPerJob: 40 } } });
    const { blobs } = await openBeside(service.data);
    const fileOf = (...lines: string[]) => api.send(service, lines);
    const many = Array.from({ length: 41 }, (_, i) => api.line(String(i), "x"));
    for (const fileId of [await fileOf("", " "), await fileOf(...many)]) {
      const failed = await ended(service, await created(service, fileId));
      expect(failed).toMatchObject({
        state: api.states.failed,
        counts: [0, 0, 0],
        error: api.errors.unusable,
        files: [],
      });
      await expect.poll(() => blobs.read(`inputs/${failed.batchId}/lines`).catch(() => null)).toBeNull();
    }
    const broken = await ended(service, await created(service, await fileOf("{", "[")));
    expect([broken.state, broken.counts]).toEqual([api.states.completed, [2, 0, 2]]);
    const late = await ended(service, await createOf(service, ["[[job-expire]] a fox"]));
    expect([late.state, late.files]).toEqual([api.states.expired, []]);
    const partly = await ended(service, await createOf(service, ["x", "[[job-partial]] a fox", "y"]));
    expect([partly.state, partly.counts]).toEqual([api.states.failed, [3, 1, 2]]);
    expect((await resultsOf(service, partly)).map(([key]) => key)).toEqual(["0"]);
    const { key } = await otherKey(service, { account: "poor" });
    const job = await created(service, await api.send(service, many.slice(1), key), key);
    // Only its own key sees it.
    const poor = { state: api.states.failed, error: api.errors.poor, counts: [0, 0, 0] };
    await expect.poll(() => now(service, job, key)).toMatchObject(poor);
    await expectSound(service);
  });

  it("is listed in pages, newest first, and belongs to its key and its API", async () => {
    const service = await startTestService();
    const fileId = await api.send(service, [api.line("a", "x")]);
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.unshift((await created(service, fileId)).id);
    const { id: foreign } = await service.submit({ model: MODEL, items: [{ custom_id: "i", prompt: "x" }] });
    const page = async (query: string, key?: string) =>
      api.page(await (await api.ask(service, `batches?${query}`, key ? { key } : {})).json());
    const [first, next] = await page(api.source === "openai" ? "limit=2" : "pageSize=2");
    expect([first, await page(next ?? "")]).toEqual([ids.slice(0, 2), [ids.slice(2), null]]);
    expect(await page("")).toEqual([ids, null]);
    const bad = api.source === "openai" ? "after=none" : "pageToken=zzz";
    expect((await api.ask(service, `batches?${bad}`)).status).toBe(400);
    const { key } = await otherKey(service);
    expect(await page("", key)).toEqual([[], null]);
    const none = await api.ask(service, `batches/${"0".repeat(32)}`, { headers: { "x-request-id": "same" } });
    const unknown = [404, await none.text()];
    const [id = ""] = ids;
    for (const [path, init] of [
      [`batches/${id}`, { key }],
      [`batches/${foreign.replace("imgbatch_", id.startsWith("batch_") ? "batch_" : "")}`, {}],
      [`batches/${id.replace(/^(batch_)?/, "imgbatch_")}`, {}],
      [api.cancelPath(id), { key, method: "POST" }],
    ] as const) {
      const answer = await api.ask(service, path, { ...init, headers: { "x-request-id": "same" } });
      expect([path, answer.status, await answer.text()]).toEqual([path, ...unknown]);
    }
  });

  it("keeps its input, and is no batch that can be retried: its file may be deleted right after it was created", async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    await service.setPaused(true);
    const fileId = await api.send(service, [api.line("0", "x")]);
    const job = await created(service, fileId);
    expect((await api.ask(service, `files/${fileId}`, { method: "DELETE" })).status).toBe(200);
    expect((await api.create(service, fileId)).status).toBe(400);
    await service.setPaused(false);
    const last = await ended(service, job);
    expect([last.state, await resultsOf(service, last)]).toEqual([
      api.states.completed,
      [["0", await tinyPng()]],
    ]);
    const retry = await service.create({
      model: MODEL,
      parent_batch_id: job.batchId,
      items: [{ prompt: "x" }],
    });
    expect((await retry.json()).error).toMatchObject({
      code: "BATCH_IMAGE_INVALID_ITEMS",
      param: "parent_batch_id",
    });
    await expect(service.retry(job.batchId)).rejects.toMatchObject({
      code: "BATCH_IMAGE_INVALID_ITEMS",
    });
  });

  it("sends any part of its results, says how long they are, and keeps its state when its images are deleted", async () => {
    const service = await startTestService();
    const last = await ended(service, await createOf(service, ["one", "two", "three"]));
    const [file = ""] = last.files;
    const { bytes, headers } = await textOf(service, file);
    expect(Number(headers.get("content-length"))).toBe(bytes.length);
    const etag = headers.get("etag") ?? "";
    for (const [start, end] of [
      [0, 0],
      [1, 777],
      [500, 501],
      [bytes.length - 5, bytes.length - 1],
    ] as const) {
      const part = await textOf(service, file, {
        headers: { range: `bytes=${start}-${end}`, "if-range": etag },
      });
      expect([part.status, part.bytes]).toEqual([206, bytes.subarray(start, end + 1)]);
    }
    expect((await textOf(service, `${file.split("-")[0]}-${"0".repeat(32)}`)).status).toBe(404);
    const { key } = await otherKey(service);
    expect((await api.ask(service, api.contentPath(file), { key })).status).toBe(404);
    await service.ask(`/${last.batchId}/outputs`, { method: "DELETE" });
    expect((await textOf(service, file)).status).toBe(404);
    expect(await now(service, last)).toEqual({ ...last, files: [] });
  });

  it("is refused above the number that a key may have running", async () => {
    const service = await startTestService();
    await service.setPaused(true);
    const fileId = await api.send(service, [api.line("a", "x")]);
    for (let i = 0; i < 100; i++) await created(service, fileId);
    expect((await api.create(service, fileId)).status).toBe(429);
  });

  it("[FILES-5] has files that are listed page by page, shown and deleted, and exist for no other key", async () => {
    const service = await startTestService({ workers: false });
    const ids: string[] = [];
    for (const text of ["a", "b", "c"]) ids.unshift(await api.send(service, [text]));
    const page = async (query: string, key?: string) =>
      api.page(await (await api.ask(service, `files?${query}`, key ? { key } : {})).json());
    const [first, next] = await page(api.source === "openai" ? "limit=2" : "pageSize=2");
    expect([first, await page(next ?? "")]).toEqual([ids.slice(0, 2), [ids.slice(2), null]]);
    const [id = ""] = ids;
    const { key } = await otherKey(service);
    expect(await page("", key)).toEqual([[], null]);
    for (const [path, method] of [
      [`files/${id}`, "GET"],
      [`files/${id}`, "DELETE"],
      [api.contentPath(id), "GET"],
    ] as const) {
      expect([path, (await api.ask(service, path, { method, key })).status]).toEqual([path, 404]);
    }
    expect(String((await textOf(service, id)).bytes)).toBe("c");
    expect((await api.ask(service, `files/${id}`)).status).toBe(200);
    expect((await api.ask(service, `files/${id}`, { method: "DELETE" })).status).toBe(200);
    expect((await api.ask(service, `files/${id}`)).status).toBe(404);
    // A file that is deleted between two pages leaves no gap.
    expect(await page(next ?? "")).toEqual([ids.slice(2), null]);
  });
});
