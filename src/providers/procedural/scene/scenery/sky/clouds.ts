import type { Random } from "../../../random.ts";
import { short } from "../../../svg/canvas.ts";
import { mix } from "../../../svg/color.ts";
import type { Scene } from "../scene.ts";

/** A cloud with a flat base, `width` wide. The middle of the base is at `x`, `y`. */
export function cloudShape(random: Random, x: number, y: number, width: number): string {
  const bumps = random.int(3, 5);
  let d = `M${short(x - width / 2)} ${short(y)}`;
  let left = 0;
  for (let i = 0; i < bumps; i++) {
    const span = i === bumps - 1 ? width - left : (width / bumps) * random.between(0.8, 1.2);
    const middle = 1 - Math.abs((left + span / 2) / width - 0.5) * 1.1;
    const rise = span * (0.34 + middle * 0.42);
    d += `c${short(-span * 0.06)} ${short(-rise * 1.25)} ${short(span * 1.06)} ${short(-rise * 1.25)} ${short(span)} 0`;
    left += span;
  }
  return `${d}Z`;
}

export function drawClouds(scene: Scene): void {
  const { canvas, w, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("clouds");
  const heavy =
    plan.weather === "storm" ||
    plan.weather === "rain" ||
    plan.extras.has("clouds") ||
    plan.places[0] === "sky";
  const wide = Math.min(4, w / unit);
  const count = Math.round((heavy ? 6 : plan.time === "night" ? 2 : 3) * Math.max(1, wide * 0.8));
  for (let i = 0; i < count; i++) {
    const depth = i / count;
    const width = unit * random.between(0.2, 0.36) * (heavy ? 1.5 : 1) * (0.65 + depth * 0.6);
    const x = w * ((i + random.between(0.1, 0.9)) / count + random.between(-0.15, 0.15));
    const y = horizon * random.between(heavy ? 0.1 : 0.16, 0.66);
    const color = mix(palette.cloud, palette.sky[1], 0.42 - depth * 0.3);
    canvas.wash(
      cloudShape(random, x + width * 0.12, y, width * 0.85),
      mix(color, palette.sky[0], 0.22),
      0.55,
    );
    canvas.wash(cloudShape(random, x, y + width * 0.04, width), color, heavy ? 0.92 : 0.85);
  }
}
