import sharp from "sharp";
import { describe, expect, it } from "vitest";
import {
  HeaderReader,
  imageSizePx,
  makesPixels,
  pixelAdvice,
  pixelsAt,
  RATIOS,
  readImageHeader,
  readImageSize,
  shownSize,
  sizeOfPixels,
} from "../../src/contract/image-formats.ts";
import { readOutput } from "../../src/domain/images/output-images.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";
import { thumbnail } from "../../src/imaging/thumbnail.ts";
import { pixelsNamed } from "../../src/providers/catalogue/catalogue.ts";

/** The bounds of a model that takes every size by 16, as OpenAI documents them. */
const RULE = { multipleOf: 16, longestPx: 3840, leastPixels: 655_360, mostPixels: 8_294_400, mostRatio: 3 };
const THREE = ["1024x1024", "1536x1024", "1024x1536"];

describe("a size of an image", () => {
  it("is a tier or pixels, in any case of letters", () => {
    expect(["2k", "512", "1536X1024"].map(readImageSize)).toEqual(["2K", "512", "1536x1024"]);
    for (const wrong of ["3K", "1536", "1536x", "0x100", "12x34", "1e3x1000", "-5x100", "100000x100000"])
      expect([wrong, readImageSize(wrong)]).toEqual([wrong, null]);
  });

  it("[OPT-9] stands for pixels of its own ratio at a model that is asked for pixels, or for none", () => {
    const at = (tier: "512" | "1K" | "2K" | "4K", ratio: (typeof RATIOS.extended)[number]) =>
      [RULE, THREE].map((pixels) => {
        const px = pixelsAt(pixels, tier, ratio);
        return px && `${px.widthPx}x${px.heightPx}`;
      });
    expect(at("1K", "16:9")).toEqual(["1376x768", null]);
    expect(at("1K", "3:2")).toEqual(["1264x848", "1536x1024"]);
    expect(at("2K", "9:16")).toEqual(["1536x2752", null]);
    expect(at("4K", "16:9")).toEqual(["3840x2160", null]);
    expect(at("4K", "1:1")).toEqual(["2880x2880", null]);
    expect(at("512", "1:1")).toEqual([null, null]);
    expect(at("1K", "1:8")).toEqual([null, null]);
  });

  it("by a rule is near its ratio and within the bounds, in every size", () => {
    for (const ratio of RATIOS.common)
      for (const tier of ["1K", "2K", "4K"] as const) {
        const px = pixelsAt(RULE, tier, ratio) ?? { widthPx: 0, heightPx: 0 };
        const [w = 1, h = 1] = ratio.split(":").map(Number);
        expect([tier, ratio, makesPixels(RULE, px)]).toEqual([tier, ratio, true]);
        expect(Math.abs((px.widthPx * h) / (px.heightPx * w) - 1)).toBeLessThan(0.02);
      }
  });
});

describe("pixels that are asked for", () => {
  const tiers = ["1K", "2K"] as const;
  const facts = { tiers, ratios: RATIOS.common };

  it("are a size and a ratio where these stand for them, else they are exact, else there are none", () => {
    const asked = (
      pixels: Parameters<typeof makesPixels>[0] | "any" | null,
      widthPx: number,
      heightPx: number,
    ) => sizeOfPixels({ ...facts, pixels }, { widthPx, heightPx });
    expect(asked(null, 1376, 768)).toEqual({ size: "1K", ratio: "16:9" });
    expect(asked(null, 1536, 1024)).toBe(null);
    expect(asked(RULE, 1376, 768)).toEqual({ size: "1K", ratio: "16:9" });
    expect(asked(RULE, 1536, 1024)).toEqual({ size: "1536x1024", ratio: "3:2" });
    expect(asked(RULE, 1536, 1025)).toBe(null);
    expect(asked(THREE, 1376, 768)).toBe(null);
    expect(asked(THREE, 1024, 1536)).toEqual({ size: "1024x1536", ratio: "2:3" });
    expect(asked("any", 500, 301)).toEqual({ size: "500x301", ratio: "16:9" });
    expect(imageSizePx("500x301", "16:9")).toEqual({ widthPx: 500, heightPx: 301 });
  });

  it("are refused with what the model takes, and the nearest of it", () => {
    const advice = (pixels: Parameters<typeof makesPixels>[0] | null, widthPx: number, heightPx: number) =>
      pixelAdvice({ ...facts, pixels }, { widthPx, heightPx });
    expect(advice(THREE, 1792, 1024)).toBe("1024x1024, 1536x1024, 1024x1536; the nearest is 1536x1024");
    expect(advice(RULE, 1792, 936)).toMatch(/multiples of 16.*; the nearest is 1792x944$/);
    expect(advice(null, 1792, 1024)).toMatch(/; the nearest is 1376x768$/);
  });

  it("are known for names of models that clients still send", () => {
    expect(pixelsNamed("dall-e-2")).toMatchObject({
      pixels: ["256x256", "512x512", "1024x1024"],
      hasEnded: true,
    });
    expect(pixelsNamed("gpt-image-1.5")).toEqual({ pixels: THREE, hasEnded: false });
    expect(pixelsNamed("no-such-model")).toBe(null);
  });
});

