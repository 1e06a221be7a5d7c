import sharp, { type Color } from "sharp";
import { describe, expect, it } from "vitest";
import { toPixels } from "../../src/imaging/thumbnail.ts";

const png = (width: number, height: number, background: Color) =>
  sharp({ create: { width, height, channels: 4, background } })
    .png()
    .toBuffer();

describe("an image for the terminal", () => {
  it("keeps its shape inside the box, three bytes a pixel", async () => {
    const pixels = await toPixels(await png(200, 100, { r: 255, g: 0, b: 0, alpha: 1 }), {
      widthPx: 40,
      heightPx: 40,
    });
    expect(pixels).toMatchObject({ widthPx: 40, heightPx: 20 });
    expect(pixels.rgb).toHaveLength(40 * 20 * 3);
    expect([...pixels.rgb.subarray(0, 3)]).toEqual([255, 0, 0]);
  });

  it("is black where it is transparent, also from shades of grey, and never less than a pixel", async () => {
    const clear = await png(8, 8, { r: 255, g: 255, b: 255, alpha: 0 });
    const one = await toPixels(clear, { widthPx: 0, heightPx: 0 });
    expect([one.widthPx, one.heightPx, ...one.rgb]).toEqual([1, 1, 0, 0, 0]);
    const grey = await sharp(clear).flatten({ background: "#808080" }).greyscale().png().toBuffer();
    const pixels = await toPixels(grey, { widthPx: 2, heightPx: 2 });
    expect([...pixels.rgb]).toEqual(Array.from({ length: 12 }, () => 128));
  });

  it("throws for what is no image", async () => {
    await expect(toPixels(Buffer.from("no image"), { widthPx: 4, heightPx: 4 })).rejects.toThrow();
  });
});
