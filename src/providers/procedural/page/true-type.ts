/**
 * A step of an outline, in units of the font, as in SVG: `M` begins a contour, `L` is a line, `Q` a quadratic Bézier curve.
 * The last step of a contour ends where it began.
 */
export type OutlineStep =
  | { type: "M" | "L"; x: number; y: number }
  | { type: "Q"; x1: number; y1: number; x: number; y: number };

interface Point {
  x: number;
  y: number;
  isOnCurve: boolean;
}

/** Bits of a point (`glyf`, simple glyphs). */
const POINT = { onCurve: 1, shortX: 2, shortY: 4, repeats: 8, sameX: 16, sameY: 32 };

/** Bits of a part of a compound glyph (`glyf`, composite glyphs). */
const PART = { words: 1, offsets: 2, scale: 8, more: 32, twoScales: 64, matrix: 128 };

/**
 * Reads a TrueType font with quadratic outlines and a Unicode `cmap` of format 12, as in
 * https://learn.microsoft.com/typography/opentype/spec. It reads only what it is asked for: whole parsers take longer for
 * the tables of a large font than a picture takes to draw.
 */
export class TrueTypeFont {
  readonly #bytes: Buffer;
  readonly #tables = new Map<string, number>();
  readonly #groupsAt: number;

  /** Throws for a font without a `cmap` of format 12. */
  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    for (let at = 12; at < 12 + 16 * bytes.readUInt16BE(4); at += 16)
      this.#tables.set(bytes.toString("latin1", at, at + 4), bytes.readUInt32BE(at + 8));
    this.#groupsAt = this.#findGroups();
  }

  get unitsPerEm(): number {
    return this.#bytes.readUInt16BE(this.#table("head") + 18);
  }

  /** The number of the glyph of a character; 0 when there is none. */
  glyphOf(codePoint: number): number {
    const bytes = this.#bytes;
    let [low, high] = [0, bytes.readUInt32BE(this.#groupsAt - 4)];
    while (low < high) {
      const middle = (low + high) >> 1;
      const at = this.#groupsAt + 12 * middle;
      const first = bytes.readUInt32BE(at);
      if (codePoint < first) high = middle;
      else if (codePoint > bytes.readUInt32BE(at + 4)) low = middle + 1;
      else return bytes.readUInt32BE(at + 8) + codePoint - first;
    }
    return 0;
  }

  /** The width of a glyph, in units of the font. */
  advanceOf(glyph: number): number {
    const count = this.#bytes.readUInt16BE(this.#table("hhea") + 34);
    return this.#bytes.readUInt16BE(this.#table("hmtx") + 4 * Math.min(glyph, count - 1));
  }

  outlineOf(glyph: number): OutlineStep[] {
    return this.#contoursOf(glyph).flatMap(stepsOf);
  }

  #table(name: string): number {
    const at = this.#tables.get(name);
    if (at === undefined) throw new Error(`the font has no table ${name}`);
    return at;
  }

  #findGroups(): number {
    const cmap = this.#table("cmap");
    for (let i = 0; i < this.#bytes.readUInt16BE(cmap + 2); i++) {
      const at = cmap + this.#bytes.readUInt32BE(cmap + 4 + 8 * i + 4);
      if (this.#bytes.readUInt16BE(at) === 12) return at + 16;
    }
    throw new Error("the font has no cmap of format 12");
  }

  #contoursOf(glyph: number): Point[][] {
    const bytes = this.#bytes;
    const isLong = bytes.readInt16BE(this.#table("head") + 50) === 1;
    const loca = this.#table("loca");
    const offset = (index: number) =>
      isLong ? bytes.readUInt32BE(loca + 4 * index) : 2 * bytes.readUInt16BE(loca + 2 * index);
    if (offset(glyph) === offset(glyph + 1)) return [];
    const at = this.#table("glyf") + offset(glyph);
    const count = bytes.readInt16BE(at);
    return count < 0 ? this.#partsAt(at + 10) : this.#simpleAt(at + 10, count);
  }

  #simpleAt(start: number, count: number): Point[][] {
    const bytes = this.#bytes;
    const ends = Array.from({ length: count }, (_, i) => bytes.readUInt16BE(start + 2 * i));
    let at = start + 2 * count;
    at += 2 + bytes.readUInt16BE(at);
    const flags: number[] = [];
    while (flags.length <= (ends.at(-1) ?? -1)) {
      const flag = bytes.readUInt8(at++);
      flags.push(flag);
      if (flag & POINT.repeats) for (let more = bytes.readUInt8(at++); more > 0; more--) flags.push(flag);
    }
    const read = (short: number, same: number) => {
      let value = 0;
      return flags.map((flag) => {
        if (flag & short) value += flag & same ? bytes.readUInt8(at++) : -bytes.readUInt8(at++);
        else if (!(flag & same)) {
          value += bytes.readInt16BE(at);
          at += 2;
        }
        return value;
      });
    };
    const xs = read(POINT.shortX, POINT.sameX);
    const ys = read(POINT.shortY, POINT.sameY);
    const points = flags.map((flag, i) => ({
      x: xs[i] ?? 0,
      y: ys[i] ?? 0,
      isOnCurve: (flag & POINT.onCurve) !== 0,
    }));
    return ends.map((end, i) => points.slice((ends[i - 1] ?? -1) + 1, end + 1));
  }

  #partsAt(start: number): Point[][] {
    const bytes = this.#bytes;
    const contours: Point[][] = [];
    let at = start;
    for (let flags = PART.more; flags & PART.more; ) {
      flags = bytes.readUInt16BE(at);
      const glyph = bytes.readUInt16BE(at + 2);
      if (!(flags & PART.offsets)) throw new Error("a part of a glyph is placed by points");
      const isWide = (flags & PART.words) !== 0;
      const dx = isWide ? bytes.readInt16BE(at + 4) : bytes.readInt8(at + 4);
      const dy = isWide ? bytes.readInt16BE(at + 6) : bytes.readInt8(at + 5);
      at += isWide ? 8 : 6;
      const fraction = () => {
        at += 2;
        return bytes.readInt16BE(at - 2) / 0x4000;
      };
      let [xx, xy, yx, yy] = [1, 0, 0, 1];
      if (flags & PART.scale) xx = yy = fraction();
      else if (flags & PART.twoScales) [xx, yy] = [fraction(), fraction()];
      else if (flags & PART.matrix) [xx, xy, yx, yy] = [fraction(), fraction(), fraction(), fraction()];
      for (const contour of this.#contoursOf(glyph))
        contours.push(
          contour.map(({ x, y, isOnCurve }) => ({
            x: xx * x + yx * y + dx,
            y: xy * x + yy * y + dy,
            isOnCurve,
          })),
        );
    }
    return contours;
  }
}

/** Between two points that are off the curve there is one on it, in the middle. */
function stepsOf(contour: readonly Point[]): OutlineStep[] {
  const around = (i: number) => contour.at(i % contour.length) as Point;
  const [last, first] = [around(-1), around(0)];
  const start = last.isOnCurve ? last : first.isOnCurve ? first : middleOf(last, first);
  const steps: OutlineStep[] = [{ type: "M", x: start.x, y: start.y }];
  for (const [i, point] of contour.entries()) {
    const { x, y, isOnCurve } = point;
    if (isOnCurve) steps.push({ type: "L", x, y });
    else {
      const next = around(i + 1);
      const end = next.isOnCurve ? next : middleOf(point, next);
      steps.push({ type: "Q", x1: x, y1: y, x: end.x, y: end.y });
    }
  }
  return steps;
}

function middleOf(a: Point, b: Point): { x: number; y: number } {
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}
