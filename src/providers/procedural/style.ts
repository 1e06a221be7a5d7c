import { sharp } from "../../imaging/sharp-config.ts";
import { chroma, type Hex, lightness, mix, tone } from "./color.ts";
import type { Ink } from "./drawing.ts";
import type { Palette } from "./palette.ts";
import type { Plan } from "./plan.ts";

type Grade = (color: Hex) => Hex;

const TINTS: Record<string, Grade> = {
  mono: (color) => tone(color, lightness(color), 0),
  sepia: (color) => mix("#2e1c10", "#f6e7c8", Math.min(1, Math.max(0, (lightness(color) - 0.15) / 0.83))),
  pastel: (color) => tone(color, 0.5 + lightness(color) * 0.48, 0.62),
  vivid: (color) => tone(color, lightness(color), Math.max(1, Math.min(1.45, 0.24 / (chroma(color) + 0.01)))),
  blueprint: (color) => mix("#123a7a", "#dcecff", lightness(color)),
};

/** Returns the ink for the style and tint of a plan. */
export function inkOf({ style, tint }: Plan, { roles }: Palette): Ink {
  const tinted = TINTS[tint] ?? ((color: Hex) => color);
  const plain = (fill: Grade): Ink => ({ fill, line: fill, edge: () => "" });
  const stroke = (color: Hex, width: number) =>
    ` stroke="${color}" stroke-width="${width.toFixed(3)}" stroke-linejoin="round"`;
  switch (style) {
    case "retro":
      return plain((color) => tinted(tone(mix(color, "#e8b77a", 0.2), lightness(color) * 0.94, 0.85)));
    case "minimal":
      return plain((color) => tinted(tone(color, 0.12 + lightness(color) * 0.9, 0.75)));
    case "watercolor": {
      const wet = plain((color) => tinted(mix(color, "#fdf9f0", 0.16)));
      const edge = (color: Hex, scale: number) => stroke(mix(wet.fill(color), "#2a2c4a", 0.28), 2.4 / scale);
      return {
        ...wet,
        edge: (color, scale) => `${edge(color, scale)} fill-opacity="0.84" stroke-opacity="0.34"`,
      };
    }
    case "line": {
      const [paper, ink] = tint === "blueprint" ? ["#1d4f9c", "#e9f2ff"] : ["#fbf8f0", "#262837"];
      const line: Grade = (color) => mix(ink, tinted(color), 0.35);
      return {
        fill: (color) => mix(paper, tinted(color), 0.18),
        line,
        edge: (_, scale) => stroke(ink, 2.2 / scale),
      };
    }
    case "neon": {
      const paper = mix("#0a0820", roles.sky ?? "", 0.12);
      // A lit tube is bright, and strong unless it is a grey.
      const line: Grade = (color) =>
        tone(
          color,
          Math.min(0.85, Math.max(0.72, lightness(color))),
          Math.min(3, 0.25 / (chroma(color) + 0.04)),
        );
      const edge: Ink["edge"] = (color, scale) => stroke(line(color), 2.8 / scale);
      return { fill: (color) => mix(paper, line(color), 0.16), line, edge };
    }
    default:
      return plain(tinted);
  }
}

/** Styles that paint a small rendering of the scene again: the pixels of one unit. */
const GRAINS: Record<string, number> = { pixel: 104, mosaic: 48, oil: 420 };

/** Paints a scene again, in a style that asks for it. Others are returned unchanged. */
export async function repaint(
  shapes: string,
  style: string,
  { w, h, unit }: { w: number; h: number; unit: number },
): Promise<string> {
  const grain = GRAINS[style];
  if (grain === undefined) return shapes;
  const [width, height] = [Math.ceil((w / unit) * grain), Math.ceil((h / unit) * grain)];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${w} ${h}" preserveAspectRatio="none">${shapes}</svg>`;
  const small = sharp(Buffer.from(svg));
  const brushed = style === "oil" ? small.median(9).modulate({ saturation: 1.15 }) : small;
  const png = await brushed.png({ palette: style !== "oil", colours: 56, dither: 0 }).toBuffer();
  const rendering = style === "oil" ? "auto" : "pixelated";
  return `<image width="${w}" height="${h}" preserveAspectRatio="none" style="image-rendering:${rendering}" href="data:image/png;base64,${png.toString("base64")}"/>`;
}
