import { crc32 } from "node:zlib";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { IMAGE_MIME_TYPES, type ImageMimeType } from "../../src/contract/image-formats.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { addMetadata } from "../../src/imaging/picture-metadata.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";

const inspector = sharpInspector(new Decoding());

const size = { widthPx: 33, heightPx: 21 };
const metadata = (prompt: string): Parameters<typeof addMetadata>[3] => ({
  software: "a drawing program",
  prompt,
  settings: {
    Steps: 1,
    Sampler: "procedural",
    "CFG scale": 1,
    Seed: 4242,
    Nothing: null,
    Size: "33x21",
    Model: "some, model",
    Version: "procedural/1",
  },
  details: { prompt, seed: 4242, nested: { list: [1, "é"] } },
});

async function plain(mimeType: ImageMimeType, alpha = false): Promise<Buffer> {
  const image = sharp({
    create: {
      width: 33,
      height: 21,
      channels: alpha ? 4 : 3,
      background: { r: 200, g: 80, b: 40, alpha: 0.5 },
    },
  });
  if (mimeType === "image/png") return image.png().toBuffer();
  return mimeType === "image/jpeg" ? image.jpeg().toBuffer() : image.webp({ lossless: alpha }).toBuffer();
}

/** Reads a PNG's chunks and checks the sum of each. */
function chunksOf(png: Buffer): { type: string; data: Buffer }[] {
  const chunks: { type: string; data: Buffer }[] = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const data = png.subarray(at + 8, at + 8 + length);
    expect(png.readUInt32BE(at + 8 + length)).toBe(crc32(png.subarray(at + 4, at + 8 + length)));
    chunks.push({ type: png.toString("latin1", at + 4, at + 8), data });
    at += length + 12;
  }
  return chunks;
}

/** The texts of a PNG by keyword, read as the format's specification says. */
function textsOf(png: Buffer): Map<string, { type: string; text: string }> {
  const texts = new Map<string, { type: string; text: string }>();
  for (const { type, data } of chunksOf(png)) {
    const end = data.indexOf(0);
    const keyword = data.toString("latin1", 0, end);
    if (type === "tEXt") texts.set(keyword, { type, text: data.toString("latin1", end + 1) });
    if (type !== "iTXt") continue;
    expect(data[end + 1]).toBe(0);
    const language = data.indexOf(0, end + 3);
    const translated = data.indexOf(0, language + 1);
    texts.set(keyword, { type, text: data.toString("utf8", translated + 1) });
  }
  return texts;
}

/** Tag → bytes, of an EXIF block's main and inner directory. */
function exifOf(block: Buffer): Map<number, Buffer> {
  const tiff = block.toString("latin1", 0, 4) === "Exif" ? block.subarray(6) : block;
  const little = tiff.toString("latin1", 0, 2) === "II";
  const u16 = (at: number) => (little ? tiff.readUInt16LE(at) : tiff.readUInt16BE(at));
  const u32 = (at: number) => (little ? tiff.readUInt32LE(at) : tiff.readUInt32BE(at));
  const entries = new Map<number, Buffer>();
  const read = (directory: number) => {
    for (let i = 0; i < u16(directory); i++) {
      const at = directory + 2 + i * 12;
      const bytes = u32(at + 4) * ({ 1: 1, 2: 1, 3: 2, 4: 4, 7: 1 }[u16(at + 2)] ?? 1);
      const from = bytes > 4 ? u32(at + 8) : at + 8;
      entries.set(u16(at), tiff.subarray(from, from + bytes));
      if (u16(at) === 0x8769) read(u32(at + 8));
    }
  };
  read(u32(4));
  return entries;
}

const comment = (bytes: Buffer | undefined) => {
  expect(bytes?.toString("latin1", 0, 8)).toBe("UNICODE\0");
  return Buffer.from(bytes?.subarray(8) ?? [])
    .swap16()
    .toString("utf16le");
};
const ascii = (bytes: Buffer | undefined) => bytes?.toString("utf8").replace(/\0$/, "");

