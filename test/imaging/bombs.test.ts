import { crc32, deflateSync } from "node:zlib";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { InvalidImageError } from "../../src/domain/ports/image-inspector.ts";
import { sharpInspector } from "../../src/imaging/sharp-inspector.ts";

const MAX_PIXELS = 64_000_000;
const inspect = (bytes: Buffer) => sharpInspector.inspect(bytes, { maxPixels: MAX_PIXELS });
const dot = sharp({ create: { width: 8, height: 8, channels: 3, background: "#345" } });

function pngChunk(type: string, data: Buffer): Buffer {
  const out = Buffer.alloc(data.length + 12);
  out.writeUInt32BE(data.length, 0);
  out.write(type, 4, "latin1");
  data.copy(out, 8);
  out.writeUInt32BE(crc32(out.subarray(4, -4)), data.length + 8);
  return out;
}

/** A whole PNG of black pixels, which deflate to a thousandth. */
function blackPng(width: number, height: number): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([1, 0, 0, 0, 0], 8);
  const rows = deflateSync(Buffer.alloc((Math.ceil(width / 8) + 1) * height), { level: 9 });
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    pngChunk("IHDR", header),
    pngChunk("IDAT", rows),
    pngChunk("IEND", Buffer.alloc(0)),
  ]);
}

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

function riff(type: string, ...data: Buffer[]): Buffer {
  const length = data.reduce((sum, part) => sum + part.length, 0);
  const head = Buffer.alloc(8);
  head.write(type, 0, "latin1");
  head.writeUInt32LE(length, 4);
  return Buffer.concat([head, ...data, Buffer.alloc(length % 2)]);
}

/** An animation of so many frames of one pixel on a canvas of this size. */
async function animation(frames: number, side: number): Promise<Buffer> {
  const pixel = sharp({ create: { width: 1, height: 1, channels: 3, background: "#345" } });
  const image = (await pixel.webp().toBuffer()).subarray(12);
  const sizes = Buffer.alloc(10);
  sizes[0] = 2;
  sizes.writeUIntLE(side - 1, 4, 3);
  sizes.writeUIntLE(side - 1, 7, 3);
  const place = Buffer.alloc(16);
  place[12] = 100;
  const frame = riff("ANMF", place, image);
  const parts = [riff("VP8X", sizes), riff("ANIM", Buffer.alloc(6)), ...Array<Buffer>(frames).fill(frame)];
  return riff("RIFF", Buffer.from("WEBP"), ...parts);
}

describe("an image that is much larger than its file", () => {
  it.each<[string, () => Buffer | Promise<Buffer>, RegExp]>([
    ["a PNG of 12000x12000", () => blackPng(12_000, 12_000), /12000x12000 pixels, more than/],
    ["a PNG of 17000x17000", () => blackPng(17_000, 17_000), /17000x17000 pixels, more than/],
    ["a JPEG that says 65500x65500", () => lyingJpeg(65_500, 65_500), /65500x65500 pixels, more than/],
    ["a WebP that says 16383x16383", () => lyingWebp(16_383, 16_383), /16383x16383 pixels, more than/],
    ["an animation of 17 frames of 2000x2000", () => animation(17, 2000), /2000x2000 pixels in 17 frames/],
    ["an animation of a thousand and one dots", () => animation(1001, 1), /more than 1000 frames/],
    ["an animation of a hundred thousand dots", () => animation(100_000, 1), /more than 1000 frames/],
  ])("[IMG-10] is refused by its header: %s", async (_, make, message) => {
    const bytes = await make();
    expect(bytes.length).toBeLessThan(10 * 1024 * 1024);
    await expect(inspect(bytes)).rejects.toThrow(InvalidImageError);
    await expect(inspect(bytes)).rejects.toThrow(message);
  });

  it("[IMG-10] is refused when its header promises what its data does not hold", async () => {
    for (const bytes of [await lyingJpeg(4000, 4000), await lyingWebp(4000, 4000)]) {
      await expect(inspect(bytes)).rejects.toThrow(InvalidImageError);
    }
  });

  it("[IMG-10] is taken up to the limit: the pixels and frames that it says are decoded and counted", async () => {
    expect(await inspect(blackPng(8000, 8000))).toMatchObject({ widthPx: 8000, decodedPixels: MAX_PIXELS });
    expect(await inspect(await animation(1000, 8))).toMatchObject({ widthPx: 8, decodedPixels: 64_000 });
  });

  it("[IMG-10] is not blown up by text or profiles packed in it", async () => {
    const png = await dot.clone().png().toBuffer();
    const zeros = deflateSync(Buffer.alloc(100_000_000), { level: 1 });
    const packed = { zTXt: "a\0\0", iTXt: "a\0\x01\0\0\0", iCCP: "a\0\0" };
    for (const [type, head] of Object.entries(packed)) {
      const chunk = pngChunk(type, Buffer.concat([Buffer.from(head, "latin1"), zeros]));
      const bytes = Buffer.concat([png.subarray(0, 33), chunk, png.subarray(33)]);
      expect(await inspect(bytes)).toMatchObject({ widthPx: 8, heightPx: 8 });
    }
  });
});

describe("files of other kinds", () => {
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>';
  it.each<[string, Buffer]>([
    ["an SVG behind a byte order mark", Buffer.from(`\ufeff${svg}`)],
    ["an SVG behind space and comments", Buffer.from(`\n<!-- \x89PNG -->\n${svg}`)],
    ["a packed SVG", Buffer.from([0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0])],
    ["an SVG that names an entity a billion times", Buffer.from(`<!DOCTYPE svg [<!ENTITY a "b">]>${svg}`)],
    ["HEIC", Buffer.from("\0\0\0\x18ftypheic\0\0\0\0mif1heic", "latin1")],
    ["AVIF", Buffer.from("\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf", "latin1")],
    ["JPEG XL", Buffer.from([0xff, 0x0a, 0, 0])],
    ["JPEG 2000", Buffer.from("\0\0\0\x0cjP  \r\n\x87\n", "latin1")],
    ["big-endian TIFF", Buffer.from("MM\0*\0\0\0\x08", "latin1")],
    ["BMP", Buffer.from("BM\x3a\0\0\0\0\0\0\0", "latin1")],
    ["an icon", Buffer.from([0, 0, 1, 0, 1, 0])],
    ["a ZIP", Buffer.from("PK\x03\x04")],
    ["a PNG behind a PDF's head", Buffer.concat([Buffer.from("%PDF-1.7\n"), blackPng(8, 8)])],
    ["a PNG behind one more byte", Buffer.concat([Buffer.from("\n"), blackPng(8, 8)])],
    ["a PNG of text line ends", Buffer.from("\x89PNG\n\x1a\n", "latin1")],
  ])("[IMG-2] are refused by their first bytes: %s", async (_, bytes) => {
    await expect(inspect(bytes)).rejects.toThrow(/not a PNG, JPEG or WebP image/);
  });

  it("[IMG-2] that hide behind the head of an image are refused, or are that image and nothing else", async () => {
    const heads = [Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), Buffer.from([0xff, 0xd8, 0xff])];
    for (const head of heads) {
      await expect(inspect(Buffer.concat([head, Buffer.from(svg)]))).rejects.toThrow(InvalidImageError);
    }
    const polyglot = Buffer.concat([blackPng(8, 8), Buffer.from(`<script>${svg}</script>PK\x03\x04`)]);
    expect(await inspect(polyglot)).toMatchObject({ mimeType: "image/png", widthPx: 8, heightPx: 8 });
  });
});
