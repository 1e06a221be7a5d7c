import type { Motif } from "./motif.ts";

export const FOOD = {
  pizza: {
    words: "pizza",
    colors: ["#f2b84a"],
    realm: "ground",
    size: 0.9,
    wide: 1,
    draw: (c, coat) => {
      c.path(
        "M-52 -80C-30 -98 30 -98 52 -80L46 -70C26 -84 -26 -84 -46 -70Z",
        c.lit(coat.own("#c98440"), 0.14),
      );
      c.path("M-46 -72C-24 -86 24 -86 46 -72L0 0Z", c.lit(coat.main, 0.1));
      c.path("M-20 -40v14q4 5 6 0v-10ZM14 -28v16q-4 5 -7 0v-6Z", coat.main);
      for (const [x, y, r] of [
        [-20, -66, 9],
        [16, -64, 9],
        [-4, -44, 8.4],
        [2, -20, 5.6],
      ] as const) {
        c.circle(x, y, r, coat.own("#c8362c"));
        c.circle(x - 2, y - 2, r * 0.5, coat.own("#e0604c"), 0.8);
      }
      c.path(
        "M-4 -70q6 -6 10 0q-4 5 -10 0ZM-18 -50q2 -6 8 -4q-1 6 -8 4ZM10 -44q6 -4 9 1q-5 4 -9 -1Z",
        coat.own("#4f9a3a"),
      );
    },
  },
  cake: {
    words: "cake birthday cupcake muffin pie dessert pastry cheesecake pancake waffle tart brownie",
    colors: ["#f6a9c0", "#8a5638", "#f4e3c0"],
    realm: "ground",
    size: 0.85,
    wide: 1.1,
    draw: (c, coat) => {
      for (const [x, color] of [
        [-16, "#5fb0e8"],
        [0, "#f2c02c"],
        [16, "#7ac06a"],
      ] as const) {
        c.rect(x - 2.2, -84, 4.4, 18, coat.own(color), 1);
        c.path(`M${x} -98c6 7 4 12 0 12c-4 0 -6 -5 0 -12Z`, coat.own("#ffb52c"));
      }
      c.ellipse(0, -4, 58, 7, coat.own("#dfe4ea"));
      c.path("M-42 -36H42V-6C30 0 -30 0 -42 -6Z", c.lit(coat.own("#f3d9a8"), 0.1));
      c.path(
        "M-42 -62C-42 -72 42 -72 42 -62V-34C38 -24 32 -38 26 -30C20 -22 14 -38 6 -28C0 -20 -8 -36 -16 -28C-22 -22 -26 -36 -34 -28C-38 -26 -42 -30 -42 -34Z",
        c.lit(coat.main, 0.12),
      );
      c.ellipse(0, -63, 42, 7.4, coat.light);
      for (const x of [-28, -10, 10, 28]) c.circle(x, -64, 4.6, coat.own("#d8243c"));
      c.line("M-42 -16Q0 -8 42 -16", coat.soft, 3.4);
    },
  },
  burger: {
    words: "burger hamburger cheeseburger sandwich hotdog taco burrito",
    colors: ["#d9954a"],
    realm: "ground",
    size: 0.75,
    wide: 1.2,
    draw: (c, coat) => {
      c.path("M-50 -20H50C50 -4 44 0 34 0H-34C-44 0 -50 -4 -50 -20Z", c.lit(coat.main, 0.1));
      c.rect(-53, -36, 106, 16, coat.own("#6b3a24"), 8);
      c.path("M-52 -40H52L34 -30L18 -22L2 -34L-16 -28L-30 -34Z", coat.own("#f6c02c"));
      c.rect(-50, -46, 100, 8, coat.own("#d8402f"), 4);
      c.path(
        "M-56 -48C-50 -38 -42 -50 -34 -44C-26 -38 -18 -50 -10 -44C-2 -38 6 -50 14 -44C22 -38 30 -50 38 -44C46 -38 54 -44 56 -50Z",
        coat.own("#6fb545"),
      );
      c.path("M-52 -50C-52 -96 52 -96 52 -50Z", c.lit(coat.main, 0.13));
      for (const [x, y] of [
        [-26, -68],
        [-8, -78],
        [12, -74],
        [28, -64],
        [2, -64],
        [-14, -60],
      ] as const)
        c.ellipse(x, y, 3.2, 2, coat.own("#f8e6bc"), 1, -20);
    },
  },
  icecream: {
    words: "ice-cream icecream gelato sorbet popsicle",
    colors: ["#f7a8c0"],
    realm: "ground",
    size: 0.9,
    wide: 0.6,
    draw: (c, coat) => {
      c.path("M-22 -46H22L0 0Z", c.lit(coat.own("#dba05a"), 0.1));
      c.line("M-16 -46L6 -12M-4 -46L11 -22M16 -46L-6 -12M4 -46L-11 -22", coat.own("#a86a30"), 1.6);
      c.circle(-12, -54, 17, c.lit(coat.own("#8a5638"), 0.14));
      c.circle(13, -54, 17, c.lit(coat.own("#f6ead0"), 0.1));
      c.circle(0, -74, 18, c.lit(coat.main, 0.12));
      c.circle(4, -94, 5.4, coat.own("#d8243c"));
      c.line("M5 -98q4 -6 10 -6", coat.own("#5a7a34"), 1.8);
    },
  },
  donut: {
    words: "donut doughnut cookie biscuit bagel pretzel croissant bread",
    colors: ["#f48fb0", "#7a4a34"],
    realm: "ground",
    size: 0.8,
    wide: 1,
    draw: (c, coat) => {
      c.path(
        "M-48 -46A48 46 0 1 0 48 -46A48 46 0 1 0 -48 -46ZM-15 -46A15 14 0 1 1 15 -46A15 14 0 1 1 -15 -46Z",
        coat.own("#d9964f"),
      );
      c.path(
        "M-44 -50C-46 -92 46 -94 44 -50C46 -36 36 -30 32 -22C26 -12 20 -22 14 -14C6 -6 0 -18 -8 -12C-16 -8 -20 -20 -28 -20C-38 -22 -40 -36 -44 -50ZM-15 -48A15 14 0 1 0 15 -48A15 14 0 1 0 -15 -48Z",
        c.lit(coat.main, 0.12),
      );
      for (const [x, y, turn, color] of [
        [-28, -60, 20, "#ffffff"],
        [-20, -76, -40, "#f2c02c"],
        [0, -80, 10, "#5fb0e8"],
        [22, -74, 60, "#ffffff"],
        [30, -56, -20, "#7ac06a"],
        [28, -38, 40, "#f2c02c"],
        [-30, -40, -50, "#5fb0e8"],
        [10, -26, 10, "#ffffff"],
        [-14, -26, 70, "#e4503f"],
      ] as const) {
        c.place({ x, y, rotate: turn }, () => c.rect(-4, -1.5, 8, 3, coat.own(color), 1.5));
      }
    },
  },
  bowl: {
    words:
      "ramen noodle soup bowl salad rice pho curry stew pasta spaghetti sushi dumpling food meal breakfast dinner lunch cereal",
    colors: ["#d8402f", "#2f6f8f"],
    realm: "ground",
    size: 0.8,
    wide: 1.3,
    home: "room",
    draw: (c, coat) => {
      c.line(
        "M-18 -72C-24 -82 -12 -88 -18 -98M4 -74C-2 -84 10 -90 4 -100M24 -72C18 -82 30 -88 24 -98",
        "#ffffff",
        3,
        0.55,
      );
      c.line("M14 -52L66 -92M22 -48L74 -84", coat.own("#7a4a2c"), 3.4);
      c.ellipse(0, -48, 56, 14, coat.dark);
      c.ellipse(0, -48, 50, 11, coat.own("#e0983a"));
      c.line("M-40 -48q8 -8 16 0t16 0t16 0M-30 -43q8 -6 16 0t16 0t16 0", coat.own("#f7e0a0"), 3);
      c.ellipse(-22, -52, 12, 8, coat.own("#fbf7ee"));
      c.circle(-22, -52, 4.6, coat.own("#f2a52c"));
      c.ellipse(14, -54, 14, 6, coat.own("#b5654a"), 1, -8);
      c.path("M30 -46c4 -8 12 -8 14 -4c-4 6 -10 7 -14 4Z", coat.own("#5fa545"));
      c.path(
        "M-56 -48C-54 -14 -28 -4 -18 -4H18C28 -4 54 -14 56 -48C40 -34 -40 -34 -56 -48Z",
        c.lit(coat.main, 0.12),
      );
      c.rect(-18, -6, 36, 6, coat.dark, 2);
      c.line("M-48 -28C-26 -16 26 -16 48 -28", coat.soft, 2.4, 0.85);
    },
  },
  egg: {
    words: "egg easter",
    colors: ["#f4e2c6", "#9fd0e0"],
    realm: "ground",
    size: 0.6,
    wide: 0.8,
    draw: (c, coat) => {
      c.path(
        "M0 -92C26 -92 38 -54 38 -34C38 -12 20 0 0 0C-20 0 -38 -12 -38 -34C-38 -54 -26 -92 0 -92Z",
        c.lit(coat.main, 0.12),
      );
      c.line("M-34 -50l9 -8l9 8l9 -8l9 8l9 -8l9 8l9 -8l5 5", coat.accent, 4);
      c.ellipse(-14, -68, 5, 9, "#ffffff", 0.4, 20);
    },
  },
  cheese: {
    words: "cheese butter",
    colors: ["#f6c53a"],
    realm: "ground",
    size: 0.55,
    wide: 1.5,
    draw: (c, coat) => {
      c.path("M-64 -46L20 -82L64 -46Z", coat.light);
      c.path("M-64 -46H64V0H-64Z", c.lit(coat.main, 0.1));
      for (const [x, y, r] of [
        [-36, -24, 9],
        [0, -14, 6],
        [14, -32, 7],
        [42, -18, 9],
        [8, -60, 6],
      ] as const)
        c.ellipse(x, y, r, r * 0.85, coat.dark);
    },
  },
} satisfies Record<string, Motif>;
