import type { Random } from "../../random.ts";
import { type Canvas, short } from "../../svg/canvas.ts";
import { darken, lighten, mix } from "../../svg/color.ts";
import { below, disc, hills } from "../../svg/shapes.ts";
import type { Scene } from "./scene.ts";

/** Hills from the horizon to the lower edge. Things can stand anywhere on them. */
export function drawHills(scene: Scene, layers = 3): void {
  const { canvas, w, h, unit, horizon, palette } = scene;
  const random = scene.random.fork("hills");
  for (let i = 0; i < layers; i++) {
    const depth = (i + 1) / layers;
    const color = mix(palette.far, palette.near, 0.25 + depth * 0.75);
    const y = horizon + (h - horizon) * (i / layers) * 0.72 + unit * 0.02;
    const ridge = hills(random, w, y, unit * (0.05 + 0.03 * depth), unit * random.between(0.8, 1.3));
    canvas.path(
      below(ridge.points, h + 5),
      canvas.vertical({ at: 0, color: lighten(color, 0.05) }, { at: 1, color: darken(color, 0.05) }),
    );
  }
}

/** Grass and small flowers on the near ground. */
export function drawGrass(scene: Scene, flowers: readonly string[]): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("grass");
  const count = Math.round(70 * Math.min(3, Math.max(1, w / unit)));
  let blades = "";
  for (let i = 0; i < count; i++) {
    const y = horizon + (h - horizon) * (0.3 + 0.7 * random.next());
    const size = unit * 0.022 * (0.4 + (y - horizon) / (h - horizon));
    const x = random.between(0, w);
    blades += `M${short(x)} ${short(y)}l${short(-size * 0.5)} ${short(-size)}M${short(x)} ${short(y)}l${short(size * 0.1)} ${short(-size * 1.3)}M${short(x)} ${short(y)}l${short(size * 0.6)} ${short(-size * 0.9)}`;
  }
  const winter = plan.season === "winter";
  canvas.line(
    blades,
    winter ? mix(palette.near, palette.sky[0], 0.35) : lighten(palette.near, 0.07),
    unit * 0.0035,
    winter ? 0.5 : 0.7,
  );
  for (const color of flowers) {
    let d = "";
    for (let i = 0; i < count * 0.5; i++) {
      const share = random.next();
      d += disc(
        random.between(0, w),
        horizon + (h - horizon) * (0.28 + 0.72 * share),
        unit * (0.003 + 0.006 * share),
      );
    }
    canvas.wash(d, color, 0.95);
  }
}

/** Specks that keep a large surface from looking empty. */
export function drawSpecks(
  canvas: Canvas,
  random: Random,
  box: { x: number; y: number; w: number; h: number },
  color: string,
  size: number,
  count: number,
): void {
  let d = "";
  for (let i = 0; i < count; i++) {
    d += disc(box.x + random.next() * box.w, box.y + random.next() * box.h, size * random.between(0.4, 1.2));
  }
  canvas.wash(d, color, 0.35);
}

/** A river that widens from the horizon to the viewer. */
export function drawRiver(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette } = scene;
  const random = scene.random.fork("river");
  const x = w * random.between(0.4, 0.6);
  const sway = unit * random.between(0.1, 0.2) * (random.chance(0.5) ? 1 : -1);
  const at = (share: number) => horizon + (h - horizon) * share;
  const side = (wide: number) => (share: number) =>
    x + Math.sin(share * 5) * sway * share + wide * unit * (0.012 + 0.3 * share ** 2);
  const [left, right] = [side(-0.5), side(0.5)];
  const steps = Array.from({ length: 13 }, (_, i) => i / 12);
  const d = `M${steps.map((share) => `${short(left(share))} ${short(at(share) + 4)}`).join("L")}L${steps
    .toReversed()
    .map((share) => `${short(right(share))} ${short(at(share) + 4)}`)
    .join("L")}Z`;
  canvas.path(d, canvas.vertical({ at: 0, color: palette.water[0] }, { at: 1, color: palette.water[1] }));
  let glints = "";
  for (let i = 0; i < 16; i++) {
    const share = random.between(0.15, 0.95);
    const width = (right(share) - left(share)) * random.between(0.1, 0.35);
    glints += `M${short(left(share) + (right(share) - left(share)) * random.between(0.1, 0.6))} ${short(at(share))}h${short(width)}`;
  }
  canvas.line(glints, lighten(palette.water[0], 0.14), unit * 0.004, 0.6);
}
