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

/** The motif alone, on a white square of 300 pixels. */
async function picture(
  name: (typeof MOTIF_NAMES)[number],
  mode: "fill" | "wet" | "outline" | "neon",
): Promise<Buffer> {
  const canvas = createCanvas(createInk(mode, { paper: "#ffffff" }));
  const motif = motifNamed(name);
  canvas.place({ x: 150, y: motif.realm === "ground" ? 260 : 150, scale: 1.6 }, () =>
    motif.draw(canvas, coat),
  );
  const { defs, body } = canvas.svg();
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="300" height="300"><defs>${defs}</defs><rect width="300" height="300" fill="#fff"/>${body}</svg>`;
  expect(svg, name).not.toMatch(/NaN|undefined|Infinity/);
  return sharp(Buffer.from(svg)).greyscale().raw().toBuffer();
}

describe("motifs", () => {
  it("[DRAW-5] every motif draws something of a fair size, in every ink", async () => {
    for (const name of MOTIF_NAMES) {
      for (const mode of ["fill", "wet", "outline", "neon"] as const) {
        const covered = (await picture(name, mode)).filter((value) => value < 250).length / 90_000;
        expect(covered, `${name} in ${mode}`).toBeGreaterThan(0.02);
        expect(covered, `${name} in ${mode}`).toBeLessThan(0.8);
      }
    }
  });

  it("[DRAW-5] no two motifs look alike", async () => {
    const outlines = await Promise.all(
      MOTIF_NAMES.map(async (name) => ({ name, data: await picture(name, "fill") })),
    );
    const alike = outlines.flatMap((a, i) =>
      outlines
        .slice(i + 1)
        .filter((b) => a.data.equals(b.data))
        .map((b) => `${a.name} = ${b.name}`),
    );
    // They differ from their siblings by colour alone.
    expect(alike.sort()).toEqual(
      ["bear = polarbear", "bird = crow", "bird = parrot", "duck = swan", "parrot = crow"].sort(),
    );
  });
});
