import { describe, expect, it } from "vitest";
import type { JobResult } from "../../../src/domain/ports/image-provider.ts";
import { createOpenaiBatchAdapter } from "../../../src/providers/openai/provider.ts";
import { asJobProvider } from "../../../src/providers/upstream/provider.ts";
import { closing, entryOf } from "../../support/upstream-adapter.ts";
import {
  byPath,
  bytes,
  depsWith,
  imageRequest,
  impatient,
  JPEG,
  json,
  never,
  PNG,
  providerError,
  reference,
  scriptedServer,
} from "../upstream/scripted-server.ts";

const KEY = "canary-openai-batch-key-0123456789";

function connect(baseUrl: string, changes: object = {}, key = KEY) {
  const fields = { name: "jobs", baseUrl: `${baseUrl}/v1`, apiKeyEnv: "JOBS_KEY" };
  const entry = entryOf("openai-batch", { ...fields, ...changes });
  const deps = depsWith({ JOBS_KEY: key }, impatient);
  return closing(asJobProvider(entry, createOpenaiBatchAdapter(entry, deps), deps));
}

const batch = (status: string, more: object = {}) => ({
  id: "batch_1",
  object: "batch",
  status,
  input_file_id: "file-in",
  created_at: 1_893_456_000,
  metadata: { imgbatch_job: "our-id" },
  ...more,
});

