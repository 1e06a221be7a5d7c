import { short } from "../../../svg/canvas.ts";
import { darken, type Hex, lighten, mix, turnHue } from "../../../svg/color.ts";
import { rectangle } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";
import { cloudShape } from "../sky/clouds.ts";

/** A wall with a window, and a table in front of it. */
export function drawRoom(scene: Scene): void {
  const { canvas, w, h, unit, palette, plan } = scene;
  const random = scene.random.fork("room");
  const dim = plan.time === "night" ? 0.5 : plan.time === "sunset" ? 0.3 : 0.12;
  const wall = palette.lit(
    plan.accents[0] ??
      plan.placeColor ??
      random.pick<Hex>(["#e8c7a0", "#9fc2b5", "#d9a5a0", "#a9b7d9", "#e5d3a0"]),
    dim,
  );
  const wood = palette.lit(random.pick<Hex>(["#a86b42", "#8f5a3c", "#c08a55", "#6f4a38"]), dim);
  const table = h * 0.76;
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical({ at: 0, color: darken(wall, 0.03) }, { at: 0.75, color: lighten(wall, 0.05) }),
  );
  let stripes = "";
  for (let x = unit * 0.03; x < w; x += unit * 0.085) stripes += rectangle(x, 0, unit * 0.036, table);
  canvas.wash(stripes, lighten(wall, 0.03), 0.55);
  const left = random.chance(0.5);
  const tall = Math.min(table * 0.66, unit * 0.5);
  const wide = tall * 0.86;
  const x = left ? w * 0.1 : w * 0.9 - wide;
  drawWindow(scene, x, table * 0.12, wide, tall, lighten(wall, 0.17));
  canvas.wash(
    `M${short(x)} ${short(table * 0.12 + tall)}h${short(wide)}L${short(x + wide + (left ? 1 : -1) * unit * 0.3)} ${short(h)}h${short(-wide)}Z`,
    canvas.vertical(
      { at: 0, color: palette.disc, opacity: 0.22 },
      { at: 1, color: palette.disc, opacity: 0.02 },
    ),
  );
  canvas.path(
    rectangle(-5, table, w + 10, h - table + 5),
    canvas.vertical({ at: 0, color: lighten(wood, 0.06) }, { at: 1, color: darken(wood, 0.08) }),
  );
  let grain = "";
  for (let i = 0; i < 9; i++)
    grain += `M${short(w * random.next())} ${short(table + (h - table) * random.between(0.15, 0.95))}h${short(unit * random.between(0.1, 0.35))}`;
  canvas.line(grain, darken(wood, 0.07), unit * 0.003, 0.6);
  canvas.wash(rectangle(0, table, w, unit * 0.008), lighten(wood, 0.16), 0.7);
  const picture = tall * 0.36;
  const pictureX = left ? w * 0.82 : w * 0.18 - picture;
  if (w > unit * 0.9 && plan.style !== "minimal") {
    canvas.rect(pictureX, table * 0.2, picture, picture * 1.2, darken(wood, 0.04), 3);
    canvas.rect(
      pictureX + picture * 0.1,
      table * 0.2 + picture * 0.1,
      picture * 0.8,
      picture,
      lighten(turnHue(wall, 150), 0.05),
    );
    canvas.circle(
      pictureX + picture * 0.5,
      table * 0.2 + picture * 0.55,
      picture * 0.22,
      mix(palette.accent, wall, 0.3),
    );
  }
}

function drawWindow(scene: Scene, x: number, y: number, w: number, h: number, frame: Hex): void {
  const { canvas, palette, plan } = scene;
  const bar = w * 0.045;
  canvas.rect(x - bar, y - bar, w + bar * 2, h + bar * 2, frame, 4);
  canvas.wash(
    rectangle(x, y, w, h),
    canvas.vertical({ at: 0, color: palette.sky[0] }, { at: 1, color: palette.sky[2] }),
  );
  if (plan.time === "night") canvas.circle(x + w * 0.7, y + h * 0.25, w * 0.09, palette.disc);
  else
    canvas.wash(
      cloudShape(scene.random.fork("pane"), x + w * 0.55, y + h * 0.4, w * 0.5),
      palette.cloud,
      0.8,
    );
  canvas.wash(
    `M${short(x)} ${short(y + h)}v${short(-h * 0.25)}q${short(w * 0.3)} ${short(-h * 0.16)} ${short(w * 0.55)} 0t${short(w * 0.45)} 0v${short(h * 0.25)}Z`,
    mix(palette.far, palette.near, 0.5),
  );
  canvas.rect(x + w / 2 - bar / 2, y, bar, h, frame);
  canvas.rect(x, y + h * 0.48, w, bar, frame);
  canvas.rect(x - bar * 2.2, y + h + bar * 0.6, w + bar * 4.4, bar * 1.5, lighten(frame, 0.03), 3);
}
