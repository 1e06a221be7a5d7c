import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Chain, model } from "../support/upstreams/chain.ts";
import type { FakeUpstream, Form, UpstreamRequest } from "../support/upstreams/fake-upstream.ts";
import { imageOf, lookAt, showsPrompt } from "../support/upstreams/images.ts";
import { startNative } from "../support/upstreams/native.ts";
import { startOpenai } from "../support/upstreams/openai.ts";
import { DIALECTS } from "../support/upstreams/openai-dialects.ts";
import { startSdapi } from "../support/upstreams/sdapi.ts";

const LOGIN = { SD_USER: "painter", SD_SECRET: "the-password-of-the-card" };

// biome-ignore lint/suspicious/noExplicitAny: the shapes of other services are read loosely here.
type Loose = any;

interface Service {
  fake: FakeUpstream;
  entry: object;
  /** The model as the service knows it. */
  model: string;
  /** The pixels of a picture of 16:9 in tier 1K. */
  wide: [number, number];
  /** The reference images of a request. */
  references(request: UpstreamRequest): Buffer[];
}

const fromBase64 = (text: string) => Buffer.from(text.replace(/^data:image\/\w+;base64,/, ""), "base64");

async function openai(
  dialect: keyof typeof DIALECTS,
  entry: object,
  rest: Omit<Service, "fake" | "entry" | "model">,
) {
  const fake = await startOpenai({ dialect: DIALECTS[dialect] });
  const { base, path, model: id } = DIALECTS[dialect];
  const common = { type: "openai", baseUrl: fake.url + base, path, apiKeyEnv: "OPENAI_API_KEY" };
  return { fake, entry: { ...common, ...entry }, model: id, ...rest };
}

const services = new Map<string, Service>();
let chain: Chain;
let reference: Buffer;

beforeAll(async () => {
  reference = await imageOf("reference", { width: 64, height: 64, type: "jpeg" });
  const native = await startNative();
  services.set("native", {
    ...{ fake: native, model: "gemini-3-pro-image", wide: [1376, 768] },
    entry: { type: "native", baseUrl: native.url, apiKeyEnv: "NATIVE_API_KEY", keyHeader: "x-goog-api-key" },
    references: ({ body }) =>
      (body as Loose).contents[0].parts.flatMap(({ inlineData, inline_data }: Loose) => {
        const data = inlineData ?? inline_data;
        return data ? [Buffer.from(data.data, "base64")] : [];
      }),
  });
  const omit = { responseFormat: "omit" };
  const formFiles = ({ body }: UpstreamRequest) => (body as Form).files.map(({ bytes }) => bytes);
  services.set("openai", await openai("openai", omit, { wide: [1376, 768], references: formFiles }));
  services.set(
    "openai-sizes",
    await openai(
      "openai",
      { ...omit, sizes: ["1024x1024", "1536x1024", "1024x1536"] },
      {
        ...{ wide: [1536, 1024], references: formFiles },
      },
    ),
  );
  services.set(
    "openrouter",
    await openai(
      "openrouter",
      { ...omit, sizeAs: "aspect_ratio", edits: "input_references" },
      {
        wide: [1365, 768],
        references: ({ body }) =>
          (body as Loose).input_references.map((one: Loose) => fromBase64(one.image_url.url)),
      },
    ),
  );
  services.set(
    "xai",
    await openai(
      "xai",
      { responseFormat: "b64_json", sizeAs: "aspect_ratio", edits: "json" },
      {
        wide: [1365, 768],
        references: ({ body }) => {
          const { image, images = [image] } = body as Loose;
          return images.map((one: Loose) => fromBase64(one.url));
        },
      },
    ),
  );
  services.set(
    "together",
    await openai(
      "together",
      { responseFormat: "base64", sizeAs: "width_height", edits: "none" },
      {
        ...{ wide: [1376, 768], references: () => [] },
      },
    ),
  );
  services.set(
    "local",
    await openai(
      "local",
      { responseFormat: "url", apiKeyEnv: "OPENAI_API_KEY" },
      {
        ...{ wide: [1376, 768], references: formFiles },
      },
    ),
  );
  const sdapi = await startSdapi({ login: `${LOGIN.SD_USER}:${LOGIN.SD_SECRET}` });
  services.set("sdapi", {
    ...{ fake: sdapi, model: "v1-5-pruned", wide: [1376, 768] },
    entry: {
      ...{ type: "sdapi", baseUrl: sdapi.url, userEnv: "SD_USER", passwordEnv: "SD_SECRET", free: true },
      extra: { steps: 12, negative_prompt: "blur" },
    },
    references: ({ body }) => (body as Loose).init_images.map(fromBase64),
  });
  const names = [...services];
  chain = await Chain.startHere(
    {
      models: names.map(([name]) => ({ ...model(name), maxReferenceImages: 3 })),
      providers: names.map(([name, { entry, model: id }]) => ({ name, models: { [name]: id }, ...entry })),
    },
    LOGIN,
  );
});

