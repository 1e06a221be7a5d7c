import { short } from "../../../svg/canvas.ts";
import { lighten, mix } from "../../../svg/color.ts";
import { disc, rectangle } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";
import { drawClouds } from "./clouds.ts";
import { drawAurora, drawFireworks, drawRainbow } from "./sky-shows.ts";

/** The sky: its gradient, sun or moon, stars, clouds and events such as fireworks. */
export function drawSky(scene: Scene): void {
  const { canvas, palette, plan, w, h, horizon } = scene;
  const [top, middle, low] = palette.sky;
  const end = Math.min(1, (horizon + h * 0.06) / h);
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical({ at: 0, color: top }, { at: end * 0.58, color: middle }, { at: end, color: low }),
  );
  if (plan.extras.has("stars") || plan.time === "night") drawStars(scene);
  if (plan.extras.has("aurora")) drawAurora(scene);
  if (plan.weather !== "storm" && plan.weather !== "rain") drawDisc(scene);
  if (plan.extras.has("rainbow")) drawRainbow(scene);
  if (plan.extras.has("fireworks")) drawFireworks(scene);
  if (plan.style !== "minimal" || plan.extras.has("clouds")) drawClouds(scene);
  if (
    plan.extras.has("birds") ||
    (plan.time !== "night" && plan.weather === "clear" && scene.random.chance(0.6))
  ) {
    drawFarBirds(scene);
  }
}

function drawDisc(scene: Scene): void {
  const { canvas, palette, plan, w, unit, horizon } = scene;
  const random = scene.random.fork("disc");
  const night = plan.time === "night";
  const low = plan.time === "sunset" || plan.time === "dawn";
  const r = unit * random.between(0.06, 0.085) * (low ? 1.5 : 1) * (plan.style === "retro" ? 1.5 : 1);
  const x = w * (random.chance(0.5) ? random.between(0.14, 0.34) : random.between(0.66, 0.86));
  const y = low
    ? horizon - r * random.between(0.35, 1.2)
    : Math.max(r * 1.7, horizon * random.between(0.2, 0.36));
  const glow = low ? 4.2 : 3;
  canvas.wash(
    disc(x, y, r * glow),
    canvas.radial(
      { at: 0.2, color: palette.disc, opacity: night ? 0.34 : 0.6 },
      { at: 1, color: palette.disc, opacity: 0 },
    ),
  );
  if (night && !plan.extras.has("sun") && random.chance(0.4)) {
    canvas.path(
      `M${short(x + r * 0.5)} ${short(y - r * 0.87)}A${short(r)} ${short(r)} 0 1 0 ${short(x + r * 0.87)} ${short(y + r * 0.5)}A${short(r * 0.82)} ${short(r * 0.82)} 0 0 1 ${short(x + r * 0.5)} ${short(y - r * 0.87)}Z`,
      palette.disc,
    );
    return;
  }
  canvas.circle(x, y, r, palette.disc);
  if (!night) return;
  const mark = mix(palette.disc, palette.sky[1], 0.28);
  for (const [dx, dy, size] of [
    [-0.3, -0.2, 0.22],
    [0.28, 0.3, 0.28],
    [0.2, -0.42, 0.13],
    [-0.28, 0.42, 0.12],
  ] as const) {
    canvas.wash(disc(x + dx * r, y + dy * r, size * r), mark, 0.7);
  }
}

/** Stars. Those of one brightness are one shape: a thousand elements would cost more than the rest of the sky. */
function drawStars(scene: Scene): void {
  const { canvas, w, horizon, unit, palette } = scene;
  const random = scene.random.fork("stars");
  const count = Math.min(
    320,
    Math.round(((w * horizon) / (unit * unit)) * (scene.plan.extras.has("stars") ? 190 : 110)),
  );
  for (const [share, size, opacity] of [
    [0.72, 1.1, 0.6],
    [0.22, 1.9, 0.85],
    [0.06, 3, 1],
  ] as const) {
    let d = "";
    for (let i = 0; i < count * share; i++) {
      d += disc(random.between(0, w), horizon * random.next() ** 1.35, size * random.between(0.7, 1.2));
    }
    canvas.wash(d, lighten(palette.sky[2], 0.25), opacity);
  }
}

function drawFarBirds(scene: Scene): void {
  const { canvas, w, unit, horizon, palette } = scene;
  const random = scene.random.fork("birds");
  const x = w * random.between(0.25, 0.7);
  const y = horizon * random.between(0.3, 0.62);
  for (let i = random.int(3, 6); i > 0; i--) {
    const size = unit * random.between(0.011, 0.02);
    const dx = x + random.between(-0.14, 0.14) * unit * 2;
    const dy = y + random.between(-0.07, 0.07) * unit;
    const lift = size * random.between(0.3, 0.6);
    canvas.line(
      `M${short(dx - size)} ${short(dy - lift)}q${short(size * 0.6)} ${short(-lift * 0.3)} ${short(size)} ${short(lift)}q${short(size * 0.4)} ${short(-lift * 1.3)} ${short(size)} ${short(-lift)}`,
      mix(palette.near, palette.sky[0], 0.3),
      size * 0.17,
      0.75,
    );
  }
}
