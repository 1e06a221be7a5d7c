import { short } from "../../../svg/canvas.ts";
import { disc, polygon, rectangle } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

/** Snow, rain, fog or falling leaves, in front of everything. */
export function drawWeather(scene: Scene): void {
  const { plan } = scene;
  if (plan.weather === "snow") drawSnow(scene);
  if (plan.weather === "rain" || plan.weather === "storm") drawRain(scene);
  if (plan.weather === "fog") drawFog(scene);
  if (
    plan.season === "autumn" &&
    plan.weather === "clear" &&
    !["room", "stage", "pattern", "space", "underwater", "desert"].includes(plan.places[0])
  )
    drawLeaves(scene);
}

/** A flash of lightning behind the land. */
export function drawLightning(scene: Scene): void {
  const { canvas, w, unit, horizon } = scene;
  const random = scene.random.fork("lightning");
  const x = w * random.between(0.25, 0.75);
  const step = horizon / 5;
  const at = (i: number) => x + (i % 2 === 0 ? -1 : 1) * unit * 0.035 * i * 0.5;
  const thick = unit * 0.014;
  const down = [0, 1, 2, 3, 4].map((i) => [at(i) + thick * (1 - i / 5), i * step] as const);
  const up = [4, 3, 2, 1, 0].map((i) => [at(i) - thick * (1 - i / 5), i * step] as const);
  canvas.wash(
    disc(x, horizon * 0.4, unit * 0.4),
    canvas.radial({ at: 0, color: "#e8ecff", opacity: 0.5 }, { at: 1, color: "#e8ecff", opacity: 0 }),
  );
  canvas.wash(polygon([...down, [at(5), horizon], ...up]), "#fffbe0", 0.96);
}

function drawSnow(scene: Scene): void {
  const { canvas, w, h, unit } = scene;
  const random = scene.random.fork("snow");
  const count = 80 * Math.min(4, Math.max(1, (w * h) / (unit * unit)));
  for (const [size, opacity, share] of [
    [0.0028, 0.7, 1],
    [0.005, 0.8, 0.6],
    [0.0095, 0.6, 0.2],
  ] as const) {
    let d = "";
    for (let i = 0; i < count * share; i++)
      d += disc(random.between(0, w), random.between(0, h), unit * size * random.between(0.6, 1.2));
    canvas.wash(d, "#ffffff", opacity);
  }
}

function drawRain(scene: Scene): void {
  const { canvas, w, h, unit } = scene;
  const random = scene.random.fork("rain");
  const slant = scene.plan.weather === "storm" ? 0.4 : 0.16;
  for (const [width, opacity] of [
    [0.0018, 0.4],
    [0.003, 0.45],
  ] as const) {
    let d = "";
    for (let i = 0; i < 75 * Math.min(4, Math.max(1, (w * h) / (unit * unit))); i++) {
      const length = unit * random.between(0.03, 0.07);
      d += `M${short(random.between(0, w * 1.1))} ${short(random.between(-0.05, 1) * h)}l${short(-length * slant)} ${short(length)}`;
    }
    canvas.line(d, "#eaf2fa", unit * width, opacity);
  }
}

function drawFog(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette } = scene;
  const color = palette.sky[2];
  for (const [share, strength] of [
    [-0.12, 0.5],
    [0.1, 0.62],
    [0.42, 0.5],
  ] as const) {
    const y = horizon + (h - horizon) * share - unit * 0.1;
    canvas.wash(
      rectangle(0, y, w, unit * 0.26),
      canvas.vertical(
        { at: 0, color, opacity: 0 },
        { at: 0.5, color, opacity: strength },
        { at: 1, color, opacity: 0 },
      ),
    );
  }
}

function drawLeaves(scene: Scene): void {
  const { canvas, w, h, unit, palette } = scene;
  const random = scene.random.fork("leaves");
  for (const color of palette.foliage.slice(0, 3)) {
    let d = "";
    for (let i = 0; i < 9; i++) {
      const [x, y, s, a] = [
        random.between(0, w),
        random.between(0.1, 0.95) * h,
        unit * random.between(0.008, 0.016),
        random.between(0, 6),
      ];
      const [dx, dy] = [Math.cos(a) * s, Math.sin(a) * s];
      d += `M${short(x - dx)} ${short(y - dy)}Q${short(x + dy)} ${short(y - dx)} ${short(x + dx)} ${short(y + dy)}Q${short(x - dy)} ${short(y + dx)} ${short(x - dx)} ${short(y - dy)}Z`;
    }
    canvas.wash(d, color, 0.9);
  }
}
