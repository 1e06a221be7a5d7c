import sharp, { type WebpOptions } from "sharp";
import { describe, expect, it, vi } from "vitest";
import { FIXED_LIMITS } from "../../src/contract/limits.ts";
import { InvalidImageError } from "../../src/domain/ports/image-inspector.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { sharp as ours } from "../../src/imaging/sharp-config.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";
import { thumbnail } from "../../src/imaging/thumbnail.ts";
import {
  animation as animate,
  apngChunks,
  baselineScans,
  blackPng,
  codeGroups,
  extendedWebp,
  manyComments,
  manyScans,
  packedChunks,
  pngChunk,
  riff,
  withGainMap,
} from "../soak/bombs/images.mjs";

const inspector = sharpInspector(new Decoding());

const MAX_PIXELS = 64_000_000;
const inspect = (bytes: Buffer) => inspector.inspect(bytes, { maxPixels: MAX_PIXELS });
const dot = sharp({ create: { width: 8, height: 8, channels: 3, background: "#345" } });

/** A small JPEG whose header says another size. */
async function lyingJpeg(width: number, height: number): Promise<Buffer> {
  const bytes = Buffer.from(await dot.clone().jpeg().toBuffer());
  const frame = bytes.indexOf(Buffer.from([0xff, 0xc0]));
  bytes.writeUInt16BE(height, frame + 5);
  bytes.writeUInt16BE(width, frame + 7);
  return bytes;
}

/** A small lossy WebP whose header says another size. */
async function lyingWebp(width: number, height: number): Promise<Buffer> {
  const bytes = Buffer.from(await dot.clone().webp().toBuffer());
  const start = bytes.indexOf(Buffer.from([0x9d, 0x01, 0x2a]));
  bytes.writeUInt16LE(width, start + 3);
  bytes.writeUInt16LE(height, start + 5);
  return bytes;
}

/** An animation of this many frames of one pixel on a canvas of this size. */
async function animation(frames: number, side: number): Promise<Buffer> {
  const pixel = sharp({ create: { width: 1, height: 1, channels: 3, background: "#345" } });
  return animate(await pixel.webp().toBuffer(), frames, { width: side, height: side });
}

describe("an image that is much larger than its file", () => {
  it.each<[string, () => Buffer | Promise<Buffer>, RegExp]>([
    ["a PNG of 12000x12000", () => blackPng(12_000, 12_000), /12000x12000 pixels, more than/],
    ["a PNG of 17000x17000", () => blackPng(17_000, 17_000), /17000x17000 pixels, more than/],
    ["a JPEG that says 65500x65500", () => lyingJpeg(65_500, 65_500), /65500x65500 pixels, more than/],
    ["a WebP that says 16383x16383", () => lyingWebp(16_383, 16_383), /16383x16383 pixels, more than/],
    ["an animation of 17 frames of 2000x2000", () => animation(17, 2000), /2000x2000 pixels in 17 frames/],
    ["an animation of a thousand and one dots", () => animation(1001, 1), /at most 1,000 frames/],
    ["an animation of a hundred thousand dots", () => animation(100_000, 1), /at most 1,000 frames/],
  ])("is refused by its header: %s", async (_, make, message) => {
    const bytes = await make();
    expect(bytes.length).toBeLessThan(10 * 1024 * 1024);
    await expect(inspect(bytes)).rejects.toThrow(InvalidImageError);
    await expect(inspect(bytes)).rejects.toThrow(message);
  });

  it("is refused when its header promises what its data does not hold", async () => {
    for (const bytes of [await lyingJpeg(4000, 4000), await lyingWebp(4000, 4000)]) {
      await expect(inspect(bytes)).rejects.toThrow(InvalidImageError);
    }
  });

  it("is taken up to the limit: the pixels and frames that it says are decoded and counted", async () => {
    expect(await inspect(blackPng(8000, 8000))).toMatchObject({ widthPx: 8000, decodedPixels: MAX_PIXELS });
    expect(await inspect(await animation(1000, 8))).toMatchObject({ widthPx: 8, decodedPixels: 64_000 });
  });

  it("texts of a PNG are never unpacked, and only its first profile is, up to 4 MiB", async () => {
    const bombs = (["zTXt", "iTXt"] as const).flatMap((type) => packedChunks(type, 200, 7_900_000));
    const text = pngChunk("tEXt", Buffer.from("a\0b"));
    const profiles = packedChunks("iCCP", 101, 4_000_000);
    const cut = pngChunk("zTXt", Buffer.concat([Buffer.from("a\0\0"), Buffer.from([0x78, 0x9c, 1, 2])]));
    const extra = [text, ...bombs, ...profiles, text, cut];
    const seen: Buffer[] = [];
    const decoding = new Decoding();
    const see = async (decodable: Buffer) => void seen.push(decodable);
    await decoding.decode(blackPng(8, 8, { extra }), { maxPixels: MAX_PIXELS }, see);
    await decoding.decode(blackPng(8, 8), { maxPixels: MAX_PIXELS }, see);
    expect(seen).toEqual([blackPng(8, 8, { extra: profiles.slice(0, 1) }), blackPng(8, 8)]);
    expect(await inspect(blackPng(8, 8, { extra: [...bombs, cut] }))).toMatchObject({
      widthPx: 8,
      heightPx: 8,
    });
    const large = blackPng(8, 8, { extra: packedChunks("iCCP", 1, 1_000_000_000) });
    await expect(inspect(large)).rejects.toThrow(/a colour profile of more than 4 MiB/);
  });
});

