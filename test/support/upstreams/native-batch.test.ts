import { describe, expect, it, onTestFinished } from "vitest";
import * as hostile from "./hostile.ts";
import { HUGE_BYTES } from "./images.ts";
import type { LineFault } from "./job-book.ts";
import { NATIVE_KEY, nativeErrors } from "./native.ts";
import { BATCH_MODEL, startNativeBatch } from "./native-batch.ts";

// biome-ignore lint/suspicious/noExplicitAny: the shapes of other services are read loosely here.
type Loose = any;

const MINUTE_MS = 60_000;
const CHUNK = 262_144;

async function opened(options: Parameters<typeof startNativeBatch>[0] = {}) {
  const clock = { ms: Date.UTC(2030, 0, 1) };
  const fake = await startNativeBatch({ now: () => clock.ms, ...options });
  onTestFinished(() => fake.close());
  const ask = async (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) => {
    const isRaw = body === undefined || typeof body === "string";
    const answer = await fetch(path.startsWith("http") ? path : fake.url + path, {
      method,
      headers: { "x-goog-api-key": NATIVE_KEY, "content-type": "application/json", ...headers },
      ...(body !== undefined && { body: isRaw ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    const json: Loose = text.startsWith("{") && !text.includes("\n") ? JSON.parse(text) : text;
    return { status: answer.status, headers: answer.headers, json, text };
  };
  const start = (length: number, more: Record<string, string> = {}, body: object = {}) =>
    ask("POST", "/upload/v1beta/files", body, {
      "x-goog-upload-protocol": "resumable",
      "x-goog-upload-command": "start",
      "x-goog-upload-header-content-length": String(length),
      "x-goog-upload-header-content-type": "application/jsonl",
      ...more,
    });
  const send = (url: string, offset: number, body: string, command = "upload, finalize") =>
    ask("POST", url, body, {
      ...{ "x-goog-api-key": "", "x-goog-upload-command": command, "x-goog-upload-offset": String(offset) },
    });
  const upload = async (text: string) => {
    const { headers } = await start(text.length);
    return (await send(headers.get("x-goog-upload-url") ?? "", 0, text)).json.file.name as string;
  };
  const create = (batch: object, model = BATCH_MODEL) =>
    ask("POST", `/v1beta/models/${model}:batchGenerateContent`, { batch });
  const job = async (prompts: readonly string[]) => {
    const fileName = await upload(prompts.map((prompt, at) => line(`k${at + 1}`, prompt)).join("\n"));
    return (await create({ displayName: "mine", inputConfig: { fileName } })).json;
  };
  const results = async (name: string, headers = {}) =>
    ask("GET", `/v1beta/files/${name.replace("batches/", "batch-")}:download?alt=media`, undefined, headers);
  return { fake, clock, ask, start, send, upload, create, job, results };
}

const line = (key: string, prompt: string, more: object = {}) =>
  JSON.stringify({ key, request: { contents: [{ parts: [{ text: prompt }] }], ...more } });
const rows = (text: string) => text.split("\n").filter(Boolean);

describe("the fake of the native service's batch jobs", () => {
  it("[FAKE-1] takes chunks at their offsets without a key, again too, and returns the file", async () => {
    const { fake, start, send, ask } = await opened();
    const { headers } = await start(CHUNK + 3);
    const url = headers.get("x-goog-upload-url") ?? "";
    expect((await send(url, 0, "x".repeat(100), "upload")).json.error.message).toMatch(/multiples of 262144/);
    for (const _ of ["once", "again"])
      expect((await send(url, 0, "x".repeat(CHUNK), "upload")).headers.get("x-goog-upload-status")).toBe(
        "active",
      );
    expect((await send(url, CHUNK + 1, "yy")).status).toBe(400);
    expect((await send(url, CHUNK, "yy")).json.error.message).toMatch(/incomplete/);
    expect((await send(url, CHUNK, "yyyy")).json.error.message).toMatch(/More bytes/);
    const last = await send(url, CHUNK, "yyy");
    expect([last.headers.get("x-goog-upload-status"), last.json.file.sizeBytes]).toEqual(["final", "262147"]);
    expect((await ask("GET", `/v1/${last.json.file.name}`)).json).toEqual(last.json.file);
    expect((await ask("GET", `/v1/files/batch-${"a".repeat(36)}`)).json.error.message).toMatch(
      /more than 40/,
    );
    expect([...fake.book.files.keys()]).toEqual([last.json.file.name]);
  });

  it("[FAKE-2] refuses strange headers, fields, lines, types, models and files", async () => {
    const { fake, start, upload, create, ask } = await opened();
    expect((await start(3, { "x-goog-upload-protocol": "multipart" })).status).toBe(400);
    expect((await start(3, {}, { file: { title: "x" } })).json.error.message).toMatch(/Unknown name "title"/);
    expect((await ask("GET", "/v1beta/batches", undefined, { "x-goog-api-key": "" })).status).toBe(403);
    expect((await ask("GET", "/v1beta/batches", undefined, { "x-goog-api-key": "other" })).status).toBe(400);
    const fileName = await upload(`${line("a", "b")}\nno json`);
    const refused = async (batch: object, model?: string) => (await create(batch, model)).json.error;
    expect((await refused({ inputConfig: { fileName } })).message).toMatch(/Line 2/);
    expect((await refused({ name: "x", input: {} })).message).toMatch(/Unknown name "input" at 'batch'/);
    expect((await refused({ inputConfig: {} })).message).toMatch(/exactly one source/);
    expect((await refused({ inputConfig: { fileName: "files/none" } })).code).toBe(404);
    expect((await refused({ inputConfig: { fileName } }, "other")).code).toBe(404);
    expect(fake.book.jobs).toEqual([]);
  });

  it("[FAKE-4] runs a job by the clock, bills what it made by key and prompt, and forgets all after two days", async () => {
    const { fake, clock, ask, job, results } = await opened();
    fake.book.plan = () => ({ pendingMs: MINUTE_MS, runningMs: MINUTE_MS });
    const { name, metadata } = await job(["a hill", "a lake"]);
    expect(metadata).toMatchObject({
      ...{ state: "BATCH_STATE_PENDING", batchStats: { requestCount: "2", pendingRequestCount: "2" } },
    });
    clock.ms += MINUTE_MS;
    const running = (await ask("GET", `/v1beta/${name}`)).json;
    expect([running.metadata.state, running.done, fake.book.payments()]).toEqual([
      "BATCH_STATE_RUNNING",
      undefined,
      [],
    ]);
    expect((await results(name)).status).toBe(403);
    clock.ms += MINUTE_MS;
    const { done, response, metadata: end } = (await ask("GET", `/v1beta/${name}`)).json;
    expect([done, end.state, end.output]).toEqual([
      true,
      "BATCH_STATE_SUCCEEDED",
      { responsesFile: response.responsesFile },
    ]);
    expect(end.batchStats).toEqual({ requestCount: "2", successfulRequestCount: "2" });
    expect(rows((await results(name)).text).map((row) => JSON.parse(row).key)).toEqual(["k1", "k2"]);
    expect(fake.book.payments()).toEqual([
      { job: name, key: "k1", prompt: "a hill", canBeFetched: true },
      { job: name, key: "k2", prompt: "a lake", canBeFetched: true },
    ]);
    clock.ms += 48 * 60 * MINUTE_MS;
    expect([(await ask("GET", `/v1beta/${name}`)).status, (await results(name)).status]).toEqual([404, 403]);
    expect([fake.book.paid("a hill"), fake.book.payments()[0]?.canBeFetched]).toEqual([1, false]);
  });

  it("[FAKE-4] lists newest first, page by page, new jobs late, and other people's jobs", async () => {
    const { fake, clock, ask, job } = await opened();
    fake.book.plan = () => ({ listedAfter: { lists: 1, ms: MINUTE_MS } });
    const foreign = fake.addForeign("holiday", ["a beach"]);
    const list = async (query = "") => (await ask("GET", `/v1beta/batches${query}`)).json;
    clock.ms += 1;
    const { name } = await job(["a hill"]);
    expect((await list()).operations).toHaveLength(1);
    expect((await list()).operations).toHaveLength(1);
    clock.ms += MINUTE_MS;
    const first = await list("?pageSize=1");
    const second = await list(`?pageSize=1&pageToken=${first.nextPageToken}`);
    expect([first, second].map(({ operations }) => operations[0].name)).toEqual([name, foreign.name]);
    expect([second.nextPageToken, fake.book.payments().length]).toEqual([undefined, 1]);
    expect((await list("?pageToken=x")).error.code).toBe(400);
  });

  it("[FAKE-4] ends jobs badly: failed, expired, cancelled with results, deaf to a cancel, or without their file", async () => {
    const { fake, clock, ask, job, results } = await opened({ states: "JOB", outputs: "response" });
    const ended = async (plan: object, prompt: string) => {
      fake.book.plan = () => plan;
      return (await ask("GET", `/v1beta/${(await job([prompt, "other"])).name}`)).json;
    };
    const failed = await ended({ end: "failed", reason: "No." }, "a");
    expect([failed.metadata.state, failed.error, failed.response]).toEqual([
      ...["JOB_STATE_FAILED", { code: 13, message: "No." }, undefined],
    ]);
    const cancelled = await ended({ end: "cancelled", made: (_: unknown, at: number) => at === 0 }, "b");
    expect([cancelled.metadata.state, cancelled.metadata.output]).toEqual(["JOB_STATE_CANCELLED", undefined]);
    expect(rows((await results(cancelled.name)).text)).toHaveLength(1);
    expect(cancelled.response.responsesFile).toMatch(/^files\/batch-.{36}$/);
    const forever = { pendingMs: Number.POSITIVE_INFINITY };
    const deaf = await ended({ ...forever, cancelMs: Number.POSITIVE_INFINITY }, "c");
    expect((await ask("POST", `/v1beta/${deaf.name}:cancel`, {})).json).toEqual({});
    const stuck = await ended(forever, "d");
    clock.ms += 47 * 60 * MINUTE_MS;
    expect(fake.book.running().map(({ name }) => name)).toEqual([deaf.name, stuck.name]);
    await ask("DELETE", `/v1beta/${fake.book.jobs.at(-1)?.file}`);
    expect((await ask("GET", `/v1beta/${stuck.name}`)).json.error.message).toMatch(/was deleted/);
    clock.ms += 60 * MINUTE_MS;
    expect((await ask("GET", `/v1beta/${deaf.name}`)).json.metadata.state).toBe("JOB_STATE_EXPIRED");
    expect(fake.book.payments().map(({ prompt }) => prompt)).toEqual(["b"]);
  });

  it("[FAKE-4] loses, doubles, breaks, pads and shuffles result lines, and bills the images", async () => {
    const { fake, job, results } = await opened();
    const faults: LineFault[] = [
      "lost",
      "twice",
      "unreadable",
      "stranger",
      "error",
      "statusError",
      "refused",
      "noImage",
    ];
    fake.book.plan = () => ({ fault: (_, at) => faults[at] ?? null, isShuffled: true });
    const { name } = await job([...faults, "good"]);
    const keys = rows((await results(name)).text).map((row) => {
      try {
        const { key, error, response } = JSON.parse(row);
        return [key, error ? Object.keys(error) : Object.keys(response)[0]];
      } catch {
        return "broken";
      }
    });
    expect(keys).toEqual([
      ["k9", "candidates"],
      ["k8", "candidates"],
      ["k7", "promptFeedback"],
      ["k6", ["status", "message"]],
      ["k5", ["code", "message"]],
      ["k4", "candidates"],
      ["a key that nobody sent", "candidates"],
      "broken",
      ["k2", "candidates"],
      ["k2", "candidates"],
    ]);
    expect(fake.book.payments().map(({ prompt, canBeFetched }) => [prompt, canBeFetched])).toEqual([
      ["lost", false],
      ["twice", true],
      ["unreadable", false],
      ["stranger", true],
      ["good", true],
    ]);
    fake.book.plan = () => ({ fault: () => "huge" });
    expect((await results((await job(["big"])).name)).text.length).toBeGreaterThan((HUGE_BYTES * 4) / 3);
  });

  it("[FAKE-4] serves parts of a result file, cuts it off, or knows no parts", async () => {
    const { fake, job, results } = await opened();
    const { name } = await job(["a hill"]);
    const { text: whole } = await results(name);
    const part = await results(name, { range: "bytes=10-" });
    expect([part.status, part.text]).toEqual([206, whole.slice(10)]);
    expect(part.headers.get("content-range")).toBe(`bytes 10-${whole.length - 1}/${whole.length}`);
    expect((await results(name, { range: `bytes=${whole.length}-` })).status).toBe(416);
    fake.settings.hasRanges = false;
    expect((await results(name, { range: "bytes=10-" })).status).toBe(200);
    fake.setBehaviour(hostile.first(1, hostile.cutAt(100)), "download");
    await expect(results(name)).rejects.toThrow();
    expect((await results(name)).text).toBe(whole);
  });

  it("[FAKE-3] loses the answer of a create that it has taken, and repeats the key in each error", async () => {
    const { fake, ask, job } = await opened({ echoesKey: true });
    fake.setBehaviour(hostile.first(1, hostile.resetAfter({ made: true })), "create");
    await expect(job(["a hill"])).rejects.toThrow();
    expect([fake.book.running(), fake.book.paid("a hill")]).toEqual([[], 1]);
    fake.setBehaviour(hostile.first(1, hostile.answers(nativeErrors.limited())), "poll");
    const name = fake.book.jobs[0]?.name;
    expect([(await ask("GET", `/v1/${name}`)).status, (await ask("GET", `/v1/${name}`)).status]).toEqual([
      429, 200,
    ]);
    expect((await ask("GET", "/v1beta/batches/none")).json.error.message).toContain(NATIVE_KEY);
    fake.book.plan = () => ({ end: "failed" });
    const failed = await job(["a lake"]);
    expect((await ask("GET", `/v1beta/${failed.name}`)).json.error.message).toContain(NATIVE_KEY);
  });
});
