import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { ReferenceImage } from "../../src/domain/ports/image-provider.ts";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { createInline, endedJob, inlinedOf } from "../support/jobs.ts";
import { createOf, ended, line, resultsOf } from "../support/openai-batches.ts";
import { requestText } from "../support/raw-http.ts";
import { answerOf, content, generate, imagePart, refusalOf } from "../support/realtime.ts";
import { MODEL, openBeside, startTestService, type TestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

/** A picture of about 1.1 MB that nothing makes smaller. */
function noise(): Promise<Buffer> {
  const raw = { width: 600, height: 600, channels: 3 as const };
  return sharp(randomBytes(600 * 600 * 3), { raw })
    .png({ compressionLevel: 0 })
    .toBuffer();
}

const referring = (...images: Buffer[]) => ({
  prompt: "a fox",
  reference_images: images.map((bytes) => ({ mime_type: "image/png", data: bytes.toString("base64") })),
});

const hashes = (images: readonly Buffer[]) => images.map((bytes) => sha256Hex(bytes));
const hashesOf = async (references: readonly ReferenceImage[]) =>
  hashes(await Promise.all(references.map((reference) => reference.read())));

const drafts = async ({ data }: TestService) => readdir(join(data, "blobs", "drafts")).catch(() => []);

describe("bodies and lines", () => {
  const long = "x".repeat(65 * 1024);
  const name = { [`${"n".repeat(300)}`]: 1 };
  const fields = Object.fromEntries(Array.from({ length: 10_001 }, (_, i) => [`f${i}`, i]));
  const items = [{ prompt: "a fox" }];
  const create = "/v1/images/batches";
  const native = `/v1beta/models/${MODEL}:generateContent`;
  const inline = (request: object) => ({ batch: { input_config: { requests: { requests: [request] } } } });
  it.each<[path: string, body: object, code: string, param: string]>([
    [create, { model: long, items }, "BATCH_IMAGE_INVALID_MODEL", "model"],
    [
      create,
      { model: MODEL, items: [{ prompt: "a", custom_id: long }] },
      "BATCH_IMAGE_INVALID_ITEMS",
      "items[0].custom_id",
    ],
    [
      create,
      { model: MODEL, items: [referringTo(long)] },
      "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
      "items[0].reference_images[0].storage_uri",
    ],
    [
      create,
      { model: MODEL, items, extra: { deep: [name] } },
      "BATCH_IMAGE_INVALID_ITEMS",
      `extra.deep[0].${"n".repeat(40)}…`,
    ],
    [create, { model: MODEL, items, extra: fields }, "BATCH_IMAGE_INVALID_ITEMS", "extra.f9996"],
    [
      native,
      { ...content("a"), generationConfig: { responseMimeType: long } },
      "INVALID_ARGUMENT",
      "generationConfig.responseMimeType",
    ],
    [native, { ...content("a"), ...name }, "INVALID_ARGUMENT", `${"n".repeat(40)}…`],
    [
      `/v1beta/models/${MODEL}:batchGenerateContent`,
      inline({ request: content("a"), metadata: { key: "k".repeat(5000) } }),
      "INVALID_ARGUMENT",
      "batch.inputConfig.requests.requests[0].metadata",
    ],
    ["/v1/images/generations", { prompt: "a", size: long }, "REALTIME_INVALID_ARGUMENT", "size"],
    [
      "/v1/images/edits",
      { prompt: "a", images: Array(10_001).fill(1) },
      "REALTIME_INVALID_ARGUMENT",
      "images[9999]",
    ],
    ["/v1/batches", { input_file_id: long }, "REALTIME_INVALID_ARGUMENT", "input_file_id"],
  ])(
    "to %s with too much in one field are refused as other errors of it are (%#)",
    async (path, body, code, param) => {
      const service = await startTestService({ workers: false });
      const headers = {
        authorization: `Bearer ${service.credentials.api_key}`,
        "content-type": "application/json",
      };
      // The same as a large body, which is read while it arrives.
      for (const pad of ["", "狐".repeat(500_000)]) {
        const sent = JSON.stringify({ ...body, pad });
        const answer = await fetch(service.url + path, { method: "POST", headers, body: sent });
        const text = await answer.text();
        const { error } = JSON.parse(text);
        expect([answer.status, text.length < 1000]).toEqual([400, true]);
        expect([error.code, error.status]).toContain(code);
        expect([error.param, error.details?.[0].fieldViolations[0].field]).toContain(param);
      }
    },
  );

  it("of the most that the other limits allow are taken, with unknown fields of any size", async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    const data = (await tinyPng()).toString("base64");
    const reference = { id: "狐".repeat(80), type: "t".repeat(40), mime_type: "image/png", data };
    const full = Array.from({ length: 200 }, (_, i) => ({
      custom_id: `${i}-${"狐".repeat(120)}`,
      prompt: `${i} ${"🦊".repeat(7990)}`,
      output_count: 1,
      reference_images: Array(5).fill(reference),
      note: "n".repeat(20_000),
    }));
    const metadata = Object.fromEntries(
      Array.from({ length: 20 }, (_, i) => [`${i}`.padEnd(63, "狐"), "🦊".repeat(256)]),
    );
    const model = "vendorx-3-pro-image";
    const batch = await service.submit({ model, items: full, metadata, task_name: "狐".repeat(1000) });
    expect([batch.item_count, batch.metadata]).toEqual([200, metadata]);
  });

  it("of a job: a line with too much in it fails alone", async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    const lines = [
      line("a", "x", { pad: "狐".repeat(500_000) }),
      line("k".repeat(513), "x"),
      line("b", "x".repeat(2_000_000)),
      line("c", "x", { size: long }),
      line("k".repeat(512), "x", name),
    ];
    const batch = await ended(service, await createOf(service, lines));
    const errors = await resultsOf(service, batch.error_file_id);
    const problems = errors.map(({ custom_id: id, response }) => [
      id,
      response?.body.error?.message.slice(0, 60),
    ]);
    expect(problems).toEqual([
      [null, "line 2: The name of the line has more than 512 characters."],
      ["b", "line 3: prompt: has more than the 8000 characters that are a"],
      ["c", "line 4: body.size: is too long: a text that is no prompt and"],
      ["k".repeat(512), `line 5: body.${"n".repeat(40)}…: the `],
    ]);
    expect(batch.request_counts).toEqual({ total: 5, completed: 1, failed: 4 });
  });
});

