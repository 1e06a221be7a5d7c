import chalk, { Chalk } from "chalk";
import type { Picture } from "../model.ts";

/**
 * Returns a picture as lines of text, centred in `columns` cells. Each cell shows two pixels: the upper one is the colour
 * of a half block, and the lower one is its background. Without colours, each cell is a sign of fitting darkness.
 */
export function halfBlockLines(
  picture: Pick<Picture, "widthPx" | "heightPx" | "rgb">,
  columns: number,
): string[] {
  const { widthPx, heightPx } = picture;
  const margin = " ".repeat(Math.max(0, Math.floor((columns - widthPx) / 2)));
  const lines: string[] = [];
  // Sixteen colours are too few for a picture, and nearly every terminal with 16 has 256.
  const colors = new Chalk({ level: chalk.level === 1 ? 2 : chalk.level });
  for (let y = 0; y < heightPx; y += 2) {
    let line = margin;
    for (let x = 0; x < widthPx; x++) {
      const upper = pixelAt(picture, x, y);
      const lower = y + 1 < heightPx ? pixelAt(picture, x, y + 1) : upper;
      line += colors.level === 0 ? shade(upper, lower) : colors.rgb(...upper).bgRgb(...lower)("▀");
    }
    lines.push(line);
  }
  return lines;
}

type Rgb = [number, number, number];

const SHADES = " ░▒▓█";

function shade(upper: Rgb, lower: Rgb): string {
  const light = [...upper, ...lower].reduce((sum, part) => sum + part, 0) / 6;
  return SHADES[Math.min(SHADES.length - 1, Math.floor((light / 256) * SHADES.length))] ?? " ";
}

function pixelAt({ rgb, widthPx }: Pick<Picture, "widthPx" | "rgb">, x: number, y: number): Rgb {
  const at = (y * widthPx + x) * 3;
  return [rgb[at] ?? 0, rgb[at + 1] ?? 0, rgb[at + 2] ?? 0];
}
