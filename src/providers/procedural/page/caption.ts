import { short } from "../svg/canvas.ts";
import type { Hex } from "../svg/color.ts";
import { hasGlyph, outlineOf } from "./font.ts";
import { RIGHT_TO_LEFT, SYSTEM_FONTS } from "./system-fonts.ts";
import { type FittedText, graphemes, widthOf } from "./text-lines.ts";

/** Returns the lines as SVG. The letters of the first line hang from `y`. */
export function captionSvg(text: FittedText, x: number, y: number, color: Hex): string {
  return text.lines
    .map((line, i) => lineSvg(line, x, y + text.size * 0.8 + i * text.leading, text.size, color))
    .join("");
}

/**
 * Returns one line as SVG, with its baseline at `x`, `y`. Characters of the packaged font become outlines, which look the
 * same everywhere. The fonts of the system draw the others.
 */
export function lineSvg(line: string, x: number, y: number, size: number, color: Hex): string {
  // A line with both directions must be laid out as a whole.
  if (RIGHT_TO_LEFT.test(line)) return systemText(line, x, y, size, color);
  let svg = "";
  let at = x;
  for (const { text, packaged } of runsOf(line)) {
    svg += packaged
      ? `<path class="caption" d="${outlineOf(text, at, y, size)}" fill="${color}"/>`
      : systemText(text, at, y, size, color);
    for (const character of graphemes(text)) at += widthOf(character) * size;
  }
  return svg;
}

function runsOf(line: string): { text: string; packaged: boolean }[] {
  const runs: { text: string; packaged: boolean }[] = [];
  for (const character of graphemes(line)) {
    const packaged = hasGlyph(character);
    const last = runs.at(-1);
    if (last?.packaged === packaged) last.text += character;
    else runs.push({ text: character, packaged });
  }
  return runs;
}

function systemText(text: string, x: number, y: number, size: number, color: Hex): string {
  return `<text class="caption" x="${short(x)}" y="${short(y)}" font-family="${SYSTEM_FONTS}" font-weight="700" font-size="${short(size)}" fill="${color}" xml:space="preserve">${escapeXml(text)}</text>`;
}

/** Escapes a text that stands between tags. */
function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