describe("an image that costs a decoder much more than its file", () => {
  const [scans, chunks] = [FIXED_LIMITS.imageScans, FIXED_LIMITS.imageChunks];
  const small = dot.clone().webp();
  it.each<[string, () => Buffer | Promise<Buffer>, RegExp]>([
    [
      "a PNG of 64 million pixels in one row",
      () => blackPng(64_000_000, 1, { bits: 16, color: 6 }),
      /at most 16,384 pixels a side/,
    ],
    [
      "a PNG of 64 million rows",
      () => blackPng(1, 64_000_000, { bits: 16, color: 6 }),
      /at most 16,384 pixels a side/,
    ],
    [
      "an interlaced PNG of 512 MB",
      () => blackPng(8000, 8000, { bits: 16, color: 6, interlaced: true }),
      /needs 512 MB .* at most 280 MB/,
    ],
    [
      "a progressive JPEG of four components",
      () => manyScans(8000, 8000, 10, { components: 4 }),
      /needs \d+ MB .* at most 280 MB/,
    ],
    ["a progressive JPEG of 20,000 scans", () => manyScans(8000, 8000, 20_000), /at most 100 scans/],
    ["a progressive JPEG of a scan too many", () => manyScans(8, 8, scans + 1), /at most 100 scans/],
    ["a sequential JPEG of a scan too many", () => baselineScans(8, 8, scans + 1), /at most 100 scans/],
    ["a JPEG of comments", () => manyComments(100_001), /at most 100,000 segments/],
    [
      "a PNG of tiny chunks",
      () => blackPng(8, 8, { extra: [Buffer.alloc(12 * chunks, pngChunk("prVt"))] }),
      /at most 100,000 chunks/,
    ],
    [
      "a WebP of tiny chunks",
      async () =>
        extendedWebp(8, 8, 0, [
          (await small.toBuffer()).subarray(12),
          Buffer.alloc(8 * chunks, riff("zzzz")),
        ]),
      /at most 100,000 chunks/,
    ],
    [
      "a lossless WebP of 65,536 groups of codes",
      () => codeGroups(1024, 1024, 65_536),
      /has 65536 groups of prefix codes; at most 4096 are allowed/,
    ],
    ["a lossless WebP of a group of codes too many", () => codeGroups(512, 512, 4097), /has 4097 groups/],
    [
      "an animation with such a frame",
      () => animate(codeGroups(512, 512, 4097), 1, { width: 512, height: 512 }, { width: 512, height: 512 }),
      /has 4097 groups/,
    ],
    [
      "a lossless WebP that is larger than its canvas",
      () => extendedWebp(8, 8, 0, [codeGroups(512, 512, 1).subarray(12)]),
      /lossless data is damaged/,
    ],
    [
      "a lossy WebP whose alpha channel has so many",
      async () => {
        const alpha = Buffer.concat([Buffer.from([1]), codeGroups(512, 512, 4097).subarray(25)]);
        const picture = (await dot.clone().resize(512, 512).webp().toBuffer()).subarray(12);
        return extendedWebp(512, 512, 0x10, [riff("ALPH", alpha), picture]);
      },
      /has 4097 groups/,
    ],
    [
      "a WebP of many lossless pictures",
      () => extendedWebp(512, 512, 0, Array(2).fill(codeGroups(512, 512, 16).subarray(12))),
      /lossless data is damaged/,
    ],
    [
      "a lossless WebP that ends before its groups",
      () => codeGroups(512, 512, 4097).subarray(0, 8000),
      /lossless data is damaged/,
    ],
  ])("never comes to a decoder: %s", async (_, make, limit) => {
    const bytes = await make();
    const work = vi.fn();
    const decoded = new Decoding().decode(bytes, { maxPixels: MAX_PIXELS }, work);
    await expect(decoded).rejects.toThrow(limit);
    await expect(decoded).rejects.toThrow(InvalidImageError);
    expect(work).not.toHaveBeenCalled();
    expect(await thumbnail(bytes, 100, new Decoding())).toBeNull();
  });

  it("is taken when a program could have made it so", async () => {
    const grey = dot.clone().resize(640, 480);
    // Many colours, few colours, and alpha: each has other transforms.
    const noise = sharp({
      create: {
        width: 640,
        height: 480,
        channels: 3,
        background: "#345",
        noise: { type: "gaussian", mean: 128, sigma: 40 },
      },
    }).ensureAlpha(0.5);
    const lossless: WebpOptions[] = [
      ...[0, 4, 6].map((effort) => ({ lossless: true, effort })),
      { nearLossless: true, quality: 30 },
      { alphaQuality: 100 },
    ];
    const images = [
      await grey.clone().jpeg({ progressive: true, chromaSubsampling: "4:4:4" }).toBuffer(),
      await grey.clone().toColourspace("cmyk").jpeg({ progressive: true }).toBuffer(),
      manyScans(640, 480, scans, { components: 3 }),
      baselineScans(640, 480, 3),
      baselineScans(640, 480, 1, { components: 1, restartEvery: 1 }),
      blackPng(640, 480, { bits: 16, color: 6, interlaced: true }),
      blackPng(640, 480, { extra: apngChunks(50) }),
      codeGroups(640, 480, 4096),
      ...(await Promise.all(lossless.map((options) => noise.clone().webp(options).toBuffer()))),
    ];
    for (const image of images)
      expect(await inspect(image)).toMatchObject({ widthPx: 640, heightPx: 480, decodedPixels: 640 * 480 });
    expect(await inspect(blackPng(16_384, 2))).toMatchObject({ widthPx: 16_384, heightPx: 2 });
    const limits = { maxPixels: 100_000_000 };
    const large = blackPng(8192, 8192, { bits: 8, color: 6 });
    expect(await inspector.inspect(large, limits)).toMatchObject({ widthPx: 8192, heightPx: 8192 });
  });

  it("cannot hide its size or its scans from those who look before the decoder", async () => {
    const bomb = manyScans(8000, 8000, 20_000);
    const bareMarkers = Buffer.from([0xff, 0xff, 0xd0, 0xff, 0x01]);
    const shy = Buffer.concat([bomb.subarray(0, 2), bareMarkers, bomb.subarray(2)]);
    await expect(inspect(shy)).rejects.toThrow(/at most 100 scans/);
    const appended = Buffer.concat([manyScans(8, 8, 3), bomb]);
    expect(await inspect(appended)).toMatchObject({ widthPx: 8, heightPx: 8 });
    const comment = Buffer.from([0xff, 0xfe, 0, 6, 0xff, 0xda, 0xff, 0xda]);
    const plain = manyScans(8, 8, scans);
    expect(await inspect(Buffer.concat([plain.subarray(0, 2), comment, plain.subarray(2)]))).toBeTruthy();
  });
});

