import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { Decoding } from "../../src/imaging/decoding.ts";
import { thumbnail as thumbnailInTurn } from "../../src/imaging/thumbnail.ts";

const decoding = new Decoding();
const thumbnail = (bytes: Buffer, edge: number, look = {}) => thumbnailInTurn(bytes, edge, decoding, look);
const picture = (width: number, height: number) =>
  sharp({ create: { width, height, channels: 4, background: { r: 0, g: 0, b: 0, alpha: 0 } } });

describe("thumbnails", () => {
  it("are WebP of the same shape, never larger than asked or than the picture", async () => {
    const sizeOf = async (width: number, height: number) => {
      const small = await thumbnail(await picture(width, height).png().toBuffer(), 100);
      const facts = await sharp(small ?? Buffer.alloc(0)).metadata();
      return [facts.format, facts.width, facts.height];
    };
    expect(await sizeOf(400, 200)).toEqual(["webp", 100, 50]);
    expect(await sizeOf(30, 60)).toEqual(["webp", 30, 60]);
  });

  it("put white under what is transparent and turn as the picture says", async () => {
    const turned = await picture(40, 20).withMetadata({ orientation: 6 }).webp().toBuffer();
    const { data, info } = await sharp((await thumbnail(turned, 100)) ?? Buffer.alloc(0))
      .raw()
      .toBuffer({ resolveWithObject: true });
    expect([info.width, info.height, data[0]]).toEqual([20, 40, 255]);
  });

  it("stay transparent for those who show what is behind", async () => {
    const small = await thumbnail(await picture(40, 20).png().toBuffer(), 100, { keepsAlpha: true });
    const { data, info } = await sharp(small ?? Buffer.alloc(0))
      .raw()
      .toBuffer({ resolveWithObject: true });
    expect([info.channels, data[3]]).toEqual([4, 0]);
  });

  it("are not there for bytes that do not decode", async () => {
    expect(await thumbnail(Buffer.from("no picture"), 100)).toBeNull();
  });
});
