import { short } from "../../../svg/canvas.ts";
import { darken, type Hex, lighten, mix, turnHue } from "../../../svg/color.ts";
import { blob, disc, rectangle } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

/** Stars, nebulae and planets, without a horizon. */
export function drawSpace(scene: Scene): void {
  const { canvas, w, h, unit, plan } = scene;
  const random = scene.random.fork("space");
  const base = plan.skyColor ?? plan.accents[1] ?? random.pick(["#2a1a5e", "#10244f", "#3d1648", "#0d3346"]);
  const deep = darken(mix(base, "#05060f", 0.72), 0.02);
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical(
      { at: 0, color: deep },
      { at: 0.55, color: mix(base, "#0a0b1c", 0.35) },
      { at: 1, color: deep },
    ),
  );
  for (let i = 0; i < 7; i++) {
    const color = turnHue(lighten(base, 0.24), random.between(-70, 70));
    const r = unit * random.between(0.25, 0.5);
    const [x, y] = [w * random.between(0.05, 0.95), h * (0.2 + 0.6 * random.next())];
    canvas.wash(disc(x, y, r), canvas.radial({ at: 0, color, opacity: 0.34 }, { at: 1, color, opacity: 0 }));
  }
  const count = Math.min(420, Math.round(((w * h) / (unit * unit)) * 170));
  for (const [share, size, opacity] of [
    [0.72, 1.1, 0.65],
    [0.22, 1.9, 0.9],
    [0.06, 3.1, 1],
  ] as const) {
    let d = "";
    for (let i = 0; i < count * share; i++)
      d += disc(random.between(0, w), random.between(0, h), size * random.between(0.6, 1.2));
    canvas.wash(d, "#f3f0ff", opacity);
  }
  const planets = plan.subjects.length > 0 ? 2 : 3;
  for (let i = 0; i < planets * Math.max(1, Math.round(w / h / 2)); i++) {
    const color =
      plan.accents[i] ?? random.pick(["#e8825a", "#5fb0c9", "#d9a05b", "#9b6fd0", "#63b58a", "#d8607e"]);
    const r = unit * (i === 0 ? random.between(0.15, 0.21) : random.between(0.045, 0.09));
    const corner = random.chance(0.5);
    drawPlanet(
      scene,
      w * (corner ? random.between(0.1, 0.36) : random.between(0.64, 0.9)),
      h * random.between(0.12, 0.6),
      r,
      color,
      random.chance(i === 0 ? 0.65 : 0.25),
    );
  }
}

/** A planet with bands and a dark side, and with rings on request. */
function drawPlanet(scene: Scene, x: number, y: number, r: number, color: Hex, ringed: boolean): void {
  const { canvas } = scene;
  const random = scene.random.fork(`planet${short(x)}`);
  const ring = lighten(mix(color, "#f5deb5", 0.5), 0.06);
  const half = (sweep: number) =>
    `M${short(-r * 1.75)} 0A${short(r * 1.75)} ${short(r * 0.42)} 0 0 ${sweep} ${short(r * 1.75)} 0`;
  canvas.wash(
    disc(x, y, r * 1.5),
    canvas.radial({ at: 0.6, color, opacity: 0.3 }, { at: 1, color, opacity: 0 }),
  );
  canvas.place({ x, y, rotate: random.between(-26, -10) }, () => {
    if (ringed) canvas.line(half(1), ring, r * 0.15, 0.75);
    canvas.circle(0, 0, r, canvas.lit(color, 0.18));
    for (let i = -2; i <= 2; i++) {
      const bandY = (i * 0.36 + random.between(-0.1, 0.1)) * r;
      const half = Math.sqrt(Math.max(0, r * r - bandY * bandY)) * 0.96;
      canvas.line(
        `M${short(-half)} ${short(bandY)}Q0 ${short(bandY + r * 0.12)} ${short(half)} ${short(bandY)}`,
        i % 2 === 0 ? lighten(color, 0.08) : darken(color, 0.07),
        r * random.between(0.05, 0.13),
        0.5,
      );
    }
    if (!ringed) canvas.wash(blob(random, -r * 0.3, -r * 0.2, r * 0.16, 0.2), darken(color, 0.1), 0.4);
    canvas.wash(
      `M${short(r * 0.26)} ${short(-r * 0.966)}A${short(r)} ${short(r)} 0 0 1 ${short(r * 0.26)} ${short(r * 0.966)}A${short(r * 1.25)} ${short(r * 1.25)} 0 0 0 ${short(r * 0.26)} ${short(-r * 0.966)}Z`,
      "#0a0820",
      0.36,
    );
    if (ringed) canvas.line(half(0), ring, r * 0.15, 0.95);
  });
}

/** A cratered ground along the lower edge, for subjects that stand. */
export function drawMoonGround(scene: Scene): void {
  const { canvas, w, h, unit, plan } = scene;
  const random = scene.random.fork("moon-ground");
  const rock = plan.placeColor ?? "#8d8fa6";
  const top = h - unit * 0.2;
  canvas.path(
    `M-5 ${short(h)}V${short(top + unit * 0.05)}Q${short(w / 2)} ${short(top - unit * 0.06)} ${short(w + 5)} ${short(top + unit * 0.05)}V${short(h)}Z`,
    canvas.vertical({ at: 0, color: lighten(rock, 0.08) }, { at: 1, color: darken(rock, 0.16) }),
  );
  for (let i = 0; i < 9 * Math.max(1, w / unit); i++) {
    const r = unit * random.between(0.012, 0.045);
    const [x, y] = [random.between(0, w), top + unit * random.between(0.06, 0.19)];
    canvas.ellipse(x, y, r, r * 0.32, darken(rock, 0.1), 0.85);
    canvas.ellipse(x, y + r * 0.1, r * 0.86, r * 0.22, lighten(rock, 0.03), 0.8);
  }
}
