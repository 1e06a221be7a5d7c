import { short } from "../../svg/canvas.ts";
import { darken, lighten, mix } from "../../svg/color.ts";
import { disc, polygon, rectangle } from "../../svg/shapes.ts";
import type { DrawPattern } from "./pattern.ts";

/** Square tiles of circles, quarter circles and triangles. */
export const drawTiles: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  const columns = Math.max(2, Math.round((w / unit) * random.int(5, 7)));
  const size = w / columns;
  for (let y = 0; y < h; y += size) {
    for (let column = 0; column < columns; column++) {
      const x = column * size;
      const ground = random.pick(colors);
      const others = colors.filter((color) => color !== ground) as [string, ...string[]];
      const [front, extra] = [random.pick(others), random.pick(others)];
      canvas.wash(rectangle(x, y, size + 0.6, size + 0.6), ground);
      canvas.place(
        { x: x + size / 2, y: y + size / 2, rotate: random.int(0, 3) * 90, scale: size / 100 },
        () => {
          switch (random.int(0, 7)) {
            case 0:
              return canvas.path("M-50 -50A100 100 0 0 1 50 50H-50Z", front);
            case 1:
              canvas.circle(0, 0, 38, front);
              return canvas.circle(0, 0, 17, extra);
            case 2:
              canvas.path("M-50 -50H50A50 50 0 0 1 -50 -50Z", front);
              return canvas.path("M-50 50H50A50 50 0 0 0 -50 50Z", extra);
            case 3:
              return canvas.path("M-50 -50L50 50H-50Z", front);
            case 4:
              canvas.path("M-50 0A50 50 0 0 1 0 -50V50A50 50 0 0 1 -50 0Z", front);
              return canvas.path("M50 0A50 50 0 0 0 0 -50V50A50 50 0 0 0 50 0Z", extra);
            case 5:
              canvas.path("M-50 -50A100 100 0 0 1 50 50H22A72 72 0 0 0 -50 -22Z", front);
              return canvas.path("M-50 6A44 44 0 0 1 -6 50H-50Z", extra);
            case 6:
              for (const at of [-38, -13, 12, 37]) canvas.rect(-50, at - 6, 100, 12, front);
              return;
            default:
              canvas.path("M0 -50L50 0L0 50L-50 0Z", front);
              return canvas.circle(0, 0, 16, extra);
          }
        },
      );
    }
  }
};

/** Quarter arcs that join into endless bands (Truchet tiles). */
export const drawTruchet: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  const size = unit / random.int(7, 10);
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical({ at: 0, color: colors[0] }, { at: 1, color: darken(colors[0], 0.05) }),
  );
  let arcs = "";
  for (let y = 0; y < h; y += size) {
    for (let x = 0; x < w; x += size) {
      const half = short(size / 2);
      arcs += random.chance(0.5)
        ? `M${short(x + size / 2)} ${short(y)}a${half} ${half} 0 0 1 -${half} ${half}M${short(x + size)} ${short(y + size / 2)}a${half} ${half} 0 0 0 -${half} ${half}`
        : `M${short(x + size / 2)} ${short(y)}a${half} ${half} 0 0 0 ${half} ${half}M${short(x)} ${short(y + size / 2)}a${half} ${half} 0 0 1 ${half} ${half}`;
    }
  }
  canvas.line(arcs, colors[1], size * 0.62);
  canvas.line(arcs, colors[4], size * 0.4);
  canvas.line(arcs, colors[2], size * 0.16);
};

/** A rectangle, divided into smaller and smaller ones. */
export const drawGrid: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  const line = unit * 0.014;
  canvas.wash(rectangle(0, 0, w, h), colors[0]);
  const split = (x: number, y: number, width: number, height: number, depth: number): void => {
    const least = unit * 0.13;
    if (depth > 0 && Math.max(width, height) > least * 2 && (depth > 3 || random.chance(0.82))) {
      const share = random.between(0.32, 0.68);
      if (width > height) {
        split(x, y, width * share, height, depth - 1);
        split(x + width * share, y, width * (1 - share), height, depth - 1);
        return;
      }
      split(x, y, width, height * share, depth - 1);
      split(x, y + height * share, width, height * (1 - share), depth - 1);
      return;
    }
    const color = random.chance(0.38) ? colors[4] : random.pick(colors);
    canvas.rect(x + line / 2, y + line / 2, width - line, height - line, canvas.lit(color, 0.05));
    if (random.chance(0.22))
      canvas.circle(x + width / 2, y + height / 2, Math.min(width, height) * 0.26, random.pick(colors), 0.9);
  };
  split(line / 2, line / 2, w - line, h - line, 7);
};

