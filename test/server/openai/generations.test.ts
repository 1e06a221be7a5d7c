import { join } from "node:path";
import Sqlite from "better-sqlite3";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, FakeUpstream, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { errorOf, eventsOf, generate, imagesOf, refusalOf, shapesOf } from "../../support/openai-images.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

const drawings = () =>
  createProceduralProvider({ name: "procedural", concurrency: 4, models: () => true, clock: systemClock });
const PRICE = 67_000;

async function moneyOf(data: string) {
  const { stores, blobs } = await openBeside(data);
  return {
    moves: async () => {
      const moves = (await stores.read.ledger.list({})).map((move) => `${move.kind} ${move.amountMicroUsd}`);
      return moves.slice(1);
    },
    usage: async () => (await stores.read.usage.list()).map((record) => record.amountMicroUsd),
    problems: async () => (await checkInvariants(stores, blobs)).problems,
  };
}

describe("the size of an image", () => {
  it("[OAI-1] comes out in exactly the pixels that were asked for", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ pixels: { widthPx: width, heightPx: height } }) =>
      made(
        await sharp({ create: { width, height, channels: 3, background: "#345" } })
          .png()
          .toBuffer(),
      );
    const service = await startTestService({ workers: false, providers: [provider] });
    for (const [size, real] of [
      ["auto", "1024x1024"],
      ["1024x1024", "1024x1024"],
      ["1536x1024", "1536x1024"],
      ["1024X1792", "1024x1792"],
      ["2048x2048", "2048x2048"],
      ["3840x2160", "3840x2160"],
      ["1600x1008", "1600x1008"],
      ["dall-e-2 256x256", "256x256"],
      ["gpt-image-1.5 1024x1536", "1024x1536"],
    ]) {
      const [name, model] = (size ?? "").split(" ").reverse();
      const asked = { prompt: "a fox", size: name, ...(model === undefined ? {} : { model }) };
      const { bytes, ...images } = await imagesOf(await generate(service, asked));
      expect([size, images.size, await shapesOf(bytes)]).toEqual([size, real, [`${real} png`]]);
    }
  });

  it("[OAI-1] is refused with what the named model takes when it cannot be made exactly", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    for (const [model, size, nearest] of [
      [undefined, "17x3", ""],
      [undefined, "100000x1", ""],
      [undefined, "1792x936", "1792x944"],
      [undefined, "256x256", ""],
      [undefined, "4096x4096", "2048x2048"],
      ["gpt-image-1.5", "1792x1024", "1536x1024"],
      ["dall-e-3", "1536x1025", "1536x1024"],
      ["gpt-image-2", "1024x1025", "1024x1024"],
    ] as const) {
      const answer = await generate(service, {
        prompt: "x",
        size,
        ...(model === undefined ? {} : { model }),
      });
      const [status, code, param] = await refusalOf(answer.clone());
      expect([size, status, code, param]).toEqual([size, 400, "REALTIME_INVALID_ARGUMENT", "size"]);
      const { error } = (await answer.json()) as { error: { message: string } };
      expect(error.message).toContain(nearest);
    }
  });

  it("[OAI-1] is that of OpenAI's own models where they are served", async () => {
    const config = { vendor: { preset: "openai" } };
    const service = await startTestService({ workers: false, providers: [drawings()], config });
    const asked = { prompt: "x", model: "gpt-image-2", size: "1600x1008", quality: "high" };
    expect(await imagesOf(await generate(service, asked))).toMatchObject({
      size: "1600x1008",
      quality: "high",
    });
    const wrong = { prompt: "x", model: "gpt-image-1.5", size: "1792x1024" };
    expect(await refusalOf(await generate(service, wrong))).toEqual([
      400,
      "REALTIME_INVALID_ARGUMENT",
      "size",
    ]);
    const headers = { authorization: `Bearer ${service.credentials.api_key}` };
    const { data } = await (await fetch(`${service.url}/v1/models`, { headers })).json();
    expect(data[0].id).toBe("gpt-image-2");
  });

  it("[OAI-1] costs as much as the nearest size of the model", async () => {
    const models = [{ id: MODEL, sizes: ["512", "2K"], prices: { "512": 0.01, "2K": 0.1 } }];
    const service = await startTestService({ workers: false, providers: [drawings()], config: { models } });
    const sizeFor = async (size: string) =>
      (await imagesOf(await generate(service, { prompt: "x", size }))).size;
    expect(await sizeFor("1200x1200")).toBe("1200x1200");
    expect(await sizeFor("2048x1024")).toBe("2048x1024");
    const { stores } = await openBeside(service.data);
    const captured = (await stores.read.ledger.list({})).filter(({ kind }) => kind === "capture");
    expect(captured.map(({ amountMicroUsd }) => amountMicroUsd)).toEqual([100_000, 100_000]);
    expect(await sizeFor("auto")).toBe("512x512");
  });
});

