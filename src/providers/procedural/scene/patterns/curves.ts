import { darken, lighten, mix } from "../../svg/color.ts";
import { below, blob, disc, hills, rectangle } from "../../svg/shapes.ts";
import type { DrawPattern } from "./pattern.ts";

/** Bands of waves, one behind another. */
export const drawWaves: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical({ at: 0, color: colors[4] }, { at: 0.5, color: colors[3] }),
  );
  const [x, r] = [w * random.between(0.25, 0.75), unit * random.between(0.12, 0.18)];
  canvas.circle(x, Math.min(h * 0.24, unit * 0.4), r, colors[2]);
  const layers = Math.min(16, Math.max(9, Math.round((h / unit) * 10)));
  const order = [3, 2, 1, 0] as const;
  for (let i = 0; i < layers; i++) {
    const depth = i / (layers - 1);
    const at = depth * 2.999;
    const low = Math.floor(at);
    const color = mix(colors[order[low] ?? 0], colors[order[low + 1] ?? 0], at - low);
    const ridge = hills(
      random,
      w,
      h * (0.28 + depth * 0.68),
      unit * random.between(0.09, 0.16),
      unit * random.between(0.55, 1.1),
    );
    canvas.path(
      below(ridge.points, h + 5),
      canvas.vertical({ at: 0, color: lighten(color, 0.05) }, { at: 0.7, color: darken(color, 0.03) }),
    );
    if (i % 2 === 0)
      canvas.line(
        below(
          ridge.points.map(([px, py]) => [px, py + unit * 0.02] as const),
          h,
        ).replace(/V.*$/, ""),
        lighten(color, 0.12),
        unit * 0.004,
        0.7,
      );
  }
};

/** Overlapping rings around several centres. */
export const drawRings: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  canvas.wash(rectangle(0, 0, w, h), colors[0]);
  const count = Math.round(3 + 2.5 * Math.max(1, Math.max(w, h) / unit));
  const step = unit * 0.034;
  for (let i = 0; i < count; i++) {
    const along = (i + random.between(0.2, 0.8)) / count;
    const [x, y] = w > h ? [w * along, h * random.next()] : [w * random.next(), h * along];
    const rings = i === 0 ? 11 : random.int(5, 9);
    const shift = random.int(0, 4);
    for (let ring = rings; ring > 0; ring--)
      canvas.circle(x, y, ring * step, colors[(ring + shift) % 5] ?? colors[1]);
  }
};

/** Soft shapes, each with a light spot. */
export const drawBlobs: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical({ at: 0, color: colors[4] }, { at: 1, color: mix(colors[4], colors[3], 0.6) }),
  );
  const count = Math.round(7 * Math.max(1, Math.min(3.5, Math.max(w, h) / unit)));
  for (let i = 0; i < count; i++) {
    const color = colors[i % 4] ?? colors[1];
    const r = unit * random.between(0.13, 0.3);
    const [x, y] = [random.between(0, w), random.between(0, h)];
    canvas.wash(blob(random, x + r * 0.06, y + r * 0.09, r, 0.3, 8), darken(colors[0], 0.04), 0.14);
    canvas.path(blob(random, x, y, r, 0.3, 8), canvas.lit(color, 0.16));
    const d = blob(random, x - r * 0.1, y - r * 0.1, r * 0.55, 0.3, 7);
    if (i % 3 === 0) canvas.wash(d, lighten(color, 0.09), 0.8);
    else canvas.line(d, lighten(color, 0.14), unit * 0.005, 0.85);
  }
  for (const color of [colors[0], colors[2]]) {
    let dots = "";
    for (let i = 0; i < 14 * (w / unit); i++)
      dots += disc(random.between(0, w), random.between(0, h), unit * random.between(0.005, 0.016));
    canvas.wash(dots, color, 0.9);
  }
};
