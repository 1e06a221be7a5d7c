import sharp, { type Sharp } from "sharp";
import { describe, expect, it } from "vitest";
import { Decoding } from "../../src/imaging/decoding.ts";
import { look } from "../../src/imaging/look.ts";

const decoding = new Decoding();
const seen = async (image: Sharp) => look(await image.png().toBuffer(), decoding);
const plain = (width: number, height: number, background: string) =>
  sharp({ create: { width, height, channels: 4, background } });

/** A picture with details everywhere; another one for each number. */
function details(width: number, height: number, number = 1): Sharp {
  const data = Buffer.alloc(width * height * 3);
  for (let i = 0; i < data.length; i += 3) {
    const [x, y] = [(i / 3) % width, Math.floor(i / 3 / width)];
    data[i] = 128 + 100 * Math.sin((x / width) * 7 * number + number);
    data[i + 1] = 128 + 100 * Math.sin((y / height) * 9 + (x / width) * 3 * number);
    data[i + 2] = 128 + 100 * Math.cos((y / height) * 5 * number);
  }
  return sharp(data, { raw: { width, height, channels: 3 } });
}

/** A rectangle of details on a plain ground. */
async function framed(ground: string, inside: { left: number; top: number; width: number; height: number }) {
  const { left, top, width, height } = inside;
  const input = await details(width, height).png().toBuffer();
  return plain(1024, 1024, ground).composite([{ input, left, top }]);
}

describe("a look at a picture", () => {
  it.each([
    ["white", "#ffffff", true],
    ["all transparent", "#00000000", true],
    ["half transparent", "#ff000080", true],
  ])("finds one flat colour: %s", async (_, background, flat) => {
    expect(await seen(plain(700, 400, background))).toMatchObject({ flat, bars: null });
  });

  it("finds one flat colour below the noise of an encoder, and not where a small thing is", async () => {
    const jpeg = await plain(512, 512, "#777777").flatten().jpeg({ quality: 40 }).toBuffer();
    expect(await look(jpeg, decoding)).toMatchObject({ flat: true });
    expect(await seen(await framed("#ffffff", { left: 500, top: 500, width: 20, height: 20 }))).toMatchObject(
      { flat: false, bars: null },
    );
    expect(await seen(details(300, 200))).toMatchObject({ flat: false, bars: null, transparent: false });
  });

  it("finds bars at two opposite sides with their share", async () => {
    const tall = await framed("#000000", { left: 192, top: 0, width: 640, height: 1024 });
    expect(await seen(tall)).toMatchObject({ bars: { sides: "left and right" } });
    const wide = await framed("#ffffff", { left: 0, top: 200, width: 1024, height: 620 });
    const { bars } = (await look(await wide.flatten().jpeg({ quality: 70 }).toBuffer(), decoding)) ?? {};
    expect(bars).toMatchObject({ sides: "top and bottom" });
    expect(bars?.share).toBeCloseTo(0.2, 1);
  });

  it.each([
    ["a margin on all sides", { left: 192, top: 60, width: 640, height: 900 }],
    ["a border on one side", { left: 300, top: 0, width: 724, height: 1024 }],
    ["borders of different widths", { left: 100, top: 0, width: 624, height: 1024 }],
    ["a border of some pixels", { left: 10, top: 0, width: 1004, height: 1024 }],
  ])("finds no bars in %s", async (_, inside) => {
    expect(await seen(await framed("#ffffff", inside))).toMatchObject({ bars: null });
  });

  it("finds no bars beside a thing that touches two sides, in a flag, and on a transparent ground", async () => {
    const bottle = await sharp(
      Buffer.from(
        `<svg width="512" height="512"><rect width="512" height="512" fill="#fff"/><ellipse cx="256" cy="256" rx="90" ry="260" fill="#274"/><circle cx="256" cy="200" r="40" fill="#c33"/></svg>`,
      ),
    )
      .png()
      .toBuffer();
    expect(await look(bottle, decoding)).toMatchObject({ bars: null, flat: false });
    const stripe = await plain(600, 200, "#ffffff").png().toBuffer();
    const flag = plain(600, 600, "#cc0000").composite([{ input: stripe, left: 0, top: 200 }]);
    expect(await seen(flag)).toMatchObject({ bars: null, flat: false });
    const clear = await framed("#00000000", { left: 192, top: 0, width: 640, height: 1024 });
    expect(await seen(clear)).toMatchObject({ bars: null, transparent: true });
  });

  it("knows a picture again in another size and type, and tells others apart", async () => {
    const bits = (hex = "") =>
      [...hex].map((digit) => Number.parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
    const distance = (a = "", b = "") => [...bits(a)].filter((bit, i) => bit !== bits(b)[i]).length;
    const first = await seen(details(1024, 768));
    const small = await look(await details(1024, 768).resize(400).jpeg({ quality: 60 }).toBuffer(), decoding);
    const other = await seen(details(1024, 768, 2));
    expect(bits(first?.dhash)).toHaveLength(64);
    expect(distance(first?.dhash, small?.dhash)).toBeLessThanOrEqual(4);
    expect(distance(first?.dhash, other?.dhash)).toBeGreaterThan(12);
  });

  it("takes every kind of pixel: grey, palette, 16 bits, CMYK", async () => {
    const grey = details(200, 200).greyscale();
    for (const bytes of [
      await grey.png().toBuffer(),
      await details(200, 200).png({ palette: true }).toBuffer(),
      await details(200, 200).toColourspace("rgb16").png().toBuffer(),
      await details(200, 200).toColourspace("cmyk").jpeg().toBuffer(),
    ])
      expect(await look(bytes, decoding)).toMatchObject({ flat: false, transparent: false });
  });

  it("says nothing of a picture that does not decode, or is too small to show anything", async () => {
    expect(await look(Buffer.from("no picture"), decoding)).toBeNull();
    const cut = (await details(300, 300).png().toBuffer()).subarray(0, 2000);
    expect(await look(cut, decoding)).toBeNull();
    expect(await seen(plain(8, 8, "#fff"))).toBeNull();
    expect(await seen(plain(2000, 20, "#fff"))).toBeNull();
  });
});
