import { DECODE_SECONDS, type Decoding } from "./decoding.ts";

/** What the pixels of a picture alone show, whatever was asked for. */
export interface Look {
  /** All pixels have nearly one colour. */
  flat: boolean;
  /**
   * Bars of one flat colour at two opposite sides, so that the picture between them has another ratio than the file. `share`: how
   * much of the width or the height each bar takes, 0 to 1. Null without bars.
   */
  bars: { sides: "left and right" | "top and bottom"; share: number } | null;
  /** A part of it is transparent. */
  transparent: boolean;
  /** A difference hash: 64 bits in hexadecimal, which few changes of the picture change. */
  dhash: string;
  /** The mean colours of 8 × 8 parts: 192 bytes of RGB in base64. */
  colours: string;
}

/** The picture is looked at in this size: enough for everything that is looked for. */
const EDGE_PX = 256;
/** A smaller picture shows nothing. */
const LEAST_PX = 16;
/** Colours whose channels differ by less are one colour: encoders add some noise. */
const SAME = 8;
/** At the edge of a bar most pixels change by at least this much. */
const STEP = 24;
/** Lower values of alpha are transparent. */
const OPAQUE = 250;
const EDGE_LINES = 5;
const LEAST_BAR = 0.03;

/**
 * Looks at a picture, turned by its EXIF orientation. Null for bytes that do not decode or that `decoding` does not take, and for
 * a picture that is too small to say anything.
 */
export async function look(bytes: Buffer, decoding: Decoding): Promise<Look | null> {
  // Loaded with the first picture.
  const { sharp } = await import("./sharp-config.ts");
  try {
    const { data, info } = await decoding.decode(
      bytes,
      { maxPixels: Number.POSITIVE_INFINITY },
      (decodable) =>
        sharp(decodable)
          .rotate()
          .resize(EDGE_PX, EDGE_PX, { fit: "inside", withoutEnlargement: true })
          .toColourspace("srgb")
          .ensureAlpha()
          .timeout({ seconds: DECODE_SECONDS })
          .raw()
          .toBuffer({ resolveWithObject: true }),
    );
    const { width, height } = info;
    if (Math.min(width, height) < LEAST_PX) return null;
    return lookAtPixels(data, width, height);
  } catch {
    return null;
  }
}

/** An image as three bytes a pixel, row by row. */
interface Pixels {
  rgb: Uint8Array;
  width: number;
  height: number;
}

function lookAtPixels(rgba: Uint8Array, width: number, height: number): Look {
  const pixels = { rgb: onGrey(rgba), width, height };
  const alpha = rgba.filter((_, i) => i % 4 === 3);
  const transparent = alpha.some((value) => value < OPAQUE);
  const flat = isOneColour(pixels.rgb) && Math.max(...rangeOf(alpha, 1)) < SAME;
  return {
    flat,
    bars: flat || transparent ? null : barsOf(pixels),
    transparent,
    dhash: dhashOf(pixels),
    colours: Buffer.from(means(pixels, 8, 8).flat()).toString("base64"),
  };
}

/** Puts the picture on grey: there, both black and white drawings on transparent ground can be seen. */
function onGrey(rgba: Uint8Array): Uint8Array {
  const rgb = new Uint8Array((rgba.length / 4) * 3);
  for (let from = 0, to = 0; from < rgba.length; from += 4, to += 3) {
    const alpha = (rgba[from + 3] ?? 0) / 255;
    for (let channel = 0; channel < 3; channel++)
      rgb[to + channel] = Math.round((rgba[from + channel] ?? 0) * alpha + 128 * (1 - alpha));
  }
  return rgb;
}

/** How far the values of each channel lie apart. */
function rangeOf(values: Uint8Array, channels: number): number[] {
  const least = new Array<number>(channels).fill(255);
  const most = new Array<number>(channels).fill(0);
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? 0;
    const channel = i % channels;
    if (value < (least[channel] ?? 0)) least[channel] = value;
    if (value > (most[channel] ?? 0)) most[channel] = value;
  }
  return most.map((value, channel) => value - (least[channel] ?? 0));
}

function isOneColour(rgb: Uint8Array): boolean {
  return rangeOf(rgb, 3).every((range) => range < SAME);
}

