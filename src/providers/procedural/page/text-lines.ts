import { advanceOf, hasGlyph } from "./font.ts";

/** A text, broken into lines that fit a box. */
export interface FittedText {
  lines: readonly string[];
  /** The font size: the height of the em square. */
  size: number;
  /** The distance from one baseline to the next. */
  leading: number;
}

const LEADING = 1.24;
/** No caption has space for more, even with the smallest letters. */
const MAX_CHARACTERS = 700;
const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });

/** Returns the text without control characters and lone surrogates, and with single spaces for all whitespace. */
export function drawableText(text: string): string {
  return text
    .replaceAll(/\s+/gu, " ")
    .replaceAll(/[\p{Cc}\p{Cs}\p{Co}\p{Cn}\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/gu, "")
    .trim();
}

/** Each of these is a character of its own. The segmenter would take most of the time of a caption for them. */
const PLAIN = /^[ -~]*$/;

/** The characters of a text as readers count them, at most `most` of them. Default: all. */
export function graphemes(text: string, most = Number.POSITIVE_INFINITY): string[] {
  if (PLAIN.test(text)) return [...text.slice(0, most)];
  const characters: string[] = [];
  for (const { segment } of segmenter.segment(text)) {
    if (characters.length >= most) break;
    characters.push(segment);
  }
  return characters;
}

/** The characters of a text that a caption may have space for. */
export function captionGraphemes(text: string): string[] {
  return graphemes(text.slice(0, MAX_CHARACTERS * 4), MAX_CHARACTERS);
}

/**
 * Breaks a text into lines that fit the box, in the largest possible letters between `sizes`. A text that is too long for
 * the smallest letters is cut with an ellipsis.
 */
export function fitText(
  text: string,
  box: { width: number; height: number },
  sizes: { largest: number; smallest: number },
): FittedText {
  const shown = captionGraphemes(text);
  const cut = shown.join("").length < text.length;
  for (let size = cut ? sizes.smallest : sizes.largest; ; size *= 0.92) {
    const last = size <= sizes.smallest;
    const used = last ? sizes.smallest : size;
    const maxLines = Math.max(1, Math.floor((box.height / used - 1) / LEADING + 1.001));
    const lines = breakLines(shown, box.width / used);
    const fits = lines.length <= maxLines && !cut;
    if (fits || last) {
      return {
        lines: fits ? lines : shorten(lines.slice(0, maxLines), box.width / used),
        size: used,
        leading: used * LEADING,
      };
    }
  }
}

/** The width of a character in ems: from the packaged font, or an estimate for characters of other fonts. */
export function widthOf(character: string): number {
  if (hasGlyph(character)) return advanceOf(character);
  return WIDE.test(character) ? 1.04 : 0.74;
}

const WIDE =
  /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]|\p{Extended_Pictographic}|\p{Regional_Indicator}/u;
const IDEOGRAPH = /[\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]/u;

function breakLines(characters: readonly string[], width: number): string[] {
  const lines: string[] = [];
  let line = "";
  let lineWidth = 0;
  /** The last place to break the line, as an index, and the width of the line up to there. */
  let breakAt = 0;
  let widthAtBreak = 0;
  for (const character of characters) {
    if (character === " " && line === "") continue;
    if (character === " " || IDEOGRAPH.test(character)) {
      breakAt = line.length;
      widthAtBreak = lineWidth;
    }
    const own = widthOf(character);
    if (lineWidth + own > width && line !== "") {
      const at = breakAt > 0 ? breakAt : line.length;
      const kept = line.slice(at);
      const rest = kept.trimStart();
      lines.push(line.slice(0, at).trimEnd());
      lineWidth =
        rest === ""
          ? 0
          : lineWidth - (breakAt > 0 ? widthAtBreak : lineWidth) - (kept.length - rest.length) * widthOf(" ");
      line = rest;
      breakAt = 0;
      if (character === " " && line === "") continue;
    }
    line += character;
    lineWidth += own;
  }
  if (line.trim() !== "") lines.push(line.trimEnd());
  return lines;
}

function shorten(lines: readonly string[], width: number): string[] {
  const last = graphemes(lines.at(-1) ?? "");
  let total = last.reduce((sum, character) => sum + widthOf(character), widthOf("…"));
  while (last.length > 1 && total > width) total -= widthOf(last.pop() ?? "");
  return [...lines.slice(0, -1), `${last.join("").replace(/[\s.,;:]+$/, "")}…`];
}
