import type { Canvas } from "../../../svg/canvas.ts";
import type { Coat, Motif } from "../motif.ts";

function drawFish(c: Canvas, coat: Coat): void {
  c.path(
    "M-30 0C-44 -6 -58 -26 -66 -24C-62 -12 -60 -6 -62 0C-60 6 -62 12 -66 24C-58 26 -44 6 -30 0Z",
    coat.accent,
  );
  c.path(
    "M-6 -26C-2 -44 20 -44 30 -34C20 -32 16 -28 14 -22ZM-2 26C0 40 12 42 20 38C14 34 12 30 12 24Z",
    coat.accent,
  );
  c.path("M-38 0C-24 -36 34 -42 56 -4C58 0 58 0 56 4C34 40 -24 36 -38 0Z", c.lit(coat.main, 0.12));
  c.path("M20 -27C12 -10 12 10 20 27L28 23C22 10 22 -10 28 -23Z", coat.soft, 0.9);
  c.path("M-10 -23C-16 -8 -16 8 -10 23L-4 25C-9 8 -9 -8 -4 -25Z", coat.soft, 0.9);
  c.path("M4 4C-6 2 -14 14 -10 20C-2 22 8 14 10 8Z", coat.dark);
  c.circle(39, -7, 6, "#ffffff");
  c.circle(40.4, -6.6, 3.4, "#17151c");
  c.circle(41.6, -8, 1.1, "#ffffff");
  c.line("M50 9q-4 3 -8 2", coat.dark, 1.8);
}

function drawWhale(c: Canvas, coat: Coat): void {
  c.line("M14 -40C12 -52 4 -56 0 -50M14 -40C16 -54 26 -56 29 -49", coat.own("#d8f0fa"), 3.4, 0.9);
  c.path(
    "M-46 2C-62 -4 -66 -18 -82 -22C-76 -34 -62 -30 -58 -20C-56 -32 -44 -38 -36 -30C-44 -24 -46 -14 -40 -8Z",
    coat.dark,
  );
  c.path(
    "M-54 -4C-34 -4 -28 -38 14 -38C52 -38 66 -14 64 6C62 24 40 34 6 34C-28 34 -46 16 -54 -4Z",
    c.lit(coat.main, 0.1),
  );
  c.path("M64 6C62 24 40 34 6 34C-14 34 -30 28 -40 18C-8 24 24 8 64 6Z", coat.soft, 0.92);
  c.line("M56 12C40 13 28 18 16 24M58 18C46 19 36 23 28 28", coat.dark, 1.4, 0.55);
  c.path("M4 18C0 34 -14 44 -26 42C-20 34 -20 24 -14 16Z", coat.dark);
  c.circle(42, -2, 3, coat.ink);
  c.circle(43, -3.1, 1, "#ffffff");
}

function drawShark(c: Canvas, coat: Coat): void {
  c.path(
    "M-46 0C-56 -10 -62 -28 -74 -32C-70 -14 -68 -4 -70 6C-66 14 -68 18 -70 24C-60 20 -54 10 -46 4Z",
    coat.dark,
  );
  c.path("M-2 -22C2 -40 12 -48 22 -50C18 -38 22 -28 26 -20Z", coat.dark);
  c.path("M-52 2C-26 -24 26 -30 66 -8C70 -4 66 2 58 4C40 22 -24 22 -52 2Z", c.lit(coat.main, 0.08));
  c.path("M62 2C40 22 -24 22 -52 2C-20 8 30 8 62 2Z", coat.soft);
  c.path("M6 10C4 28 -8 36 -18 38C-14 28 -14 18 -8 12Z", coat.dark);
  c.circle(48, -7, 2.6, coat.ink);
  c.line("M33 -8q-3 6 0 11M28 -8q-3 6 0 11", coat.dark, 1.6);
  c.line("M58 3q-8 2 -12 0", coat.ink, 1.6);
}

function drawDolphin(c: Canvas, coat: Coat): void {
  c.path(
    "M-50 26C-60 24 -68 30 -76 26C-72 38 -60 36 -54 34C-54 42 -48 48 -40 46C-44 40 -44 34 -42 28Z",
    coat.dark,
  );
  c.path("M-6 -24C-10 -38 -20 -42 -28 -42C-20 -34 -20 -26 -20 -16Z", coat.dark);
  c.path(
    "M-52 32C-42 -10 -4 -36 34 -22C44 -20 50 -10 62 -8C68 -6 66 -1 60 0C50 2 46 4 38 4C10 2 -20 12 -44 32Z",
    c.lit(coat.main, 0.1),
  );
  c.path("M60 0C50 2 46 4 38 4C10 2 -20 12 -44 32C-24 4 14 -6 60 0Z", coat.soft);
  c.path("M6 2C2 16 -8 22 -18 22C-12 14 -12 8 -8 2Z", coat.dark);
  c.circle(36, -10, 2.5, coat.ink);
}

function drawOctopus(c: Canvas, coat: Coat): void {
  c.line(
    "M-22 8C-40 16 -44 34 -58 30M-14 14C-24 30 -20 44 -36 48M-4 16C-8 34 4 42 -8 52M22 8C40 16 44 34 58 30M14 14C24 30 20 44 36 48M6 16C12 32 4 40 14 52",
    coat.dark,
    9,
  );
  c.path("M-32 -14C-36 -62 36 -62 32 -14C32 8 22 20 0 20C-22 20 -32 8 -32 -14Z", c.lit(coat.main, 0.12));
  for (const [x, y, r] of [
    [-16, -36, 5],
    [14, -40, 6],
    [0, -30, 3.4],
  ] as const)
    c.circle(x, y, r, coat.light, 0.8);
  for (const x of [-11, 11]) {
    c.circle(x, -8, 7.4, "#ffffff");
    c.circle(x + 1, -7, 4, "#17151c");
  }
  c.line("M-5 7q5 4 10 0", coat.ink, 2);
}

