import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setImmediate } from "node:timers/promises";
import type { Font, PathCommand } from "opentype.js";

const require = createRequire(import.meta.url);
const FONT_FILE = "dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf";

let loaded: Font | null = null;
const advances = new Map<string, number>();

/** Reads the packaged font in short steps, so that the first caption does not hold up other work for their sum. */
export async function loadFont(): Promise<void> {
  if (loaded !== null) return;
  await setImmediate();
  opentype();
  await setImmediate();
  font();
  await setImmediate();
}

/** Returns the packaged font. It is parsed once, at the first caption. */
function font(): Font {
  if (loaded === null) {
    const bytes = readFileSync(require.resolve(FONT_FILE));
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    // `lowMemory` reads a glyph when it is first drawn. All glyphs at once would take 70 ms more.
    loaded = opentype().parse(buffer, { lowMemory: true });
  }
  return loaded;
}

/** `require` works with every release of opentype.js; whether a module can import its names differs between them. */
function opentype(): typeof import("opentype.js") {
  return require("opentype.js");
}

/** Whether the packaged font has a glyph for the character, and the character needs no shaping. */
export function hasGlyph(character: string): boolean {
  return !NEEDS_SHAPING.test(character) && advanceOf(character) > 0;
}

const NEEDS_SHAPING =
  /[\p{M}\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Nko}\p{Script=Thaana}\p{Cf}\ufffd]/u;

/** The width of a character in ems; 0 if the packaged font has no glyph for it. */
export function advanceOf(character: string): number {
  let advance = advances.get(character);
  if (advance === undefined) {
    const index = [...character].length === 1 ? font().charToGlyphIndex(character) : 0;
    advance = index === 0 ? 0 : (font().glyphs.get(index).advanceWidth ?? 0) / font().unitsPerEm;
    advances.set(character, advance);
  }
  return advance;
}

/** Returns the outlines of a text as SVG path data. Its baseline starts at `x`, `y`, and every character needs a glyph. */
export function outlineOf(text: string, x: number, y: number, size: number): string {
  let d = "";
  let at = x;
  for (const character of text) {
    // For a whole string opentype.js may throw over the substitution tables of the font.
    if (character !== " ") d += pathData(font().charToGlyph(character).getPath(at, y, size).commands);
    at += advanceOf(character) * size;
  }
  return d;
}

/** Writes path data. The writer of opentype.js now and then gives NaN for a coordinate close to a rounding border. */
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
