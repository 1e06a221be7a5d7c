import sharp from "sharp";
import { expect, it } from "vitest";
import { createSdapiAdapter } from "../../../src/providers/sdapi/provider.ts";
import { closing, entryOf, PNG } from "../../support/upstream-adapter.ts";
import type { RequestChanges } from "../upstream/scripted-server.ts";
import {
  depsWith,
  imageRequest,
  json,
  never,
  providerError,
  type Reply,
  reference,
  scriptedServer,
} from "../upstream/scripted-server.ts";

const BASE64 = PNG.toString("base64");
const made = (info: object = { seed: 1 }) => ({
  images: [BASE64],
  parameters: {},
  info: JSON.stringify(info),
});

/** A server that answers as the test says, and an adapter for it. */
async function sdapi(reply: Reply, fields: object = {}) {
  const server = await scriptedServer(reply);
  const entry = entryOf("sdapi", { baseUrl: server.url, ...fields });
  const adapter = closing(createSdapiAdapter(entry, depsWith()));
  const generate = (changes: RequestChanges = {}, signal: AbortSignal = never, onSent = () => {}) =>
    adapter.generate(imageRequest(changes), signal, onSent);
  const lines = () => server.seen.map(({ method, url }) => `${method} ${url}`);
  /** The body of the first request. */
  const body = () => JSON.parse(server.seen[0]?.text ?? "");
  return { lines, body, adapter, generate };
}

it("[SDAPI-1] txt2img gets prompt, seed and a size in steps of 8, and what the entry adds", async () => {
  const extra = {
    steps: 7,
    negative_prompt: "text",
    prompt: "not this",
    seed: 3,
    width: 8,
    override_settings: { a: 1 },
  };
  const info = { seed: 41, sd_model_name: "dream", sd_model_hash: "abcd12" };
  const { lines, body, generate } = await sdapi(json(made(info)), { extra });
  const size = { widthPx: 1365, heightPx: 771 };
  expect(await generate({ earlier: "a forest", pixels: size, seed: 40 })).toEqual({
    discard: expect.any(Function),
    images: [PNG],
    seed: 41,
    modelVersion: "dream [abcd12]",
    notes: [],
  });
  expect(lines()).toEqual(["POST /sdapi/v1/txt2img"]);
  expect(body()).toEqual({
    batch_size: 1,
    n_iter: 1,
    steps: 7,
    negative_prompt: "text",
    prompt: "a forest\na red fox",
    seed: 40,
    width: 1368,
    height: 768,
    override_settings: { a: 1 },
  });
});

it("the first reference goes to img2img; others are noted", async () => {
  const { lines, body, generate } = await sdapi(json(made()), {
    extra: { denoising_strength: 0.4, init_images: ["x"] },
  });
  const { notes } = await generate({ references: [reference(PNG), reference(PNG)] });
  expect(lines()).toEqual(["POST /sdapi/v1/img2img"]);
  expect(body()).toMatchObject({ init_images: [BASE64], denoising_strength: 0.4 });
  expect(notes).toEqual(["Only the first reference image was used."]);
});

it("[OPT-6] an item's negative prompt wins over that of the entry", async () => {
  const { body, generate } = await sdapi(json(made()), { extra: { negative_prompt: "text" } });
  const options = { seed: 9, negativePrompt: "people" };
  await generate({ options, seed: 9 });
  expect(body()).toMatchObject({ negative_prompt: "people", seed: 9 });
});

it("[OPT-7] a mask is white where it was transparent, and one without transparency is refused", async () => {
  const { lines, body, generate } = await sdapi(json(made()));
  const left = { create: { width: 2, height: 4, channels: 4, background: "#f00f" } } as const;
  const half = { create: { width: 4, height: 4, channels: 4, background: "#0000" } } as const;
  const mask = await sharp(half)
    .composite([{ input: await sharp(left).png().toBuffer(), left: 0, top: 0 }])
    .png()
    .toBuffer();
  await generate({ references: [reference(PNG)], mask: reference(mask) });
  const sent = Buffer.from(body().mask, "base64");
  const { data, info } = await sharp(sent).greyscale().raw().toBuffer({ resolveWithObject: true });
  expect([...data.subarray(0, 4 * info.channels)].filter((_, i) => i % info.channels === 0)).toEqual([
    0, 0, 255, 255,
  ]);
  const plain = await sharp(half).removeAlpha().png().toBuffer();
  const refused = await providerError(generate({ references: [reference(PNG)], mask: reference(plain) }));
  expect(refused).toMatchObject({
    code: "INVALID_ARGUMENT",
    message: expect.stringContaining("transparency"),
  });
  expect(lines()).toHaveLength(1);
});

