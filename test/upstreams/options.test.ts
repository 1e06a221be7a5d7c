import { afterAll, beforeAll, expect, it } from "vitest";
import { Chain, model } from "../support/upstreams/chain.ts";
import { imageOf } from "../support/upstreams/images.ts";
import { type ConfiguredFake, startFake } from "./services.ts";

const services = new Map<string, ConfiguredFake>();
let chain: Chain;

beforeAll(async () => {
  services.set("native", await startFake("native"));
  services.set("openai", await startFake("openai"));
  services.set("sized", await startFake("openai"));
  const entries = [...services].map(([id, { entry, model: upstreamId }]) => ({
    name: id,
    models: { [id]: upstreamId },
    ...entry,
    ...(id === "sized" && { sizes: ["1024x1024", "1536x1024", "1024x1536"] }),
  }));
  const qualities = {
    qualities: ["low", "high"],
    defaultQuality: "low",
    qualityPrices: { low: { "1K": 0.1 }, high: { "1K": 0.2 } },
    backgrounds: ["transparent"],
  };
  const models = [
    { ...model("native"), maxReferenceImages: 3 },
    { ...model("openai"), ...qualities },
    model("sized"),
  ];
  chain = await Chain.startHere({ models, providers: entries });
});
afterAll(async () => {
  await chain.close();
  for (const { fake } of services.values()) await fake.close();
});

async function create(id: string, items: object[], more: object = {}) {
  const headers = { authorization: `Bearer ${chain.key}`, "content-type": "application/json" };
  const body = JSON.stringify({ model: id, items, ...more });
  return fetch(`${chain.url}/v1/images/batches`, { method: "POST", headers, body });
}

/** The bodies that an upstream was sent for a batch. */
// biome-ignore lint/suspicious/noExplicitAny: the shapes of other services are read loosely here.
async function sentFor(id: string, items: object[], images: number): Promise<any[]> {
  const { fake } = services.get(id) as ConfiguredFake;
  const before = fake.requests.length;
  const answer = await create(id, items);
  expect([answer.status, await answer.json()]).toMatchObject([200, { status: "queued" }]);
  // A request is noted before its body has come.
  const bodies = () =>
    fake.requests.slice(before).filter(({ kind, body }) => kind === "images" && body !== undefined);
  await expect.poll(() => bodies().length, { timeout: 20_000 }).toBe(images);
  return bodies().map(({ body }) => body);
}

it("[OPT-6] an edit that asks for no ratio is sent none, and images of a prompt have one seed after the other", async () => {
  const data = (await imageOf("reference", { width: 64, height: 32, type: "png" })).toString("base64");
  const reference_images = [{ mime_type: "image/png", data }];
  const [edit] = await sentFor("native", [{ prompt: "an edit", reference_images }], 1);
  expect(edit.generationConfig.imageConfig).toEqual({ imageSize: "1K" });
  const options = { seed: 40, aspect_ratio: "16:9" };
  const seeded = await sentFor("native", [{ prompt: "a fox", output_count: 3, options }], 3);
  expect(seeded.map(({ generationConfig: { seed } }) => seed).sort()).toEqual([40, 41, 42]);
  expect(seeded[0].generationConfig.imageConfig).toMatchObject({ aspectRatio: "16:9" });
});

it("[OPT-6] a quality is always sent, and a transparent picture is asked for as a PNG", async () => {
  const [plain] = await sentFor("openai", [{ prompt: "a fox" }], 1);
  expect(plain).toMatchObject({ quality: "low", output_format: "png" });
  expect(plain).not.toHaveProperty("background");
  const options = { quality: "high", background: "transparent" };
  const [clear] = await sentFor("openai", [{ prompt: "an owl", options }], 1);
  expect(clear).toMatchObject({ ...options, output_format: "png" });
});

it("[OPT-6] what an upstream cannot pass on is refused at the door, and nothing is sent", async () => {
  for (const [id, options, field] of [
    ["native", { quality: "high" }, "quality"],
    ["native", { background: "transparent" }, "background"],
    ["native", { negative_prompt: "text" }, "negative_prompt"],
    ["openai", { seed: 7 }, "seed"],
  ] as const) {
    const { fake } = services.get(id) as ConfiguredFake;
    const before = fake.requests.length;
    const answer = await create(id, [{ prompt: "a fox", options }]);
    const { error } = (await answer.json()) as { error: { code: string; message: string } };
    expect([answer.status, error.code]).toEqual([400, "BATCH_IMAGE_INVALID_ITEMS"]);
    expect(error.message).toContain(`items[0].options.${field}`);
    expect(fake.requests.length).toBe(before);
  }
});

it("[OPT-9] the pixels of a size and ratio are asked for exactly, and a shape that the model lacks is refused", async () => {
  const sizesFor = async (...options: object[]) => {
    const sent = await Promise.all(
      options.map((each) => sentFor("sized", [{ prompt: "a fox", options: each }], 1)),
    );
    return sent.flat().map(({ size }) => size);
  };
  expect(await sizesFor({ aspect_ratio: "3:2" })).toEqual(["1536x1024"]);
  expect(await sizesFor({ image_size: "1024x1536" })).toEqual(["1024x1536"]);
  const { fake } = services.get("sized") as ConfiguredFake;
  const before = fake.requests.length;
  for (const [options, field] of [
    [{ aspect_ratio: "16:9" }, "aspect_ratio"],
    [{ image_size: "1792x1024" }, "image_size"],
    [{ image_size: "1536x1024", aspect_ratio: "1:1" }, "aspect_ratio"],
  ] as const) {
    const answer = await create("sized", [{ prompt: "a fox", options }]);
    const { error } = (await answer.json()) as { error: { param: string } };
    expect([answer.status, error.param]).toEqual([400, `items[0].options.${field}`]);
  }
  expect(fake.requests.length).toBe(before);
});
