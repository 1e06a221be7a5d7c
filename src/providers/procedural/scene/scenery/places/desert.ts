import { short } from "../../../svg/canvas.ts";
import { darken, lighten, mix } from "../../../svg/color.ts";
import { below, hills, peaks } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

/** Dunes in warm light, far rocks, a few cacti. */
export function drawDesert(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("desert");
  const sand = palette.lit(plan.placeColor ?? "#e6ac66", 0.7);
  const mesa = peaks(random, w, horizon + unit * 0.02, unit * 0.13, unit * 0.4).points.map(
    ([x, y]) => [x, Math.max(y, horizon - unit * 0.085)] as const,
  );
  canvas.path(below(mesa, h, false), mix(mix(sand, "#a8492f", 0.5), palette.sky[2], 0.35));
  for (let i = 0; i < 4; i++) {
    const depth = (i + 1) / 4;
    const y = horizon + (h - horizon) * (i / 4) * 0.8 + unit * 0.03;
    const ridge = hills(random, w, y, unit * (0.05 + depth * 0.06), unit * random.between(0.9, 1.4));
    const color = mix(mix(sand, palette.sky[2], 0.45), darken(sand, 0.03), depth);
    canvas.path(
      below(ridge.points, h + 5),
      canvas.vertical({ at: 0, color: lighten(color, 0.05) }, { at: 0.6, color: darken(color, 0.06) }),
    );
    const shadow = ridge.points.map(
      ([x, at], k) => [x, at + unit * (0.012 + 0.05 * depth * Math.abs(Math.sin(k * 0.7)))] as const,
    );
    canvas.wash(below(shadow, h + 5), darken(mix(color, palette.sky[0], 0.14), 0.03), 0.5);
  }
  const offWorld = plan.subjects.some(({ motif }) => motif === "rocket" || motif === "astronaut");
  if (plan.style === "minimal" || offWorld) return;
  for (let i = random.int(2, 3) + Math.floor(w / unit / 2); i > 0; i--) {
    const depth = random.between(0.12, 0.5);
    const side = random.chance(0.5) ? random.between(0.06, 0.3) : random.between(0.7, 0.94);
    cactus(scene, w * side, horizon + (h - horizon) * depth, unit * (0.09 + depth * 0.24));
  }
}

function cactus(scene: Scene, x: number, y: number, height: number): void {
  const { canvas, palette } = scene;
  const green = palette.lit("#3f8a5c", 0.8);
  const thick = height * 0.17;
  canvas.ellipse(x + height * 0.1, y, height * 0.3, height * 0.035, "#3a2030", 0.22);
  canvas.line(`M${short(x)} ${short(y - thick / 3)}V${short(y - height)}`, green, thick);
  canvas.line(
    `M${short(x)} ${short(y - height * 0.42)}h${short(-height * 0.24)}v${short(-height * 0.26)}`,
    darken(green, 0.02),
    thick * 0.8,
  );
  canvas.line(
    `M${short(x)} ${short(y - height * 0.34)}h${short(height * 0.23)}v${short(-height * 0.32)}`,
    darken(green, 0.05),
    thick * 0.8,
  );
  canvas.line(
    `M${short(x - thick * 0.2)} ${short(y - height * 0.1)}V${short(y - height * 0.98)}`,
    lighten(green, 0.1),
    thick * 0.12,
    0.7,
  );
}
