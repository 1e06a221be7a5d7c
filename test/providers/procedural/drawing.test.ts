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

  it("a motif takes its main colour and all shades of it, and keeps the others", async () => {
    const blue = { ...plain, roles: { main: "#2f6fdc" } };
    const mean = async (coat: Coat, x: number, y: number) => {
      const data = await pixelsOf("motifs/fox", coat);
      const at = (y * SIDE + x) * 4;
      return [...data.subarray(at, at + 3)];
    };
    // The forehead, and the muzzle.
    const [forehead, muzzle] = [await mean(blue, 23, 18), await mean(blue, 23, 32)];
    expect((forehead[2] ?? 0) - (forehead[0] ?? 0)).toBeGreaterThan(60);
    expect(Math.max(...muzzle) - Math.min(...muzzle)).toBeLessThan(60);
  });

  it("no two motifs look alike", async () => {
    const seen = new Map<string, string>();
    for (const path of files("motifs")) {
      const key = (await pixelsOf(path)).toString("base64");
      expect(seen.get(key) ?? path, path).toBe(path);
      seen.set(key, path);
    }
  });
});