describe("OpenAI's batch jobs", () => {
  it("get their input as a file of lines, and are created with our id for one address", async () => {
    const server = await scriptedServer();
    server.reply = byPath([
      ["POST /v1/files", json({ id: "file-in" })],
      ["POST /v1/batches", json(batch("validating"))],
    ]);
    const provider = connect(server.url, { extra: { quality: "medium" } });
    const request = imageRequest({ model: "gpt-image-2" });
    const options = { ...request.options, quality: "high", background: "opaque" } as const;
    const lines = [
      { key: "a", request },
      { key: "b", request: { ...request, references: [reference(PNG)], mask: reference(JPEG) } },
      { key: "c", request: { ...request, options } },
    ];
    expect(await provider.upload("our-id", lines, never)).toBe("file-in");
    const job = { jobId: "our-id", model: "gpt-image-2", input: "file-in" };
    expect(await provider.create({ ...job, hasReferences: false }, never)).toBe("batch_1");
    expect(await provider.create({ ...job, hasReferences: true }, never)).toBe("batch_1");
    const [upload, create, edits] = server.seen;
    expect(upload?.headers).toMatchObject({
      authorization: `Bearer ${KEY}`,
      "content-length": String(upload?.body.length),
    });
    expect(upload?.text).toContain('name="purpose"\r\n\r\nbatch\r\n');
    expect(upload?.text).toContain('name="expires_after[anchor]"\r\n\r\ncreated_at\r\n');
    expect(upload?.text).toContain('name="expires_after[seconds]"\r\n\r\n259200\r\n');
    const texts =
      (upload?.text ?? "")
        .split(/\r\n\r\n/)
        .at(-1)
        ?.split("\n") ?? [];
    const body = { model: "gpt-image-2", prompt: "a red fox", size: "2528x1696", quality: "medium" };
    expect(JSON.parse(texts[0] ?? "")).toMatchObject({
      custom_id: "a",
      method: "POST",
      url: "/v1/images/generations",
      body,
    });
    const images = [{ image_url: `data:image/png;base64,${PNG.toString("base64")}` }];
    const mask = { image_url: expect.stringContaining(JPEG.toString("base64")) };
    expect(JSON.parse(texts[1] ?? "")).toMatchObject({
      url: "/v1/images/edits",
      body: { ...body, images, mask },
    });
    expect(JSON.parse(texts[2] ?? "").body).toMatchObject({ quality: "high", background: "opaque" });
    expect(JSON.parse(create?.text ?? "")).toEqual({
      input_file_id: "file-in",
      endpoint: "/v1/images/generations",
      completion_window: "24h",
      metadata: { imgbatch_job: "our-id" },
    });
    expect(JSON.parse(edits?.text ?? "")).toMatchObject({ endpoint: "/v1/images/edits" });
  });

  it.each([
    ["validating", "running"],
    ["in_progress", "running"],
    ["finalizing", "running"],
    ["cancelling", "running"],
    ["completed", "succeeded"],
    ["failed", "failed"],
    ["expired", "expired"],
    ["cancelled", "cancelled"],
  ] as const)("show their state: %s", async (status, state) => {
    const errors = { object: "list", data: [{ code: "x", message: `why ${KEY}` }] };
    const server = await scriptedServer(json(batch(status, state === "running" ? {} : { errors })));
    const job = await connect(server.url).poll("batch_1", never);
    expect(job).toMatchObject({ name: "batch_1", jobId: "our-id", input: "file-in", state });
    expect(job.said).not.toContain(KEY);
    if (state === "failed") expect(job.said).toContain("why");
  });

  it("are listed page by page", async () => {
    const server = await scriptedServer();
    const [data, other] = [[batch("failed")], [{ ...batch("failed"), id: "batch_0", metadata: null }]];
    server.reply = byPath([
      ["GET /v1/batches?limit=100&after=batch_1", json({ object: "list", data: other, has_more: false })],
      ["GET /v1/batches?limit=100", json({ object: "list", data, has_more: true, last_id: "batch_1" })],
    ]);
    const shown: (string | null)[] = [];
    for await (const job of connect(server.url).list(never)) shown.push(job.name, job.jobId);
    expect(shown).toEqual(["batch_1", "our-id", "batch_0", null]);
  });

  it("[JOB-10] that were not run for a limit or for money say so, and may be created again", async () => {
    const failed = (code: string, more: object = {}) =>
      batch("failed", { errors: { data: [{ code, message: "words" }] }, ...more });
    const seen = async (shown: object) => {
      const server = await scriptedServer(json(shown));
      const { refusal } = await connect(server.url).poll("batch_1", never);
      return refusal?.trouble ?? null;
    };
    expect(await seen(failed("token_limit_exceeded"))).toBe("limited");
    expect(await seen(failed("billing_hard_limit_reached"))).toBe("billing");
    expect(await seen(failed("invalid_json_line"))).toBeNull();
    const counts = { total: 2, completed: 1, failed: 1 };
    expect(await seen(failed("token_limit_exceeded", { request_counts: counts }))).toBeNull();
  });

  it("give results and errors from both files, each for its key", async () => {
    const server = await scriptedServer();
    const line = (value: object) => `${JSON.stringify(value)}\n`;
    const image = { created: 1, data: [{ b64_json: PNG.toString("base64") }] };
    const refusal = {
      error: { code: "moderation_blocked", message: "no", type: "image_generation_user_error" },
    };
    server.reply = byPath([
      [
        "GET /v1/files/file-out/content",
        bytes(
          line({ custom_id: "a", response: { status_code: 200, body: image }, error: null }) +
            line({ id: "x" }),
        ),
      ],
      [
        "GET /v1/files/file-err/content",
        bytes(
          line({ custom_id: "b", response: { status_code: 400, body: refusal }, error: null }) +
            line({ custom_id: "c", response: null, error: { code: "batch_expired", message: "too late" } }),
        ),
      ],
      [
        "GET /v1/batches/batch_1",
        json(
          batch("expired", {
            output_file_id: "file-out",
            error_file_id: "file-err",
            request_counts: { total: 6, completed: 2, failed: 4 },
          }),
        ),
      ],
    ]);
    const shown: unknown[] = [];
    for await (const result of connect(server.url).results(
      "batch_1",
      "image-model",
      never,
    ) as AsyncIterable<JobResult>)
      shown.push(
        "key" in result
          ? [result.key, "error" in result ? result.error.code : "made"]
          : Object.keys(result)[0],
      );
    expect(shown).toEqual([
      ["a", "made"],
      "unreadable",
      ["b", "SAFETY_BLOCKED"],
      ["c", "RESULT_MISSING"],
      "endsEarly",
    ]);
  });

  it("[UPSTREAM-5] whose creation has no readable answer may exist", async () => {
    const server = await scriptedServer(json({ object: "batch" }));
    const job = { jobId: "our-id", model: "m", input: "file-in", hasReferences: false };
    expect(await providerError(connect(server.url).create(job, never))).toMatchObject({
      trouble: "ambiguous",
    });
  });
});
