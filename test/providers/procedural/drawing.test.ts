import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { type Coat, paint, tilesOf } from "../../../src/providers/procedural/drawing.ts";

const ROOT = join(import.meta.dirname, "../../../src/providers/procedural");
const files = (folder: string) =>
  readdirSync(join(ROOT, folder)).map((file) => `${folder}/${file.replace(".svg", "")}`);
const plain: Coat = {
  roles: {},
  lit: (color) => color,
  ink: { fill: (color) => color, line: (color) => color, edge: () => "" },
  scale: 1,
};

const SIDE = 60;

/** The pixels of a picture of a file: as a drawing program shows it, or as the provider paints it. */
async function pixelsOf(path: string, coat?: Coat): Promise<Buffer> {
  const text = readFileSync(join(ROOT, `${path}.svg`), "utf8");
  const [box] = /viewBox="[^"]+"/.exec(text) ?? [];
  const shapes = coat && tilesOf(path).map((tile, i) => paint(tile, coat, `t${i}-`));
  const size = `width="${SIDE}" height="${SIDE}"`;
  const svg = shapes
    ? `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${box}>${shapes.join("")}</svg>`
    : text.replace("<svg", `<svg ${size}`);
  return await sharp(Buffer.from(svg)).ensureAlpha().raw().toBuffer();
}

describe("the drawings", () => {
  it("are painted as a drawing program shows their files", async () => {
    for (const path of ["motifs", "scenery", "patterns"].flatMap(files)) {
      const [shown, painted] = [await pixelsOf(path), await pixelsOf(path, plain)];
      expect(shown.equals(painted), path).toBe(true);
      expect(
        shown.some((value) => value > 0),
        path,
      ).toBe(true);
    }
  });
});
