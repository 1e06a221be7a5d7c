import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { IMAGE_MIME_TYPES, imageSizePx, RATIOS } from "../../../src/contract/image-formats.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { difference, meanDifference, pixels, share } from "./pixels.ts";
import { draw, request } from "./requests.ts";

const inspector = sharpInspector(new Decoding());

const BUILT = resolve(import.meta.dirname, "../../../build/providers/procedural/provider.js");
const maxPixels = 64_000_000;
const digest = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

/** A quarter of the pixels, for what they do not change. */
const size = { widthPx: 512, heightPx: 512 };

/** Options that ask for nothing. */
const NOTHING = { quality: null, background: null, seed: null, negativePrompt: null };

describe("a drawing", () => {
  it("options change the bytes, and options that ask for nothing do not", async () => {
    const plain = digest(await draw("a fox in the snow", { pixels: size }));
    const asked = (options: object) =>
      draw("a fox in the snow", { pixels: size, options: { ...NOTHING, ...options } }).then(digest);
    expect(await asked({})).toBe(plain);
    const drawn = [
      plain,
      await asked({ quality: "low" }),
      await asked({ quality: "high" }),
      await asked({ seed: 1 }),
      await asked({ seed: 2 }),
      await asked({ negativePrompt: "snow" }),
      await asked({ background: "transparent" }),
    ];
    expect(new Set(drawn).size).toBe(drawn.length);
    expect(await asked({ seed: 2 })).toBe(drawn[4]);
  });

  it("a transparent picture has an alpha channel and nothing in its corners", async () => {
    const asked = { ...NOTHING, background: "transparent" as const };
    for (const mimeType of ["image/png", "image/webp"] as const) {
      const image = await draw("a fox in the snow", { pixels: size, options: { ...asked, mimeType } });
      const { data, info } = await sharp(image).raw().toBuffer({ resolveWithObject: true });
      expect([info.channels, data[3]]).toEqual([4, 0]);
      expect((await sharp(image).stats()).isOpaque).toBe(false);
    }
  });

  it("[DRAW-1] pictures drawn at the same time do not disturb one another", async () => {
    const prompts = ["a fox", "a ship at sea", "abstract tiles", "a fox"];
    const together = await Promise.all(prompts.map((prompt) => draw(prompt, { pixels: size })));
    for (const [i, prompt] of prompts.entries())
      expect(digest(together[i] ?? Buffer.alloc(0))).toBe(digest(await draw(prompt, { pixels: size })));
  });

  it.skipIf(!existsSync(BUILT))(
    "[DRAW-1] the built program in a process of its own draws the same bytes",
    async () => {
      const prompt = "a red fox in a snowy forest at night";
      const { stdout } = await promisify(execFile)(
        process.execPath,
        [
          "--input-type=module",
          "-e",
          `const { createProceduralProvider } = await import(${JSON.stringify(BUILT)});
         const clock = { nowMs: () => 0, sleep: async () => {} };
         const provider = createProceduralProvider({ name: "p", concurrency: 1, models: () => true, clock });
         const { images } = await provider.generate(${JSON.stringify(request(prompt))}, new AbortController().signal);
         process.stdout.write(images[0]);`,
        ],
        { encoding: "buffer", maxBuffer: 50_000_000 },
      );
      expect(digest(stdout)).toBe(digest(await draw(prompt)));
    },
  );

  it.each(RATIOS.extended)("[DRAW-2] at %s the picture has exactly the pixels of its size", async (ratio) => {
    const size = imageSizePx("1K", ratio);
    const facts = await inspector.inspect(await draw("mountains and a lake", { options: { ratio } }), {
      maxPixels,
    });
    const decodedPixels = size.widthPx * size.heightPx;
    expect(facts).toEqual({ mimeType: "image/png", ...size, decodedPixels });
  });

  it("[DRAW-2] a larger tier is the same picture with more pixels", async () => {
    const [small, large] = [
      await draw("a fox in a forest"),
      await draw("a fox in a forest", { options: { size: "2K" } }),
    ];
    expect(await sharp(large).metadata()).toMatchObject({ width: 2048, height: 2048 });
    expect(await difference(small, large)).toBeLessThan(3);
  });

  it.each(IMAGE_MIME_TYPES)(
    "[DRAW-1] [DRAW-2] asked for %s, the picture is of that type and decodes, and has the same bytes each time",
    async (mimeType) => {
      const picture = await draw("a red boat", { options: { mimeType }, pixels: size });
      expect((await inspector.inspect(picture, { maxPixels })).mimeType).toBe(mimeType);
      expect(digest(await draw("a red boat", { options: { mimeType }, pixels: size }))).toBe(digest(picture));
    },
  );

  it("another prompt, index or model gives a visibly different picture", async () => {
    const base = await draw("a castle in the mountains", { pixels: size });
    for (const other of [
      await draw("a sailboat at sea", { pixels: size }),
      await draw("a castle in the mountains", { outputIndex: 1, pixels: size }),
      await draw("a castle in the mountains", { model: "another", pixels: size }),
    ]) {
      expect(await difference(base, other)).toBeGreaterThan(6);
    }
  });

  it("colours that the prompt names are in the picture", async () => {
    const tests: [string, (r: number, g: number, b: number) => boolean][] = [
      ["a red apple", (r, g, b) => r > 130 && r > g * 1.7 && r > b * 1.7],
      ["a blue car", (r, g, b) => b > 120 && b > r * 1.6 && b > g * 1.2],
      ["abstract green shapes", (r, g, b) => g > r * 1.3 && g > b * 1.2],
      ["a purple sky over the sea", (r, g, b) => b > g * 1.25 && r > g * 1.05],
      ["yellow flowers, abstract yellow", (r, g, b) => r > 170 && g > 130 && b < g * 0.75],
    ];
    for (const [prompt, test] of tests)
      expect(await share(await draw(prompt, { pixels: size }), test), prompt).toBeGreaterThan(0.025);
  });

  it("every style draws another picture of the same scene", async () => {
    const styles = [
      "",
      "watercolor",
      "minimalist",
      "neon",
      "retro",
      "pixel art",
      "line art",
      "oil",
      "mosaic",
    ];
    const small: number[][][] = [];
    for (const style of styles)
      small.push(await pixels(await draw(`${style} fox in a forest at noon`, { pixels: size }), 64));
    for (const [i, picture] of small.entries())
      for (const other of small.slice(i + 1)) expect(meanDifference(picture, other)).toBeGreaterThan(2);
  });
});
