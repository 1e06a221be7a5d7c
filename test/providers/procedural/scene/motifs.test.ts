import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { Coat } from "../../../../src/providers/procedural/scene/motifs/motif.ts";
import { MOTIF_NAMES, motifNamed } from "../../../../src/providers/procedural/scene/motifs/registry.ts";
import { createInk } from "../../../../src/providers/procedural/style/ink.ts";
import { createCanvas } from "../../../../src/providers/procedural/svg/canvas.ts";

const coat: Coat = {
  main: "#c85030",
  dark: "#903820",
  light: "#e07858",
  soft: "#f8f0e8",
  ink: "#202028",
  accent: "#3078c0",
  own: (color) => color,
};

const INKS = ["fill", "wet", "outline", "neon"] as const;
const COLUMNS = 14;
const CELL_PX = 100;

/**
 * The grey pixels of each motif, alone on a white square. All motifs are rendered on one sheet, each cut off at its cell,
 * because a rendering for each would cost much more.
 */
async function pictures(mode: (typeof INKS)[number]): Promise<{ name: string; data: Buffer }[]> {
  const cells = MOTIF_NAMES.map((name, i) => {
    const canvas = createCanvas(createInk(mode, { paper: "#ffffff" }), `${name}-`);
    const motif = motifNamed(name);
    canvas.place({ x: 150, y: motif.realm === "ground" ? 260 : 150, scale: 1.6 }, () =>
      motif.draw(canvas, coat),
    );
    const { defs, body } = canvas.svg();
    expect(defs + body, name).not.toMatch(/NaN|undefined|Infinity/);
    const [x, y] = [(i % COLUMNS) * CELL_PX, Math.floor(i / COLUMNS) * CELL_PX];
    return `<svg x="${x}" y="${y}" width="${CELL_PX}" height="${CELL_PX}" viewBox="0 0 300 300"><defs>${defs}</defs>${body}</svg>`;
  });
  const [width, height] = [COLUMNS * CELL_PX, Math.ceil(MOTIF_NAMES.length / COLUMNS) * CELL_PX];
  const sheet = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><rect width="${width}" height="${height}" fill="#fff"/>${cells.join("")}</svg>`;
  const pixels = await sharp(Buffer.from(sheet)).greyscale().raw().toBuffer();
  return MOTIF_NAMES.map((name, i) => {
    const start = Math.floor(i / COLUMNS) * CELL_PX * width + (i % COLUMNS) * CELL_PX;
    const rows = Array.from({ length: CELL_PX }, (_, row) =>
      pixels.subarray(start + row * width, start + row * width + CELL_PX),
    );
    return { name, data: Buffer.concat(rows) };
  });
}

describe("motifs", () => {
  it.each(INKS)("[DRAW-5] every motif draws something of a fair size, in the ink %s", async (mode) => {
    for (const { name, data } of await pictures(mode)) {
      const covered = data.filter((value) => value < 250).length / data.length;
      expect(covered, name).toBeGreaterThan(0.02);
      expect(covered, name).toBeLessThan(0.8);
    }
  });

  it("[DRAW-5] no two motifs look alike", async () => {
    const outlines = await pictures("fill");
    const alike = outlines.flatMap((a, i) =>
      outlines
        .slice(i + 1)
        .filter((b) => isAlike(a.data, b.data))
        .map((b) => `${a.name} = ${b.name}`),
    );
    // These differ from their siblings by colour alone.
    expect(alike.sort()).toEqual(
      ["bear = polarbear", "bird = crow", "bird = parrot", "duck = swan", "parrot = crow"].sort(),
    );
  });
});

/** Whether no pixel differs by more than rounding, which depends on the cell. */
function isAlike(a: Buffer, b: Buffer): boolean {
  return a.every((value, i) => Math.abs(value - (b[i] ?? 0)) <= 4);
}
