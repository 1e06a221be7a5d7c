import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { parseConfig } from "../../../src/config/load.ts";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { optionsOf } from "../../../src/domain/models.ts";
import { DEFAULT_OPTIONS } from "../../../src/domain/ports/image-provider.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { checkContent } from "../../../src/server/native-api/check-content.ts";
import { tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { content, imagePart, picture } from "../../support/realtime.ts";

const inspector = sharpInspector(new Decoding());

const models = parseConfig({}, "test").models;
const modelOf = (id: string) => {
  const model = models.find((m) => m.id === id);
  if (!model) throw new Error(id);
  return model;
};
const FLASH = modelOf("vendorx-3.1-flash-image");
const PRO = modelOf("vendorx-3-pro-image");
const LITE = modelOf("vendorx-3.1-flash-lite-image");

const check = (body: unknown, model = FLASH, strictImageConfig = true) =>
  checkContent(body, {
    limits: DEFAULT_LIMITS,
    inspector,
    strictImageConfig,
    options: { ...optionsOf(model, {}), seed: model !== LITE },
  });

const config = (generationConfig: unknown) => ({
  contents: [{ parts: [{ text: "fox" }] }],
  generationConfig,
});
it("[OPT-8] takes a seed for a model that does", async () => {
  const seeded = (seed: unknown) => config({ responseModalities: ["IMAGE"], imageConfig: {}, seed });
  expect((await check(seeded(2 ** 32 - 1))).options).toEqual({ ...DEFAULT_OPTIONS, seed: 2 ** 32 - 1 });
  expect((await check(seeded(null))).options).toEqual(DEFAULT_OPTIONS);
  for (const wrong of [-1, 1.5, 2 ** 32, "7"])
    await expect(check(seeded(wrong))).rejects.toMatchObject({ param: "generationConfig.seed" });
  await expect(check(seeded(7), LITE)).rejects.toMatchObject({ param: "generationConfig.seed" });
});

it("[OPT-1] takes quality, background, negative prompt and exact pixels as far as the model does, in words of our own", async () => {
  const looking = (imageConfig: object) => config({ responseModalities: ["IMAGE"], imageConfig });
  const look = { quality: "high", background: "transparent", negative_prompt: " snow " };
  expect(await check(looking({ ...look, pixels: "1600x912" }))).toMatchObject({
    options: {
      size: "1600x912",
      quality: "high",
      background: "transparent",
      negativePrompt: "snow",
      seed: null,
    },
  });
  const plain = { quality: "medium", background: "auto", negativePrompt: null };
  expect(await check(looking(plain))).toEqual(await check(looking({})));
  const jpeg = { background: "transparent", outputMimeType: "image/jpeg" };
  for (const [wrong, field] of [
    [{ quality: "ultra" }, "quality"],
    [{ background: "blue" }, "background"],
    [jpeg, "background"],
    [{ negativePrompt: "a\0b" }, "negativePrompt"],
    [{ pixels: "10x10" }, "pixels"],
    [{ pixels: "wide" }, "pixels"],
    [{ pixels: "1600x912", imageSize: "1K" }, "pixels"],
    [{ imageSize: "1024x1024" }, "imageSize"],
  ] as const)
    await expect(check(looking(wrong))).rejects.toMatchObject({
      param: `generationConfig.imageConfig.${field}`,
    });
});

const parts = (...of: unknown[]) => ({ ...content("fox"), contents: [{ parts: of }] });

describe("a real-time request", () => {
  it("is read in both spellings at every level, with defaults for what is not there", async () => {
    const png = await tinyPng();
    const snake = {
      contents: [
        {
          role: null,
          parts: [
            { text: " fox " },
            { inline_data: { mime_type: "image/png", data: png.toString("base64") } },
          ],
        },
      ],
      generation_config: {
        response_modalities: ["Text", "Image"],
        image_config: { aspect_ratio: "16:9", image_size: "2K", output_mime_type: "image/webp" },
      },
    };
    expect(await check(snake)).toEqual({
      prompt: "fox",
      earlier: "",
      images: [
        {
          read: expect.any(Function),
          lend: expect.any(Function),
          keepAs: expect.any(Function),
          sizeBytes: expect.any(Number),
          sha256: expect.any(String),
          mimeType: "image/png",
          id: null,
          type: null,
        },
      ],
      options: {
        ...DEFAULT_OPTIONS,
        ratio: "16:9",
        keepsRatio: false,
        size: "2K",
        mimeType: "image/webp",
      },
    });
    expect((await check(content("fox"))).options).toEqual(DEFAULT_OPTIONS);
    const both = content("fox", { aspectRatio: "1:1", aspect_ratio: "9:16" });
    expect(await check(both)).toMatchObject({ options: { ratio: "1:1" } });
  });

  it("may have fields that mean nothing here", async () => {
    const body = {
      ...content("fox"),
      generationConfig: {
        responseModalities: ["IMAGE"],
        imageConfig: { personGeneration: "x", aspectRatio: "" },
        candidateCount: 4,
        seed: 1,
        responseFormat: { image: { aspectRatio: "ASPECT_RATIO_SIXTEEN_BY_NINE" } },
      },
      systemInstruction: { parts: [{ text: "be kind" }] },
      safetySettings: [],
    };
    const read = await check({ ...body, labels: { a: "b" } });
    expect(read).toMatchObject({ prompt: "fox", options: { ratio: "1:1" } });
    const unread = ["labels", "generationConfig.candidateCount", "generationConfig.responseFormat"];
    expect(read.ignored).toEqual(unread);
    const generationConfig = { responseModalities: ["IMAGE"], imageConfig: { personGeneration: "x" } };
    expect(read.verbatim?.fields).toEqual({ systemInstruction: body.systemInstruction, generationConfig });
  });

  it("has the user's last turn as its prompt, which alone has the limit; the newest of the rest goes with it", async () => {
    const said = (...turns: [role: string, text: string][]) =>
      check({ ...content(""), contents: turns.map(([role, text]) => ({ role, parts: [{ text }] })) });
    const two = await said(["user", "a fox"], ["user", "in snow"], ["model", "here"], ["user", "at night"]);
    expect(two).toMatchObject({ prompt: "at night", earlier: "a fox\nin snow" });
    const split = await said(["user", "a fox"], ["model", "here"], ["user", "at"], ["user", "night"]);
    expect(split).toMatchObject({ prompt: "at\nnight", earlier: "a fox" });
    const wordless = await said(["user", "a fox"], ["model", "here"], ["user", " "]);
    expect(wordless).toMatchObject({ prompt: "a fox", earlier: "" });
    const long = "y".repeat(DEFAULT_LIMITS.promptChars);
    const turns: [string, string][] = [
      ["user", "old"],
      ["model", "a"],
      ["user", long],
      ["model", "b"],
    ];
    expect(await said(...turns, ["user", long])).toMatchObject({ prompt: long, earlier: long });
    expect((await said(["user", `${long}z`], ["model", "a"], ["user", "x"])).earlier).toBe(long);
    const tooLong = said(...turns, ["user", `${long}y`]);
    await expect(tooLong).rejects.toMatchObject({ param: "contents[4].parts" });
    await expect(said(["user", long], ["user", "y"])).rejects.toThrow("more than the 8000 characters");
  });

  it("[RT-5] [RT-14] has at most 1,000 parts in all messages together, and 1,000 messages", async () => {
    const text = { text: "x" };
    const many = (count: number, of: unknown) => Array.from({ length: count }, () => of);
    const message = (count: number) => ({ parts: many(count, text) });
    const said = (contents: unknown) => check({ ...content("x"), contents });
    expect((await said([message(999), { role: "model", parts: [text] }])).prompt).toHaveLength(1997);
    expect((await said(many(1000, message(1)))).prompt).toHaveLength(1999);
    const refused = async (work: Promise<unknown>, param: string) =>
      expect(await work.catch((error) => [error.code, error.param])).toEqual([
        "REALTIME_INVALID_ARGUMENT",
        param,
      ]);
    await refused(said([message(1001)]), "contents[0].parts");
    await refused(said([message(600), { role: "model" }, message(401)]), "contents[2].parts");
    await refused(said(many(1001, { parts: [] })), "contents");
    await refused(said([{ parts: many(199_000, 1) }]), "contents[0].parts");
    await refused(said(many(199_000, 1)), "contents");
    const modalities = { responseModalities: many(199_000, 1), imageConfig: {} };
    await refused(check(config(modalities)), "generationConfig.responseModalities");
    await refused(check({ ...config({}), contents: "x" }), "contents");
  });

  it("joins the texts of the user, and takes the images of every turn but interim ones", async () => {
    const [first, second] = [await tinyPng(1), await tinyPng(2)];
    const body = {
      ...content(""),
      contents: [
        { role: "user", parts: [{ text: "a fox" }] },
        {
          role: "model",
          parts: [{ text: "here" }, imagePart(first), { ...imagePart(second), thought: true }],
        },
        { parts: [{ text: " " }, { text: "in autumn" }, { thoughtSignature: "x" }] },
      ],
    };
    const checked = await check(body);
    expect(checked).toMatchObject({ prompt: "in autumn", earlier: "a fox" });
    expect(await Promise.all(checked.images.map((image) => image.read()))).toEqual([first]);
  });

  it.each([
    ["no body", null, "body"],
    ["a list", [], "body"],
    ["no contents", { generationConfig: {} }, "contents"],
    ["empty contents", { ...content("x"), contents: [] }, "contents"],
    [
      "only the model's words",
      { ...content("x"), contents: [{ role: "model", parts: [{ text: "x" }] }] },
      "contents",
    ],
    ["another role", { ...content("x"), contents: [{ role: "system", parts: [] }] }, "contents[0].role"],
    ["no parts", { ...content("x"), contents: [{}] }, "contents[0].parts"],
    ["an empty part", parts({ text: "fox" }, {}), "contents[0].parts[1]"],
    ["a part of nothing but null", parts({ text: null, inline_data: null }), "contents[0].parts[0]"],
    ["a part that is text alone", parts("fox"), "contents[0].parts[0]"],
    ["a number as text", parts({ text: 3 }), "contents[0].parts[0].text"],
    ["blank text", content(" \n "), "contents[0].parts"],
    ["half a surrogate pair", content("\ud800"), "contents[0].parts[0].text"],
    [
      "NUL in what the model said earlier",
      {
        ...content("a fox"),
        contents: [
          { role: "user", parts: [{ text: "a fox" }] },
          { role: "model", parts: [{ text: "here" }, { text: "it is\0" }] },
          { role: "user", parts: [{ text: "another" }] },
        ],
      },
      "contents[1].parts[1].text",
    ],
    ["a text that is too long", content("é".repeat(8001)), "contents[0].parts"],
    [
      "a file elsewhere",
      parts({ text: "x" }, { file_data: { file_uri: "https://x/y.png" } }),
      "contents[0].parts[1].fileData.fileUri",
    ],
    ["no generationConfig", { contents: [{ parts: [{ text: "x" }] }] }, "generationConfig"],
    ["no modalities", config({ imageConfig: {} }), "generationConfig.responseModalities"],
    [
      "modalities without IMAGE",
      config({ responseModalities: ["TEXT"], imageConfig: {} }),
      "generationConfig.responseModalities",
    ],
    [
      "another modality",
      config({ responseModalities: ["IMAGE", "AUDIO"], imageConfig: {} }),
      "generationConfig.responseModalities",
    ],
    ["no imageConfig", config({ responseModalities: ["IMAGE"] }), "generationConfig.imageConfig"],
    [
      "a text as imageConfig",
      config({ responseModalities: ["IMAGE"], imageConfig: "1K" }),
      "generationConfig.imageConfig",
    ],
    [
      "a size for a ratio",
      content("x", { aspectRatio: "1024x1024" }),
      "generationConfig.imageConfig.aspectRatio",
    ],
    [
      "a decimal for a ratio",
      content("x", { aspectRatio: "1.78" }),
      "generationConfig.imageConfig.aspectRatio",
    ],
    [
      "a ratio that is a number",
      content("x", { aspectRatio: 1 }),
      "generationConfig.imageConfig.aspectRatio",
    ],
    ["a small k", content("x", { imageSize: "1k" }), "generationConfig.imageConfig.imageSize"],
    ["pixels for a size", content("x", { imageSize: "1024x1024" }), "generationConfig.imageConfig.imageSize"],
    [
      "a format that is none",
      content("x", { outputMimeType: "image/gif" }),
      "generationConfig.imageConfig.outputMimeType",
    ],
  ])("[RT-5] with %s is refused, and the field is named", async (_, body, param) => {
    await expect(check(body)).rejects.toMatchObject({
      code: "REALTIME_INVALID_ARGUMENT",
      httpStatus: 400,
      param,
    });
  });

  it("[RT-5] may leave imageConfig out when the operator says so", async () => {
    const body = config({ responseModalities: ["IMAGE"] });
    expect(await check(body, FLASH, false)).toMatchObject({ options: { ratio: "1:1", size: "1K" } });
    await expect(
      check(config({ responseModalities: ["IMAGE"], imageConfig: 1 }), FLASH, false),
    ).rejects.toThrow();
  });

  it("needs no generationConfig and no modalities then, which means an image; a given one must still be right", async () => {
    const contents = [{ parts: [{ text: "fox" }] }];
    for (const body of [
      { contents },
      { contents, generationConfig: null },
      config({}),
      config({ imageConfig: {} }),
    ])
      expect(await check(body, FLASH, false)).toMatchObject({ options: { ratio: "1:1", size: "1K" } });
    const wrong = [
      [config([]), "generationConfig"],
      [config(7), "generationConfig"],
      [config({ responseModalities: ["TEXT"] }), "generationConfig.responseModalities"],
      [config({ imageConfig: { imageSize: "8K" } }), "generationConfig.imageConfig.imageSize"],
      [[{ contents }], "body"],
    ] as const;
    for (const [body, param] of wrong) {
      const refused = await check(body, FLASH, false).catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: "REALTIME_INVALID_ARGUMENT" });
      if (param !== "body") expect(refused).toMatchObject({ param });
    }
    await expect(check({ contents })).rejects.toMatchObject({ param: "generationConfig" });
  });

  it("has then the type that the bytes of an input image show, whatever it says", async () => {
    const jpeg = (await tinyJpeg()).toString("base64");
    for (const mimeType of ["image/png", "application/octet-stream", ""]) {
      const body = parts({ text: "fox" }, { inlineData: { mimeType, data: jpeg } });
      expect((await check(body, FLASH, false)).images).toMatchObject([{ mimeType: "image/jpeg" }]);
      await expect(check(body)).rejects.toMatchObject({ param: "contents[0].parts[1].inlineData.mimeType" });
    }
    const text = Buffer.from("no image").toString("base64");
    const body = parts({ text: "fox" }, { inlineData: { mimeType: "image/png", data: text } });
    await expect(check(body, FLASH, false)).rejects.toMatchObject({
      param: "contents[0].parts[1].inlineData.data",
    });
  });

  it("may ask only for the ratios and sizes of the model that it names", async () => {
    for (const ratio of ["1:4", "8:1"]) {
      expect(await check(content("x", { aspectRatio: ratio }))).toMatchObject({ options: { ratio } });
      const refused = check(content("x", { aspectRatio: ratio }), PRO);
      await expect(refused).rejects.toThrow("aspect ratio has an unsupported value");
    }
    expect(await check(content("x", { imageSize: "4K" }), PRO)).toMatchObject({ options: { size: "4K" } });
    await expect(check(content("x", { imageSize: "2K" }), LITE)).rejects.toThrow("this model makes 1K");
    const unpriced = { ...PRO, prices: { "2K": 1 } };
    await expect(check(content("x"), unpriced)).rejects.toThrow("this model makes 2K");
  });

  it.each([
    [{ outputMimeType: "image/jpeg" }, undefined, "image/jpeg"],
    [{ image_output_options: { mime_type: "image/webp" } }, undefined, "image/webp"],
    [{}, "image/jpeg", "image/jpeg"],
    [{}, "text/plain", "image/png"],
    [{ outputMimeType: "image/webp" }, "image/jpeg", "image/webp"],
  ])("with %j and %s asks for %s%s", async (imageConfig, responseMimeType, mimeType) => {
    const body = config({ responseModalities: ["IMAGE"], imageConfig, responseMimeType });
    expect(await check(body)).toMatchObject({ options: { mimeType } });
  });
});

