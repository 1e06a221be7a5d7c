import { darken, mix } from "../../../svg/color.ts";
import { drawGrass, drawHills } from "../ground.ts";
import type { Scene } from "../scene.ts";
import { fir, roundTree } from "../trees.ts";

/** Green hills with grass, flowers and a few trees. */
export function drawMeadow(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("meadow");
  drawHills(scene);
  const bark = palette.lit("#5d4030", 0.9);
  const count = plan.style === "minimal" ? 1 : Math.round(5 * Math.max(1, Math.min(4, w / unit)));
  const trees = Array.from({ length: count }, () => random.between(0.03, 0.42)).sort((a, b) => a - b);
  for (const depth of trees) {
    const side = random.chance(0.5) ? random.between(0, 0.3) : random.between(0.7, 1);
    const y = horizon + (h - horizon) * depth + unit * 0.02;
    const height = unit * (0.1 + depth * 0.75);
    const color = mix(
      random.pick(palette.foliage as [string, ...string[]]),
      palette.sky[2],
      0.24 - depth * 0.5 > 0 ? 0.24 - depth * 0.5 : 0,
    );
    canvas.ellipse(
      side * w + height * 0.08,
      y,
      height * 0.28,
      height * 0.025,
      darken(palette.near, 0.16),
      0.35,
    );
    if (plan.season === "winter" || random.chance(0.2))
      fir(canvas, side * w, y, height, color, plan.season === "winter" ? palette.lit("#fbfdff", 0.45) : null);
    else roundTree(canvas, random, side * w, y, height, color, bark);
  }
  if (plan.style === "minimal") return;
  const flowers =
    plan.season === "winter" || plan.season === "autumn"
      ? []
      : [
          plan.accents[0] ?? "#f7d046",
          "#fdf6e3",
          plan.accents[1] ?? random.pick(["#e4577d", "#9b6fd0", "#f08a3c"]),
        ];
  drawGrass(
    scene,
    flowers.map((color) => palette.lit(color, 0.5)),
  );
}
