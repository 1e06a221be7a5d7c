import type { Scene } from "../scene/scenery/scene.ts";
import { lighten } from "../svg/color.ts";
import { blob, disc, type Point, softShape } from "../svg/shapes.ts";

/** Draws the marks of a style's material over the finished scene, such as grain or wet paper. */
export function drawSurface(scene: Scene): void {
  switch (scene.plan.style) {
    case "watercolor":
      drawWetPaper(scene);
      return;
    case "retro":
      drawGrain(scene);
      return;
    case "line":
      if (scene.plan.tint === "blueprint") drawRuling(scene);
      return;
    default:
  }
}

/** Pools of colour, drops, and a ragged edge of blank paper. */
function drawWetPaper(scene: Scene): void {
  const { canvas, w, h, unit, palette } = scene;
  const random = scene.random.fork("wet");
  for (let i = 0; i < 26 * Math.max(1, Math.min(2.5, (w * h) / unit ** 2)); i++) {
    const light = i % 3 !== 0;
    canvas.raw(
      `<path d="${blob(random, random.between(0, w), random.between(0, h), unit * random.between(0.06, 0.2), 0.5, 11)}" fill="${light ? "#fffdf6" : palette.sky[0]}" fill-opacity="${light ? 0.13 : 0.07}"/>`,
    );
  }
  let drops = "";
  for (let i = 0; i < 60; i++)
    drops += disc(
      random.between(0, w),
      random.between(0, h),
      unit * 0.009 * random.next() ** 3 + unit * 0.001,
    );
  canvas.raw(`<path d="${drops}" fill="${palette.water[1]}" fill-opacity="0.3"/>`);
  const edge: Point[] = [];
  const steps = 26;
  const inset = () => unit * (0.022 + 0.04 * random.next() ** 2);
  for (let i = 0; i < steps; i++) edge.push([(w * i) / steps, inset()]);
  for (let i = 0; i < steps; i++) edge.push([w - inset(), (h * i) / steps]);
  for (let i = steps; i > 0; i--) edge.push([(w * i) / steps, h - inset()]);
  for (let i = steps; i > 0; i--) edge.push([inset(), (h * i) / steps]);
  const line = softShape(edge);
  canvas.raw(
    `<path d="M0 0H${w}V${h}H0Z${line}" fill="#fdfaf2" fill-rule="evenodd"/><path d="${line}" fill="none" stroke="${palette.sky[0]}" stroke-opacity="0.22" stroke-width="${unit * 0.006}"/>`,
  );
}

function drawGrain(scene: Scene): void {
  const { canvas, w, h, unit } = scene;
  const random = scene.random.fork("grain");
  for (const [color, opacity] of [
    ["#fff6dc", 0.3],
    ["#2f2a36", 0.16],
  ] as const) {
    let d = "";
    for (let i = 0; i < 260; i++)
      d += disc(random.between(0, w), random.between(0, h), unit * random.between(0.0008, 0.0022));
    canvas.raw(`<path d="${d}" fill="${color}" fill-opacity="${opacity}"/>`);
  }
}

function drawRuling(scene: Scene): void {
  const { canvas, w, h, unit } = scene;
  const step = unit / 20;
  let d = "";
  for (let x = step; x < w; x += step) d += `M${x.toFixed(1)} 0V${h.toFixed(1)}`;
  for (let y = step; y < h; y += step) d += `M0 ${y.toFixed(1)}H${w.toFixed(1)}`;
  canvas.raw(
    `<path d="${d}" fill="none" stroke="${lighten("#5f93dc", 0.05)}" stroke-opacity="0.35" stroke-width="0.8"/>`,
  );
}