it.each(["jpeg", "png", "webp"] as const)(
  "a %s that lies on its side has the width and height in which it is shown, as its thumbnail has",
  async (format) => {
    const picture = sharp({ create: { width: 60, height: 20, channels: 3, background: "red" } });
    for (const orientation of [1, 3, 6, 8]) {
      const bytes = await picture.clone().withMetadata({ orientation }).toFormat(format).toBuffer();
      const shown = orientation >= 5 ? [20, 60] : [60, 20];
      const { widthPx, heightPx } = shownSize(readImageHeader(bytes) ?? { widthPx: null, heightPx: null });
      expect([orientation, widthPx, heightPx]).toEqual([orientation, ...shown]);
      const decoding = new Decoding();
      const answer = { images: [bytes], modelVersion: "m" } as Parameters<typeof readOutput>[0];
      const { images } = await readOutput(answer, sharpInspector(decoding), {});
      const [made] = images;
      expect([orientation, made?.facts.widthPx, made?.facts.heightPx]).toEqual([orientation, ...shown]);
      const small = readImageHeader((await thumbnail(bytes, 60, decoding)) ?? Buffer.alloc(0));
      expect((small?.widthPx ?? 0) > (small?.heightPx ?? 0)).toBe(orientation < 5);
    }
  },
);

it("a damaged EXIF block takes nothing from the size", async () => {
  const picture = sharp({ create: { width: 60, height: 20, channels: 3, background: "red" } });
  const bytes = await picture.withMetadata({ orientation: 6 }).jpeg().toBuffer();
  const exif = bytes.indexOf("Exif");
  for (const directory of [0, 0xffffffff]) {
    const damaged = Buffer.from(bytes);
    damaged.writeUInt32LE(directory, exif + 10);
    expect(readImageHeader(damaged)).toEqual({ mimeType: "image/jpeg", widthPx: 60, heightPx: 20 });
  }
});

it.each([
  ["webp", false],
  ["webp", true],
  ["png", false],
] as const)(
  "an orientation behind a picture of more than 256 KiB counts while the %s comes in pieces",
  async (format, isOfJpeg) => {
    const [width, height] = [600, 400];
    const noise = { type: "gaussian", mean: 128, sigma: 60 } as const;
    const picture = sharp({ create: { width, height, channels: 3, background: "#000", noise } });
    const plain = picture.clone();
    const options = format === "webp" ? { lossless: true } : {};
    const exif = sharp(
      await sharp({ create: { width: 1, height: 1, channels: 3, background: "red" } })
        .png()
        .toBuffer(),
    );
    const block = (await sharp(await exif.withMetadata({ orientation: 6 }).png().toBuffer()).metadata()).exif;
    const bytes = await plain.toFormat(format, options).toBuffer();
    expect(bytes.length).toBeGreaterThan(300_000);
    // Some programs keep the name of a JPEG's segment.
    const name = Buffer.from("Exif\0\0");
    const tiff = block?.subarray(block.indexOf("Exif\0\0") === 0 ? name.length : 0) ?? name;
    const content = Buffer.concat([isOfJpeg ? name : Buffer.alloc(0), tiff]);
    const turned =
      format === "png"
        ? await picture.clone().withMetadata({ orientation: 6 }).png().toBuffer()
        : withExif(bytes, content);
    const sizes = [1, 7, 4096, 65_536, turned.length].map((step) => {
      const reader = new HeaderReader();
      const start = Math.min(turned.length, 262_139);
      reader.write(turned.subarray(0, start));
      for (let at = start; at < turned.length; at += step) reader.write(turned.subarray(at, at + step));
      const header = reader.read();
      return header && Object.values(shownSize(header));
    });
    expect(sizes).toEqual(sizes.map(() => [height, width]));
  },
);

/** Puts a chunk behind the picture of a WebP. */
function withExif(webp: Buffer, content: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.write("EXIF");
  head.writeUInt32LE(content.length, 4);
  const whole = Buffer.concat([webp, head, content, Buffer.alloc(content.length % 2)]);
  whole.writeUInt32LE(whole.length - 8, 4);
  return whole;
}
