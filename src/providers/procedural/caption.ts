import { escapeMarkup, renderText, type TextImage } from "../../imaging/text.ts";
import type { Hex } from "./color.ts";

/** The room for a caption, in pixels of the picture, and the sizes of its letters. */
export interface Room {
  width: number;
  height: number;
  largest: number;
  smallest: number;
}

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
/** The mean width of a letter in ems, and the height of a line. */
const LETTER = 0.63;
const LINE = 1.17;
/** Characters that are about as wide as they are high. */
const WIDE = /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]|\p{Extended_Pictographic}/u;

/**
 * Draws a text in the largest letters that fit, and a smaller label below it. A text that is too long for the smallest
 * letters is cut with an ellipsis.
 */
export async function renderCaption(
  text: string,
  label: string,
  room: Room,
  [color, faded]: readonly [Hex, Hex],
): Promise<TextImage> {
  const words = text.replaceAll(/\s+/gu, " ").trim() || "untitled";
  const small = room.largest * 0.33;
  const capacity = (size: number) =>
    (room.width / size / LETTER) * Math.floor((room.height - small * 2.6) / size / LINE);
  const letters: string[] = [];
  let length = 0;
  // No more than the smallest letters have room for.
  for (const { segment } of segmenter.segment(words.slice(0, 5000))) {
    length += WIDE.test(segment) ? 1.7 : 1;
    if (length > capacity(room.smallest) * 0.9) break;
    letters.push(segment);
  }
  const most = Math.floor(room.width / small / LETTER);
  const below = label.length > most ? `${label.slice(0, most - 1)}…` : label;
  let shown = letters.join("");
  if (shown.length < words.length) shown = `${shown.trimEnd()}…`;
  for (let size = room.largest; ; size *= 0.92) {
    const isLast = size <= room.smallest;
    if (!isLast && length > capacity(size)) continue;
    const markup = [
      `<span foreground="${color}">${escapeMarkup(shown)}</span>`,
      `<span size="${Math.round(small * 700)}"> </span>`,
      `<span foreground="${faded}" size="${Math.round(small * 1024)}">${escapeMarkup(below)}</span>`,
    ];
    const image = await renderText(markup.join("\n"), { size, width: room.width });
    if (image.info.height <= room.height || shown.length <= 1) return image;
    // The estimate was too low.
    if (isLast) shown = `${shown.slice(0, Math.floor(shown.length * 0.8 - 1)).trimEnd()}…`;
  }
}
