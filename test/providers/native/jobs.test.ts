import { describe, expect, it, onTestFinished } from "vitest";
import type { JobResult } from "../../../src/domain/ports/image-provider.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { createNativeBatchAdapter } from "../../../src/providers/native/provider.ts";
import { asJobProvider } from "../../../src/providers/upstream/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { closing, entryOf } from "../../support/upstream-adapter.ts";
import {
  byPath,
  bytes,
  depsWith,
  imageRequest,
  impatient,
  json,
  never,
  PNG,
  providerError,
  type Reply,
  reference,
  scriptedServer,
} from "../upstream/scripted-server.ts";

const KEY = "canary-native-batch-key-0123456789";

const entryAt = (baseUrl: string, changes: object = {}) =>
  entryOf("native-batch", { name: "jobs", baseUrl, apiKeyEnv: "JOBS_KEY", ...changes });

function connect(baseUrl: string, changes: object = {}, key = KEY, clock: Clock = systemClock) {
  const entry = entryAt(baseUrl, changes);
  const deps = depsWith({ JOBS_KEY: key }, clock);
  return closing(asJobProvider(entry, createNativeBatchAdapter(entry, deps), deps));
}

async function collected<T>(all: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const each of all) list.push(each);
  return list;
}

const operation = (state: string, more: object = {}) => ({
  name: "batches/b1",
  metadata: {
    displayName: "our-id",
    inputConfig: { fileName: "files/in1" },
    createTime: "2030-01-01T00:00:00.405218Z",
    state,
    ...more,
  },
});

