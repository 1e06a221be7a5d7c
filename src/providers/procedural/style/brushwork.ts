import type { Random } from "../random.ts";
import { short } from "../svg/canvas.ts";
import { type Hex, lighten } from "../svg/color.ts";
import { disc, type Point } from "../svg/shapes.ts";

/** The colours of a small rendering of a scene. */
export interface Samples {
  w: number;
  h: number;
  /** Returns the colour around a point. The units are those of the scene. */
  at(x: number, y: number): Hex;
}

/** Paints a scene from its samples and returns SVG. Sizes are shares of `unit`. */
export type Brushwork = (samples: Samples, random: Random, unit: number) => string;

/** Joins shapes of nearly the same colour into one element. The cost of rendering depends on elements, not on points. */
class ByColor {
  readonly #paths = new Map<Hex, string[]>();

  add(color: Hex, d: string): void {
    const value = Number.parseInt(color.slice(1), 16);
    // Five bits a channel are enough: neighbouring shapes differ by more.
    const near = `#${((value & 0xf8f8f8) + 0x040404).toString(16).padStart(6, "0")}`;
    const known = this.#paths.get(near);
    if (known === undefined) this.#paths.set(near, [d]);
    else known.push(d);
  }

  svg(attribute: "fill" | "stroke"): string {
    return [...this.#paths]
      .map(([color, paths]) => `<path d="${paths.join("")}" ${attribute}="${color}"/>`)
      .join("");
  }
}

function tenth(value: number): number {
  return Math.round(value * 10) / 10;
}

function outline(points: readonly Point[]): string {
  return `M${points.map(([x, y]) => `${tenth(x)} ${tenth(y)}`).join("L")}Z`;
}

/** Short strokes whose direction turns slowly. */
export function brushStrokes({ w, h, at }: Samples, random: Random, unit: number): string {
  const step = unit / 56;
  const turn = random.between(0, 6);
  const strokes = new ByColor();
  for (let y = -step; y < h + step; y += step) {
    for (let x = -step; x < w + step; x += step) {
      const [px, py] = [x + random.between(-0.5, 0.5) * step, y + random.between(-0.5, 0.5) * step];
      const angle = Math.sin(px / (unit * 0.21) + turn) * 0.8 + Math.cos(py / (unit * 0.17) + turn) * 0.8;
      const reach = step * random.between(0.8, 1.35);
      const [dx, dy] = [Math.cos(angle) * reach, Math.sin(angle) * reach];
      const color = lighten(at(px, py), random.between(-0.045, 0.06));
      strokes.add(
        color,
        `M${tenth(px - dx)} ${tenth(py - dy)}q${tenth(dx + dy * 0.2)} ${tenth(dy - dx * 0.2)} ${tenth(dx * 2)} ${tenth(dy * 2)}`,
      );
    }
  }
  return `<g fill="none" stroke-width="${short(step * 0.62)}" stroke-linecap="round" stroke-opacity="0.7">${strokes.svg("stroke")}</g>`;
}

/** Triangles, like cut paper. */
export function triangles({ w, h, at }: Samples, random: Random, unit: number): string {
  const step = unit / 32;
  const columns = Math.ceil(w / step) + 2;
  const rows = Math.ceil(h / step) + 2;
  const points = Array.from(
    { length: rows * columns },
    (_, i) =>
      [
        ((i % columns) - 0.5 + random.between(-0.36, 0.36)) * step,
        (Math.floor(i / columns) - 0.5 + random.between(-0.36, 0.36)) * step,
      ] as const,
  );
  const shapes = new ByColor();
  for (let row = 0; row + 1 < rows; row++) {
    for (let column = 0; column + 1 < columns; column++) {
      const corner = (dx: number, dy: number) =>
        points[(row + dy) * columns + column + dx] ?? ([0, 0] as const);
      const [a, b, c, d] = [corner(0, 0), corner(1, 0), corner(0, 1), corner(1, 1)];
      for (const triangle of random.chance(0.5)
        ? [
            [a, b, c],
            [b, d, c],
          ]
        : [
            [a, b, d],
            [a, d, c],
          ]) {
        const x = triangle.reduce((sum, point) => sum + point[0], 0) / 3;
        const y = triangle.reduce((sum, point) => sum + point[1], 0) / 3;
        const color = lighten(at(x, y), random.between(-0.03, 0.03));
        shapes.add(color, outline(triangle));
      }
    }
  }
  return shapes.svg("fill");
}

/** Small square stones with mortar between them. */
export function stones({ w, h, at }: Samples, random: Random, unit: number): string {
  const step = unit / 40;
  const shapes = new ByColor();
  for (let y = step / 2; y < h + step; y += step) {
    for (let x = step / 2; x < w + step; x += step) {
      const corner = (dx: number, dy: number) =>
        [
          x + (dx * 0.45 + random.between(-0.07, 0.07)) * step,
          y + (dy * 0.45 + random.between(-0.07, 0.07)) * step,
        ] as const;
      shapes.add(
        lighten(at(x, y), random.between(-0.05, 0.05)),
        outline([corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)]),
      );
    }
  }
  return `<path d="M0 0H${short(w)}V${short(h)}H0Z" fill="#e9e2d4"/>${shapes.svg("fill")}`;
}

/** Round dabs of paint. */
export function dabs({ w, h, at }: Samples, random: Random, unit: number): string {
  const step = unit / 54;
  const shapes = new ByColor();
  for (let y = 0, row = 0; y < h + step; y += step * 0.87, row++) {
    for (let x = row % 2 === 0 ? 0 : step / 2; x < w + step; x += step) {
      const [px, py] = [x + random.between(-0.16, 0.16) * step, y + random.between(-0.16, 0.16) * step];
      shapes.add(
        lighten(at(px, py), random.between(-0.05, 0.05)),
        disc(px, py, step * random.between(0.4, 0.54)),
      );
    }
  }
  return `<path d="M0 0H${short(w)}V${short(h)}H0Z" fill="#f7f1e4" fill-opacity="0.75"/>${shapes.svg("fill")}`;
}
