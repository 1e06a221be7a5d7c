import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import type { errorBody } from "../../src/contract/errors.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";

const codeOf = async (answer: Response) => ((await answer.json()) as ReturnType<typeof errorBody>).error.code;
/** Reads the answer to its end: an unread one keeps its connection. */
const statusOf = async (answer: Response) => {
  await answer.arrayBuffer();
  return answer.status;
};
const withLimits = (limits: object) => ({ workers: false, config: { limits } });
const reference = async () => ({ mime_type: "image/png", data: (await tinyPng()).toString("base64") });
const referring = async (count: number, outputs = 1) => ({
  prompt: "a",
  output_count: outputs,
  reference_images: Array(count).fill(await reference()),
});

describe("limits", () => {
  it.each([
    ["itemsPerBatch", 2, { items: items(2) }, { items: items(3) }, "BATCH_IMAGE_INVALID_ITEMS"],
    [
      "outputImagesPerBatch",
      3,
      { items: [{ prompt: "a", output_count: 3 }] },
      { items: [{ prompt: "a", output_count: 4 }] },
      "BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES",
    ],
    [
      "outputCountPerItem",
      2,
      { items: [{ prompt: "a", output_count: 2 }] },
      { items: [{ prompt: "a", output_count: 3 }] },
      "BATCH_IMAGE_INVALID_ITEMS",
    ],
    [
      "promptChars",
      3,
      { items: [{ prompt: " 🦊🦊🦊 " }] },
      { items: [{ prompt: "abcd" }] },
      "BATCH_IMAGE_PROMPT_TOO_LONG",
    ],
  ])("[LIMIT-2] %s set to %i takes that much and refuses more", async (name, value, fits, exceeds, code) => {
    const service = await startTestService(withLimits({ [name]: value }));
    expect(await codeOf(await service.create({ model: MODEL, ...fits }))).toBe("BATCH_IMAGE_QUEUE_FAILED");
    expect(await codeOf(await service.create({ model: MODEL, ...exceeds }))).toBe(code);
  });

  it.each([
    ["vendorx-3.1-flash-image", 3],
    ["vendorx-3.1-flash-lite-image", 3],
    ["vendorx-3-pro-image-preview", 14],
    ["plain", 0],
    ["generous", 5],
  ])("an item for %s takes %i reference images", async (model, count) => {
    const prices = { "1K": 1 };
    const models = ["vendorx-3.1-flash-image", "vendorx-3.1-flash-lite-image", "vendorx-3-pro-image-preview"]
      .map((id) => ({ id, prices }) as object)
      .concat([
        { id: "plain", prices },
        { id: "generous", prices, maxReferenceImages: 5 },
      ]);
    const service = await startTestService({ workers: false, config: { models } });
    const fits = { model, items: [await referring(count)] };
    expect(await codeOf(await service.create(fits))).toBe("BATCH_IMAGE_QUEUE_FAILED");
    const exceeds = await service.create({ model, items: [await referring(count + 1)] });
    const { error } = (await exceeds.json()) as ReturnType<typeof errorBody>;
    expect(error.code).toBe("BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES");
    expect(error.message.includes("`maxReferenceImages`")).toBe(model === "plain");
  });

  it("reference images are limited one by one, together, and in number after expansion", async () => {
    const size = (await tinyPng()).length;
    const codes = async (limits: object, ...bodies: object[][]) => {
      const service = await startTestService(withLimits(limits));
      return Promise.all(
        bodies.map(async (list) => codeOf(await service.create({ model: MODEL, items: list }))),
      );
    };
    const [one, two] = [[await referring(1)], [await referring(2)]];
    expect(await codes({ referenceImageBytes: size }, one)).toEqual(["BATCH_IMAGE_QUEUE_FAILED"]);
    expect(await codes({ referenceImageBytes: size - 1 }, one)).toEqual([
      "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
    ]);
    expect(await codes({ referenceBytesPerBatch: 2 * size - 1 }, one, two)).toEqual([
      "BATCH_IMAGE_QUEUE_FAILED",
      "BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE",
    ]);
    const expanded = [[await referring(2, 2)], [await referring(2, 3)]];
    expect(await codes({ referenceImagesPerBatch: 4 }, ...expanded)).toEqual([
      "BATCH_IMAGE_QUEUE_FAILED",
      "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES",
    ]);
  });

  it("a ZIP above the byte limit is refused", async () => {
    const service = await startTestService({ config: { limits: { zipBytes: 100 } } });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await service.until(id);
    const answer = await service.ask(`/${id}/download`);
    expect([answer.status, await codeOf(answer)]).toEqual([400, "BATCH_IMAGE_DOWNLOAD_TOO_LARGE"]);
    expect(await statusOf(await service.ask(`/${id}/download?status=failed`))).toBe(200);
  });

  it("a key has a limited number of downloads at once; headers and unchanged files do not count", async () => {
    const provider = new FakeProvider();
    const large = await noisyPng();
    provider.answer = async () => made(large);
    const config = { limits: { downloadsPerKey: 1 } };
    const service = await startTestService({ providers: [provider], config });
    const { id } = await service.submit({ model: MODEL, items: items(4) });
    await service.until(id);
    const path = `/v1/images/batches/${id}/download`;
    const reader = await slowReader(service.url, path, service.credentials.api_key);
    const refused = await service.ask(`/${id}/items/i1/content`);
    expect([refused.status, await codeOf(refused)]).toEqual([429, "BATCH_IMAGE_DOWNLOAD_LIMITED"]);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    const head = await service.ask(`/${id}/items/i1/content`, { method: "HEAD" });
    expect(head.status).toBe(200);
    const etag = head.headers.get("etag") ?? "";
    const same = await service.ask(`/${id}/items/i1/content`, { headers: { "if-none-match": etag } });
    expect(same.status).toBe(304);
    const converted = `/${id}/items/i1/content?mime_type=image/webp`;
    for (const headers of [{ range: "bytes=0-3" }, { "if-none-match": etag }])
      expect(await statusOf(await service.ask(converted, { headers }))).toBe(429);
    expect(await statusOf(await service.ask(converted, { method: "HEAD" }))).toBe(429);
    reader.destroy();
    await expect.poll(async () => statusOf(await service.ask(`/${id}/items/i1/content`))).toBe(200);
    const { stores } = await openBeside(service.data);
    expect((await stores.read.batches.byId(id))?.downloadedAtMs).toBeNull();
  });
});

/** A PNG of some megabytes, more than any buffer between two processes takes. */
async function noisyPng(): Promise<Buffer> {
  const { default: sharp } = await import("sharp");
  const noise = { type: "gaussian" as const, mean: 128, sigma: 60 };
  const create = { width: 1600, height: 1600, channels: 3 as const, noise, background: "#000" };
  return sharp({ create }).png({ compressionLevel: 0 }).toBuffer();
}

/** A client that has asked for a download, has seen its first bytes, and reads no more. */
function slowReader(url: string, path: string, key: string): Promise<{ destroy(): void }> {
  const { port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), "127.0.0.1", () => {
      socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    });
    socket.once("data", () => {
      socket.pause();
      resolve(socket);
    });
    socket.once("error", reject);
  });
}