describe("the vendor's batch jobs", () => {
  it("get their input as lines with keys, in chunks at offsets, and without the key", async () => {
    const server = await scriptedServer();
    const url = { "x-goog-upload-url": "https://elsewhere.example/upload/v1beta/files?upload_id=u1" };
    server.reply = byPath([
      ["POST /upload/v1beta/files?upload_id=u1", json({ file: { name: "files/in1" } })],
      ["POST /upload/v1beta/files", json({}, 200, url)],
    ]);
    const provider = connect(server.url);
    const large = Buffer.alloc(7 * 1024 * 1024, 7);
    const lines = [
      { key: "a", request: imageRequest({ references: [reference(large)] }) },
      { key: "b", request: imageRequest({ prompt: "naïve\nfox", options: { seed: 4711 } }) },
    ];
    expect(await provider.upload("our-id", lines, never)).toBe("files/in1");
    const [start, ...chunks] = server.seen;
    const length =
      (await provider.lineBytes(lines[0] as never)) + (await provider.lineBytes(lines[1] as never));
    expect(start?.headers).toMatchObject({
      "x-vendorx-api-key": KEY,
      "x-goog-upload-command": "start",
      "x-goog-upload-header-content-length": String(length),
    });
    expect(JSON.parse(start?.text ?? "")).toEqual({
      file: { displayName: "our-id", mimeType: "application/jsonl" },
    });
    expect(
      chunks.map(({ headers }) => [headers["x-goog-upload-command"], headers["x-goog-upload-offset"]]),
    ).toEqual([
      ["upload", "0"],
      ["upload, finalize", String(8 * 1024 * 1024)],
    ]);
    for (const { headers } of chunks) expect(headers["x-vendorx-api-key"]).toBeUndefined();
    const text = Buffer.concat(chunks.map(({ body }) => body)).toString();
    expect(text).toHaveLength(length - 1);
    const [a, b, end] = text.split("\n");
    expect(end).toBe("");
    expect(JSON.parse(a ?? "")).toMatchObject({
      key: "a",
      request: {
        contents: [{ parts: [{ text: "a red fox" }, { inlineData: { data: large.toString("base64") } }] }],
      },
    });
    expect(JSON.parse(b ?? "")).toMatchObject({ key: "b", request: { generationConfig: { seed: 4711 } } });
  });

  it("get no chunk after a refusal, but another upload where that chunk may have arrived already", async () => {
    const server = await scriptedServer();
    let breaks = false;
    server.reply = byPath([
      [
        "POST /upload/v1beta/files?upload_id=u1",
        (seen, answer, socket) => {
          if (breaks) socket.destroy();
          else json({ error: { code: 400, message: "the upload has ended" } }, 400)(seen, answer, socket);
          breaks = false;
        },
      ],
      ["POST /upload", json({}, 200, { "x-goog-upload-url": "/upload/v1beta/files?upload_id=u1" })],
    ]);
    const provider = connect(server.url, {}, KEY, impatient);
    const lines = [{ key: "a", request: imageRequest() }];
    const refused = await providerError(provider.upload("our-id", lines, never));
    expect(refused).toMatchObject({ message: "the upload has ended", retryable: false });
    expect(server.seen).toHaveLength(2);
    breaks = true;
    const error = await providerError(provider.upload("our-id", lines, never));
    expect(error).toMatchObject({ trouble: "ambiguous", retryable: true });
    expect(server.seen).toHaveLength(5);
  });

  it("get their input at no other host, whatever address the upstream gives", async () => {
    const [server, other] = [await scriptedServer(), await scriptedServer()];
    const provider = connect(server.url, {}, KEY, impatient);
    for (const address of [`x:@127.0.0.1:${other.port}/x`, "x::no-port/x"]) {
      server.reply = json({}, 200, { "x-goog-upload-url": address });
      const upload = provider.upload("our-id", [{ key: "a", request: imageRequest() }], never);
      expect(await providerError(upload)).toMatchObject({ trouble: "ambiguous", retryable: true });
    }
    expect(other.seen).toEqual([]);
  });

  it("are created with our id and the uploaded file; an answer without a name is no answer", async () => {
    const server = await scriptedServer(json(operation("BATCH_STATE_PENDING")));
    const provider = connect(server.url);
    const job = { jobId: "our-id", model: "image-model", input: "files/in1", hasReferences: false };
    expect(await provider.create(job, never)).toBe("batches/b1");
    const [seen] = server.seen;
    expect(seen).toMatchObject({ method: "POST", url: "/v1beta/models/image-model:batchGenerateContent" });
    expect(JSON.parse(seen?.text ?? "")).toEqual({
      batch: { displayName: "our-id", inputConfig: { fileName: "files/in1" } },
    });
    server.reply = json({ done: false });
    expect(await providerError(provider.create(job, never))).toMatchObject({ trouble: "ambiguous" });
    server.reply = json({ error: { code: 429, status: "RESOURCE_EXHAUSTED", message: `no (${KEY})` } }, 429);
    const limited = await providerError(provider.create(job, never));
    expect(limited.trouble).toBe("limited");
    server.reply = json({ error: { code: 400, message: `wrong, says ${KEY}` } }, 400);
    expect((await providerError(provider.create(job, never))).message).not.toContain(KEY);
  });

  it("are created within the rate: the time limit begins after the wait", async () => {
    const clock = new FakeClock();
    const server = await scriptedServer(json(operation("BATCH_STATE_PENDING")));
    const provider = connect(server.url, { requestsPerMinute: 1, timeoutSeconds: 1 }, KEY, clock);
    await collected(provider.list(never));
    let isOurTurn = false;
    const passed = provider.waitForRate(never).then(() => {
      isOurTurn = true;
    });
    clock.advance(59_999);
    await new Promise(setImmediate);
    expect(isOurTurn).toBe(false);
    clock.advance(1);
    await passed;
    const job = { jobId: "our-id", model: "image-model", input: "files/in1", hasReferences: false };
    expect(await provider.create(job, never)).toBe("batches/b1");
    expect(server.seen).toHaveLength(2);
  });

  it.each([
    ["BATCH_STATE_PENDING", "running"],
    ["JOB_STATE_RUNNING", "running"],
    ["BATCH_STATE_CANCELLING", "running"],
    ["SOMETHING_NEW", "running"],
    ["BATCH_STATE_SUCCEEDED", "succeeded"],
    ["JOB_STATE_SUCCEEDED", "succeeded"],
    ["BATCH_STATE_FAILED", "failed"],
    ["JOB_STATE_CANCELLED", "cancelled"],
    ["BATCH_STATE_EXPIRED", "expired"],
  ] as const)("show their state, whatever its spelling: %s", async (word, state) => {
    const server = await scriptedServer(
      json({
        ...operation(word),
        ...(state === "running" ? {} : { done: true, error: { code: 13, message: `why ${KEY}` } }),
      }),
    );
    const job = await connect(server.url).poll("batches/b1", never);
    const createdAtMs = Date.UTC(2030, 0, 1) + 405;
    expect(job).toMatchObject({
      name: "batches/b1",
      jobId: "our-id",
      input: "files/in1",
      state,
      createdAtMs,
    });
    expect(job.said).not.toContain(KEY);
    if (state === "failed") expect(job.said).toContain("why");
  });

  it("are listed page by page", async () => {
    const server = await scriptedServer();
    server.reply = byPath([
      [
        "GET /v1beta/batches?pageSize=50&pageToken=t2",
        json({ operations: [{ ...operation("X"), name: "batches/b2" }] }),
      ],
      [
        "GET /v1beta/batches?pageSize=50",
        json({ operations: [operation("X"), { odd: 1 }], nextPageToken: "t2" }),
      ],
    ]);
    const jobs = await collected(connect(server.url).list(never));
    expect(jobs.map(({ name }) => name)).toEqual(["batches/b1", "batches/b2"]);
  });
});

