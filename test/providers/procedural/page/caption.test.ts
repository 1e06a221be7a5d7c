import { execFile } from "node:child_process";
import { promisify } from "node:util";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { EXTENDED_RATIOS, imageSizePx } from "../../../../src/contract/images/image-sizes.ts";
import { documentOf } from "../../../../src/providers/procedural/draw.ts";
import { outlineOf } from "../../../../src/providers/procedural/page/font.ts";
import { learnMissing, legibleText } from "../../../../src/providers/procedural/page/system-fonts.ts";
import {
  drawableText,
  fitText,
  graphemes,
  widthOf,
} from "../../../../src/providers/procedural/page/text-lines.ts";
import { draw, request } from "../requests.ts";

const signal = new AbortController().signal;
const page = (prompt: string) => documentOf({ ...request(prompt), text: prompt, image: 0 }, 1, signal);

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

describe("the caption", () => {
  it("[DRAW-6] the letters of the prompt are outlines in the document, without the fonts of the system", async () => {
    const svg = await page("Grüße aus Köln, Привет & más");
    expect(svg).not.toContain("<text");
    const letters = svg.match(/<path class="caption" d="([^"]+)"/)?.[1] ?? "";
    // Every visible letter begins at least one outline.
    expect(letters.split("M").length - 1).toBeGreaterThanOrEqual(
      "Grüße aus Köln, Привет & más".replaceAll(" ", "").length,
    );
  });

  it("[DRAW-6] it is visible: the margin under two pictures differs where only the text does", async () => {
    const strip = async (prompt: string) => {
      const { data } = await sharp(await draw(prompt))
        .extract({ left: 30, top: 900, width: 960, height: 70 })
        .greyscale()
        .raw()
        .toBuffer({ resolveWithObject: true });
      const sorted = [...data].sort((a, b) => a - b);
      return (sorted.at(-1) ?? 0) - (sorted[0] ?? 0);
    };
    expect(await strip("a fox in the forest")).toBeGreaterThan(120);
  });

  it("[DRAW-6] every picture says that it is a procedural drawing, and which of its prompt", async () => {
    const words = outlineOf("procedural", 0, 0, 10).split("M").length;
    const svg = await page("a fox");
    const labels = [...svg.matchAll(/<path class="caption" d="([^"]+)"/g)];
    expect(labels.length).toBeGreaterThanOrEqual(2);
    expect((labels.at(-1)?.[1] ?? "").split("M").length).toBeGreaterThan(words);
    const second = await documentOf(
      { ...request("a fox", { outputIndex: 1 }), text: "a fox", image: 0 },
      1,
      signal,
    );
    expect(second).not.toBe(svg);
  });

  it("[DRAW-15] a character that no font of the system has is left out, and a text of nothing else says so", async () => {
    const { stdout } = await promisify(execFile)("fc-list", [":charset=72d0", "family"]);
    const hasFont = stdout.trim() !== "";
    const some = await page("a fox 狐狐 in the snow");
    expect(some.includes(">狐狐</text>")).toBe(hasFont);
    const outlines = async (prompt: string) =>
      [...(await page(prompt)).matchAll(/<path class="caption" d="([^"]+)"/g)].map(([, d]) => d);
    if (!hasFont) {
      expect(some).not.toContain("<text");
      expect(await outlines("狐狐，狐狐")).toEqual(await outlines("狐"));
      expect((await outlines("狐")).length).toBeGreaterThan(1);
    }
    expect(await page("قطة \u0378")).not.toContain("\u0378");
  });

  it("[DRAW-15] the box of a missing character is known by its frame, whatever its number is", async () => {
    // The system is asked for what it cannot have: these blocks have letters in no font.
    for (const text of ["\u{3f001}\u{3f888}", "\u0379\u038b\u1317"]) {
      await learnMissing(text);
      expect(legibleText(`${text}a`)).toBe("…a");
    }
    await learnMissing("aÄЖ%&口");
    expect(legibleText("aÄЖ%&")).toBe("aÄЖ%&");
  });

  it("[DRAW-6] text is broken into lines that fit, in letters as large as the room allows", () => {
    const box = { width: 900, height: 120 };
    const sizes = { largest: 48, smallest: 20 };
    const short = fitText("a fox", box, sizes);
    expect(short).toMatchObject({ lines: ["a fox"], size: 48 });
    const long = fitText("a fox that walks through the wood and meets a crow ".repeat(3), box, sizes);
    expect(long.size).toBeLessThan(48);
    for (const { lines, size, leading } of [short, long, fitText("x".repeat(3000), box, sizes)]) {
      for (const line of lines)
        expect([...line].reduce((sum, character) => sum + widthOf(character), 0) * size).toBeLessThanOrEqual(
          901,
        );
      expect(size + (lines.length - 1) * leading).toBeLessThanOrEqual(121);
    }
  });

  it("[DRAW-6] characters are those that readers count, also where none of them is looked up", () => {
    const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
    const looked = (text: string) => [...segmenter.segment(text)].map(({ segment }) => segment);
    const printable = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i)).join("");
    for (const text of [printable, "", "a b  c", ...HOSTILE.map((each) => each.slice(0, 300))]) {
      expect(graphemes(text)).toEqual(looked(text));
      expect(graphemes(text, 7)).toEqual(looked(text).slice(0, 7));
    }
  });

  it("[DRAW-6] what does not fit is cut with an ellipsis", () => {
    const { lines } = fitText(
      "word ".repeat(1600),
      { width: 900, height: 120 },
      { largest: 48, smallest: 20 },
    );
    expect(lines.at(-1)).toMatch(/…$/);
    expect(lines.slice(0, -1).join("")).not.toContain("…");
  });

  it("[DRAW-6] no rounding of an outline gives a coordinate that is no number", () => {
    for (let i = 0; i < 400; i++) {
      expect(outlineOf("concentric rings in teal", 30 + i * 0.137, 900, 40 + i * 0.031)).toMatch(
        /^[MLQCZ0-9 .-]+$/,
      );
    }
  });

  it.each(HOSTILE)(
    "[DRAW-7] hostile text %# is drawn, in valid SVG without control characters",
    async (prompt) => {
      const svg = await page(prompt);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: their absence is the point
      expect(svg).not.toMatch(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/);
      expect(svg).not.toMatch(/\p{Cs}/u);
      expect(svg).not.toContain("<script");
      expect(await sharp(Buffer.from(svg)).metadata()).toMatchObject({
        format: "svg",
        width: 1024,
        height: 1024,
      });
      const picture = await draw(prompt, { size: { widthPx: 512, heightPx: 512 } });
      await expect(sharp(picture).stats()).resolves.toBeDefined();
    },
  );

  it("[DRAW-7] a long prompt keeps most of the page for the picture, at every ratio", async () => {
    for (const ratio of EXTENDED_RATIOS) {
      const size = imageSizePx("1K", ratio);
      const svg = await documentOf(
        { ...request("word ".repeat(1600), { ratio }), text: "word ".repeat(1600), image: 0 },
        1,
        signal,
      );
      const [, w = "0", h = "0"] =
        /<svg x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="([\d.]+)"/.exec(svg) ?? [];
      expect((Number(w) * Number(h)) / (size.widthPx * size.heightPx), ratio).toBeGreaterThan(0.55);
    }
  });

  it("[DRAW-7] text is made drawable: no controls, one space where there were several", () => {
    expect(drawableText(" a\u0000 \n\t b\u202e\ud800 ")).toBe("a b");
  });
});
