import type { Canvas } from "../../svg/canvas.ts";
import type { Coat, Motif } from "./motif.ts";

const LEAF = "#4f9a4a";

function stalk(c: Canvas, coat: Coat, x: number, y: number): void {
  c.line(`M${x} ${y}q-1 -8 4 -14`, coat.own("#6b4630"), 3.4);
  c.path(`M${x + 3} ${y - 8}c8 -12 22 -10 26 -6c-4 8 -16 12 -26 6Z`, coat.own(LEAF));
}

function shine(c: Canvas, x: number, y: number, size: number): void {
  c.ellipse(x, y, size, size * 1.7, "#ffffff", 0.38, 28);
}

function round(words: string, colors: Motif["colors"], extra?: (c: Canvas, coat: Coat) => void): Motif {
  return {
    words,
    colors,
    realm: "ground",
    size: 0.66,
    wide: 1,
    draw: (c, coat) => {
      c.circle(0, -42, 42, c.lit(coat.main, 0.14));
      extra?.(c, coat);
      shine(c, -18, -58, 6);
      stalk(c, coat, 0, -82);
    },
  };
}

export const FRUIT = {
  apple: {
    words: "apple",
    colors: ["#d8342c", "#8cbf3c"],
    realm: "ground",
    size: 0.66,
    wide: 1,
    draw: (c, coat) => {
      c.path(
        "M0 -78C-14 -90 -46 -84 -46 -48C-46 -20 -28 0 -14 0C-6 0 -4 -3 0 -3C4 -3 6 0 14 0C28 0 46 -20 46 -48C46 -84 14 -90 0 -78Z",
        c.lit(coat.main, 0.15),
      );
      c.path("M-14 -80Q0 -68 14 -80Q0 -74 -14 -80Z", coat.dark);
      shine(c, -25, -56, 6);
      stalk(c, coat, 0, -76);
    },
  },
  orange: round("orange tangerine mandarin grapefruit fruit", ["#f28a1c"], (c, coat) => {
    for (const [x, y] of [
      [10, -30],
      [22, -48],
      [-4, -20],
      [16, -16],
      [-22, -30],
    ] as const)
      c.circle(x, y, 1.4, coat.dark, 0.7);
  }),
  peach: round("peach apricot plum nectarine tomato", ["#f7a072", "#e4503f"], (c, coat) =>
    c.line("M0 -84C14 -60 14 -24 0 -1", coat.dark, 2.4, 0.6),
  ),
  lemon: {
    words: "lemon lime citrus",
    colors: ["#f7d92c"],
    realm: "ground",
    size: 0.55,
    wide: 1.2,
    draw: (c, coat) => {
      c.path(
        "M-62 -38C-56 -46 -50 -44 -46 -52C-30 -86 30 -86 46 -52C50 -44 56 -46 62 -38C56 -30 50 -32 46 -24C30 6 -30 6 -46 -24C-50 -32 -56 -30 -62 -38Z",
        c.lit(coat.main, 0.13),
      );
      shine(c, -20, -54, 6);
      c.path("M30 -68c10 -18 30 -16 36 -10c-6 12 -22 18 -36 10Z", coat.own(LEAF));
    },
  },
  pear: {
    words: "pear avocado fig quince",
    colors: ["#b9c93c"],
    realm: "ground",
    size: 0.78,
    wide: 0.8,
    draw: (c, coat) => {
      c.path(
        "M0 -88C-18 -88 -16 -64 -24 -50C-44 -22 -30 0 0 0C30 0 44 -22 24 -50C16 -64 18 -88 0 -88Z",
        c.lit(coat.main, 0.14),
      );
      shine(c, -18, -36, 6);
      stalk(c, coat, 0, -86);
    },
  },
  banana: {
    words: "banana plantain",
    colors: ["#f6cf2c"],
    realm: "ground",
    size: 0.7,
    wide: 1.2,
    draw: (c, coat) => {
      c.path("M-46 -86C-50 -40 -16 2 50 -8C56 -10 54 -18 50 -18C8 -18 -22 -46 -34 -88Z", coat.dark);
      c.path(
        "M-40 -88C-36 -36 8 -8 52 -26C58 -28 56 -38 50 -36C16 -32 -12 -54 -28 -90Z",
        c.lit(coat.main, 0.1),
      );
      c.path("M-46 -86L-40 -98H-32L-28 -90Z", coat.own("#7a5a2c"));
      c.path("M50 -18C56 -16 60 -26 54 -32L48 -24Z", coat.own("#5a4020"));
    },
  },
  cherry: {
    words: "cherry",
    colors: ["#c8122f"],
    realm: "ground",
    size: 0.66,
    wide: 1,
    draw: (c, coat) => {
      c.line("M-24 -38C-18 -68 0 -86 14 -96C22 -76 28 -58 28 -34", coat.own("#5f8f3a"), 3.4);
      c.path("M14 -96c14 -10 34 -4 38 4c-12 8 -28 8 -38 -4Z", coat.own(LEAF));
      c.circle(-24, -20, 21, c.lit(coat.main, 0.16));
      c.circle(28, -18, 21, c.lit(coat.main, 0.16));
      shine(c, -31, -27, 4);
      shine(c, 21, -25, 4);
    },
  },
  strawberry: {
    words: "strawberry raspberry berry blueberry blackberry",
    colors: ["#e0283c"],
    realm: "ground",
    size: 0.62,
    wide: 0.9,
    draw: (c, coat) => {
      c.path(
        "M-42 -62C-44 -84 -20 -86 0 -80C20 -86 44 -84 42 -62C38 -30 16 -2 0 0C-16 -2 -38 -30 -42 -62Z",
        c.lit(coat.main, 0.14),
      );
      for (const [x, y] of [
        [-24, -58],
        [0, -60],
        [24, -58],
        [-14, -42],
        [12, -42],
        [-22, -36],
        [24, -38],
        [0, -26],
        [-9, -16],
        [10, -18],
      ] as const)
        c.ellipse(x, y, 1.8, 3, coat.own("#ffe08a"));
      c.path("M-30 -80L-12 -82L0 -96L12 -82L30 -80L16 -68L4 -74L0 -62L-4 -74L-16 -68Z", coat.own(LEAF));
    },
  },
  grape: {
    words: "grape",
    colors: ["#7a3f9a", "#8fbf4a"],
    realm: "ground",
    size: 0.75,
    wide: 0.8,
    draw: (c, coat) => {
      stalk(c, coat, 0, -82);
      for (const [x, y] of [
        [-26, -70],
        [0, -74],
        [26, -70],
        [-14, -52],
        [14, -52],
        [-28, -50],
        [28, -50],
        [0, -34],
        [-16, -30],
        [16, -30],
        [0, -13],
      ] as const) {
        c.circle(x, y, 13.5, c.lit(coat.main, 0.18));
        c.circle(x - 4, y - 4, 2.6, "#ffffff", 0.45);
      }
    },
  },
  watermelon: {
    words: "watermelon melon",
    colors: ["#e8404a"],
    realm: "ground",
    size: 0.6,
    wide: 1.6,
    draw: (c, coat) => {
      c.path("M-74 -70C-70 -24 -36 0 0 0C36 0 70 -24 74 -70Z", coat.own("#2f8a4a"));
      c.path("M-66 -70C-62 -30 -32 -9 0 -9C32 -9 62 -30 66 -70Z", coat.own("#e6f0c4"));
      c.path("M-60 -70C-56 -36 -30 -16 0 -16C30 -16 56 -36 60 -70Z", c.lit(coat.main, 0.1));
      for (const [x, y] of [
        [-36, -56],
        [-16, -48],
        [6, -54],
        [28, -48],
        [42, -60],
        [-6, -32],
        [16, -32],
        [-24, -36],
      ] as const)
        c.ellipse(x, y, 2.4, 4, "#2a1a1e");
    },
  },
  pineapple: {
    words: "pineapple mango papaya",
    colors: ["#eeb02c"],
    realm: "ground",
    size: 0.95,
    wide: 0.6,
    draw: (c, coat) => {
      for (const [turn, reach] of [
        [-48, 34],
        [48, 34],
        [-24, 42],
        [24, 42],
        [0, 46],
      ] as const)
        c.place({ y: -56, rotate: turn }, () =>
          c.path(`M-8 0Q-6 ${-reach * 0.6} 0 ${-reach}Q6 ${-reach * 0.6} 8 0Z`, coat.own(LEAF)),
        );
      c.path("M-27 -32C-27 -66 27 -66 27 -32C27 -10 16 0 0 0C-16 0 -27 -10 -27 -32Z", c.lit(coat.main, 0.14));
      c.line(
        "M-24 -44L12 -4M-16 -54L24 -16M-2 -58L27 -30M24 -44L-12 -4M16 -54L-24 -16M2 -58L-27 -30",
        coat.dark,
        2,
      );
    },
  },
  pumpkin: {
    words: "pumpkin squash jack",
    colors: ["#ec7a1c"],
    realm: "ground",
    size: 0.7,
    wide: 1.2,
    draw: (c, coat) => {
      c.path("M-4 -72C-4 -82 -10 -86 -6 -92L4 -92C4 -84 8 -80 8 -72Z", coat.own("#5f7a34"));
      for (const [x, r, shade] of [
        [-34, 22, coat.dark],
        [34, 22, coat.dark],
        [-18, 24, coat.main],
        [18, 24, coat.main],
        [0, 22, coat.light],
      ] as const)
        c.ellipse(x, -38, r, 38, shade);
    },
  },
} satisfies Record<string, Motif>;