function drawJellyfish(c: Canvas, coat: Coat): void {
  c.line(
    "M-24 0C-34 18 -16 26 -26 48M-10 2C-18 22 -2 30 -10 52M24 0C34 18 16 26 26 48M10 2C18 22 2 30 10 52M0 2C-4 20 6 30 0 50",
    coat.light,
    3.4,
    0.8,
  );
  c.path(
    "M-36 0C-40 -56 40 -56 36 0C30 8 24 -2 18 4C12 10 6 0 0 5C-6 0 -12 10 -18 4C-24 -2 -30 8 -36 0Z",
    c.lit(coat.main, 0.14),
    0.93,
  );
  c.path("M-24 -20C-20 -36 -6 -42 4 -40C-8 -34 -16 -26 -18 -14Z", coat.soft, 0.55);
}

function drawTurtle(c: Canvas, coat: Coat): void {
  c.path(
    "M28 -10C40 -34 52 -40 58 -34C56 -22 44 -8 34 0ZM-26 8C-36 22 -50 32 -56 26C-54 14 -40 2 -30 -2ZM20 14C24 28 20 38 12 38C6 30 6 22 8 16ZM-26 -14C-36 -24 -46 -28 -50 -22C-46 -14 -36 -8 -28 -6Z",
    coat.main,
  );
  c.ellipse(54, -2, 13, 10, coat.light);
  c.path("M-40 2C-38 -30 26 -42 44 -4C34 20 -24 26 -40 2Z", c.lit(coat.own("#8a6a3a"), 0.12));
  c.line(
    "M-16 -17L-8 -4L-16 13M-8 -4H14M14 -4L24 -21M14 -4L22 13M-30 -2L-8 -4M14 -4H40",
    coat.own("#5c4526"),
    2.4,
    0.8,
  );
  c.circle(58, -5, 2.2, coat.ink);
}

function drawCrab(c: Canvas, coat: Coat): void {
  c.line(
    "M-22 -18L-44 -10L-50 0M-20 -12L-38 -2L-40 2M22 -18L44 -10L50 0M20 -12L38 -2L40 2M-26 -30C-44 -34 -46 -50 -42 -58M26 -30C44 -34 46 -50 42 -58",
    coat.dark,
    5.4,
  );
  c.path(
    "M-42 -54C-60 -62 -58 -84 -40 -86C-46 -76 -42 -72 -36 -76C-30 -66 -32 -56 -42 -54ZM42 -54C60 -62 58 -84 40 -86C46 -76 42 -72 36 -76C30 -66 32 -56 42 -54Z",
    coat.main,
  );
  c.line("M-10 -44V-56M10 -44V-56", coat.dark, 3);
  c.path("M-36 -28C-34 -54 34 -54 36 -28C30 -4 -30 -4 -36 -28Z", c.lit(coat.main, 0.12));
  for (const x of [-10, 10]) {
    c.circle(x, -59, 5.4, "#ffffff");
    c.circle(x, -59, 2.9, "#17151c");
  }
  c.line("M-9 -20q9 6 18 0", coat.ink, 2.2);
}

export const SEA_LIFE = {
  fish: {
    words: "fish goldfish koi trout carp tuna clownfish salmon piranha seahorse",
    colors: ["#f28a2c", "#e4572e", "#f2c02c", "#4a8fe0"],
    realm: "water",
    size: 0.62,
    wide: 1.3,
    home: "underwater",
    draw: drawFish,
  },
  whale: {
    words: "whale orca",
    colors: ["#3f6fa8"],
    realm: "water",
    size: 1,
    wide: 1.5,
    home: "sea",
    draw: drawWhale,
  },
  shark: {
    words: "shark",
    colors: ["#6d8499"],
    realm: "water",
    size: 0.9,
    wide: 1.5,
    home: "underwater",
    draw: drawShark,
  },
  dolphin: {
    words: "dolphin porpoise",
    colors: ["#5f8fb8"],
    realm: "water",
    size: 0.85,
    wide: 1.4,
    home: "sea",
    draw: drawDolphin,
  },
  octopus: {
    words: "octopus squid kraken",
    colors: ["#c8507a", "#8a5fc0"],
    realm: "water",
    size: 0.95,
    wide: 1.2,
    home: "underwater",
    draw: drawOctopus,
  },
  jellyfish: {
    words: "jellyfish medusa",
    colors: ["#e58fd0", "#9fa8f5"],
    realm: "water",
    size: 0.8,
    wide: 0.8,
    home: "underwater",
    draw: drawJellyfish,
  },
  turtle: {
    words: "turtle tortoise",
    colors: ["#6fae5a"],
    realm: "water",
    size: 0.7,
    wide: 1.3,
    home: "underwater",
    draw: drawTurtle,
  },
  crab: {
    words: "crab lobster",
    colors: ["#e2503a"],
    realm: "ground",
    size: 0.55,
    wide: 1.2,
    home: "sea",
    draw: drawCrab,
  },
} satisfies Record<string, Motif>;
