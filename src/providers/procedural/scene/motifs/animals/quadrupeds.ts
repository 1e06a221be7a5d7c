import { type Canvas, short } from "../../../svg/canvas.ts";
import { mix } from "../../../svg/color.ts";
import type { Coat, Motif } from "../motif.ts";

interface Build {
  /** The length of the legs; 1 for a horse. */
  legs: number;
  /** The length of the neck; 1 for a horse. */
  neck: number;
  body?: number;
  mane?: boolean;
  horns?: "antlers" | "horns" | "unicorn" | "knobs";
  marks?: "zebra" | "cow" | "giraffe" | "deer";
  head?: "long" | "short";
  hump?: boolean;
}

/** A hoofed animal, seen from the side. */
function drawHoofed(c: Canvas, coat: Coat, build: Build): void {
  const top = -44 * build.legs - 4;
  const fur = c.lit(coat.main, 0.08);
  const leg = (x: number, color: string, bend: number) => {
    c.path(
      `M${x} ${short(top + 12)}L${x + 9} ${short(top + 12)}L${x + 6 + bend} ${short(top * 0.45)}L${x + 7 + bend} -3H${x + bend}L${x + 1 + bend} ${short(top * 0.45)}Z`,
      color,
    );
    c.rect(x - 0.5 + bend, -4.5, 8, 4.5, coat.ink, 1);
  };
  leg(-24, coat.dark, -2);
  leg(17, coat.dark, 3);
  c.line(
    `M-31 ${short(top - 8)}C-42 ${short(top - 4)} -40 ${short(top + 14)} -42 ${short(top + 24)}`,
    build.mane ? hair(coat, build) : coat.dark,
    build.mane ? 6.5 : 3.4,
  );
  const deep = 20 * (build.body ?? 1);
  c.path(
    `M-32 ${short(top - 6)}C-32 ${short(top - deep)} -12 ${short(top - 16)} 0 ${short(top - 16)}C14 ${short(top - 16)} 30 ${short(top - deep)} 32 ${short(top - 4)}C33 ${short(top + deep * 0.9)} 14 ${short(top + deep)} 0 ${short(top + deep * 0.86)}C-18 ${short(top + deep)} -33 ${short(top + deep * 0.8)} -32 ${short(top - 6)}Z`,
    fur,
  );
  if (build.hump)
    c.path(
      `M-22 ${short(top - 12)}C-16 ${short(top - 36)} 2 ${short(top - 36)} 8 ${short(top - 12)}Z`,
      coat.light,
    );
  leg(-31, coat.main, 0);
  leg(23, coat.main, 0);
  const headX = 40 + 3 * build.neck;
  const headY = top - 18 - 22 * build.neck;
  c.path(
    `M14 ${short(top - 14)}C24 ${short(top - 18)} ${short(headX - 20)} ${short(headY + 14)} ${short(headX - 13)} ${short(headY - 6)}L${short(headX + 2)} ${short(headY + 8)}C${short(headX - 4)} ${short(headY + 18)} 40 ${short(top - 12)} 32 ${short(top + 6)}Z`,
    coat.main,
  );
  if (build.mane)
    c.path(
      `M8 ${short(top - 15)}C18 ${short(top - 24)} ${short(headX - 28)} ${short(headY + 8)} ${short(headX - 15)} ${short(headY - 11)}L${short(headX - 8)} ${short(headY - 4)}C${short(headX - 18)} ${short(headY + 16)} 28 ${short(top - 12)} 16 ${short(top - 8)}Z`,
      hair(coat, build),
    );
  drawMarks(c, coat, build, top);
  c.place({ x: headX - 9, y: headY - 2 }, () => drawHoofedHead(c, coat, build));
}

/** The mane: the accent colour for a unicorn, black for a zebra, and the dark body colour for the others. */
function hair(coat: Coat, build: Build): string {
  if (build.horns === "unicorn") return coat.accent;
  return build.marks === "zebra" ? coat.ink : mix(coat.dark, coat.ink, 0.55);
}

