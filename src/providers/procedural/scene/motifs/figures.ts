import type { Motif } from "./motif.ts";

/** Whole figures, recognised by their outline. */
export const FIGURES = {
  astronaut: {
    words: "astronaut cosmonaut spaceman spacewoman",
    colors: ["#eceff4"],
    realm: "ground",
    size: 1.15,
    wide: 0.8,
    home: "space",
    draw: (c, coat) => {
      c.rect(-25, -64, 50, 38, coat.dark, 8);
      c.path("M-17 -30L-19 -4H-4L-1 -26H1L4 -4H19L17 -30Z", c.lit(coat.main, 0.1));
      c.rect(-21, -8, 18, 8, coat.dark, 3);
      c.rect(3, -8, 18, 8, coat.dark, 3);
      c.path(
        "M-18 -60C-32 -58 -34 -44 -32 -30L-23 -30C-23 -40 -22 -46 -16 -48ZM18 -60C32 -58 34 -44 32 -30L23 -30C23 -40 22 -46 16 -48Z",
        coat.main,
      );
      c.circle(-27.5, -28, 5.4, coat.accent);
      c.circle(27.5, -28, 5.4, coat.accent);
      c.rect(-20, -64, 40, 38, c.lit(coat.main, 0.1), 11);
      c.rect(-11, -50, 22, 13, coat.own("#8f9bb0"), 3);
      c.circle(-5, -43.5, 2.6, coat.own("#e4483c"));
      c.circle(2, -43.5, 2.6, coat.own("#f2c02c"));
      c.rect(5, -46, 4, 6, coat.own("#5fc0d8"), 1);
      c.circle(0, -78, 23, c.lit(coat.main, 0.12));
      c.path(
        "M-17 -80C-17 -96 17 -96 17 -80C17 -64 -17 -64 -17 -80Z",
        c.vertical({ at: 0, color: coat.own("#2b3a67") }, { at: 1, color: coat.own("#101a3a") }),
      );
      c.path("M-12 -84C-10 -91 -3 -92 1 -91C-5 -88 -9 -85 -10 -79Z", "#bfe0ff", 0.75);
      c.line("M21 -94L27 -101", coat.dark, 2);
      c.circle(27.6, -102, 2.4, coat.own("#e4483c"));
    },
  },
  robot: {
    words: "robot android cyborg droid mech bot machine",
    colors: ["#7fa3b8", "#d9a441", "#c9655a"],
    realm: "ground",
    size: 1.05,
    wide: 0.85,
    draw: (c, coat) => {
      c.line("M0 -94V-104", coat.dark, 2.6);
      c.circle(0, -105, 4, coat.own("#ff5a4a"));
      c.line("M-24 -52C-38 -50 -36 -36 -37 -26M24 -52C38 -50 36 -36 37 -26", coat.dark, 6.4);
      c.line("M-42 -18q-1 -8 5 -8q6 0 5 8M42 -18q1 -8 -5 -8q-6 0 -5 8", coat.main, 4);
      c.rect(-16, -24, 11, 22, coat.dark, 3);
      c.rect(5, -24, 11, 22, coat.dark, 3);
      c.rect(-21, -7, 18, 7, coat.main, 3);
      c.rect(3, -7, 18, 7, coat.main, 3);
      c.rect(-25, -60, 50, 40, c.lit(coat.main, 0.13), 7);
      c.rect(-17, -52, 34, 19, coat.own("#263244"), 3);
      c.line("M-13 -42h5l3 -6l4 10l3 -4h10", coat.own("#7df5b0"), 1.8);
      for (const [x, color] of [
        [-12, "#e4483c"],
        [-3, "#f2c02c"],
        [6, "#4ac06a"],
      ] as const)
        c.circle(x, -27, 2.6, coat.own(color));
      c.rect(-7, -66, 14, 8, coat.dark, 1);
      c.rect(-24, -95, 48, 32, c.lit(coat.light, 0.12), 9);
      c.rect(-30, -86, 6, 14, coat.dark, 2);
      c.rect(24, -86, 6, 14, coat.dark, 2);
      c.rect(-19, -90, 38, 16, coat.own("#1f2a3c"), 7);
      c.circle(-9, -82, 4.6, coat.own("#6fe3ff"));
      c.circle(9, -82, 4.6, coat.own("#6fe3ff"));
      c.line("M-8 -69H8", coat.dark, 2.4);
    },
  },
  ghost: {
    words: "ghost spirit phantom spook monster alien halloween",
    colors: ["#eef0fa", "#9fe0a0"],
    realm: "air",
    size: 0.8,
    wide: 0.8,
    outdoors: true,
    draw: (c, coat) => {
      c.path(
        "M-34 44C-38 -14 -30 -50 0 -50C30 -50 38 -14 34 44C28 50 22 36 16 44C10 52 6 38 0 44C-6 52 -10 38 -16 44C-22 50 -28 36 -34 44Z",
        c.lit(coat.main, 0.1),
        0.96,
      );
      c.ellipse(-11, -18, 5.4, 8, coat.ink);
      c.ellipse(11, -18, 5.4, 8, coat.ink);
      c.ellipse(0, 4, 5.4, 7, coat.ink);
      c.circle(-20, -4, 5, coat.own("#f2a0b0"), 0.6);
      c.circle(20, -4, 5, coat.own("#f2a0b0"), 0.6);
    },
  },
  snowman: {
    words: "snowman",
    colors: ["#fbfdff"],
    realm: "ground",
    size: 1.05,
    wide: 0.8,
    outdoors: true,
    draw: (c, coat) => {
      c.line("M-18 -50L-42 -64M-34 -60L-38 -70M18 -50L42 -62M35 -58L42 -52", coat.own("#6b4630"), 2.6);
      c.circle(0, -22, 24, c.lit(coat.main, 0.1));
      c.circle(0, -52, 18, c.lit(coat.main, 0.1));
      c.circle(0, -76, 14, c.lit(coat.main, 0.08));
      c.path("M-15 -66Q0 -58 15 -66L14 -60Q0 -53 -14 -60ZM6 -60L12 -40L4 -38L0 -58Z", coat.accent);
      c.rect(-18, -88, 36, 4, coat.ink, 1);
      c.rect(-12, -104, 24, 17, coat.ink, 1);
      c.rect(-12, -92, 24, 4, coat.accent);
      c.path("M0 -77L18 -73L0 -72Z", coat.own("#f0842c"));
      for (const [x, y] of [
        [-5, -80],
        [5, -80],
        [0, -48],
        [0, -40],
        [0, -24],
      ] as const)
        c.circle(x, y, 1.9, coat.ink);
    },
  },
} satisfies Record<string, Motif>;