describe("decodings of one service", () => {
  const large = blackPng(4000, 4000, { bits: 8, color: 6, interlaced: true });
  const little = blackPng(8, 8);
  const any = { maxPixels: MAX_PIXELS };

  it.each([
    [4, 2],
    [3, 1],
  ])(
    "of %i threads two small images take %i, a large one another, and one stays free",
    async (threads, most) => {
      const decoding = new Decoding(threads);
      const ends: (() => void)[] = [];
      const running = { small: 0, large: 0 };
      const begin = (size: keyof typeof running) => () => {
        running[size]++;
        return new Promise<void>((end) => ends.push(end)).finally(() => running[size]--);
      };
      const all = Promise.all([
        ...Array.from({ length: 4 }, () => decoding.decode(large, any, begin("large"))),
        ...Array.from({ length: 4 }, () => decoding.decode(little, any, begin("small"))),
      ]);
      for (let left = 8; left > 0; left--) {
        await expect.poll(() => ends).not.toHaveLength(0);
        expect(running.small).toBeLessThanOrEqual(most);
        expect(running.large).toBeLessThanOrEqual(1);
        ends.shift()?.();
      }
      await all;
    },
  );
});

it("only decoders whose cost is measured see an image, also one that others would take", async () => {
  const jpeg = await dot.clone().jpeg().toBuffer();
  const bright = withGainMap(jpeg, jpeg);
  // Its own decoder would know of the map.
  expect((await ours(bright).metadata()).gainMap).toBeUndefined();
  expect(await inspect(bright)).toMatchObject({ mimeType: "image/jpeg", widthPx: 8, heightPx: 8 });
  for (const bytes of [await dot.clone().gif().toBuffer(), await dot.clone().tiff().toBuffer()])
    await expect(ours(bytes).metadata()).rejects.toThrow(/unsupported/);
});
