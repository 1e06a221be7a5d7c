import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { TrueTypeFont } from "./true-type.ts";

const FONT_FILE = "dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf";

let loaded: TrueTypeFont | null = null;
const advances = new Map<string, number>();

/** Returns the packaged font. It is read once, at the first caption. */
function font(): TrueTypeFont {
  loaded ??= new TrueTypeFont(readFileSync(createRequire(import.meta.url).resolve(FONT_FILE)));
  return loaded;
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
    const [codePoint = 0, ...more] = [...character].map((each) => each.codePointAt(0) ?? 0);
    const glyph = more.length === 0 ? font().glyphOf(codePoint) : 0;
    advance = glyph === 0 ? 0 : font().advanceOf(glyph) / font().unitsPerEm;
    advances.set(character, advance);
  }
  return advance;
}

/** Returns the outlines of a text as SVG path data. Its baseline starts at `x`, `y`, and every character needs a glyph. */
export function outlineOf(text: string, x: number, y: number, size: number): string {
  const scale = (1 / font().unitsPerEm) * size;
  let d = "";
  let at = x;
  for (const character of text) {
    const right = (units: number) => tenth(at + units * scale);
    const up = (units: number) => tenth(y - units * scale);
    for (const step of font().outlineOf(font().glyphOf(character.codePointAt(0) ?? 0))) {
      const control = step.type === "Q" ? `${right(step.x1)} ${up(step.y1)} ` : "";
      d += `${step.type}${control}${right(step.x)} ${up(step.y)}`;
    }
    at += advanceOf(character) * size;
  }
  return d;
}

function tenth(value: number): number {
  return Math.round(value * 10) / 10;
}