function drawHoofedHead(c: Canvas, coat: Coat, build: Build): void {
  if (build.horns === "antlers")
    c.line(
      "M-2 -9C-8 -22 -4 -32 -12 -40M-6 -24L-16 -30M2 -9C6 -22 14 -28 12 -42M6 -24L18 -30M10 -34L20 -40",
      coat.own("#8a6a4a"),
      2.6,
    );
  if (build.horns === "horns")
    c.line("M-3 -8C-10 -16 -14 -20 -10 -27M3 -9C8 -18 14 -20 14 -28", coat.own("#d9cdb8"), 3.4);
  if (build.horns === "knobs") {
    c.line("M-2 -8V-17M3 -8V-17", coat.own("#8a6a4a"), 2.6);
    c.circle(-2, -18, 2.4, coat.ink);
    c.circle(3, -18, 2.4, coat.ink);
  }
  if (build.horns === "unicorn") c.path("M0 -9L7 -34L6 -8Z", coat.own("#f2c94c"));
  c.path("M-6 -6L-11 -15L-1 -10Z", coat.dark);
  const reach = build.head === "short" ? 17 : 22;
  c.path(
    `M-7 -8C0 -14 9 -10 12 -5L${reach + 2} 7C${reach + 5} 13 ${reach} 18 ${reach - 5} 16L2 9C-8 10 -12 0 -7 -8Z`,
    c.lit(coat.main, 0.06),
  );
  c.path(
    `M${reach - 4} 4L${reach + 2} 7C${reach + 5} 13 ${reach} 18 ${reach - 5} 16L${reach - 10} 12C${reach - 9} 8 ${reach - 8} 5 ${reach - 4} 4Z`,
    build.marks === "cow" ? coat.own("#f2b3ad") : coat.light,
  );
  if (build.mane) c.path("M-8 -12C-2 -16 4 -13 6 -4C1 -7 -3 -6 -5 -2Z", hair(coat, build));
  c.path("M-1 -8L-3 -19L6 -10Z", coat.main);
  c.circle(6, -2.5, 2.1, coat.ink);
  c.circle(reach - 1, 9.4, 1.1, coat.ink);
}

function drawMarks(c: Canvas, coat: Coat, build: Build, top: number): void {
  if (build.marks === "zebra") {
    for (const x of [-26, -18, -10, -2, 6, 14, 22])
      c.path(`M${x} ${short(top - 14)}q3 12 -1 24l-3 0q2 -12 0 -23Z`, coat.ink);
    c.line(`M24 ${short(top - 26)}l10 6M28 ${short(top - 34)}l9 6`, coat.ink, 2.6);
  }
  if (build.marks === "cow") {
    c.path(`M-26 ${short(top - 10)}c8 -8 16 0 14 8c-2 8 -16 10 -18 2Z`, coat.ink);
    c.path(`M4 ${short(top - 14)}c8 -3 14 2 12 9c-3 6 -14 4 -15 -2Z`, coat.ink);
    c.ellipse(-14, top + 16, 7, 4.4, coat.own("#f2b3ad"));
  }
  if (build.marks === "giraffe")
    for (const [x, y] of [
      [-22, -2],
      [-10, -7],
      [-14, 7],
      [2, -5],
      [14, -8],
      [10, 7],
      [-1, 8],
      [24, 2],
      [26, -20],
      [31, -38],
      [36, -56],
    ] as const)
      c.path(`M${x - 4} ${short(top + y - 3)}l7 -1l3 5l-5 5l-6 -2Z`, coat.own("#a8642c"));
  if (build.marks === "deer")
    for (const [x, y] of [
      [-22, -6],
      [-14, -9],
      [-17, 0],
      [-6, -9],
      [-8, -1],
      [3, -8],
    ] as const)
      c.circle(x, top + y, 1.9, coat.soft, 0.9);
}

function hoofed(words: string, color: Motif["colors"], size: number, build: Build): Motif {
  return {
    words,
    colors: color,
    realm: "ground",
    size,
    wide: 1,
    outdoors: true,
    draw: (c, coat) => c.place({ scale: 0.98, x: -6 }, () => drawHoofed(c, coat, build)),
  };
}

export const HOOFED = {
  horse: hoofed("horse pony stallion mare foal", ["#8a4f2c", "#a8673a", "#5c4038"], 1.25, {
    legs: 0.92,
    neck: 1,
    mane: true,
  }),
  unicorn: hoofed("unicorn pegasus", ["#f4f0f6"], 1.25, {
    legs: 0.92,
    neck: 1,
    mane: true,
    horns: "unicorn",
  }),
  deer: hoofed("deer stag reindeer elk moose antelope gazelle doe fawn", ["#b06f3c"], 1.15, {
    legs: 0.96,
    neck: 0.95,
    body: 0.85,
    horns: "antlers",
    marks: "deer",
    head: "short",
  }),
  cow: hoofed("cow bull calf cattle ox", ["#f4efe8"], 1.1, {
    legs: 0.68,
    neck: 0.35,
    body: 1.2,
    horns: "horns",
    marks: "cow",
  }),
  goat: hoofed("goat ibex", ["#d9cfc0"], 0.9, { legs: 0.78, neck: 0.55, horns: "horns", head: "short" }),
  zebra: hoofed("zebra", ["#f6f4f0"], 1.2, { legs: 0.9, neck: 0.95, mane: true, marks: "zebra" }),
  giraffe: hoofed("giraffe", ["#f0c368"], 1.5, {
    legs: 0.92,
    neck: 2.1,
    body: 0.85,
    horns: "knobs",
    marks: "giraffe",
    head: "short",
  }),
  camel: hoofed("camel dromedary llama alpaca", ["#cf9f62"], 1.2, {
    legs: 0.92,
    neck: 0.9,
    hump: true,
    head: "short",
  }),
  donkey: hoofed("donkey mule", ["#8b8580"], 1, { legs: 0.8, neck: 0.75, mane: true }),
} satisfies Record<string, Motif>;
