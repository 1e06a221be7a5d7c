import { sharp } from "../../../imaging/sharp-config.ts";
import { hasGlyph } from "./font.ts";
import { captionGraphemes } from "./text-lines.ts";

/** The fonts for characters that the packaged one lacks. */
export const SYSTEM_FONTS = "DejaVu Sans, Noto Sans, Noto Sans CJK SC, Noto Emoji, sans-serif";
/** Scripts from right to left. A line with one is laid out as a whole, by the fonts of the system. */
export const RIGHT_TO_LEFT =
  /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Nko}\p{Script=Thaana}]/u;
const NO_FONT = "(no font here for this text)";

/** Whether no font of the system has the character. Characters that are not in here were not tried. */
const isMissing = new Map<string, boolean>();

/** Finds out which characters of a text the fonts of the system lack. `legibleText` then leaves them out. */
export async function learnMissing(text: string): Promise<void> {
  const isWhole = RIGHT_TO_LEFT.test(text);
  const drawn = captionGraphemes(text).filter((grapheme) => isWhole || !hasGlyph(grapheme));
  const untried = [...new Set(drawn.flatMap(charactersOf))].filter(
    (character) => !isMissing.has(character) && !WITHOUT_BOX.test(character),
  );
  if (untried.length === 0) return;
  const boxes = await drawCells([...UNASSIGNED, ...untried]);
  const samples = boxes.slice(0, UNASSIGNED.length);
  for (const [i, character] of untried.entries()) {
    const box = boxes[i + UNASSIGNED.length];
    isMissing.set(character, box != null && samples.includes(box));
  }
}

/**
 * Returns the text with an ellipsis in place of characters that no font has: they would be boxes with their numbers. A
 * text of nothing else becomes a line that says so.
 */
export function legibleText(text: string): string {
  const graphemes = captionGraphemes(text);
  const lacks = (grapheme: string) => charactersOf(grapheme).some((character) => isMissing.get(character));
  if (!graphemes.some(lacks)) return text;
  const kept = graphemes.map((grapheme) => (lacks(grapheme) ? "…" : grapheme)).join("");
  return /[\p{L}\p{N}]/u.test(kept) ? kept.replaceAll(/…(\s*…)+/gu, "…") : NO_FONT;
}

/** Thai and Lao AM are drawn as a mark and another letter. */
function charactersOf(grapheme: string): string[] {
  return [...grapheme.replaceAll("\u0e33", "\u0e32").replaceAll("\u0eb3", "\u0eb2")];
}

/** Marks, joiners and blanks never become a box. */
const WITHOUT_BOX = /[\p{M}\p{Cf}\p{Z}]/u;
/** Characters that no font has, with four and with five digits: their boxes have different sizes. */
const UNASSIGNED = ["\u0378", "\u{3f000}"];
/** In smaller letters the digits would touch the frame of their box. */
const LETTER = 32;
const CELL = 2 * LETTER;
const CELLS_PER_ROW = 32;

/**
 * Draws each character in a cell of its own. Returns the frames of the cells: the pixels along the edge of what was drawn,
 * as text; null for an empty cell. All boxes for missing characters with the same number of digits have one frame.
 */
async function drawCells(characters: readonly string[]): Promise<(string | null)[]> {
  const width = CELL * Math.min(CELLS_PER_ROW, characters.length);
  const height = CELL * Math.ceil(characters.length / CELLS_PER_ROW);
  const cells = characters.map((character, i) => {
    const x = (i % CELLS_PER_ROW) * CELL;
    const y = Math.floor(i / CELLS_PER_ROW) * CELL;
    const letter = `<text x="8" y="${LETTER * 1.4}" font-family="${SYSTEM_FONTS}" font-weight="700" font-size="${LETTER}">${escaped(character)}</text>`;
    return `<svg x="${x}" y="${y}" width="${CELL}" height="${CELL}">${letter}</svg>`;
  });
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${cells.join("")}</svg>`;
  const alpha = await sharp(Buffer.from(svg)).ensureAlpha().extractChannel(3).raw().toBuffer();
  return characters.map((_, i) => {
    const left = (i % CELLS_PER_ROW) * CELL;
    const top = Math.floor(i / CELLS_PER_ROW) * CELL;
    return frameOf((x, y) => alpha[(top + y) * width + left + x] ?? 0);
  });
}

function escaped(character: string): string {
  return `&#${character.codePointAt(0)};`;
}

function frameOf(inkAt: (x: number, y: number) => number): string | null {
  const all = Array.from({ length: CELL }, (_, i) => i);
  const columns = all.filter((x) => all.some((y) => inkAt(x, y) > 0));
  const rows = all.filter((y) => all.some((x) => inkAt(x, y) > 0));
  const [left, right, top, bottom] = [columns[0], columns.at(-1), rows[0], rows.at(-1)];
  if (left === undefined || right === undefined || top === undefined || bottom === undefined) return null;
  const edge = [
    ...columns.flatMap((x) => [inkAt(x, top), inkAt(x, bottom)]),
    ...rows.flatMap((y) => [inkAt(left, y), inkAt(right, y)]),
  ];
  return [left, right, top, bottom, ...edge].join();
}
