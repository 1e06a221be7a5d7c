import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Font, PathCommand } from "opentype.js";

const require = createRequire(import.meta.url);
const FONT_FILE = "dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf";

let loaded: Font | null = null;
const advances = new Map<string, number>();

/** Parsing takes about 80 ms, so it waits for the first caption and happens once. */
function font(): Font {
  if (loaded === null) {
    // Required, not imported: whether its names can be imported from a module differs between its releases.
    const { parse } = require("opentype.js") as typeof import("opentype.js");
    const bytes = readFileSync(require.resolve(FONT_FILE));
    loaded = parse(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  }
  return loaded;
}

/** Whether the packaged font has this character and can show it without shaping. */
export function hasGlyph(character: string): boolean {
  return !NEEDS_SHAPING.test(character) && advanceOf(character) > 0;
}

const NEEDS_SHAPING =
  /[\p{M}\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Nko}\p{Script=Thaana}\p{Cf}\ufffd]/u;

/** The width of a character in ems; 0 when the packaged font does not have it. */
export function advanceOf(character: string): number {
  let advance = advances.get(character);
  if (advance === undefined) {
    const index = [...character].length === 1 ? font().charToGlyphIndex(character) : 0;
    advance = index === 0 ? 0 : (font().glyphs.get(index).advanceWidth ?? 0) / font().unitsPerEm;
    advances.set(character, advance);
  }
  return advance;
}

/** The outlines of the text as SVG path data, its baseline starting at `x`, `y`. Every character must have a glyph. */
export function outlineOf(text: string, x: number, y: number, size: number): string {
  let d = "";
  let at = x;
  for (const character of text) {
    // Glyph by glyph: for a whole string the library can throw over a font's substitution tables.
    if (character !== " ") d += pathData(font().charToGlyph(character).getPath(at, y, size).commands);
    at += advanceOf(character) * size;
  }
  return d;
}

/** The library's own writer now and then gives NaN for a coordinate next to a rounding border. */
function pathData(commands: readonly PathCommand[]): string {
  let d = "";
  for (const command of commands) {
    switch (command.type) {
      case "M":
      case "L":
        d += `${command.type}${tenth(command.x)} ${tenth(command.y)}`;
        break;
      case "Q":
        d += `Q${tenth(command.x1)} ${tenth(command.y1)} ${tenth(command.x)} ${tenth(command.y)}`;
        break;
      case "C":
        d += `C${tenth(command.x1)} ${tenth(command.y1)} ${tenth(command.x2)} ${tenth(command.y2)} ${tenth(command.x)} ${tenth(command.y)}`;
        break;
      default:
        d += "Z";
    }
  }
  return d;
}

function tenth(value: number): number {
  return Math.round(value * 10) / 10;
}
