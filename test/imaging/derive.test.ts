import sharp from "sharp";
import { expect, it } from "vitest";
import type { FileForm } from "../../src/contract/image-formats.ts";
import { deriveFile } from "../../src/imaging/derive.ts";

const SOURCE = "trainedAlgorithmicMedia";
const DIGITAL = `<Iptc4xmpExt:DigitalSourceType>http://cv.iptc.org/newscodes/digitalsourcetype/${SOURCE}<`;

/** A yellow disc at the right of a blue field, 400x200. `border`: a flat one around the field, in pixels. */
async function scene({ border = 0, type = "png" as "png" | "jpeg" | "webp", alpha = false } = {}) {
  const disc = `<svg xmlns="http://www.w3.org/2000/svg" width="400" height="200">
    <rect width="400" height="200" fill="${alpha ? "none" : "#203a8f"}"/><circle cx="330" cy="100" r="45" fill="#ffd21f"/>
    <circle cx="330" cy="100" r="12" fill="#d01010"/></svg>`;
  const background = alpha ? { r: 0, g: 0, b: 0, alpha: 0 } : "#ffffff";
  const image = sharp(Buffer.from(disc)).extend({
    top: border,
    bottom: border,
    left: border,
    right: border,
    background,
  });
  return (alpha ? image : image.flatten())[type]().toBuffer();
}

async function pixel(bytes: Buffer, left: number, top: number): Promise<number[]> {
  const area = sharp(bytes).ensureAlpha().extract({ left, top, width: 1, height: 1 });
  return [...(await area.raw().toBuffer())];
}

const near = (found: number[], wanted: number[]) =>
  found.every((value, i) => Math.abs(value - (wanted[i] ?? 255)) < 24);
const [YELLOW, WHITE] = [
  [0xff, 0xd2, 0x1f],
  [255, 255, 255],
];

async function shareOf(colour: number[], bytes: Buffer): Promise<number> {
  const { data, info } = await sharp(bytes).removeAlpha().raw().toBuffer({ resolveWithObject: true });
  const pixels = Array.from({ length: info.width * info.height }, (_, i) => [
    ...data.subarray(3 * i, 3 * i + 3),
  ]);
  return pixels.filter((found) => near(found, colour)).length / pixels.length;
}

it("[DERIVE-6] a picture is cut where most is to be seen, or as its position says, to exactly the pixels", async () => {
  const original = await scene();
  const form = { pixels: "100x100", format: "png" } as const;
  const attention = await deriveFile(original, form, null);
  expect([attention.widthPx, attention.heightPx, attention.isEnlarged]).toEqual([100, 100, false]);
  expect(await shareOf(YELLOW, attention.bytes)).toBeGreaterThan(0.1);
  const left = await deriveFile(original, { ...form, position: "left" }, null);
  expect(await shareOf(YELLOW, left.bytes)).toBe(0);
  for (const format of ["png", "jpeg", "webp", "avif"] as const) {
    const again = () => deriveFile(original, { ...form, format }, SOURCE);
    const [first, second] = [await again(), await again()];
    expect([format, first.bytes.equals(second.bytes)]).toEqual([format, true]);
    expect([format, first.bytes.includes(DIGITAL)]).toEqual([format, true]);
    expect([
      format,
      (await deriveFile(original, { ...form, format }, null)).bytes.includes("Iptc4xmp"),
    ]).toEqual([format, false]);
  }
});

