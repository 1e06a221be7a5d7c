import { short } from "../../../svg/canvas.ts";
import { darken, lighten, mix, tone } from "../../../svg/color.ts";
import { below, disc, hills, rectangle } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

/** Light from above, a sandy floor, weeds, coral and bubbles. */
export function drawUnderwater(scene: Scene): void {
  const { canvas, w, h, unit, plan, palette } = scene;
  const random = scene.random.fork("underwater");
  const water = plan.waterColor ?? plan.skyColor ?? random.pick(["#1b8fb0", "#1f7fc0", "#159a98", "#2d6fb5"]);
  const dim = plan.time === "night" ? 0.14 : 0;
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical(
      { at: 0, color: tone(water, 0.84 - dim * 2, 0.7) },
      { at: 0.42, color: tone(water, 0.6 - dim) },
      { at: 1, color: tone(water, 0.33 - dim * 0.6) },
    ),
  );
  for (let i = 0; i < 5 * Math.max(1, Math.min(3, w / unit)); i++) {
    const x = random.between(0, w);
    const spread = unit * random.between(0.05, 0.14);
    canvas.wash(
      `M${short(x)} 0h${short(spread * 0.6)}L${short(x + spread * 2.4 - unit * 0.3)} ${short(h * 0.82)}h${short(-spread * 2)}Z`,
      canvas.vertical({ at: 0, color: "#ffffff", opacity: 0.26 }, { at: 1, color: "#ffffff", opacity: 0 }),
    );
  }
  const floor = hills(random, w, h - unit * 0.16, unit * 0.05, unit);
  const back = hills(random, w, h - unit * 0.22, unit * 0.09, unit * 0.7);
  canvas.path(below(back.points, h + 5), tone(water, 0.42 - dim * 0.6, 0.8));
  for (let i = 0; i < 12 * Math.max(1, Math.min(3, w / unit)); i++) {
    const x = random.between(0, w);
    weed(
      scene,
      x,
      floor.at(x) + unit * 0.03,
      unit * random.between(0.1, 0.3),
      mix(random.pick(["#2f9e6b", "#1f7f63", "#6fae3f"]), water, 0.3),
    );
  }
  const sand = palette.lit(mix("#ecd7a2", water, 0.3), 0.5);
  canvas.path(
    below(floor.points, h + 5),
    canvas.vertical({ at: 0, color: lighten(sand, 0.03) }, { at: 1, color: darken(sand, 0.16) }),
  );
  for (let i = 0; i < 6 * Math.max(1, Math.min(3, w / unit)); i++) {
    const side = random.chance(0.5) ? random.between(0, 0.32) : random.between(0.68, 1);
    coral(
      scene,
      w * side,
      floor.at(w * side) + unit * random.between(0.03, 0.08),
      unit * random.between(0.08, 0.16),
      plan.accents[i % 3] ?? random.pick(["#f2705f", "#f59fb5", "#f4a940", "#a66bd0"]),
    );
  }
  let bubbles = "";
  for (let i = 0; i < 34; i++)
    bubbles += disc(random.between(0, w), h * random.between(0.05, 0.85), unit * random.between(0.003, 0.01));
  canvas.wash(bubbles, "#ffffff", 0.4);
}

function weed(scene: Scene, x: number, y: number, height: number, color: string): void {
  const sway = height * 0.16;
  scene.canvas.line(
    `M${short(x)} ${short(y)}c${short(sway)} ${short(-height * 0.3)} ${short(-sway)} ${short(-height * 0.6)} ${short(sway * 0.6)} ${short(-height)}`,
    color,
    height * 0.075,
    0.95,
  );
  scene.canvas.line(
    `M${short(x + height * 0.07)} ${short(y)}c${short(-sway)} ${short(-height * 0.2)} ${short(sway * 1.4)} ${short(-height * 0.4)} ${short(sway)} ${short(-height * 0.7)}`,
    darken(color, 0.05),
    height * 0.07,
    0.95,
  );
}

function coral(scene: Scene, x: number, y: number, height: number, color: string): void {
  const { canvas } = scene;
  const branch = (dx: number, dy: number, fromY: number, width: number, shade: number) =>
    canvas.line(
      `M${short(x)} ${short(y - fromY * height)}q${short(dx * height)} 0 ${short(dx * height)} ${short(-dy * height)}`,
      lighten(color, shade),
      width * height,
    );
  branch(-0.34, 0.5, 0.1, 0.12, -0.06);
  branch(0.36, 0.56, 0.06, 0.12, -0.06);
  branch(-0.18, 0.5, 0.34, 0.1, 0);
  branch(0.2, 0.42, 0.4, 0.1, 0.03);
  canvas.line(`M${short(x)} ${short(y)}V${short(y - height * 0.95)}`, color, height * 0.13);
}
