import type { Motif } from "../motif.ts";

/** Large animals, each with its own build. */
export const BIG_ANIMALS = {
  elephant: {
    words: "elephant mammoth",
    colors: ["#8b93a5"],
    realm: "ground",
    size: 1.35,
    wide: 1.2,
    outdoors: true,
    draw: (c, coat) => {
      for (const [x, shade] of [
        [-34, coat.dark],
        [10, coat.dark],
      ] as const)
        c.rect(x, -36, 15, 36, shade, 5);
      c.line("M-44 -58C-52 -48 -50 -36 -53 -30", coat.dark, 3);
      c.path(
        "M-46 -52C-46 -86 -20 -90 4 -86C24 -84 34 -72 32 -48C30 -26 18 -24 -6 -24C-32 -24 -46 -28 -46 -52Z",
        c.lit(coat.main, 0.08),
      );
      for (const x of [-42, -2]) {
        c.rect(x, -38, 16, 38, coat.main, 5);
        c.ellipse(x + 4, -2.5, 2.4, 2, coat.soft, 0.9);
        c.ellipse(x + 10, -2.5, 2.4, 2, coat.soft, 0.9);
      }
      c.path(
        "M20 -78C34 -90 56 -84 58 -64C60 -44 62 -30 68 -22C70 -18 64 -14 60 -18C50 -28 50 -38 46 -44C34 -40 18 -46 16 -60C15 -68 16 -74 20 -78Z",
        c.lit(coat.main, 0.07),
      );
      c.path("M46 -46C50 -38 58 -36 66 -40C62 -34 52 -32 46 -37Z", coat.soft);
      c.path("M26 -80C6 -92 -8 -74 -2 -56C4 -40 24 -42 30 -56C32 -66 30 -74 26 -80Z", coat.dark);
      c.path(
        "M23 -75C9 -84 0 -71 3 -58C8 -46 21 -49 26 -58C28 -66 26 -71 23 -75Z",
        coat.own("#d9a5a8"),
        0.75,
      );
      c.circle(43, -66, 2.5, coat.ink);
      c.line("M56 -52l6 -1M57 -44l6 -1M59 -36l5 -2", coat.dark, 1.4, 0.8);
    },
  },
  sheep: {
    words: "sheep lamb ram ewe",
    colors: ["#f5f1e8"],
    realm: "ground",
    size: 0.85,
    wide: 1.1,
    outdoors: true,
    draw: (c, coat) => {
      for (const x of [-24, -12, 8, 20]) c.rect(x, -30, 7, 30, coat.own("#4a4048"), 2);
      for (const [x, y, r] of [
        [-26, -44, 18],
        [-14, -60, 18],
        [6, -62, 19],
        [22, -48, 19],
        [10, -34, 18],
        [-12, -34, 18],
        [-2, -48, 22],
      ] as const)
        c.circle(x, y, r, coat.main);
      for (const [x, y, r] of [
        [-20, -38, 8],
        [2, -34, 9],
        [16, -42, 8],
      ] as const)
        c.circle(x, y, r, coat.dark, 0.35);
      c.ellipse(25, -74, 9, 4, coat.own("#3d343c"), 1, -24);
      c.ellipse(54, -70, 8, 3.6, coat.own("#3d343c"), 1, 30);
      c.path("M28 -82C38 -88 50 -84 50 -72C50 -60 46 -50 40 -50C33 -50 28 -60 27 -70Z", coat.own("#4a4048"));
      for (const [x, y] of [
        [32, -84],
        [40, -87],
        [47, -83],
      ] as const)
        c.circle(x, y, 6.5, coat.light);
      c.circle(36, -69, 2.4, "#ffffff");
      c.circle(45, -69, 2.4, "#ffffff");
      c.circle(36.6, -68.6, 1.3, "#17151c");
      c.circle(45.6, -68.6, 1.3, "#17151c");
    },
  },
  dinosaur: {
    words: "dinosaur rex trex brontosaurus tyrannosaurus dino",
    colors: ["#5fae5a", "#4a9a8a"],
    realm: "ground",
    size: 1.4,
    wide: 1.3,
    outdoors: true,
    draw: (c, coat) => {
      c.rect(-24, -26, 13, 26, coat.dark, 5);
      c.rect(8, -26, 13, 26, coat.dark, 5);
      for (const [x, y] of [
        [-34, -42],
        [-22, -52],
        [-8, -57],
        [6, -57],
        [20, -60],
        [29, -72],
        [34, -84],
      ] as const)
        c.path(`M${x - 6} ${y + 5}l6 -13l6 12Z`, coat.accent);
      c.path(
        "M-66 -22C-52 -26 -44 -42 -26 -48C-8 -56 10 -56 20 -62C30 -70 30 -84 38 -92C46 -100 62 -98 66 -88C69 -80 62 -76 54 -76C48 -74 48 -58 42 -44C36 -28 26 -20 8 -20C-10 -18 -22 -24 -34 -26C-46 -26 -56 -18 -66 -22Z",
        c.lit(coat.main, 0.09),
      );
      c.path(
        "M40 -60C38 -42 28 -26 8 -24C-6 -23 -14 -26 -20 -28C-4 -30 18 -32 26 -44C32 -52 38 -56 40 -60Z",
        coat.light,
        0.75,
      );
      c.rect(-32, -28, 14, 28, coat.main, 5);
      c.rect(16, -28, 14, 28, coat.main, 5);
      c.circle(52, -90, 3.4, "#ffffff");
      c.circle(53, -89.6, 1.9, "#17151c");
      c.line("M55 -80q6 0 9 -4", coat.dark, 1.6);
      c.circle(63, -88, 1, coat.dark);
    },
  },
  dragon: {
    words: "dragon wyvern",
    colors: ["#c8402f", "#3f9a5c", "#7a4fc0"],
    realm: "ground",
    size: 1.4,
    wide: 1.3,
    outdoors: true,
    draw: (c, coat) => {
      c.path(
        "M-14 -56C-30 -98 -58 -100 -72 -88C-62 -84 -62 -76 -60 -68C-52 -72 -46 -68 -44 -60C-36 -66 -28 -62 -26 -54Z",
        coat.dark,
      );
      c.path("M-12 -50C-34 -16 -66 -22 -70 -4C-60 -10 -44 -2 -24 -8C-8 -12 0 -26 0 -36Z", coat.main);
      c.path("M-70 -4L-84 -10L-80 4Z", coat.accent);
      c.rect(-22, -24, 13, 24, coat.dark, 5);
      c.rect(12, -24, 13, 24, coat.dark, 5);
      c.path(
        "M-26 -30C-26 -52 -6 -60 10 -58C24 -62 22 -76 28 -86C36 -98 58 -96 66 -84C72 -76 64 -70 54 -70C46 -68 46 -54 40 -40C34 -22 18 -16 2 -16C-14 -16 -26 -18 -26 -30Z",
        c.lit(coat.main, 0.09),
      );
      c.path(
        "M38 -60C36 -42 24 -22 4 -20C-4 -20 -8 -22 -10 -24C6 -26 16 -34 20 -46C24 -54 34 -60 38 -60Z",
        coat.own("#f4d58a"),
      );
      c.rect(-28, -26, 14, 26, coat.main, 5);
      c.rect(18, -26, 14, 26, coat.main, 5);
      c.path(
        "M-6 -58C-10 -96 8 -112 26 -112C20 -104 24 -98 20 -90C26 -88 22 -80 16 -76C20 -70 16 -62 10 -56Z",
        coat.light,
      );
      c.line("M-4 -58C-4 -84 8 -102 26 -112M2 -62L20 -90M4 -60L16 -76", coat.dark, 1.8);
      c.path("M34 -90L24 -106L42 -95ZM44 -94L40 -110L52 -95Z", coat.own("#f4e3b5"));
      c.circle(50, -84, 3.4, coat.own("#ffe36a"));
      c.ellipse(50.6, -84, 1.3, 3, "#17151c");
      c.line("M54 -74q6 -1 10 -5", coat.dark, 1.5);
    },
  },
} satisfies Record<string, Motif>;
