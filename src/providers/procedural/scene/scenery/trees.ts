import type { Random } from "../../random.ts";
import { type Canvas, short } from "../../svg/canvas.ts";
import { darken, type Hex, lighten, mix } from "../../svg/color.ts";
import { blob } from "../../svg/shapes.ts";

/** A fir with its foot at `x`, `y`; with `snow`, its branches carry snow. */
export function fir(
  canvas: Canvas,
  x: number,
  y: number,
  height: number,
  color: Hex,
  snow: Hex | null,
): void {
  const w = height * 0.42;
  canvas.path(
    `M${short(x - height * 0.025)} ${short(y)}v${short(-height * 0.2)}h${short(height * 0.05)}v${short(height * 0.2)}Z`,
    darken(mix(color, "#5d3b26", 0.6), 0.08),
  );
  for (let i = 0; i < 3; i++) {
    const base = y - height * (0.1 + i * 0.25);
    const half = (w / 2) * (1 - i * 0.24);
    const top = base - height * (0.42 - i * 0.02);
    canvas.path(
      `M${short(x)} ${short(top)}L${short(x + half)} ${short(base)}Q${short(x)} ${short(base + height * 0.06)} ${short(x - half)} ${short(base)}Z`,
      canvas.split(lighten(color, 0.035), darken(color, 0.045)),
    );
    if (snow !== null) {
      const mid = top + (base - top) * 0.5;
      canvas.wash(
        `M${short(x)} ${short(top)}L${short(x + half * 0.52)} ${short(mid)}L${short(x + half * 0.26)} ${short(mid - height * 0.03)}L${short(x + half * 0.05)} ${short(mid + height * 0.035)}L${short(x - half * 0.24)} ${short(mid - height * 0.02)}L${short(x - half * 0.54)} ${short(mid + height * 0.02)}Z`,
        snow,
        0.95,
      );
    }
  }
}

/** A tree with a round crown and its foot at `x`, `y`. */
export function roundTree(
  canvas: Canvas,
  random: Random,
  x: number,
  y: number,
  height: number,
  color: Hex,
  bark: Hex,
): void {
  const r = height * 0.3;
  const top = y - height + r;
  canvas.path(
    `M${short(x - height * 0.035)} ${short(y)}Q${short(x - height * 0.01)} ${short(y - height * 0.3)} ${short(x - height * 0.02)} ${short(top)}h${short(height * 0.04)}Q${short(x + height * 0.015)} ${short(y - height * 0.3)} ${short(x + height * 0.045)} ${short(y)}Z`,
    bark,
  );
  canvas.path(blob(random, x + r * 0.32, top + r * 0.5, r * 0.72, 0.12), darken(color, 0.07));
  canvas.path(blob(random, x - r * 0.4, top + r * 0.42, r * 0.7, 0.12), darken(color, 0.03));
  canvas.path(blob(random, x, top, r, 0.1), color);
  canvas.wash(blob(random, x - r * 0.28, top - r * 0.26, r * 0.55, 0.14), lighten(color, 0.06), 0.8);
  canvas.wash(blob(random, x - r * 0.38, top - r * 0.38, r * 0.22, 0.2), lighten(color, 0.12), 0.7);
}

/** A palm with its foot at `x`, `y`. */
export function palm(
  canvas: Canvas,
  random: Random,
  x: number,
  y: number,
  height: number,
  color: Hex,
  bark: Hex,
): void {
  const lean = height * random.between(0.08, 0.2) * (random.chance(0.5) ? 1 : -1);
  const [topX, topY] = [x + lean, y - height * 0.82];
  canvas.path(
    `M${short(x - height * 0.04)} ${short(y)}Q${short(x)} ${short(y - height * 0.5)} ${short(topX - height * 0.015)} ${short(topY)}h${short(height * 0.03)}Q${short(x + height * 0.05)} ${short(y - height * 0.4)} ${short(x + height * 0.04)} ${short(y)}Z`,
    canvas.split(lighten(bark, 0.05), darken(bark, 0.05)),
  );
  for (const [dx, dy, shade] of [
    [-0.42, 0.1, -0.06],
    [0.42, 0.12, -0.08],
    [-0.34, -0.12, 0],
    [0.36, -0.1, -0.02],
    [-0.2, 0.26, -0.1],
    [0.24, 0.26, -0.1],
    [0.06, -0.2, 0.05],
  ] as const) {
    const [endX, endY] = [topX + dx * height, topY + dy * height];
    const [midX, midY] = [topX + dx * height * 0.55, topY + dy * height * 0.2 - height * 0.13];
    canvas.path(
      `M${short(topX)} ${short(topY)}Q${short(midX)} ${short(midY)} ${short(endX)} ${short(endY)}Q${short(midX)} ${short(midY + height * 0.12)} ${short(topX)} ${short(topY)}Z`,
      lighten(color, shade),
    );
  }
  canvas.circle(topX - height * 0.02, topY + height * 0.02, height * 0.026, darken(bark, 0.1));
  canvas.circle(topX + height * 0.03, topY + height * 0.03, height * 0.026, darken(bark, 0.14));
}

/** A row of firs as one outline, for the far edge of a forest. */
export function treeLine(
  random: Random,
  w: number,
  bottom: number,
  y: (x: number) => number,
  height: number,
): string {
  let d = `M-10 ${short(bottom)}`;
  let x = -height * 0.3;
  while (x < w + height) {
    const tall = height * random.between(0.6, 1.1);
    const half = tall * random.between(0.16, 0.22);
    const foot = y(x);
    d += `L${short(x - half)} ${short(foot)}L${short(x - half * 0.35)} ${short(foot - tall * 0.5)}l${short(-half * 0.25)} 0L${short(x)} ${short(foot - tall)}L${short(x + half * 0.6)} ${short(foot - tall * 0.5)}l${short(-half * 0.25)} 0L${short(x + half)} ${short(foot)}`;
    x += half * random.between(1.4, 2.4);
  }
  return `${d}L${short(w + 10)} ${short(bottom)}Z`;
}