/** A margin on all four sides is no bar: many drawings have one. */
function barsOf(pixels: Pixels): Look["bars"] {
  const columns = Array.from({ length: pixels.width }, (_, x) => columnOf(pixels, x));
  const rows = Array.from({ length: pixels.height }, (_, y) => rowOf(pixels, y));
  for (const [sides, lines, others] of [
    ["left and right", columns, rows],
    ["top and bottom", rows, columns],
  ] as const) {
    const share = shareOfBars(lines);
    if (share !== null && !hasMargin(others)) return { sides, share: Math.round(share * 100) / 100 };
  }
  return null;
}

function rowOf({ rgb, width }: Pixels, y: number): Uint8Array {
  return rgb.subarray(y * width * 3, (y + 1) * width * 3);
}

function columnOf({ rgb, width, height }: Pixels, x: number): Uint8Array {
  const column = new Uint8Array(height * 3);
  for (let y = 0; y < height; y++)
    column.set(rgb.subarray((y * width + x) * 3, (y * width + x) * 3 + 3), y * 3);
  return column;
}

/** Returns how many lines from the first on have one colour all along, and the same as the first. */
function depthOf(lines: readonly Uint8Array[]): number {
  const [first] = lines;
  if (first === undefined || !isOneColour(first)) return 0;
  const end = lines.findIndex((line) => !isOneColour(line) || shareOfOthers(line, first, SAME) > 0);
  return end < 0 ? lines.length : end;
}

/** Returns how many pixels of a line, 0 to 1, differ by at least `step` from the first pixel of another one. */
function shareOfOthers(line: Uint8Array, other: Uint8Array, step: number): number {
  let count = 0;
  for (let i = 0; i < line.length; i += 3)
    if ([0, 1, 2].some((channel) => Math.abs((line[i + channel] ?? 0) - (other[channel] ?? 0)) >= step))
      count++;
  return count / (line.length / 3);
}

function hasMargin(lines: readonly Uint8Array[]): boolean {
  return depthOf(lines) > 1 && depthOf(lines.toReversed()) > 1;
}

/** Returns the share of the lines that each of two bars of one colour takes; null without such bars. */
function shareOfBars(lines: readonly Uint8Array[]): number | null {
  const back = lines.toReversed();
  const [near, far] = [depthOf(lines), depthOf(back)];
  const least = Math.max(2, lines.length * LEAST_BAR);
  const [first, last] = [lines[0], back[0]];
  if (first === undefined || last === undefined || Math.min(near, far) < least) return null;
  if (Math.abs(near - far) > Math.max(2, Math.max(near, far) * 0.2)) return null;
  if (shareOfOthers(last, first, SAME) > 0) return null;
  // Encoders blur an edge.
  const edgeOf = (from: readonly Uint8Array[], depth: number) =>
    Math.max(0, ...from.slice(depth, depth + EDGE_LINES).map((line) => shareOfOthers(line, first, STEP)));
  if (Math.min(edgeOf(lines, near), edgeOf(back, far)) < 0.5) return null;
  const inside = lines.slice(near, lines.length - far);
  // Flags and stripes are flat in between, too.
  if (inside.filter((line) => !isOneColour(line)).length < inside.length / 2) return null;
  return (near + far) / 2 / lines.length;
}

/** Returns the mean colour of each part of a picture, row by row. */
function means({ rgb, width, height }: Pixels, columns: number, rows: number): number[][] {
  const sums = Array.from({ length: columns * rows }, () => [0, 0, 0, 0]);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const part = Math.floor((y * rows) / height) * columns + Math.floor((x * columns) / width);
      const sum = sums[part] ?? [];
      for (let channel = 0; channel < 3; channel++)
        sum[channel] = (sum[channel] ?? 0) + (rgb[(y * width + x) * 3 + channel] ?? 0);
      sum[3] = (sum[3] ?? 0) + 1;
    }
  return sums.map(([red = 0, green = 0, blue = 0, count = 1]) =>
    [red, green, blue].map((sum) => Math.round(sum / count)),
  );
}

/** Each bit says whether the brightness falls from a part of a picture to the one to its right. */
function dhashOf(pixels: Pixels): string {
  const grey = means(pixels, 9, 8).map(
    ([red = 0, green = 0, blue = 0]) => red * 299 + green * 587 + blue * 114,
  );
  let bits = "";
  for (let row = 0; row < 8; row++)
    for (let column = 0; column < 8; column++) {
      const at = row * 9 + column;
      bits += (grey[at] ?? 0) > (grey[at + 1] ?? 0) ? "1" : "0";
    }
  return (bits.match(/.{4}/g) ?? []).map((four) => Number.parseInt(four, 2).toString(16)).join("");
}