describe("an input image", () => {
  it("is Base64 of either alphabet, padded or not", async () => {
    const png = await picture({ widthPx: 61, heightPx: 17 });
    const standard = png.toString("base64");
    for (const data of [standard, standard.replace(/=+$/, ""), png.toString("base64url")]) {
      const checked = await check(parts({ text: "x" }, { inlineData: { mimeType: "image/png", data } }));
      expect((await checked.images[0]?.read())?.equals(png)).toBe(true);
    }
  });

  it.each([
    [
      "a data URL",
      async () => `data:image/png;base64,${(await tinyPng()).toString("base64")}`,
      "image/png",
      "data",
    ],
    ["no Base64", async () => "a b c", "image/png", "data"],
    ["too little padding", async () => "QQ=", "image/png", "data"],
    ["nothing", async () => "", "image/png", "data"],
    ["bytes that are no image", async () => "aGVsbG8=", "image/png", "data"],
    ["half an image", async () => (await tinyPng()).subarray(0, 60).toString("base64"), "image/png", "data"],
    ["more than is allowed", async () => "A".repeat(14 * 1024 * 1024), "image/png", "data"],
    ["another type than it is", async () => (await tinyJpeg()).toString("base64"), "image/png", "mimeType"],
    ["a type that is not taken", async () => (await tinyPng()).toString("base64"), "image/gif", "mimeType"],
    ["no data", async () => undefined, "image/png", "data"],
  ])("with %s is refused", async (_, dataOf, mimeType, field) => {
    const body = parts({ text: "x" }, { inlineData: { mimeType, data: await dataOf() } });
    const param = `contents[0].parts[1].inlineData.${field}`;
    await expect(check(body)).rejects.toMatchObject({ code: "REALTIME_INVALID_ARGUMENT", param });
  });

  it("has company of 13 at most, and no text beside it", async () => {
    const part = imagePart(await tinyPng());
    const checked = await check(parts({ text: "x" }, ...Array(14).fill(part)));
    expect(checked.images).toHaveLength(14);
    await expect(check(parts({ text: "x" }, ...Array(15).fill(part)))).rejects.toThrow("at most 14");
    await expect(check(parts({ text: "x", ...part }))).rejects.toThrow(
      "one of text, inlineData and fileData",
    );
  });

  it.each([
    [FLASH, 800, 600, "4:3"],
    [FLASH, 100, 100, "1:1"],
    [FLASH, 50, 390, "1:8"],
    [PRO, 50, 390, "9:16"],
    [PRO, 1000, 240, "21:9"],
    [FLASH, 1000, 240, "4:1"],
  ])(
    "[RT-8] gives the picture the nearest ratio when none is asked for (%#)",
    async (model, widthPx, heightPx, ratio) => {
      const first = imagePart(await picture({ widthPx, heightPx }));
      const second = imagePart(await picture({ widthPx: 30, heightPx: 90 }));
      expect(await check(content("edit", {}, [first, second]), model)).toMatchObject({ options: { ratio } });
      const asked = content("edit", { aspectRatio: "5:4" }, [first]);
      expect(await check(asked, model)).toMatchObject({ options: { ratio: "5:4" } });
    },
  );

  it("[RT-8] takes a photo that is stored on its side as it is shown", async () => {
    const bytes = await sharp(await picture({ widthPx: 300, heightPx: 200 }))
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer();
    const part = { inlineData: { mimeType: "image/jpeg", data: bytes.toString("base64") } };
    expect(await check(content("edit", {}, [part]), FLASH)).toMatchObject({ options: { ratio: "2:3" } });
  });
});
