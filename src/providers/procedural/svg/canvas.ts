import { type Ink, inked } from "../style/ink.ts";
import { type Hex, mix } from "./color.ts";

/** A colour, or a gradient that the canvas made. */
export type Paint = string;

export interface Stop {
  at: number;
  color: Hex;
  opacity?: number;
}

export interface Placement {
  x?: number;
  y?: number;
  scale?: number;
  /** Swaps left and right. */
  flip?: boolean;
  /** Degrees, clockwise. */
  rotate?: number;
}

/**
 * Collects the shapes of a picture as SVG. The ink changes every shape, so that one drawing becomes a poster, a line drawing
 * or a neon sign. Lengths are in the units of the innermost `place`.
 */
export interface Canvas {
  path(d: string, paint: Paint, opacity?: number): void;
  circle(x: number, y: number, r: number, paint: Paint, opacity?: number): void;
  ellipse(
    x: number,
    y: number,
    rx: number,
    ry: number,
    paint: Paint,
    opacity?: number,
    rotate?: number,
  ): void;
  rect(x: number, y: number, w: number, h: number, paint: Paint, radius?: number, opacity?: number): void;
  /** A stroke with round ends. */
  line(d: string, color: Paint, width: number, opacity?: number): void;
  /** A shape without an outline in every ink, for light, shadow, haze and skies. */
  wash(d: string, paint: Paint, opacity?: number): void;
  /** Adds SVG as it is; the caller has escaped it. */
  raw(svg: string): void;
  place(where: Placement, draw: () => void): void;
  /** A gradient from the top of the filled shape to its bottom. */
  vertical(...stops: Stop[]): Paint;
  /** A gradient from the middle of the filled shape to its edge. */
  radial(...stops: Stop[]): Paint;
  /** A gradient of one colour, lit from the upper left. It is the usual paint of a body. */
  lit(color: Hex, depth?: number): Paint;
  /** Two colours side by side, for the two sides of a solid thing. `at` is the border, 0 to 1. */
  split(left: Hex, right: Hex, at?: number): Paint;
  /** Everything drawn so far. */
  svg(): { defs: string; body: string };
}

/** Creates a canvas. `prefix` keeps the gradient names of two canvases in one document apart. */
export function createCanvas(ink: Ink, prefix = "g"): Canvas {
  const defs: string[] = [];
  const body: string[] = [];
  const gradients = new Map<string, Paint>();
  /** The mean colour of each gradient: the outline and neon inks need one colour. */
  const flat = new Map<Paint, Hex>();
  let scale = 1;

  const gradient = (open: string, close: string, stops: readonly Stop[]): Paint => {
    const inner = stops
      .map(({ at, color, opacity }) => {
        const solid = opacity === undefined ? "" : ` stop-opacity="${short(opacity)}"`;
        return `<stop offset="${short(at)}" stop-color="${ink.wash(color)}"${solid}/>`;
      })
      .join("");
    const key = open + inner;
    const known = gradients.get(key);
    if (known !== undefined) return known;
    const id = `${prefix}${gradients.size}`;
    const paint = `url(#${id})`;
    defs.push(`<${open} id="${id}">${inner}</${close}>`);
    gradients.set(key, paint);
    const first = stops[0]?.color ?? "#808080";
    flat.set(paint, mix(first, stops.at(-1)?.color ?? first, 0.5));
    return paint;
  };
  const linear = (direction: string, stops: readonly Stop[]) =>
    gradient(`linearGradient ${direction}`, "linearGradient", stops);
  const shape = (tag: string, paint: Paint, opacity: number | undefined) =>
    inked(ink, tag, paint, flat.get(paint) ?? paint, opacity, scale);
  const put = (tag: string, paint: Paint, opacity: number | undefined) =>
    body.push(shape(tag, paint, opacity));

  return {
    path: (d, paint, opacity) => put(`<path d="${d}"`, paint, opacity),
    circle: (x, y, r, paint, opacity) =>
      put(`<circle cx="${short(x)}" cy="${short(y)}" r="${short(r)}"`, paint, opacity),
    ellipse: (x, y, rx, ry, paint, opacity, rotate) => {
      const turned = rotate ? ` transform="rotate(${short(rotate)} ${short(x)} ${short(y)})"` : "";
      put(
        `<ellipse cx="${short(x)}" cy="${short(y)}" rx="${short(rx)}" ry="${short(ry)}"${turned}`,
        paint,
        opacity,
      );
    },
    rect: (x, y, w, h, paint, radius, opacity) => {
      const round = radius ? ` rx="${short(radius)}"` : "";
      put(
        `<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"${round}`,
        paint,
        opacity,
      );
    },
    line: (d, color, width, opacity) => {
      body.push(ink.stroke(d, flat.get(color) ?? color, width, opacity));
    },
    wash: (d, paint, opacity) => {
      const color = paint.startsWith("#") ? ink.wash(paint) : paint;
      body.push(
        `<path d="${d}" fill="${color}"${opacity === undefined ? "" : ` fill-opacity="${short(opacity)}"`}/>`,
      );
    },
    raw: (svg) => {
      body.push(svg);
    },
    place: (where, draw) => {
      const size = where.scale ?? 1;
      const turn = where.rotate ? `rotate(${short(where.rotate)})` : "";
      const grow = `scale(${fine(where.flip ? -size : size)} ${fine(size)})`;
      body.push(`<g transform="translate(${short(where.x ?? 0)} ${short(where.y ?? 0)})${turn}${grow}">`);
      const outer = scale;
      scale *= size;
      draw();
      scale = outer;
      body.push("</g>");
    },
    vertical: (...stops) => linear('x1="0" y1="0" x2="0" y2="1"', stops),
    radial: (...stops) => gradient("radialGradient", "radialGradient", stops),
    lit: (color, depth = 0.1) =>
      linear('x1="0" y1="0" x2="1" y2="1"', [
        { at: 0, color: mix(color, "#fff4dc", depth * 2.2) },
        { at: 0.45, color },
        { at: 1, color: mix(color, "#1a1040", depth * 1.75) },
      ]),
    split: (left, right, at = 0.5) =>
      linear('x1="0" y1="0" x2="1" y2="0"', [
        { at, color: left },
        { at, color: right },
      ]),
    svg: () => ({ defs: defs.join(""), body: body.join("") }),
  };
}

/** Writes a length with at most one decimal. A tenth of a pixel is exact enough and keeps the document small. */
export function short(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function fine(value: number): string {
  return String(Math.round(value * 10000) / 10000);
}
