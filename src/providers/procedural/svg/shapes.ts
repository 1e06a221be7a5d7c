import type { Random } from "../random.ts";
import { short } from "./canvas.ts";

export type Point = readonly [x: number, y: number];

/** A closed shape with straight edges through the points. */
export function polygon(points: readonly Point[]): string {
  return `M${points.map(([x, y]) => `${short(x)} ${short(y)}`).join("L")}Z`;
}

/** An open line with straight edges through the points. */
function polyline(points: readonly Point[]): string {
  return `M${points.map(([x, y]) => `${short(x)} ${short(y)}`).join("L")}`;
}

/** An open curve near the points, from the first to the last. */
export function softLine(points: readonly Point[]): string {
  const first = points[0] ?? [0, 0];
  const last = points.at(-1) ?? first;
  let d = `M${short(first[0])} ${short(first[1])}`;
  for (let i = 1; i + 1 < points.length; i++) {
    const [x, y] = points[i] ?? first;
    const [nextX, nextY] = points[i + 1] ?? first;
    d += `Q${short(x)} ${short(y)} ${short((x + nextX) / 2)} ${short((y + nextY) / 2)}`;
  }
  return `${d}L${short(last[0])} ${short(last[1])}`;
}

/** A closed curve near the points. */
export function softShape(points: readonly Point[]): string {
  const middle = (a: Point, b: Point): Point => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  const first = points[0] ?? [0, 0];
  const start = middle(points.at(-1) ?? first, first);
  let d = `M${short(start[0])} ${short(start[1])}`;
  points.forEach((point, i) => {
    const end = middle(point, points[i + 1] ?? first);
    d += `Q${short(point[0])} ${short(point[1])} ${short(end[0])} ${short(end[1])}`;
  });
  return `${d}Z`;
}

/** An uneven round shape around a point. With `unevenness` 0 it is a circle. */
export function blob(
  random: Random,
  x: number,
  y: number,
  r: number,
  unevenness: number,
  corners = 9,
): string {
  return softShape(
    Array.from({ length: corners }, (_, i) => {
      const angle = (i / corners) * Math.PI * 2;
      const reach = r * (1.08 + unevenness * random.between(-1, 1));
      return [x + Math.cos(angle) * reach, y + Math.sin(angle) * reach] as const;
    }),
  );
}

/** A star with four points. The inner corners lie at `inner` of the radius (0 to 1). */
export function star(x: number, y: number, r: number, inner: number): string {
  return polygon(
    Array.from({ length: 8 }, (_, i) => {
      const reach = i % 2 === 0 ? r : r * inner;
      const angle = (i / 8) * Math.PI * 2 - Math.PI / 2;
      return [x + Math.cos(angle) * reach, y + Math.sin(angle) * reach] as const;
    }),
  );
}

export function rectangle(x: number, y: number, w: number, h: number): string {
  return `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}Z`;
}

export function disc(x: number, y: number, r: number): string {
  return `M${short(x - r)} ${short(y)}a${short(r)} ${short(r)} 0 1 0 ${short(r * 2)} 0a${short(r)} ${short(r)} 0 1 0 ${short(-r * 2)} 0Z`;
}

/** A line across the picture, such as the top of a range of hills. */
export interface Ridge {
  points: Point[];
  /** The height of the line at `x`. */
  at(x: number): number;
}

/** A line of hills, made of sine waves. `swell` is their height, and `length` the length of the longest wave. */
export function hills(random: Random, w: number, y: number, swell: number, length: number): Ridge {
  const waves = [1, 0.46, 0.21].map((share) => ({
    share,
    length: length * share * random.between(0.85, 1.15),
    phase: random.between(0, 7),
  }));
  const at = (x: number) =>
    y -
    waves.reduce(
      (sum, wave) => sum + Math.sin((x / wave.length) * Math.PI * 2 + wave.phase) * wave.share,
      0,
    ) *
      swell *
      0.5;
  const steps = Math.max(8, Math.ceil((w / length) * 10));
  const points = Array.from({ length: steps + 1 }, (_, i) => {
    const x = -10 + ((w + 20) * i) / steps;
    return [x, at(x)] as const;
  });
  return { points, at };
}

/** A line of peaks. `rise` is the height of the highest above `y`, and `width` the distance between two of them. */
export function peaks(random: Random, w: number, y: number, rise: number, width: number): Ridge {
  const points: Point[] = [[-width * random.between(0.3, 0.9), y - rise * random.between(0, 0.25)]];
  let x = points[0]?.[0] ?? 0;
  while (x < w + width) {
    const half = width * random.between(0.38, 0.62);
    const top = y - rise * random.between(0.5, 1);
    points.push([x + half, top]);
    x += half * 2;
    points.push([x, y - rise * random.between(0.02, 0.34)]);
  }
  return { points: roughen(random, points, width * 0.045), at: (at) => heightAt(points, at) };
}

function heightAt(points: readonly Point[], x: number): number {
  const index = points.findIndex((point) => point[0] >= x);
  const right = points[Math.max(1, index)] ?? [0, 0];
  const left = points[Math.max(1, index) - 1] ?? right;
  return left[1] + ((right[1] - left[1]) * (x - left[0])) / (right[0] - left[0] || 1);
}

function roughen(random: Random, points: readonly Point[], amount: number): Point[] {
  return points.flatMap((point, i) => {
    const next = points[i + 1];
    if (next === undefined) return [point];
    const between = [0.3, 0.55, 0.8].map(
      (share) =>
        [
          point[0] + (next[0] - point[0]) * share + random.between(-amount, amount),
          point[1] + (next[1] - point[1]) * share + random.between(-amount, amount) * 1.3,
        ] as const,
    );
    return [point, ...between];
  });
}

/** Closes a line into a shape that reaches down to the bottom. */
export function below(points: readonly Point[], bottom: number, soft = true): string {
  const first = points[0] ?? [0, 0];
  const line = soft ? softLine(points) : polyline(points);
  return `${line}V${short(bottom)}H${short(first[0])}Z`;
}
