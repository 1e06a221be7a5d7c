import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { renderCaption } from "../../../src/providers/procedural/draw.ts";
import { difference } from "./pixels.ts";
import { draw } from "./requests.ts";

const HOSTILE = [
  `<script>alert("x")</script> & ]]> <!-- '`,
  "a\u0000b\u0007c\u001b[31m\u007f\u0085\u200b\ufeff\ufffe d",
  "lone \ud800 half \udc00",
  "🦊👩‍👩‍👧‍👦🏳️‍🌈 fox 🇯🇵",
  "可爱的猫在雪山上，日本語の文章、한국어",
  "قطة جميلة abc 123 שלום עולם",
  "\u202eoverride\u2066 marks",
  "Z̸̢̛a̶l̵g̴o̷ ế ﷺ ௵",
  "é".repeat(8000),
  "word ".repeat(1600),
  "x".repeat(8000),
  "   \n\t  ",
  "😀".repeat(4000),
];

const room = { width: 900, height: 200, largest: 46, smallest: 21 };
const COLORS = ["#000000", "#777777"] as const;

/** The size of a caption, and the share of it that is ink. */
async function inkOf(text: string): Promise<{ width: number; height: number; share: number }> {
  const { data, info } = await renderCaption(text, "procedural", room, COLORS);
  const inked = data.filter((_, i) => i % 4 === 3).filter((alpha) => alpha > 127).length;
  return { width: info.width, height: info.height, share: inked / (info.width * info.height) };
}

describe("the caption", () => {
  it("it is legible: dark letters on light paper below the scene, or the other way round", async () => {
    for (const prompt of ["a fox in the forest", "a fox in the forest at night"]) {
      const strip = { left: 30, top: 900, width: 960, height: 70 };
      const data = await sharp(await draw(prompt))
        .extract(strip)
        .greyscale()
        .raw()
        .toBuffer();
      const sorted = [...data].sort((a, b) => a - b);
      expect((sorted.at(-1) ?? 0) - (sorted[0] ?? 0), prompt).toBeGreaterThan(120);
    }
  });

  it("below it every picture says that it is a procedural drawing, and which of its prompt", async () => {
    const strip = { left: 30, top: 985, width: 500, height: 20 };
    const label = async (outputIndex: number) =>
      sharp(await draw("a fox", { outputIndex }))
        .extract(strip)
        .greyscale()
        .normalise()
        .png()
        .toBuffer();
    const [first, second] = [await label(0), await label(1)];
    expect((await sharp(first).stats()).channels[0]?.stdev).toBeGreaterThan(20);
    expect(await difference(first, second)).toBeGreaterThan(0.1);
  });

  it.each(["Grüße aus Köln", "Привет, лиса", "αλεπού στο χιόνι", "ثعلب في الثلج", "שועל בשלג"])(
    "the packaged font draws %s",
    async (text) => {
      const { share } = await inkOf(text);
      expect(share).toBeGreaterThan(0.03);
      const letters = [...text].reverse().join("");
      expect(await renderCaption(text, "x", room, COLORS)).not.toEqual(
        await renderCaption(letters, "x", room, COLORS),
      );
    },
  );

  it.each(HOSTILE)("hostile text %# leaves most of the page to the picture", async (prompt) => {
    expect((await inkOf(prompt)).height).toBeLessThanOrEqual(room.height);
    const picture = await draw(prompt, { pixels: { widthPx: 512, heightPx: 512 } });
    await expect(sharp(picture).stats()).resolves.toBeDefined();
  });
});