describe("several images", () => {
  it("are made at the same time, each another one, with one hold", async () => {
    const provider = new FakeProvider({ concurrency: 3 });
    const all = gate();
    provider.answer = async ({ outputIndex }) => {
      if (provider.running === 3) all.open();
      await all.promise;
      return made(await tinyPng(outputIndex));
    };
    const service = await startTestService({ workers: false, providers: [provider] });
    const { bytes } = await imagesOf(await generate(service, { prompt: "x", n: 3 }));
    expect(bytes).toEqual([await tinyPng(0), await tinyPng(1), await tinyPng(2)]);
    expect(new Set(provider.requests.map(({ seed }) => seed)).size).toBe(3);
    const money = await moneyOf(service.data);
    expect(await money.moves()).toEqual([`hold ${3 * PRICE}`, `capture ${3 * PRICE}`]);
    expect(await money.usage()).toEqual([PRICE, PRICE, PRICE]);
    expect(await money.problems()).toEqual([]);
  });

  it("are returned and paid for as far as they were made", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ outputIndex }) => {
      if (outputIndex === 0)
        throw new ProviderError("PROVIDER_ITEM_FAILED", "no luck", { upstreamStatus: 500 });
      return outputIndex === 1 ? made() : made(await tinyPng(outputIndex), await tinyPng(9));
    };
    const service = await startTestService({ workers: false, providers: [provider] });
    const { bytes, usage } = await imagesOf(await generate(service, { prompt: "x", n: 4 }));
    expect(bytes).toEqual([await tinyPng(2), await tinyPng(3)]);
    expect(usage).toMatchObject({ output_tokens: 2240, output_tokens_details: { image_tokens: 2240 } });
    const money = await moneyOf(service.data);
    expect(await money.moves()).toEqual([
      `hold ${4 * PRICE}`,
      `capture ${2 * PRICE}`,
      `release ${2 * PRICE}`,
    ]);
    expect(await money.usage()).toEqual([PRICE, 0, PRICE, 0]);
    expect(await money.problems()).toEqual([]);
  });

  it("are an error only when none was made, that of the first, and cost nothing", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ outputIndex }) => {
      if (outputIndex === 0) throw new ProviderError("SAFETY_BLOCKED", "the prompt was refused", {});
      throw new ProviderError("PROVIDER_ITEM_FAILED", "no luck", { upstreamStatus: 500 });
    };
    const service = await startTestService({ workers: false, providers: [provider] });
    expect(await refusalOf(await generate(service, { prompt: "x", n: 2 }))).toEqual([
      400,
      "moderation_blocked",
      null,
    ]);
    const money = await moneyOf(service.data);
    expect(await money.moves()).toEqual([`hold ${2 * PRICE}`, `release ${2 * PRICE}`]);
    expect(await money.problems()).toEqual([]);
  });

  it("are returned and paid for when another one cannot be brought into its format", async () => {
    // WebP has no images with more than 16383 pixels a side.
    const long = { create: { width: 16_384, height: 1, channels: 3, background: "#000000" } } as const;
    const tooLong = await sharp(long).png().toBuffer();
    const provider = new FakeProvider();
    provider.answer = async ({ outputIndex }) =>
      made(outputIndex === 0 ? tooLong : await tinyPng(outputIndex));
    const service = await startTestService({ workers: false, providers: [provider] });
    const fields = { prompt: "x", output_format: "webp" };
    const { bytes, usage } = await imagesOf(await generate(service, { ...fields, n: 2 }));
    expect(await shapesOf(bytes)).toEqual(["8x8 webp"]);
    expect(usage).toMatchObject({ output_tokens: 1120 });
    const money = await moneyOf(service.data);
    expect(await money.moves()).toEqual([`hold ${2 * PRICE}`, `capture ${PRICE}`, `release ${PRICE}`]);
    expect(await money.usage()).toEqual([PRICE]);
    expect((await generate(service, fields)).status).toBe(500);
    await expect
      .poll(async () => (await money.moves()).slice(3))
      .toEqual([`hold ${PRICE}`, `release ${PRICE}`]);
    const { stores } = await openBeside(service.data);
    expect(await stores.read.providerCalls.list({})).toMatchObject([
      { requests: 3, images: 3, billedMicroUsd: PRICE },
    ]);
    expect(await money.problems()).toEqual([]);
  });

  it("whose answer cannot be stored cost nothing, and count as not billed", async () => {
    const service = await startTestService({ workers: false });
    const database = new Sqlite(join(service.data, "imgbatch.db"));
    database.exec("DROP TABLE linked_images");
    database.close();
    expect((await generate(service, { prompt: "x", n: 2, response_format: "url" })).status).toBe(500);
    const { stores } = await openBeside(service.data);
    await expect
      .poll(() => stores.read.providerCalls.list({}))
      .toMatchObject([{ requests: 2, images: 2, billedMicroUsd: 0 }]);
    expect(await (await moneyOf(service.data)).moves()).toEqual([
      `hold ${2 * PRICE}`,
      `release ${2 * PRICE}`,
    ]);
  });

  it("are refused when the balance does not pay for all of them", async () => {
    const models = [{ id: MODEL, prices: { "1K": 300 } }];
    const service = await startTestService({ workers: false, config: { models } });
    const answer = await generate(service, { prompt: "x", n: 4 });
    expect(await errorOf(answer)).toMatchObject({
      code: "insufficient_quota",
      message: expect.stringMatching(/^The request costs 1200\.00 in play money/),
    });
    expect((await imagesOf(await generate(service, { prompt: "x", n: 3 }))).data).toHaveLength(3);
  });
});

