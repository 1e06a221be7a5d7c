import { short } from "../../../svg/canvas.ts";
import { darken, type Hex, lighten, lightness, mix, tone, turnHue } from "../../../svg/color.ts";
import { disc, polygon, rectangle, star } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

const GROUNDS = [
  "#f2c14e",
  "#ef8a62",
  "#7bc5ae",
  "#5a83c4",
  "#f0b3b6",
  "#33507f",
  "#e8d9bd",
  "#bcd9c8",
  "#8f7ac0",
  "#d9654f",
  "#2f7f7a",
] as const;

/** A studio: a plain ground, a large shape behind the subject, and a floor to stand on. */
export function drawStage(scene: Scene): void {
  const { canvas, w, h, unit, plan } = scene;
  const random = scene.random.fork("stage");
  const ground = stageColor(scene);
  const floorY = h * 0.84;
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical(
      { at: 0, color: lighten(ground, 0.045) },
      { at: 0.8, color: ground },
      { at: 1, color: darken(ground, 0.03) },
    ),
  );
  const back =
    plan.accents[1] ??
    (random.chance(0.5)
      ? lighten(turnHue(ground, 26), 0.1)
      : tone(ground, lightness(ground) + (lightness(ground) > 0.7 ? 0.13 : 0.16), 0.6));
  const kind = plan.style === "minimal" ? 0 : plan.style === "retro" ? 1 : random.int(0, 4);
  const [x, y, r] = [w / 2, h * 0.47, Math.min(w * 0.42, h * 0.4)];
  if (kind === 1) drawRays(scene, x, y, back);
  if (kind === 2) {
    canvas.wash(
      `M${short(x - r * 0.82)} ${short(floorY)}V${short(y)}a${short(r * 0.82)} ${short(r * 0.82)} 0 0 1 ${short(r * 1.64)} 0V${short(floorY)}Z`,
      back,
      0.9,
    );
    canvas.wash(
      `M${short(x - r * 0.66)} ${short(floorY)}V${short(y)}a${short(r * 0.66)} ${short(r * 0.66)} 0 0 1 ${short(r * 1.32)} 0V${short(floorY)}Z`,
      lighten(back, 0.05),
      0.6,
    );
  } else {
    canvas.wash(disc(x, y, r), back, kind === 1 ? 1 : 0.9);
    if (kind === 3) canvas.wash(disc(x, y, r * 0.8), lighten(back, 0.04), 0.8);
  }
  if (plan.style !== "minimal") drawConfetti(scene, back, kind);
  canvas.wash(rectangle(0, floorY, w, h - floorY), darken(mix(ground, turnHue(ground, -30), 0.4), 0.07));
  canvas.wash(rectangle(0, floorY, w, unit * 0.006), lighten(ground, 0.08), 0.6);
}

/** Chooses the ground: the first colour that the prompt gives to no thing, or one that contrasts with the subject. */
function stageColor(scene: Scene): Hex {
  const { plan, palette } = scene;
  const random = scene.random.fork("ground");
  const night = plan.time === "night" ? 0.75 : plan.time === "sunset" ? 0.3 : 0;
  const own = plan.accents[0];
  if (own !== undefined) return mix(own, palette.sky[0], night * 0.4);
  const subject = plan.subjects[0]?.color ?? null;
  const free = GROUNDS.filter((color) => subject === null || distance(color, subject) > 0.2);
  return mix(random.pick((free.length > 0 ? free : GROUNDS) as [Hex, ...Hex[]]), palette.sky[0], night);
}

function distance(first: Hex, second: Hex): number {
  const grey = Math.abs(lightness(first) - lightness(second));
  const channel = (hex: Hex, at: number) => Number.parseInt(hex.slice(at, at + 2), 16) / 255;
  const parts = [1, 3, 5].map((at) => channel(first, at) - channel(second, at));
  return Math.max(grey, Math.hypot(...parts) / 2);
}

function drawRays(scene: Scene, x: number, y: number, color: Hex): void {
  const reach = Math.hypot(scene.w, scene.h);
  let d = "";
  for (let i = 0; i < 16; i++) {
    const angle = (i / 16) * Math.PI * 2;
    const wide = Math.PI / 16;
    d += polygon([
      [x, y],
      [x + Math.cos(angle) * reach, y + Math.sin(angle) * reach],
      [x + Math.cos(angle + wide) * reach, y + Math.sin(angle + wide) * reach],
    ]);
  }
  scene.canvas.wash(d, color, 0.45);
}

function drawConfetti(scene: Scene, color: Hex, kind: number): void {
  const { canvas, w, h, unit } = scene;
  const random = scene.random.fork("confetti");
  for (const shade of [lighten(color, 0.1), turnHue(color, 60)]) {
    let d = "";
    for (let i = 0; i < 8 * Math.max(1, w / unit); i++) {
      const [x, y, size] = [
        random.between(0.04, 0.96) * w,
        random.between(0.05, 0.74) * h,
        unit * random.between(0.006, 0.014),
      ];
      if (kind === 0) d += star(x, y, size * 1.5, 0.35);
      else if (kind === 4)
        d += `M${short(x - size)} ${short(y)}h${short(size * 2)}v${short(size * 0.5)}h${short(-size * 2)}Z`;
      else d += disc(x, y, size * 0.7);
    }
    canvas.wash(d, shade, 0.7);
  }
}
