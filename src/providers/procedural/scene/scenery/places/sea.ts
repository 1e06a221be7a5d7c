import { short } from "../../../svg/canvas.ts";
import { darken, lighten, mix } from "../../../svg/color.ts";
import { below, hills } from "../../../svg/shapes.ts";
import { drawSpecks } from "../ground.ts";
import type { Scene } from "../scene.ts";
import { palm } from "../trees.ts";

/** Water from the horizon on, with glints of light; with `shore`, a beach in front. */
export function drawSea(scene: Scene, shore: boolean): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("sea");
  const rough = plan.weather === "storm" || plan.mood === "bold";
  canvas.path(
    `M0 ${short(horizon)}H${short(w)}V${short(h)}H0Z`,
    canvas.vertical({ at: 0, color: palette.water[0] }, { at: 1, color: palette.water[1] }),
  );
  const layers = rough ? 6 : 4;
  for (let i = 0; i < layers; i++) {
    const depth = (i + 1) / layers;
    const y = horizon + (h - horizon) * depth ** 1.4 * 0.92;
    const swell = unit * (rough ? 0.055 : 0.014) * (0.4 + depth);
    const ridge = hills(random, w, y, swell, unit * (0.16 + depth * (rough ? 0.3 : 0.34)));
    const color = mix(palette.water[0], palette.water[1], depth);
    canvas.path(below(ridge.points, h + 5), darken(color, 0.02), 0.8);
    if (rough)
      canvas.line(below(ridge.points, h + 5).replace(/V.*$/, ""), lighten(color, 0.24), unit * 0.005, 0.8);
  }
  drawGlints(scene);
  if (shore) drawBeach(scene);
}

function drawGlints(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette } = scene;
  const random = scene.random.fork("glints");
  // The same random numbers place the sun or moon in the sky, so the glints lie below it.
  const disc = scene.random.fork("disc");
  disc.next();
  const sunX = w * (disc.chance(0.5) ? disc.between(0.14, 0.34) : disc.between(0.66, 0.86));
  let path = "";
  let spread = "";
  for (let i = 0; i < 34; i++) {
    const share = random.next() ** 1.5;
    const y = horizon + (h - horizon) * share * 0.8 + 3;
    const width = unit * (0.015 + 0.07 * share) * random.between(0.5, 1.3);
    path += `M${short(sunX - width / 2 + random.between(-1, 1) * unit * (0.02 + 0.09 * share))} ${short(y)}h${short(width)}`;
  }
  for (let i = 0; i < 40 * Math.min(3, Math.max(1, w / unit)); i++) {
    const share = random.next();
    spread += `M${short(random.between(0, w))} ${short(horizon + (h - horizon) * share + 4)}h${short(unit * (0.015 + 0.04 * share))}`;
  }
  canvas.line(spread, lighten(palette.water[0], 0.1), unit * 0.0032, 0.5);
  if (scene.plan.weather === "clear" || scene.plan.weather === "snow")
    canvas.line(path, palette.disc, unit * 0.0055, 0.75);
}

function drawBeach(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("beach");
  const sand = palette.lit(plan.placeColor ?? (plan.season === "winter" ? "#e3e9ef" : "#f0d9a4"), 0.75);
  const y = horizon + (h - horizon) * 0.68;
  const shoreline = hills(random, w, y, unit * 0.045, unit * 1.5).points;
  const shift = (by: number) => shoreline.map(([x, at]) => [x, at + by] as const);
  canvas.wash(below(shift(-unit * 0.03), h), lighten(palette.water[0], 0.1), 0.5);
  canvas.wash(below(shift(-unit * 0.012), h), palette.lit("#ffffff", 0.4), 0.9);
  canvas.wash(below(shift(0), h), darken(sand, 0.08));
  canvas.path(
    below(shift(unit * 0.02), h),
    canvas.vertical({ at: 0, color: lighten(sand, 0.02) }, { at: 1, color: darken(sand, 0.05) }),
  );
  drawSpecks(
    canvas,
    random,
    { x: 0, y: y + unit * 0.07, w, h: h - y },
    darken(sand, 0.14),
    unit * 0.0035,
    90,
  );
  if (
    plan.season === "summer" &&
    plan.weather === "clear" &&
    plan.style !== "minimal" &&
    plan.places.length === 1 &&
    random.chance(0.8)
  ) {
    const leaf = palette.lit("#2f8f5a", 0.8);
    const bark = palette.lit("#7a5638", 0.8);
    const left = random.chance(0.5);
    palm(
      canvas,
      random,
      w * (left ? 0.1 : 0.9),
      y + unit * 0.13,
      unit * random.between(0.5, 0.62),
      leaf,
      bark,
    );
    if (random.chance(0.6))
      palm(canvas, random, w * (left ? 0.2 : 0.8), y + unit * 0.09, unit * 0.4, darken(leaf, 0.03), bark);
  }
}