/** Woven bands, over and under one another. */
export const drawWeave: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  const size = unit / random.int(8, 12);
  canvas.wash(rectangle(0, 0, w, h), colors[0]);
  const across = random.chance(0.5) ? [colors[1], colors[3]] : [colors[2], colors[4]];
  const along = across[0] === colors[1] ? [colors[2], colors[4]] : [colors[1], colors[3]];
  for (let row = 0; row * size < h; row++) {
    for (let column = 0; column * size < w; column++) {
      const over = (row + column) % 2 === 0;
      const color = (over ? across[row % 2] : along[column % 2]) ?? colors[1];
      const [x, y] = [column * size, row * size];
      const gap = size * 0.1;
      const shade = { at: 0.5, color: lighten(color, 0.04) };
      const dark = darken(color, 0.07);
      if (over)
        canvas.rect(
          x - gap,
          y + gap,
          size + gap * 2,
          size - gap * 2,
          canvas.split(lighten(color, 0.02), dark, 0.86),
          gap,
        );
      else
        canvas.rect(
          x + gap,
          y - gap,
          size - gap * 2,
          size + gap * 2,
          canvas.vertical({ at: 0, color: dark }, shade, { at: 1, color: dark }),
          gap,
        );
    }
  }
};

/** Triangles whose colours change slowly across the picture. */
export const drawFacets: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  const size = unit / 8;
  const columns = Math.ceil(w / size) + 2;
  const rows = Math.ceil(h / size) + 2;
  const points = Array.from({ length: rows * columns }, (_, i) => {
    const [x, y] = [(i % columns) - 0.7, Math.floor(i / columns) - 0.7];
    return [(x + random.between(-0.34, 0.34)) * size, (y + random.between(-0.34, 0.34)) * size] as const;
  });
  const turn = random.between(0, 6);
  const colorAt = (x: number, y: number) => {
    const drift = (Math.cos(turn) * (x / w - 0.5) + Math.sin(turn) * (y / h - 0.5)) * 1.5 + 0.5;
    const at = Math.min(3.99, Math.max(0, drift * 4 + random.between(-0.4, 0.4)));
    const low = Math.floor(at);
    return lighten(
      mix(colors[low] ?? colors[0], colors[low + 1] ?? colors[4], at - low),
      random.between(-0.05, 0.05),
    );
  };
  for (let row = 0; row + 1 < rows; row++) {
    for (let column = 0; column + 1 < columns; column++) {
      const at = row * columns + column;
      const corners = [points[at], points[at + 1], points[at + columns], points[at + columns + 1]];
      const [a, b, c, d] = corners.map((point) => point ?? ([0, 0] as const));
      if (!a || !b || !c || !d) continue;
      for (const triangle of random.chance(0.5)
        ? [
            [a, b, c],
            [b, d, c],
          ]
        : [
            [a, b, d],
            [a, d, c],
          ]) {
        const color = colorAt(
          triangle.reduce((sum, [x]) => sum + x, 0) / 3,
          triangle.reduce((sum, [, y]) => sum + y, 0) / 3,
        );
        const d = polygon(triangle);
        canvas.wash(d, color);
        // Without a stroke the ground shows between two edges.
        canvas.raw(`<path d="${d}" fill="none" stroke="${color}" stroke-width="0.8"/>`);
      }
    }
  }
};

/** Dots whose sizes change in waves. */
export const drawHalftone: DrawPattern = ({ canvas, random, w, h, unit }, colors) => {
  const size = unit / 26;
  canvas.wash(
    rectangle(0, 0, w, h),
    canvas.vertical({ at: 0, color: colors[4] }, { at: 1, color: colors[3] }),
  );
  const [x0, y0, length] = [
    w * random.between(0.2, 0.8),
    h * random.between(0.2, 0.8),
    unit * random.between(0.35, 0.6),
  ];
  const field = (x: number, y: number) =>
    0.5 + 0.5 * Math.sin((Math.hypot(x - x0, y - y0) / length) * 6.28 + Math.sin(x / length) * 1.2);
  for (const [color, shift, pick] of [
    [colors[1], 0, 1],
    [colors[2], size / 2, 2],
  ] as const) {
    let d = "";
    for (let y = shift; y < h + size; y += size) {
      for (let x = shift; x < w + size; x += size) {
        const r = size * 0.56 * field(x * (pick === 1 ? 1 : 0.9), y);
        if (r > size * 0.06) d += disc(x, y, pick === 1 ? r : r * 0.55);
      }
    }
    canvas.wash(d, color);
  }
};