describe("the format of an image", () => {
  it("is the one asked for, though the provider sends PNG whatever it is asked for", async () => {
    const service = await startTestService({ workers: false });
    for (const output_format of ["png", "jpeg", "webp"]) {
      const images = await imagesOf(await generate(service, { prompt: "x", output_format }));
      expect(images.output_format).toBe(output_format);
      expect(await shapesOf(images.bytes)).toEqual([`8x8 ${output_format}`]);
    }
  });

  it("is compressed as asked, and keeps what the file says of its making", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    const bytesAt = async (output_compression: number | null, output_format = "jpeg") => {
      const fields = { prompt: "a fox", output_format, output_compression };
      return (await imagesOf(await generate(service, fields))).bytes[0] as Buffer;
    };
    const [low, high] = [await bytesAt(0), await bytesAt(95)];
    expect(low.length).toBeLessThan(high.length / 3);
    expect(low.includes("a drawing computed locally")).toBe(true);
    expect((await bytesAt(10, "webp")).length).toBeLessThan((await bytesAt(90, "webp")).length);
    expect(await bytesAt(10, "png")).toEqual(await bytesAt(null, "png"));
  });

  it("shows white in a JPEG where the image is transparent, which a WebP keeps", async () => {
    const clear = { create: { width: 8, height: 8, channels: 4, background: "#00000000" } } as const;
    const provider = new FakeProvider();
    provider.answer = async () => made(await sharp(clear).png().toBuffer());
    const service = await startTestService({ workers: false, providers: [provider] });
    const pixelOf = async (output_format: string) => {
      const { bytes } = await imagesOf(await generate(service, { prompt: "x", output_format }));
      return [...(await sharp(bytes[0]).raw().toBuffer())].slice(0, 4);
    };
    expect((await pixelOf("jpeg")).slice(0, 3)).toEqual([255, 255, 255]);
    expect((await pixelOf("webp"))[3]).toBe(0);
  });
});