const referringTo = (storage_uri: string) => ({
  prompt: "a fox",
  reference_images: [{ mime_type: "image/png", storage_uri }],
});

describe("large images", () => {
  it("of a job whose requests come with it are kept in their lines, and make the job large only on the disk", async () => {
    const provider = new FakeProvider();
    const inputs: string[][] = [];
    provider.answer = async ({ references }) => {
      inputs.push(await hashesOf(references));
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const [one, two, small] = [await noise(), await noise(), await tinyPng()];
    const wrong = { inlineData: { mimeType: "image/png", data: `${"A".repeat(100_000)}@` } };
    const job = await createInline(service, [
      {
        request: content("a fox", {}, [imagePart(one), imagePart(small), imagePart(two)]),
        metadata: { key: "1" },
      },
      { request: content("an owl", {}, [wrong]), metadata: { key: "2" } },
    ]);
    const [good, bad] = inlinedOf(await endedJob(service, job));
    expect([good?.metadata, inputs]).toEqual([{ key: "1" }, [hashes([one, small, two])]]);
    expect(bad).toMatchObject({
      metadata: { key: "2" },
      error: { message: expect.stringContaining("must be Base64") },
    });
    expect(await drafts(service)).toEqual([]);
  });

  it("of a batch come to the provider as they were sent, stored once when they are equal", async () => {
    const provider = new FakeProvider({ concurrency: 1 });
    const service = await startTestService({ providers: [provider] });
    const [one, two, small] = [await noise(), await noise(), await tinyPng()];
    const items = [referring(one, small), referring(two, one), referring(small)];
    const batch = await service.submit({ model: MODEL, items }, { "idempotency-key": "k" });
    await service.until(batch.id);
    const given = provider.requests.map(({ references }) => hashesOf(references));
    expect(await Promise.all(given)).toEqual([[one, small], [two, one], [small]].map(hashes));
    const keys = [one, two, small].map((bytes) => `inputs/${batch.id}/${sha256Hex(bytes)}`);
    const { blobs } = await openBeside(service.data);
    expect((await blobs.list("inputs/")).map(({ key }) => key).sort()).toEqual(keys.sort());
    await service.expectBooks();
    expect(await drafts(service)).toEqual([]);

    const again = await service.create({ model: MODEL, items }, { "idempotency-key": "k" });
    expect([again.headers.get("idempotency-replayed"), await again.json()]).toMatchObject([
      "true",
      { id: batch.id },
    ]);
    expect(await drafts(service)).toEqual([]);
    expect(await blobs.list("inputs/")).toHaveLength(3);
  });

  it("that are refused are named as others are, and leave nothing", async () => {
    const service = await startTestService({ workers: false });
    const image = await noise();
    const cut = image.subarray(0, image.length - 100_000);
    const [whole, broken] = [referring(image), referring(image, cut)];
    const text = referring(image).reference_images[0]?.data ?? "";
    const withData = (data: string) => ({
      ...whole,
      reference_images: [{ mime_type: "image/png", data }],
    });
    const refusals = [
      [[whole, broken], "BATCH_IMAGE_INVALID_REFERENCE_IMAGE", "items[1].reference_images[1].data"],
      [
        [whole, withData(`${text.slice(0, -1)}@`)],
        "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
        "items[1].reference_images[0].data",
      ],
      [
        [withData("A".repeat(14_000_000))],
        "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
        "items[0].reference_images[0].data",
      ],
      [[whole, { ...whole, prompt: "" }], "BATCH_IMAGE_INVALID_ITEMS", "items[1].prompt"],
      [[{ ...whole, prompt: text }], "BATCH_IMAGE_PROMPT_TOO_LONG", "items[0].prompt"],
      [
        [referring(image, image, image, image)],
        "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES",
        "items[0].reference_images",
      ],
    ] as const;
    for (const [items, code, param] of refusals) {
      const answer = await service.create({ model: MODEL, items });
      expect([answer.status, await answer.json()]).toMatchObject([400, { error: { code, param } }]);
      expect(await drafts(service)).toEqual([]);
    }
    const body = JSON.stringify({ model: MODEL, items: [whole] });
    const headers = { "content-type": "application/json" };
    for (const wrong of [body.slice(0, -1), body.slice(0, 800_000), body.replace("AAAA", "AA\nA")]) {
      const answer = await service.ask("", { method: "POST", headers, body: wrong });
      expect([answer.status, await answer.json()]).toMatchObject([400, { error: { code: "INVALID_JSON" } }]);
    }
    const config = { limits: { createBodyBytes: 1_200_000 } };
    const strict = await startTestService({ workers: false, config });
    const stream = { method: "POST", headers, body: new Blob([body]).stream(), duplex: "half" };
    const tooLarge = await strict.ask("", stream as RequestInit);
    expect([tooLarge.status, await tooLarge.json()]).toMatchObject([
      413,
      { error: { code: "REQUEST_TOO_LARGE" } },
    ]);
    for (const each of [service, strict]) {
      expect(await drafts(each)).toEqual([]);
      expect(await (await openBeside(each.data)).stores.read.batches.all()).toEqual([]);
      expect(existsSync(join(each.data, "blobs", "inputs"))).toBe(false);
    }
  });

  it("are removed when their sender goes away, and by a start after a kill", async () => {
    const data = await tempDir();
    await mkdir(join(data, "blobs", "drafts"), { recursive: true });
    await writeFile(join(data, "blobs", "drafts", "left"), "by an earlier process");
    const logLines: string[] = [];
    const service = await startTestService({ data, workers: false, logLines });
    expect(await drafts(service)).toEqual([]);
    const text = `{"model":"${MODEL}","items":[{"prompt":"a","reference_images":[{"data":"`;
    const headers = [
      ["Authorization", `Bearer ${service.credentials.api_key}`],
      ["Content-Length", "100000000"],
    ] as const;
    const socket = connect(Number(new URL(service.url).port), "127.0.0.1");
    socket.on("error", () => {});
    socket.write(requestText("POST", "/v1/images/batches", headers, text + "QUJD".repeat(1_000_000)));
    await expect.poll(() => drafts(service)).toHaveLength(1);
    socket.destroy();
    await expect.poll(() => drafts(service)).toEqual([]);
    // All of it has arrived, and most of it waits to be read.
    const whole = Buffer.from(`${text}${"QUJD".repeat(500_000)}`);
    const sized = [headers[0], ["Content-Length", String(whole.length)]] as const;
    for (let i = 0; i < 5; i++) {
      const other = connect(Number(new URL(service.url).port), "127.0.0.1");
      other.on("error", () => {});
      await new Promise((resolve) =>
        other.write(requestText("POST", "/v1/images/batches", sized, whole), resolve),
      );
      other.destroy();
    }
    const aborted = () => logLines.filter((line) => line.includes('"aborted":true'));
    await expect.poll(aborted).toHaveLength(6);
    expect(logLines.join("\n")).not.toContain("unexpected error");
    await expect.poll(() => drafts(service)).toEqual([]);
  });

  it("of a real-time request are read when the provider works, and gone after it", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ workers: false, providers: [provider] });
    const [one, two] = [await noise(), await noise()];
    const seen: string[][] = [];
    const end = gate();
    provider.answer = async ({ references }) => {
      seen.push(await hashesOf(references));
      await end.promise;
      return made(await tinyPng());
    };
    const parts = [
      { inlineData: { mimeType: "image/png", data: one.toString("base64url") } },
      { inline_data: { mime_type: "image/png", data: two.toString("base64") } },
    ];
    const work = generate(service, content("a fox", {}, parts));
    await expect.poll(() => seen).toHaveLength(1);
    expect(await drafts(service)).toHaveLength(2);
    end.open();
    expect((await answerOf(await work)).candidates).toHaveLength(1);
    expect(seen).toEqual([hashes([one, two])]);
    await expect.poll(() => drafts(service)).toEqual([]);

    const broken = { inlineData: { mimeType: "image/png", data: `${one.toString("base64")}%` } };
    const refused = await generate(service, content("a fox", {}, [...parts, broken]));
    expect(await refusalOf(refused)).toEqual([
      400,
      "INVALID_ARGUMENT",
      "contents[0].parts[3].inlineData.data",
    ]);
    expect(await drafts(service)).toEqual([]);
  });
});
