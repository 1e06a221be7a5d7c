import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import sharp from "sharp";
import { expect, it } from "vitest";
import type { ImageRequest } from "../../../src/domain/ports/image-provider.ts";
import { createSdapiAdapter } from "../../../src/providers/sdapi/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { listening } from "../../support/listening.ts";
import { closing, entryOf, failureOf, PNG } from "../../support/upstream-adapter.ts";
import { request } from "../procedural/requests.ts";

const NEVER = new AbortController().signal;
const BASE64 = PNG.toString("base64");
const made = (info: object = { seed: 1 }) => ({
  images: [BASE64],
  parameters: {},
  info: JSON.stringify(info),
});

interface Seen {
  line: string;
  authorization: string | undefined;
  body: Record<string, unknown> | null;
}
type Answer = (response: ServerResponse, seen: Seen) => void;
const json =
  (value: unknown, status = 200, headers: Record<string, string> = {}): Answer =>
  (response) =>
    void response
      .writeHead(status, { "content-type": "application/json", ...headers })
      .end(JSON.stringify(value));

/** A server that answers as the test says, and an adapter for it. */
async function sdapi(answer: Answer, fields: object = {}) {
  const seen: Seen[] = [];
  const server = createServer(async (incoming: IncomingMessage, response) => {
    const text = Buffer.concat(await incoming.toArray()).toString();
    const { authorization } = incoming.headers;
    const call = {
      line: `${incoming.method} ${incoming.url}`,
      authorization,
      body: text ? JSON.parse(text) : null,
    };
    seen.push(call);
    answer(response, call);
  });
  const baseUrl = await listening(server);
  const deps = { clock: new FakeClock(), secret: () => null };
  const adapter = closing(createSdapiAdapter(entryOf("sdapi", { baseUrl, ...fields }), deps));
  const generate = (changes: Partial<ImageRequest> = {}, signal: AbortSignal = NEVER, onSent = () => {}) =>
    adapter.generate(request("a red fox", changes), signal, onSent);
  return { seen, server, adapter, generate };
}

const reference = {
  mimeType: "image/png" as const,
  read: async () => PNG,
  lend: <T>(work: (bytes: Buffer) => Promise<T>) => work(PNG),
};

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
  const { seen, generate } = await sdapi(json(made(info)), { extra });
  const size = { widthPx: 1365, heightPx: 771 };
  expect(await generate({ earlier: "a forest", size, seed: 40 })).toEqual({
    discard: expect.any(Function),
    images: [PNG],
    seed: 41,
    modelVersion: "dream [abcd12]",
    notes: [],
  });
  expect(seen).toEqual([
    {
      line: "POST /sdapi/v1/txt2img",
      authorization: undefined,
      body: {
        batch_size: 1,
        n_iter: 1,
        steps: 7,
        negative_prompt: "text",
        prompt: "a forest\na red fox",
        seed: 40,
        width: 1368,
        height: 768,
        override_settings: { a: 1 },
      },
    },
  ]);
});

it("the first reference goes to img2img; others are noted", async () => {
  const { seen, generate } = await sdapi(json(made()), {
    extra: { denoising_strength: 0.4, init_images: ["x"] },
  });
  const { notes } = await generate({ references: [reference, reference] });
  expect(seen[0]?.line).toBe("POST /sdapi/v1/img2img");
  expect(seen[0]?.body).toMatchObject({ init_images: [BASE64], denoising_strength: 0.4 });
  expect(notes).toEqual(["Only the first reference image was used."]);
});

it("[OPT-6] an item's negative prompt wins over that of the entry", async () => {
  const { seen, generate } = await sdapi(json(made()), { extra: { negative_prompt: "text" } });
  const asked = { quality: null, background: null, seed: 9, negativePrompt: "people" };
  await generate({ asked, seed: 9 });
  expect(seen[0]?.body).toMatchObject({ negative_prompt: "people", seed: 9 });
});