it("[DERIVE-6] the other ways into the pixels: a border, stretched, inside, one side", async () => {
  const original = await scene();
  const sizeOf = async (form: Partial<FileForm>) => {
    const { widthPx, heightPx, isEnlarged } = await deriveFile(original, { format: "png", ...form }, null);
    return `${widthPx}x${heightPx}${isEnlarged ? " enlarged" : ""}`;
  };
  expect(await sizeOf({ pixels: "100x100", fit: "contain" })).toBe("100x100");
  expect(await sizeOf({ pixels: "100x100", fit: "fill" })).toBe("100x100");
  expect(await sizeOf({ pixels: "100x100", fit: "inside" })).toBe("100x50");
  expect(await sizeOf({ pixels: "100x" })).toBe("100x50");
  expect(await sizeOf({ pixels: "x100" })).toBe("200x100");
  expect(await sizeOf({ pixels: "800x100" })).toBe("800x100 enlarged");
  expect(await sizeOf({ pixels: "400x300", fit: "contain" })).toBe("400x300");
  expect(await sizeOf({ pixels: "600x600", fit: "inside" })).toBe("600x300 enlarged");
  const contained = await deriveFile(original, { format: "png", pixels: "100x100", fit: "contain" }, null);
  expect((await pixel(contained.bytes, 50, 5))[3]).toBe(0);
  const white = await deriveFile(original, { format: "jpeg", pixels: "100x100", fit: "contain" }, null);
  expect(near(await pixel(white.bytes, 50, 5), WHITE)).toBe(true);
});

it("[DERIVE-6] a flat or transparent border is cut off, and transparency is white in a JPEG", async () => {
  const framed = await deriveFile(await scene({ border: 30 }), { format: "png", trim: true }, null);
  expect([framed.widthPx, framed.heightPx]).toEqual([400, 200]);
  const clear = await scene({ border: 30, alpha: true });
  const disc = await deriveFile(clear, { format: "webp", trim: true, pixels: "90x90" }, null);
  expect([disc.widthPx, disc.heightPx, disc.isEnlarged]).toEqual([90, 90, false]);
  expect((await pixel(disc.bytes, 1, 1))[3]).toBe(0);
  const flat = await sharp({ create: { width: 50, height: 40, channels: 3, background: "#abcdef" } })
    .png()
    .toBuffer();
  const same = await deriveFile(flat, { format: "png", trim: true }, null);
  expect([same.widthPx, same.heightPx]).toEqual([50, 40]);
  const jpeg = await deriveFile(clear, { format: "jpeg" }, null);
  expect(near(await pixel(jpeg.bytes, 2, 2), WHITE)).toBe(true);
});

it("[DERIVE-7] where nothing but the metadata changes, the pixels are not encoded again", async () => {
  for (const type of ["png", "jpeg", "webp"] as const) {
    const original = await scene({ type });
    const marked = await deriveFile(original, { format: type }, SOURCE);
    expect([type, marked.bytes.includes(DIGITAL)]).toEqual([type, true]);
    const [before, after] = await Promise.all(
      [original, marked.bytes].map((bytes) => sharp(bytes).raw().toBuffer()),
    );
    expect([type, before?.equals(after as Buffer)]).toEqual([type, true]);
    const { xmp } = await sharp(marked.bytes).metadata();
    expect([type, xmp?.includes(SOURCE)]).toEqual([type, true]);
    expect((await deriveFile(original, { format: type }, null)).bytes.equals(original)).toBe(true);
    const twice = await deriveFile(marked.bytes, { format: type }, "algorithmicMedia");
    expect([type, twice.bytes.includes(SOURCE), twice.bytes.includes("algorithmicMedia")]).toEqual([
      type,
      false,
      true,
    ]);
  }
});

it("large pictures are decoded one at a time, whoever asks for their files", async () => {
  const create = { width: 2200, height: 2200, channels: 3, background: "#abcdef" } as const;
  const large = await sharp({ create }).webp().toBuffer();
  let most = 0;
  const count = () => {
    const { queue, process } = sharp.counters();
    most = Math.max(most, queue + process);
  };
  sharp.queue.on("change", count);
  try {
    const form: FileForm = { format: "jpeg", pixels: "100x100" };
    await Promise.all(Array.from({ length: 6 }, () => deriveFile(large, form, null)));
  } finally {
    sharp.queue.off("change", count);
  }
  // The library counts a picture a moment longer than its work takes.
  expect(most).toBeLessThanOrEqual(2);
});