it("a mapped model chooses the checkpoint; else the server's own is used", async () => {
  const mapped = await sdapi(json(made()), { models: { ours: "dream.safetensors" } });
  await mapped.generate({ model: "dream.safetensors" });
  expect(mapped.body()).toMatchObject({
    override_settings: { sd_model_checkpoint: "dream.safetensors" },
    override_settings_restore_afterwards: false,
  });
  const listed = await sdapi(json(made()), { models: ["ours"] });
  await listed.generate({ model: "ours" });
  expect(listed.body()).toMatchObject({ override_settings: {} });
});

it("grids before the pictures and maps behind them are no pictures", async () => {
  const [grid, map] = [Buffer.concat([PNG, Buffer.from("grid")]), Buffer.concat([PNG, Buffer.from("map")])];
  const answer = (info: object) => ({
    images: [grid, PNG, map].map((each) => each.toString("base64")),
    info: JSON.stringify(info),
  });
  const { generate } = await sdapi(json(answer({ seed: 1, index_of_first_image: 1, all_seeds: [1] })));
  expect((await generate()).images).toEqual([PNG]);
  const absurd = await sdapi(json(answer({ seed: 1, index_of_first_image: 9, all_seeds: [1] })));
  expect((await absurd.generate()).images).toEqual([grid, PNG, map]);
});

it("images may be data URLs; without readable info the request's seed counts", async () => {
  const images = [`data:image/png;base64,${BASE64}`, BASE64];
  for (const info of [undefined, "no JSON", "null", JSON.stringify({ seed: -1, sd_model_name: 7 })]) {
    const { generate } = await sdapi(json({ images, info }));
    expect(await generate({ seed: 5 })).toMatchObject({ images: [PNG, PNG], seed: 5, modelVersion: null });
  }
  const { generate } = await sdapi(json({ images: [] }));
  expect((await generate()).images).toEqual([]);
});

it("a prompt and an earlier turn that the server repeats do not decide", async () => {
  const { generate } = await sdapi(json({ detail: "invalid: a billing account; API key not valid" }, 400));
  const failure = await providerError(
    generate({ earlier: "API key not valid", prompt: "a billing account" }),
  );
  expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", trouble: null });
});

it("the fields that a server names are in the message", async () => {
  const detail = [{ loc: ["body", "steps"], msg: "must be a number", type: "x" }];
  const { generate } = await sdapi(json({ detail }, 422));
  expect((await providerError(generate())).message).toContain("body.steps: must be a number");
});

it.each<[string, Reply]>([
  ["no images", json({ detail: "x" })],
  ["no Base64", json({ images: ["%%%"] })],
])("%s is ambiguous", async (_what, answer) => {
  const { generate } = await sdapi(answer);
  expect(await providerError(generate())).toMatchObject({
    code: "PROVIDER_ITEM_FAILED",
    trouble: "ambiguous",
  });
});

it("an abort interrupts the server once, and rejects with its reason", async () => {
  const { lines, generate } = await sdapi(({ url }, response) => {
    if (url.endsWith("interrupt")) response.end("null");
  });
  const abort = new AbortController();
  const call = generate({}, abort.signal).catch((error) => error);
  await expect.poll(() => lines().length).toBe(1);
  const reason = new Error("enough");
  abort.abort(reason);
  expect(await call).toBe(reason);
  expect(lines()).toEqual(["POST /sdapi/v1/txt2img", "POST /sdapi/v1/interrupt"]);
  await expect(generate({}, abort.signal)).rejects.toBe(reason);
  expect(lines()).toHaveLength(2);
});

it("an abort interrupts nothing while another image of ours is made", async () => {
  const waiting: (() => void)[] = [];
  const answerLater: Reply = (...asked) => void waiting.push(() => json(made())(...asked));
  const { lines, generate } = await sdapi(answerLater, { concurrency: 2 });
  const abort = new AbortController();
  const aborted = generate({}, abort.signal).catch((error) => error);
  const other = generate();
  await expect.poll(() => lines().length).toBe(2);
  abort.abort(new Error("enough"));
  await aborted;
  for (const answer of waiting) answer();
  expect((await other).images).toEqual([PNG]);
  expect(lines()).toHaveLength(2);
});

it("the probe asks for the options, which costs nothing; a request is marked before it leaves", async () => {
  const { lines, adapter, generate } = await sdapi(json(made()));
  await adapter.probe(never);
  expect(lines()).toEqual(["GET /sdapi/v1/options"]);
  const counts: number[] = [];
  await generate({}, never, () => counts.push(lines().length));
  expect(counts).toEqual([1]);
});
