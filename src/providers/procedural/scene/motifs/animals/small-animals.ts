import type { Motif } from "../motif.ts";

/** Insects and other small animals. */
export const SMALL_ANIMALS = {
  butterfly: {
    words: "butterfly moth",
    colors: ["#f08a2c", "#5a7fe0", "#d8508f"],
    realm: "air",
    size: 0.55,
    wide: 1.2,
    home: "meadow",
    draw: (c, coat) => {
      for (const side of [-1, 1]) {
        c.place({ flip: side < 0, rotate: -8 * side }, () => {
          c.path("M2 2C8 20 34 46 44 34C52 22 26 4 2 0Z", coat.dark);
          c.path("M2 -2C6 -36 40 -60 56 -46C68 -30 34 2 2 2Z", c.lit(coat.main, 0.12));
          c.path("M12 -10C18 -32 38 -44 46 -38C52 -28 32 -8 12 -6Z", coat.light);
          c.circle(46, -41, 3, coat.soft);
          c.circle(38, -46, 2, coat.soft);
          c.circle(32, 25, 4, coat.accent);
        });
      }
      c.line("M0 -18C-4 -30 -10 -34 -14 -34M0 -18C4 -30 10 -34 14 -34", coat.ink, 1.8);
      c.ellipse(0, 2, 3.6, 22, coat.ink);
    },
  },
  bee: {
    words: "bee bumblebee wasp hornet honeybee",
    colors: ["#f4c02c"],
    realm: "air",
    size: 0.45,
    wide: 1.2,
    home: "meadow",
    draw: (c, coat) => {
      c.ellipse(-14, -32, 13, 24, "#e8f4fb", 0.8, -22);
      c.ellipse(14, -34, 13, 24, "#f4fafd", 0.8, 18);
      c.path("M-54 0L-42 -5V5Z", coat.ink);
      c.ellipse(0, 0, 45, 29, c.lit(coat.main, 0.12));
      c.path(
        "M-16 -27.5C-24 -10 -24 10 -16 27.5L-5 29C-12 10 -12 -10 -5 -29ZM12 -28C4 -10 4 10 12 28L22 25C16 10 16 -10 22 -25Z",
        coat.ink,
      );
      c.circle(33, -6, 4, "#17151c");
      c.circle(34.4, -7.4, 1.3, "#ffffff");
      c.line("M38 -18C42 -32 50 -34 54 -32M30 -22C32 -36 40 -40 44 -40", coat.ink, 2.4);
    },
  },
  ladybug: {
    words: "ladybug ladybird beetle bug ant spider",
    colors: ["#d8342c"],
    realm: "ground",
    size: 0.42,
    wide: 1.2,
    home: "meadow",
    outdoors: true,
    draw: (c, coat) => {
      c.line("M-24 -10L-32 0M0 -8V0M22 -10L30 0", coat.ink, 4);
      c.circle(40, -28, 17, coat.ink);
      c.path("M-48 -8C-50 -64 34 -76 40 -8Z", c.lit(coat.main, 0.13));
      c.line("M-12 -56C2 -40 6 -24 4 -8", coat.ink, 2.4);
      for (const [x, y, r] of [
        [-26, -34, 7],
        [-30, -16, 6],
        [-8, -22, 6.4],
        [16, -40, 6.4],
        [22, -20, 6],
      ] as const)
        c.circle(x, y, r, coat.ink);
      c.circle(46, -33, 4.4, "#ffffff");
      c.circle(47, -32.6, 2.2, "#17151c");
      c.line("M46 -43q4 -14 14 -14", coat.ink, 2.6);
    },
  },
  snail: {
    words: "snail slug",
    colors: ["#c98a4a"],
    realm: "ground",
    size: 0.5,
    wide: 1.3,
    home: "meadow",
    outdoors: true,
    draw: (c, coat) => {
      c.path(
        "M-58 0C-50 -14 -20 -16 10 -14C30 -14 36 -30 40 -42C46 -52 60 -48 58 -36C54 -14 48 0 24 0Z",
        coat.own("#e3c78f"),
      );
      c.line("M46 -44L42 -62M54 -44L58 -62", coat.own("#e3c78f"), 4);
      c.circle(42, -63, 3.6, coat.ink);
      c.circle(58, -63, 3.6, coat.ink);
      c.circle(-8, -40, 34, c.lit(coat.main, 0.14));
      c.line("M-8 -40C-2 -46 8 -38 2 -28C-6 -18 -26 -26 -24 -44C-22 -62 2 -66 14 -52", coat.dark, 5);
    },
  },
  frog: {
    words: "frog toad lizard gecko chameleon",
    colors: ["#5fb04a"],
    realm: "ground",
    size: 0.6,
    wide: 1.1,
    outdoors: true,
    draw: (c, coat) => {
      c.path("M-26 -14C-56 -30 -58 -4 -40 0H-16ZM26 -14C56 -30 58 -4 40 0H16Z", coat.dark);
      c.circle(-20, -76, 14, coat.main);
      c.circle(20, -76, 14, coat.main);
      c.path(
        "M-38 -54C-40 -80 40 -80 38 -54C44 -18 30 -2 0 -2C-30 -2 -44 -18 -38 -54Z",
        c.lit(coat.main, 0.1),
      );
      c.path(
        "M-24 -40C-20 -48 20 -48 24 -40C28 -16 16 -4 0 -4C-16 -4 -28 -16 -24 -40Z",
        coat.own("#e6efb5"),
        0.95,
      );
      for (const x of [-20, 20]) {
        c.circle(x, -78, 8.6, "#ffffff");
        c.ellipse(x + 1, -77, 5, 4.4, "#17151c");
      }
      c.line("M-24 -52Q0 -40 24 -52", coat.ink, 2.4);
      c.ellipse(-14, -2.6, 10, 3.6, coat.light);
      c.ellipse(14, -2.6, 10, 3.6, coat.light);
    },
  },
} satisfies Record<string, Motif>;
