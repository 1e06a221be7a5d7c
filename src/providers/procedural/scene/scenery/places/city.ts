import { short } from "../../../svg/canvas.ts";
import { darken, type Hex, lighten, mix, turnHue } from "../../../svg/color.ts";
import { below, rectangle } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";

/** Rows of buildings up to the horizon, with lit windows in the dark. */
export function drawSkyline(scene: Scene): void {
  const { unit, horizon, palette, plan } = scene;
  const high = Math.min(unit * 0.52, horizon * 0.72);
  const tint = plan.placeColor ?? palette.lit("#6b7fa0", 0.9);
  if (plan.style === "neon") {
    const [first, second, third] =
      plan.placeColor === null
        ? (["#8a5cff", "#ff4fc3", "#2de2e6"] as const)
        : ([tint, turnHue(tint, 40), turnHue(tint, -40)] as const);
    drawRow(scene, "far", high, first, 0.1);
    drawRow(scene, "middle", high * 0.78, second, 0.3);
    drawRow(scene, "front", high * 0.5, third, 0.5);
    return;
  }
  drawRow(scene, "far", high, mix(mix(tint, palette.sky[2], 0.55), palette.sky[1], 0.25), 0.1);
  drawRow(scene, "middle", high * 0.78, mix(tint, palette.sky[1], 0.35), 0.35);
  drawRow(
    scene,
    "front",
    high * 0.5,
    plan.placeColor === null ? darken(mix(tint, palette.sky[0], 0.35), 0.07) : darken(tint, 0.06),
    0.6,
  );
}