it("[OPT-7] a mask is white where it was transparent, and one without transparency is refused", async () => {
  const { seen, generate } = await sdapi(json(made()));
  const maskOf = (bytes: Buffer) => ({
    ...reference,
    lend: <T>(work: (bytes: Buffer) => Promise<T>) => work(bytes),
  });
  const left = { create: { width: 2, height: 4, channels: 4, background: "#f00f" } } as const;
  const half = { create: { width: 4, height: 4, channels: 4, background: "#0000" } } as const;
  const mask = await sharp(half)
    .composite([{ input: await sharp(left).png().toBuffer(), left: 0, top: 0 }])
    .png()
    .toBuffer();
  await generate({ references: [reference], mask: maskOf(mask) });
  const sent = Buffer.from(String(seen[0]?.body?.mask), "base64");
  const { data, info } = await sharp(sent).greyscale().raw().toBuffer({ resolveWithObject: true });
  expect([...data.subarray(0, 4 * info.channels)].filter((_, i) => i % info.channels === 0)).toEqual([
    0, 0, 255, 255,
  ]);
  const plain = await sharp(half).removeAlpha().png().toBuffer();
  const refused = await failureOf(generate({ references: [reference], mask: maskOf(plain) }));
  expect(refused).toMatchObject({
    code: "INVALID_ARGUMENT",
    message: expect.stringContaining("transparency"),
  });
  expect(seen).toHaveLength(1);
});

it("a mapped model chooses the checkpoint; else the server's own is used", async () => {
  const mapped = await sdapi(json(made()), { models: { ours: "dream.safetensors" } });
  await mapped.generate({ model: "dream.safetensors" });
  expect(mapped.seen[0]?.body).toMatchObject({
    override_settings: { sd_model_checkpoint: "dream.safetensors" },
    override_settings_restore_afterwards: false,
  });
  const listed = await sdapi(json(made()), { models: ["ours"] });
  await listed.generate({ model: "ours" });
  expect(listed.seen[0]?.body).toMatchObject({ override_settings: {} });
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
  const failure = await failureOf(generate({ earlier: "API key not valid", prompt: "a billing account" }));
  expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", trouble: null });
});

it("the fields that a server names are in the message", async () => {
  const detail = [{ loc: ["body", "steps"], msg: "must be a number", type: "x" }];
  const { generate } = await sdapi(json({ detail }, 422));
  expect((await failureOf(generate())).message).toContain("body.steps: must be a number");
});

it.each<[string, Answer]>([
  ["no images", json({ detail: "x" })],
  ["no Base64", json({ images: ["%%%"] })],
])("%s is ambiguous", async (_what, answer) => {
  const { generate } = await sdapi(answer);
  expect(await failureOf(generate())).toMatchObject({ code: "PROVIDER_ITEM_FAILED", trouble: "ambiguous" });
});

it("an abort interrupts the server once, and rejects with its reason", async () => {
  const { seen, generate } = await sdapi((response, { line }) => {
    if (line.endsWith("interrupt")) response.end("null");
  });
  const abort = new AbortController();
  const call = generate({}, abort.signal).catch((error) => error);
  await expect.poll(() => seen.length).toBe(1);
  const reason = new Error("enough");
  abort.abort(reason);
  expect(await call).toBe(reason);
  expect(seen.map(({ line }) => line)).toEqual(["POST /sdapi/v1/txt2img", "POST /sdapi/v1/interrupt"]);
  await expect(generate({}, abort.signal)).rejects.toBe(reason);
  expect(seen).toHaveLength(2);
});

it("an abort interrupts nothing while another image of ours is made", async () => {
  const waiting: ServerResponse[] = [];
  const { seen, generate } = await sdapi((response) => void waiting.push(response), { concurrency: 2 });
  const abort = new AbortController();
  const aborted = generate({}, abort.signal).catch((error) => error);
  const other = generate();
  await expect.poll(() => seen.length).toBe(2);
  abort.abort(new Error("enough"));
  await aborted;
  for (const response of waiting) json(made())(response, {} as Seen);
  expect((await other).images).toEqual([PNG]);
  expect(seen).toHaveLength(2);
});

it("the probe asks for the options, which costs nothing; a request is marked before it leaves", async () => {
  const { seen, adapter, generate } = await sdapi(json(made()));
  await adapter.probe(NEVER);
  expect(seen.map(({ line }) => line)).toEqual(["GET /sdapi/v1/options"]);
  const counts: number[] = [];
  await generate({}, NEVER, () => counts.push(seen.length));
  expect(counts).toEqual([1]);
});