describe("a request", () => {
  it("may have null and empty fields, fields without a meaning, and numbers as texts", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ workers: false, providers: [provider] });
    const ignored = {
      quality: "hd",
      background: "transparent",
      style: "vivid",
      moderation: "low",
      user: "u",
    };
    const empty = { size: "", model: null, output_format: null, stream: "false", partial_images: 2 };
    const body = { prompt: " a fox ", n: "2", ...ignored, ...empty, whatever: { deep: [1] } };
    expect((await imagesOf(await generate(service, body))).data).toHaveLength(2);
    expect(provider.requests[0]).toMatchObject({
      prompt: "a fox",
      options: { size: "1K", ratio: "1:1" },
      model: MODEL,
    });
  });

  it("with a wrong field is refused, and the field is named", async () => {
    const service = await startTestService({ workers: false });
    for (const [body, param] of [
      [{}, "prompt"],
      [{ prompt: " " }, "prompt"],
      [{ prompt: "x".repeat(8001) }, "prompt"],
      [{ prompt: "\u0000" }, "prompt"],
      [{ prompt: ["x"] }, "prompt"],
      [{ prompt: "x", n: 0 }, "n"],
      [{ prompt: "x", n: 11 }, "n"],
      [{ prompt: "x", n: 1.5 }, "n"],
      [{ prompt: "x", size: "large" }, "size"],
      [{ prompt: "x", size: "0x10" }, "size"],
      [{ prompt: "x", output_format: "svg" }, "output_format"],
      [{ prompt: "x", output_compression: 101 }, "output_compression"],
      [{ prompt: "x", response_format: "file" }, "response_format"],
      [{ prompt: "x", mask: "m" }, "mask"],
      [["x"], "body"],
    ] as const) {
      const refusal = await refusalOf(await generate(service, body));
      expect([body, ...refusal]).toEqual([body, 400, "REALTIME_INVALID_ARGUMENT", param]);
    }
    expect((await generate(service, { prompt: "x", model: "nope" })).status).toBe(404);
  });

  it("goes by paths with /v1 and without, and needs a key", async () => {
    const service = await startTestService({ workers: false });
    const type = { "content-type": "application/json" };
    const headers = { authorization: `Bearer ${service.credentials.api_key}`, ...type };
    const init = { method: "POST", body: '{"prompt":"x"}', headers: type };
    for (const path of [
      "/v1/images/generations",
      "/images/generations",
      "/images/generations?api-version=1",
    ]) {
      const answer = await fetch(service.url + path, { ...init, headers });
      expect([path, answer.status]).toEqual([path, 200]);
      await answer.arrayBuffer();
      expect(await refusalOf(await fetch(service.url + path, init))).toEqual([401, "API_KEY_REQUIRED", null]);
    }
    const wrong = await fetch(`${service.url}/images/generations`, { ...init, method: "PUT", headers });
    expect([await refusalOf(wrong), wrong.headers.get("allow")]).toEqual([
      [405, "METHOD_NOT_ALLOWED", null],
      "POST",
    ]);
  });
});