afterAll(async () => {
  await chain?.close();
  for (const { fake } of services.values()) await fake.close();
});

const ALL = ["native", "openai", "openai-sizes", "openrouter", "xai", "together", "local", "sdapi"];
const EDITING = ALL.filter((name) => name !== "together" && name !== "local");

function serviceOf(name: string): Service {
  const service = services.get(name);
  if (!service) throw new Error(name);
  return service;
}

async function imageOfAnswer(answer: Response): Promise<Buffer> {
  const json = (await answer.json()) as Loose;
  expect(answer.status, JSON.stringify(json).slice(0, 500)).toBe(200);
  const { data } = json.candidates[0].content.parts.find((part: Loose) => part.inlineData).inlineData;
  return Buffer.from(data, "base64");
}

describe("a real-time request through the provider", () => {
  it.each(ALL)("of %s gets an image in the shape that was asked for", async (name) => {
    const { fake, wide, model: id } = serviceOf(name);
    const prompt = `a hill, "quoted" — ünïcode for ${name}`;
    // Of its three sizes, none is 16:9.
    const aspectRatio = name === "openai-sizes" ? "3:2" : "16:9";
    const answer = await chain.realtime(name, [{ text: prompt }], { aspectRatio, imageSize: "1K" });
    const image = await imageOfAnswer(answer);
    const [request] = fake.requests.filter(({ kind }) => kind === "images");
    expect(request?.prompt).toBe(prompt);
    if (name !== "native" && name !== "sdapi") expect(request?.body).toMatchObject({ model: id });
    if (name === "sdapi") expect(request?.body).toMatchObject({ steps: 12, negative_prompt: "blur" });
    expect(await showsPrompt(image, prompt)).toBe(true);
    const seen = await lookAt(image);
    expect([seen?.width, seen?.height]).toEqual(wide);
    expect(fake.billed()).toBe(1);
  });

  it.each(EDITING)("of %s takes the bytes of its reference images along", async (name) => {
    const { fake, references } = serviceOf(name);
    const inlineData = { mimeType: "image/jpeg", data: reference.toString("base64") };
    const prompt = `change it for ${name}`;
    // An image server takes one picture to start from.
    const count = name === "sdapi" ? 1 : 2;
    const parts = [{ text: prompt }, ...Array.from({ length: count }, () => ({ inlineData }))];
    const image = await imageOfAnswer(await chain.realtime(name, parts));
    const [request] = fake.requests.filter((one) => one.prompt === prompt);
    if (!request) throw new Error("not asked");
    expect(references(request).map((bytes) => bytes.equals(reference))).toEqual(Array(count).fill(true));
    expect(await showsPrompt(image, prompt)).toBe(true);
  });

  it("of a service that gives addresses fetches the image from there", async () => {
    const { fake } = serviceOf("local");
    const before = fake.requests.filter(({ kind }) => kind === "files").length;
    expect(
      await showsPrompt(
        await imageOfAnswer(await chain.realtime("local", [{ text: "by address" }])),
        "by address",
      ),
    ).toBe(true);
    expect(fake.requests.filter(({ kind }) => kind === "files")).toHaveLength(before + 1);
  });
});
