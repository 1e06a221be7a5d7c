import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { ReferenceImage } from "../../../src/domain/ports/image-provider.ts";
import { correlation, difference, pixels } from "./pixels.ts";
import { draw } from "./requests.ts";

/** A picture with a light and a dark half, turned by `angle` steps, so that each is easily told apart. */
async function reference(svg: string, type: "png" | "jpeg" | "webp" = "png"): Promise<ReferenceImage> {
  const bytes = await sharp(
    Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" width="300" height="300">${svg}</svg>`),
  )
    .flatten({ background: "#fff" })
    [type]()
    .toBuffer();
  return given(bytes, `image/${type}`);
}

const given = (bytes: Buffer, mimeType: ReferenceImage["mimeType"]): ReferenceImage => ({
  mimeType,
  read: async () => bytes,
  lend: (work) => work(bytes),
});

const halves = () =>
  reference('<path d="M0 0H150V300H0Z" fill="#203060"/><circle cx="220" cy="90" r="50" fill="#c03020"/>');
const rings = () =>
  reference(
    '<rect width="300" height="300" fill="#fff"/><circle cx="150" cy="150" r="110" fill="#111"/><circle cx="150" cy="150" r="50" fill="#eee"/>',
    "jpeg",
  );

/** The square in the middle of the scene that a single square reference fills. */
const MIDDLE = { left: 180, top: 90, width: 660, height: 660 };

describe("reference images", () => {
  it("a single one fills the middle of the picture and stays recognisable", async () => {
    const source = await halves();
    for (const prompt of ["make it warmer", "at night, with snow", "in sepia", "a blue tint"]) {
      const image = await draw(prompt, { references: [source] });
      const best = await bestMatch(image, await source.read());
      expect(best, prompt).toBeGreaterThan(0.8);
    }
  });

  it("without its reference the same prompt gives another picture, and so does another reference", async () => {
    const [one, other, none] = [
      await draw("a fox", { references: [await halves()] }),
      await draw("a fox", { references: [await rings()] }),
      await draw("a fox"),
    ];
    expect(await difference(one, none)).toBeGreaterThan(15);
    expect(await difference(one, other)).toBeGreaterThan(15);
  });

  it("several are all in the picture, in order", async () => {
    const [a, b] = [await halves(), await rings()];
    const forward = await draw("together", { references: [a, b] });
    const backward = await draw("together", { references: [b, a] });
    expect(await difference(forward, backward)).toBeGreaterThan(8);
    const many = await draw("together", {
      references: Array.from({ length: 14 }, (_, i) => (i % 2 === 0 ? a : b)),
      options: { ratio: "21:9" },
    });
    expect(await sharp(many).metadata()).toMatchObject({ width: 1584, height: 672 });
  });

  it("transparent, grey, tiny and very long references are taken", async () => {
    const clear = await sharp({
      create: { width: 40, height: 40, channels: 4, background: { r: 0, g: 0, b: 0, alpha: 0 } },
    })
      .webp()
      .toBuffer();
    const grey = await sharp({ create: { width: 3000, height: 10, channels: 3, background: "#777" } })
      .greyscale()
      .png()
      .toBuffer();
    const tiny = await sharp({ create: { width: 1, height: 1, channels: 3, background: "#f00" } })
      .jpeg()
      .toBuffer();
    for (const [bytes, mimeType] of [
      [clear, "image/webp"],
      [grey, "image/png"],
      [tiny, "image/jpeg"],
    ] as const) {
      const image = await draw("a fox", { references: [given(bytes, mimeType)] });
      expect(await sharp(image).metadata()).toMatchObject({ width: 1024, height: 1024 });
    }
  });
});

/** The best likeness over small shifts and sizes of the middle: the frame's place depends on the caption's height. */
async function bestMatch(image: Buffer, source: Buffer): Promise<number> {
  const wanted = await pixels(source, 24);
  const scores: number[] = [];
  for (const shift of [-30, 0, 30]) {
    for (const inset of [0, 25]) {
      const region = {
        left: MIDDLE.left + inset,
        top: MIDDLE.top + shift + inset,
        width: MIDDLE.width - inset * 2,
        height: MIDDLE.height - inset * 2,
      };
      scores.push(correlation(await pixels(image, 24, region), wanted));
    }
  }
  return Math.max(...scores);
}