function drawRow(scene: Scene, name: string, high: number, color: Hex, windows: number): void {
  const { canvas, w, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork(`city-${name}`);
  const dark = plan.time === "night" || plan.time === "sunset";
  const floor = horizon + unit * 0.03;
  let lit = "";
  let unlit = "";
  let x = -unit * 0.04;
  while (x < w) {
    const width = unit * random.between(0.06, 0.13);
    const height = high * random.between(0.35, 1);
    const y = floor - height;
    const side = random.between(0.55, 0.75);
    const own = lighten(color, random.between(-0.035, 0.035));
    canvas.path(roof(random.int(0, 5), x, y, width, floor), canvas.split(own, darken(own, 0.05), side));
    const cell = unit * 0.019;
    for (let row = y + cell * 1.4; row < floor - cell * 1.5; row += cell * 1.55) {
      for (let column = x + cell * 0.7; column < x + width - cell; column += cell * 1.4) {
        if (!random.chance(windows + 0.15)) continue;
        const pane = rectangle(column, row, cell * 0.62, cell * 0.8);
        if (dark && random.chance(0.62)) lit += pane;
        else unlit += pane;
      }
    }
    x += width * random.between(0.96, 1.12);
  }
  if (unlit !== "") canvas.wash(unlit, dark ? darken(color, 0.06) : lighten(color, 0.13), 0.6);
  if (lit !== "")
    canvas.wash(lit, plan.accents[0] === undefined ? "#ffd98a" : mix(plan.accents[0], "#ffe9b8", 0.35), 0.95);
  canvas.wash(
    `M0 ${short(floor - high * 0.3)}H${short(w)}V${short(floor)}H0Z`,
    canvas.vertical(
      { at: 0, color: palette.sky[2], opacity: 0 },
      { at: 1, color: palette.sky[2], opacity: 0.28 },
    ),
  );
}

function roof(kind: number, x: number, y: number, w: number, floor: number): string {
  const [left, right, top, mid] = [short(x), short(x + w), short(y), short(x + w / 2)];
  const base = short(floor);
  switch (kind) {
    case 0:
      return `M${left} ${base}V${top}L${mid} ${short(y - w * 0.4)}L${right} ${top}V${base}Z`;
    case 1:
      return `M${left} ${base}V${top}h${short(w * 0.2)}v${short(-w * 0.28)}h${short(w * 0.24)}v${short(-w * 0.55)}h${short(w * 0.05)}v${short(w * 0.55)}h${short(w * 0.25)}v${short(w * 0.28)}H${right}V${base}Z`;
    case 2:
      return `M${left} ${base}V${top}L${right} ${short(y - w * 0.3)}V${base}Z`;
    case 3:
      return `M${left} ${base}V${top}Q${mid} ${short(y - w * 0.55)} ${right} ${top}V${base}Z`;
    default:
      return `M${left} ${base}V${top}H${right}V${base}Z`;
  }
}

/** A street with lamps, from the viewer's feet to the horizon. */
export function drawStreet(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("street");
  const y = horizon + unit * 0.028;
  const asphalt = palette.lit(plan.season === "winter" ? "#a9b4c4" : "#59606f", 0.8);
  const pavement = mix(lighten(asphalt, 0.12), palette.sky[2], 0.2);
  const x = w * random.between(0.42, 0.58);
  const wide = Math.min(w * 0.42, unit * 0.62);
  canvas.path(
    `M0 ${short(y)}H${short(w)}V${short(h)}H0Z`,
    canvas.vertical(
      { at: 0, color: mix(pavement, palette.sky[2], 0.3) },
      { at: 1, color: darken(pavement, 0.05) },
    ),
  );
  canvas.path(
    `M${short(x - unit * 0.02)} ${short(y)}h${short(unit * 0.04)}L${short(x + wide)} ${short(h)}H${short(x - wide)}Z`,
    canvas.vertical(
      { at: 0, color: mix(asphalt, palette.sky[2], 0.35) },
      { at: 1, color: darken(asphalt, 0.05) },
    ),
  );
  for (let i = 0; i < 6; i++) {
    const near = ((i + 0.5) / 6) ** 1.9;
    const far = ((i + 0.05) / 6) ** 1.9;
    const at = (share: number) => y + (h - y) * share;
    canvas.wash(
      `M${short(x - unit * 0.012 * far - 0.6)} ${short(at(far))}h${short(unit * 0.024 * far + 1.2)}L${short(x + unit * 0.012 * near + 0.6)} ${short(at(near))}h${short(-unit * 0.024 * near - 1.2)}Z`,
      "#f4ead0",
      0.8,
    );
  }
  if (plan.weather === "rain")
    canvas.wash(
      below(
        [
          [0, y],
          [w, y],
        ],
        h,
        false,
      ),
      canvas.vertical(
        { at: 0, color: palette.sky[1], opacity: 0.1 },
        { at: 1, color: palette.sky[2], opacity: 0.35 },
      ),
    );
  drawLamps(scene, x, wide, y);
}

function drawLamps(scene: Scene, x: number, wide: number, y: number): void {
  const { canvas, h, unit, palette, plan } = scene;
  const dark = plan.time === "night" || plan.time === "sunset";
  const iron = darken(mix(palette.sky[0], "#20222c", 0.7), 0.02);
  for (const share of [0.1, 0.26, 0.52]) {
    for (const side of [-1, 1]) {
      const foot = y + (h - y) * share;
      const lampX = x + side * (wide * 1.1 * share + unit * 0.05);
      const tall = unit * (0.06 + share * 0.42);
      canvas.line(
        `M${short(lampX)} ${short(foot)}v${short(-tall)}q0 ${short(-tall * 0.1)} ${short(-side * tall * 0.16)} ${short(-tall * 0.1)}`,
        iron,
        tall * 0.028,
      );
      const [bulbX, bulbY] = [lampX - side * tall * 0.17, foot - tall * 1.08];
      if (dark)
        canvas.wash(
          `M${short(bulbX - tall * 0.34)} ${short(bulbY)}a${short(tall * 0.34)} ${short(tall * 0.34)} 0 1 0 ${short(tall * 0.68)} 0a${short(tall * 0.34)} ${short(tall * 0.34)} 0 1 0 ${short(-tall * 0.68)} 0Z`,
          canvas.radial({ at: 0, color: "#ffe2a0", opacity: 0.55 }, { at: 1, color: "#ffe2a0", opacity: 0 }),
        );
      canvas.circle(bulbX, bulbY, tall * 0.045, dark ? "#fff0c4" : "#e9e4d4");
    }
  }
}