describe("answers of the vendor's batch jobs that never end", () => {
  it("are not read for ever, nor into memory", async () => {
    const server = await scriptedServer(json({ ...operation("X"), more: "x".repeat(17 * 1024 * 1024) }));
    const provider = connect(server.url);
    expect(await providerError(provider.poll("batches/b1", never))).toMatchObject({ trouble: "ambiguous" });
    const entry = entryAt(server.url);
    const deps = depsWith({ JOBS_KEY: KEY }, systemClock);
    const adapter = createNativeBatchAdapter(entry, deps);
    onTestFinished(() => adapter.close());
    for (const [next, most] of [
      [(n: number) => `page ${n}`, 1000],
      [() => "more", 2],
    ] as const) {
      let pages = 0;
      const endless = { ...adapter, page: async () => ({ jobs: [], next: next(++pages) }) };
      const list = collected(asJobProvider(entry, endless, deps).list(never));
      expect(await providerError(list)).toMatchObject({ trouble: "ambiguous" });
      expect(pages).toBe(most);
    }
    expect(() => entryAt(server.url, { jobImages: 10_001 })).toThrow();
  });
});

const response = (data: Buffer) => ({
  candidates: [
    { content: { parts: [{ inlineData: { data: data.toString("base64") } }] }, finishReason: "STOP" },
  ],
});
const line = (value: object) => `${JSON.stringify(value)}\n`;