const SETTINGS =
  "Steps: 1, Sampler: procedural, CFG scale: 1, Seed: 4242, Size: 33x21, Model: some model, Version: procedural/1";
const PROMPTS = [
  "a fox",
  "a café in Köln\nsecond line",
  "日本の狐 🦊 и кот",
  "x".repeat(8000),
  "é".repeat(8000),
];

describe("the metadata of a picture", () => {
  it.each(PROMPTS)(
    "[IMG-6] a PNG holds prompt and settings as text chunks that viewers read (%#)",
    async (prompt) => {
      const png = addMetadata(await plain("image/png"), "image/png", size, metadata(prompt));
      const texts = textsOf(png);
      expect(texts.get("parameters")?.text).toBe(`${prompt}\n${SETTINGS}`);
      expect(texts.get("parameters")?.type).toBe(/[^\n\x20-\x7e\xa0-\xff]/.test(prompt) ? "iTXt" : "tEXt");
      expect(texts.get("Software")?.text).toBe("a drawing program");
      expect(JSON.parse(texts.get("imgbatch")?.text ?? "")).toEqual(metadata(prompt).details);
      const types = chunksOf(png).map(({ type }) => type);
      expect(types[0]).toBe("IHDR");
      expect(types.indexOf("IDAT")).toBeGreaterThan(types.lastIndexOf("tEXt"));
      expect(types.at(-1)).toBe("IEND");
    },
  );

  it.each(["image/jpeg", "image/webp"] as const)("%s holds them as EXIF, in any script", async (mimeType) => {
    for (const prompt of PROMPTS) {
      const image = addMetadata(await plain(mimeType), mimeType, size, metadata(prompt));
      const entries = exifOf((await sharp(image).metadata()).exif ?? Buffer.alloc(0));
      expect(comment(entries.get(0x9286))).toBe(`${prompt}\n${SETTINGS}`);
      expect(ascii(entries.get(0x0131))).toBe("a drawing program");
      const description = ascii(entries.get(0x010e)) ?? "";
      expect(prompt.length > 2000 ? description.replace(/…$/, "") : prompt).toBe(
        prompt.slice(0, description.length - (prompt.length > 2000 ? 1 : 0)),
      );
    }
  });

  it("a prompt that does not fit into the EXIF of a JPEG is cut there, and whole in a PNG", async () => {
    const prompt = "🦊".repeat(40_000);
    const jpeg = addMetadata(await plain("image/jpeg"), "image/jpeg", size, metadata(prompt));
    const text = comment(exifOf((await sharp(jpeg).metadata()).exif ?? Buffer.alloc(0)).get(0x9286));
    expect(text).toMatch(/^(🦊)+…\n/u);
    expect(text.endsWith(SETTINGS)).toBe(true);
    const png = addMetadata(await plain("image/png"), "image/png", size, metadata(prompt));
    expect(textsOf(png).get("parameters")?.text).toBe(`${prompt}\n${SETTINGS}`);
  });

  it("leaves every pixel as it was, and a file that decodes", async () => {
    for (const mimeType of IMAGE_MIME_TYPES) {
      for (const alpha of mimeType === "image/webp" ? [false, true] : [false]) {
        const before = await plain(mimeType, alpha);
        const after = addMetadata(before, mimeType, size, metadata("a fox"));
        expect(await inspector.inspect(after, { maxPixels: 1000 })).toMatchObject({ mimeType, ...size });
        expect((await sharp(after).raw().toBuffer()).equals(await sharp(before).raw().toBuffer())).toBe(true);
        expect((await sharp(after).metadata()).hasAlpha).toBe((await sharp(before).metadata()).hasAlpha);
      }
    }
  });

  it("a WebP with metadata already gets it replaced, not doubled", async () => {
    const once = addMetadata(await plain("image/webp"), "image/webp", size, metadata("first"));
    const twice = addMetadata(once, "image/webp", size, metadata("other"));
    expect(twice.length).toBe(once.length);
    expect(ascii(exifOf((await sharp(twice).metadata()).exif ?? Buffer.alloc(0)).get(0x010e))).toBe("other");
  });
});
