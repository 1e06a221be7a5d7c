import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { IMAGE_MIME_TYPES, type ImageMimeType } from "../../src/contract/image-formats.ts";
import { InvalidImageError } from "../../src/domain/ports/image-inspector.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";
import { pngOf } from "../support/fake-service.ts";

const inspector = sharpInspector(new Decoding());

const limits = { maxPixels: 64_000_000 };
const inspect = (bytes: Buffer) => inspector.inspect(bytes, limits);

/** A picture with enough detail that its bytes are spread over its rows. */
async function picture(mimeType: ImageMimeType, width = 160, height = 120): Promise<Buffer> {
  const data = Buffer.from(
    Array.from({ length: width * height * 3 }, (_, i) => (i * 7919 + (i >> 5) * 31) % 256),
  );
  const image = sharp(data, { raw: { width, height, channels: 3 } });
  if (mimeType === "image/png") return image.png().toBuffer();
  return mimeType === "image/jpeg" ? image.jpeg().toBuffer() : image.webp().toBuffer();
}

const SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>';

/** A PNG that announces these dimensions and has next to no data. */
const floodPng = (width: number, height: number) => pngOf(width, height, Buffer.alloc(10));

describe("the image inspector", () => {
  it.each(IMAGE_MIME_TYPES)("[IMG-1] says type, width and height of a whole %s", async (mimeType) => {
    expect(await inspect(await picture(mimeType))).toEqual({
      mimeType,
      widthPx: 160,
      heightPx: 120,
      decodedPixels: 160 * 120,
    });
  });

  it("[IMG-1] takes grey, transparent, 16-bit, interlaced and progressive images", async () => {
    const source = sharp(await picture("image/png"));
    const images = [
      source.clone().greyscale().png(),
      source.clone().ensureAlpha(0.5).png(),
      source.clone().toColourspace("rgb16").png(),
      source.clone().png({ progressive: true }),
      source.clone().png({ palette: true }),
      source.clone().jpeg({ progressive: true }),
      source.clone().toColourspace("cmyk").jpeg(),
      source.clone().webp({ lossless: true }),
    ];
    for (const image of images)
      expect(await inspect(await image.toBuffer())).toMatchObject({ widthPx: 160, heightPx: 120 });
  });

  it.each<[string, Buffer]>([
    ["an empty file", Buffer.alloc(0)],
    ["text", Buffer.from("hello")],
    ["a GIF", Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64")],
    ["an SVG", Buffer.from(SVG)],
    ["an SVG behind an XML line", Buffer.from(`<?xml version="1.0"?>${SVG}`)],
    ["a TIFF", Buffer.from("II*\0\x08\0\0\0", "latin1")],
    ["a PDF", Buffer.from("%PDF-1.7")],
    ["an SVG behind a byte order mark", Buffer.from(`\ufeff${SVG}`)],
    ["a packed SVG", Buffer.from([0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0])],
    ["HEIC", Buffer.from("\0\0\0\x18ftypheic\0\0\0\0mif1heic", "latin1")],
    ["AVIF", Buffer.from("\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf", "latin1")],
    ["a PNG behind a PDF's head", Buffer.concat([Buffer.from("%PDF-1.7\n"), floodPng(8, 8)])],
    ["a PNG behind one more byte", Buffer.concat([Buffer.from("\n"), floodPng(8, 8)])],
    ["a RIFF that is no WebP", Buffer.from("RIFF\x10\0\0\0WAVEfmt ", "latin1")],
  ])("refuses %s by its first bytes", async (_, bytes) => {
    await expect(inspect(bytes)).rejects.toThrow(InvalidImageError);
    await expect(inspect(bytes)).rejects.toThrow(/not a PNG, JPEG or WebP image|is empty/);
  });

  it.each(IMAGE_MIME_TYPES)("[IMG-3] refuses a %s that was cut anywhere", async (mimeType) => {
    const whole = await picture(mimeType);
    const cuts = [0.05, 0.3, 0.5, 0.8, 0.97].map((part) => Math.floor(whole.length * part));
    for (const length of [...cuts, whole.length - 1, whole.length - 4]) {
      await expect(inspect(whole.subarray(0, length)), `${length} of ${whole.length}`).rejects.toThrow(
        InvalidImageError,
      );
    }
  });

  it("[IMG-3] refuses a magic number with something else behind it", async () => {
    const whole = await picture("image/png");
    for (const head of [
      whole.subarray(0, 8),
      Buffer.from([0xff, 0xd8, 0xff, 0xe0]),
      Buffer.from("RIFF\x20\0\0\0WEBPVP8 ", "latin1"),
    ]) {
      const refused = inspect(Buffer.concat([head, Buffer.from("<svg/>".repeat(20))]));
      await expect(refused).rejects.toThrow(InvalidImageError);
      await expect(refused).rejects.toThrow(/[^:\s]$/);
    }
  });

  it("[IMG-3] takes bytes behind the end of an image, as cameras append", async () => {
    for (const mimeType of IMAGE_MIME_TYPES) {
      const bytes = Buffer.concat([await picture(mimeType), Buffer.from("appended")]);
      expect(await inspect(bytes)).toMatchObject({ mimeType });
    }
  });

  it("[IMG-4] refuses too many pixels by the header, and says the size", async () => {
    await expect(inspect(floodPng(60_000, 60_000))).rejects.toThrow(
      /60000x60000 pixels, more than the 64000000 allowed/,
    );
    const bytes = await picture("image/webp");
    await expect(inspector.inspect(bytes, { maxPixels: 160 * 120 - 1 })).rejects.toThrow(InvalidImageError);
    await expect(inspector.inspect(bytes, { maxPixels: 160 * 120 })).resolves.toMatchObject({
      widthPx: 160,
    });
  });

  it("counts all frames of an animation, decodes them, and answers the size of one", async () => {
    const frames = [
      await picture("image/png"),
      await sharp(await picture("image/png"))
        .negate()
        .png()
        .toBuffer(),
    ];
    const bytes = await sharp(frames, { join: { animated: true } })
      .webp()
      .toBuffer();
    const facts = { mimeType: "image/webp", widthPx: 160, heightPx: 120, decodedPixels: 2 * 160 * 120 };
    expect(await inspect(bytes)).toEqual(facts);
    await expect(inspector.inspect(bytes, { maxPixels: 160 * 120 + 1 })).rejects.toThrow(/2 frames/);
    await expect(inspect(bytes.subarray(0, bytes.length - 200))).rejects.toThrow(InvalidImageError);
  });
});