describe("the results of the vendor's batch jobs", () => {
  const done = operation("BATCH_STATE_SUCCEEDED", { output: { responsesFile: "files/batch-b1" } });
  const file = "GET /v1beta/files/batch-b1:download?alt=media";

  async function resultsOf(reply: Reply, clock: Clock = impatient) {
    const server = await scriptedServer(
      byPath([
        [file, reply],
        ["GET /v1beta/batches/b1", json(done)],
      ]),
    );
    const provider = connect(server.url, {}, KEY, clock);
    return { server, results: collected(provider.results("batches/b1", "image-model", never)) };
  }

  it("are read line by line, each for its key, whatever a line looks like", async () => {
    const text = [
      line({ response: response(PNG), key: "a" }),
      line({ key: "b", error: { code: 3, message: "the prompt is too long" } }),
      line({ key: "c", error: { code: 13, message: "internal words" } }),
      line({ key: "d", error: { status: "RESOURCE_EXHAUSTED", message: "x" } }),
      line({ key: "e", response: { promptFeedback: { blockReason: "SAFETY" } } }),
      line({ key: "f", ...response(PNG) }),
      line({ response: response(PNG), metadata: { key: "g" } }),
      line({ response: response(PNG) }),
      '{"key":"h","respon\n\n',
      line({ key: "i", response: {} }),
      JSON.stringify({ key: "j", response: response(PNG) }),
    ].join("");
    const { results } = await resultsOf(bytes(text));
    const shown = (await results).map((result: JobResult) => {
      if (!("key" in result)) return Object.keys(result)[0];
      return [result.key, "error" in result ? result.error.code : result.output.images.length];
    });
    expect(shown).toEqual([
      ["a", 1],
      ["b", "INVALID_ARGUMENT"],
      ["c", "PROVIDER_ITEM_FAILED"],
      ["d", "PROVIDER_RATE_LIMITED"],
      ["e", "SAFETY_BLOCKED"],
      ["f", 1],
      ["g", 1],
      "unreadable",
      "unreadable",
      ["i", "PROVIDER_ITEM_FAILED"],
      ["j", 1],
    ]);
  });

  it("end where a connection broke when nothing is left, and skip nothing", async () => {
    const text = ["a", "b"].map((key) => line({ key, response: response(PNG) })).join("");
    const whole = Buffer.from(text.trimEnd());
    const broken: Reply = (_seen, answer) => {
      answer.writeHead(200, { "content-length": whole.length + 1 });
      answer.write(whole, () => setImmediate(() => answer.destroy()));
    };
    const nothing = bytes("", 416, { "content-range": `bytes */${whole.length}` });
    const whole416 = await resultsOf((seen, ...rest) =>
      (seen.headers.range === undefined ? broken : nothing)(seen, ...rest),
    );
    expect((await whole416.results).map((result) => "key" in result && result.key)).toEqual(["a", "b"]);
    const behind = bytes("}", 206, { "content-range": `bytes ${whole.length + 1}-${whole.length + 1}/*` });
    const skipped = await resultsOf((seen, ...rest) =>
      (seen.headers.range === undefined ? broken : behind)(seen, ...rest),
    );
    expect(await providerError(skipped.results)).toMatchObject({ trouble: "ambiguous" });
  });

  it("are begun anew when a file takes for ever", async () => {
    let nowMs = 0;
    const clock = { ...impatient, monotonicMs: () => (nowMs += 3_600_000) };
    const text = line({ key: "a", response: response(PNG) });
    const { results } = await resultsOf((_seen, answer) => {
      answer.writeHead(200);
      const write = () => answer.write(text, () => setImmediate(() => answer.destroyed || write()));
      write();
    }, clock);
    expect(await providerError(results)).toMatchObject({ trouble: "ambiguous" });
  });

  it("are given up for now when nothing comes any more", async () => {
    const { server, results } = await resultsOf((_seen, _answer, socket) => socket.destroy());
    expect(await providerError(results)).toMatchObject({ trouble: "ambiguous" });
    expect(server.seen).toHaveLength(5);
  });

  it.each([
    ["SUCCEEDED", { successfulRequestCount: "1" }, false],
    ["SUCCEEDED", { successfulRequestCount: "1", failedRequestCount: "1" }, true],
    ["SUCCEEDED", { successful_request_count: 2 }, true],
    ["SUCCEEDED", { successfulRequestCount: "many" }, false],
    // Requests that were never run may count as failed.
    ["CANCELLED", { successfulRequestCount: "1", failedRequestCount: "3" }, false],
    ["EXPIRED", { successfulRequestCount: "2", failedRequestCount: "3" }, true],
  ])("are as many as the job counts: %s, %o", async (state, batchStats, isShort) => {
    const server = await scriptedServer();
    const job = operation(`BATCH_STATE_${state}`, {
      output: { responsesFile: "files/batch-b1" },
      batchStats,
    });
    server.reply = byPath([
      [file, bytes(line({ key: "a", response: response(PNG) }))],
      ["GET /v1beta/batches/b1", json(job)],
    ]);
    const results = await collected(connect(server.url).results("batches/b1", "image-model", never));
    expect(results.map((result) => Object.keys(result)[0])).toEqual([
      "key",
      ...(isShort ? ["endsEarly"] : []),
    ]);
  });

  it("are in the file that the response of a job names", async () => {
    const server = await scriptedServer(
      byPath([
        [file, bytes(line({ key: "a", response: response(PNG) }))],
        ["GET", json({ ...operation("JOB_STATE_SUCCEEDED"), response: { responsesFile: "files/batch-b1" } })],
      ]),
    );
    const [result] = await collected(connect(server.url).results("batches/b1", "image-model", never));
    expect(result).toMatchObject({ key: "a" });
  });

  it("do not exist for a job without an output", async () => {
    const server = await scriptedServer(json({ ...operation("BATCH_STATE_FAILED"), error: { code: 1 } }));
    expect(await collected(connect(server.url).results("batches/b1", "image-model", never))).toEqual([]);
  });
});
