import { short } from "../../../svg/canvas.ts";
import type { Hex } from "../../../svg/color.ts";
import { below, disc, softLine } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

const RAINBOW: readonly Hex[] = ["#e4483c", "#f39a32", "#f7dd4a", "#5cb85a", "#3f8fd8", "#7a55c0"];

export function drawRainbow(scene: Scene): void {
  const { canvas, w, unit, horizon } = scene;
  const random = scene.random.fork("rainbow");
  const x = w * random.between(0.3, 0.7);
  const r = Math.min(horizon * 0.86, unit * 0.62);
  const band = r * 0.045;
  RAINBOW.forEach((color, i) => {
    const reach = r - i * band;
    canvas.line(
      `M${short(x - reach)} ${short(horizon + 4)}A${short(reach)} ${short(reach)} 0 0 1 ${short(x + reach)} ${short(horizon + 4)}`,
      color,
      band * 1.06,
      0.72,
    );
  });
}

/** Curtains of light (aurora) that fade upwards. */
export function drawAurora(scene: Scene): void {
  const { canvas, w, unit, horizon, plan } = scene;
  const random = scene.random.fork("aurora");
  const colors = [plan.skyColor ?? "#5af2b0", "#49d6e8", "#9a6cf0", "#5af2b0"];
  for (const [i, color] of colors.entries()) {
    const y = horizon * (0.38 + i * 0.13);
    const tall = unit * random.between(0.22, 0.36);
    const low = Array.from({ length: 9 }, (_, k) => {
      const x = -0.05 * w + (k / 8) * w * 1.1;
      return [x, y + Math.sin(k * 1.3 + i * 2 + random.next()) * unit * 0.06] as const;
    });
    const high = low
      .map(([x, lowY]) => [x + unit * 0.05, lowY - tall * random.between(0.6, 1.1)] as const)
      .reverse();
    const line = softLine(low);
    const back = softLine(high).replace("M", "L");
    canvas.wash(
      `${line}${back}Z`,
      canvas.vertical(
        { at: 0, color, opacity: 0 },
        { at: 0.75, color, opacity: 0.42 },
        { at: 1, color, opacity: 0.06 },
      ),
    );
  }
}

export function drawFireworks(scene: Scene): void {
  const { canvas, w, unit, horizon, plan, palette } = scene;
  const random = scene.random.fork("fireworks");
  const bursts = Math.round(4 * Math.max(1, Math.min(3, w / unit)));
  for (let i = 0; i < bursts; i++) {
    const color =
      plan.accents[i % 3] ??
      random.pick(["#ff6b6b", "#ffd166", "#7ae7ff", "#ff9ff3", "#9dff8a", palette.disc]);
    const x = (w * (i + random.between(0.2, 0.8))) / bursts;
    const y = horizon * random.between(0.2, 0.62);
    const r = unit * random.between(0.08, 0.15);
    canvas.wash(disc(x, y, r), canvas.radial({ at: 0, color, opacity: 0.4 }, { at: 1, color, opacity: 0 }));
    let d = "";
    const rays = random.int(14, 20);
    for (let k = 0; k < rays; k++) {
      const angle = (k / rays) * Math.PI * 2;
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      const reach = r * random.between(0.8, 1);
      d += `M${short(x + cos * r * 0.3)} ${short(y + sin * r * 0.3)}Q${short(x + cos * reach * 0.8)} ${short(y + sin * reach * 0.8)} ${short(x + cos * reach)} ${short(y + sin * reach + r * 0.12)}`;
    }
    canvas.line(d, color, unit * 0.0038, 0.95);
  }
}

/** Haze: a soft light over the land near the horizon. */
export function drawHaze(scene: Scene, strength: number): void {
  const { canvas, w, horizon, unit, palette } = scene;
  const color = palette.sky[2];
  canvas.wash(
    below(
      [
        [0, horizon - unit * 0.16],
        [w, horizon - unit * 0.16],
      ],
      horizon + unit * 0.1,
      false,
    ),
    canvas.vertical(
      { at: 0, color, opacity: 0 },
      { at: 0.6, color, opacity: strength },
      { at: 1, color, opacity: 0 },
    ),
  );
}