describe("a stream", () => {
  it("is an event for each image, with the usage of that image", async () => {
    const service = await startTestService({ workers: false });
    const answer = await generate(service, { prompt: "a fox", stream: true, n: 2 });
    expect(answer.headers.get("content-type")).toBe("text/event-stream");
    const events = eventsOf(await answer.text());
    expect(events.map(({ name, data }) => [name, data.type])).toEqual([
      ["image_generation.completed", "image_generation.completed"],
      ["image_generation.completed", "image_generation.completed"],
    ]);
    expect(events[0]?.data).toMatchObject({
      size: "8x8",
      output_format: "png",
      usage: { output_tokens: 1120 },
    });
    expect(Buffer.from(events[0]?.data.b64_json ?? "", "base64")).toEqual(await tinyPng());
  });

  it("[OAI-13] has as many unfinished pictures of a drawing as are asked for, each sharper than the one before", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    for (const wanted of [0, 1, 3]) {
      const body = { prompt: "a fox", stream: true, size: "1536x1024", partial_images: wanted };
      const events = eventsOf(await (await generate(service, body)).text());
      const images = events.map(({ data }) => Buffer.from(data.b64_json, "base64"));
      expect(events.map(({ data: { type, partial_image_index: index } }) => [type, index])).toEqual([
        ...Array.from({ length: wanted }, (_, i) => ["image_generation.partial_image", i]),
        ["image_generation.completed", undefined],
      ]);
      expect(await shapesOf(images)).toEqual(images.map(() => "1536x1024 png"));
      const last = await sharp(images.at(-1)).raw().toBuffer();
      const distances: number[] = [];
      for (const image of images) {
        const pixels = await sharp(image).raw().toBuffer();
        distances.push(pixels.reduce((sum, value, i) => sum + Math.abs(value - (last[i] ?? 0)), 0));
      }
      expect(distances).toEqual(distances.toSorted((a, b) => b - a));
      expect(new Set(distances).size).toBe(wanted + 1);
    }
    const many = await generate(service, { prompt: "a fox", stream: true, partial_images: 4 });
    expect(await refusalOf(many)).toEqual([400, "REALTIME_INVALID_ARGUMENT", "partial_images"]);
    const alone = await generate(service, { prompt: "a fox", partial_images: 2 });
    expect(alone.headers.get("x-imgbatch-ignored")).toBe("partial_images");
  });

  it("[OAI-13] passes on the unfinished pictures of an upstream of this API, and says when another has none", async () => {
    for (const api of ["openai", "native"] as const) {
      const takes = { maxReferences: 14, ratios: "any", tiers: "any", api } as const;
      const provider = new FakeUpstream("painter", { takes });
      const partials = [await tinyPng(1), Buffer.from("no picture"), await tinyPng(2), await tinyPng(3)];
      provider.answer = async () => ({ ...made(await tinyPng()), ...(api === "openai" && { partials }) });
      const service = await startTestService({ workers: false, providers: [provider] });
      const body = { prompt: "a fox", stream: true, partial_images: 2 };
      const answer = await generate(service, body, { headers: { "x-imgbatch-max-cost": "1" } });
      const images = eventsOf(await answer.text()).map(({ data }) => Buffer.from(data.b64_json, "base64"));
      const passed = api === "openai" ? [partials[0], partials[2]] : [];
      expect(images).toEqual([...passed, await tinyPng()]);
      expect(provider.requests[0]?.partialImages).toBe(2);
      expect(answer.headers.get("x-imgbatch-ignored")).toBe(api === "openai" ? null : "partial_images");
    }
  });

  it("fails as an ordinary answer at first, and as an event after ten seconds", async () => {
    const clock = new FakeClock();
    const [asked, end] = [gate(), gate()];
    const provider = new FakeProvider();
    provider.answer = async () => {
      asked.open();
      await end.promise;
      throw new ProviderError("SAFETY_BLOCKED", "the prompt was refused", {});
    };
    const service = await startTestService({ workers: false, providers: [provider], clock });
    const refused = await generate(service, { prompt: "", stream: true });
    expect(await refusalOf(refused)).toEqual([400, "REALTIME_INVALID_ARGUMENT", "prompt"]);
    const pending = generate(service, { prompt: "x", stream: true });
    await asked.promise;
    await clock.advance(10_000);
    const answer = await pending;
    expect(answer.status).toBe(200);
    end.open();
    const text = await answer.text();
    expect(text).toMatch(/^: /);
    expect(eventsOf(text)).toMatchObject([
      { name: "error", data: { error: { code: "moderation_blocked" } } },
    ]);
  });
});
