import { star } from "../../svg/shapes.ts";
import type { Motif } from "./motif.ts";

/** Clothes, gifts and keepsakes. */
export const TREASURES = {
  gift: {
    words: "gift present box package parcel chest treasure",
    colors: ["#d8342c", "#3f8fc0", "#8a5fc0"],
    realm: "ground",
    size: 0.7,
    wide: 1,
    draw: (c, coat) => {
      c.path("M0 -72C-30 -104 -50 -78 0 -68C50 -78 30 -104 0 -72Z", coat.accent);
      c.rect(-40, -54, 80, 54, c.lit(coat.main, 0.1), 3);
      c.rect(-46, -70, 92, 20, coat.light, 3);
      c.rect(-8, -70, 16, 70, coat.accent);
    },
  },
  crown: {
    words: "crown tiara jewel jewelry ring necklace",
    colors: ["#f2c02c"],
    realm: "ground",
    size: 0.62,
    wide: 1.2,
    draw: (c, coat) => {
      c.path("M-50 -8L-58 -70L-28 -42L0 -88L28 -42L58 -70L50 -8Z", c.lit(coat.main, 0.14));
      c.rect(-51, -16, 102, 16, coat.dark, 3);
      for (const [x, y, color] of [
        [-58, -72, "#e4483c"],
        [0, -92, "#3f8fe0"],
        [58, -72, "#e4483c"],
      ] as const)
        c.circle(x, y, 6.4, coat.own(color));
      for (const x of [-30, 0, 30]) c.circle(x, -8, 5, coat.own(x === 0 ? "#e4483c" : "#4ac08a"));
    },
  },
  gem: {
    words: "gem diamond crystal ruby-gem jewel-stone quartz",
    colors: ["#5fc8f0", "#c85fd8"],
    realm: "ground",
    size: 0.8,
    wide: 1.1,
    draw: (c, coat) => {
      c.path("M-52 -62L-30 -90H30L52 -62L0 0Z", coat.main);
      c.path("M-52 -62L-30 -90L-18 -62ZM18 -62L30 -90L52 -62ZM-18 -62H18L0 0Z", coat.light);
      c.path("M-30 -90H30L18 -62H-18Z", coat.soft, 0.85);
      c.path("M18 -62H52L0 0Z", coat.dark);
      c.wash(star(40, -92, 12, 0.25), "#ffffff", 0.95);
    },
  },
  heart: {
    words: "heart love valentine romance",
    colors: ["#e0283c"],
    realm: "air",
    size: 0.8,
    wide: 1,
    draw: (c, coat) => {
      c.path(
        "M0 46C-30 22 -54 0 -54 -22C-54 -50 -14 -56 0 -26C14 -56 54 -50 54 -22C54 0 30 22 0 46Z",
        c.lit(coat.main, 0.15),
      );
      c.ellipse(-30, -24, 7, 12, "#ffffff", 0.45, 32);
    },
  },
  hat: {
    words: "hat cap fedora beret tophat",
    colors: ["#3a3f52", "#b5652f"],
    realm: "ground",
    size: 0.55,
    wide: 1.6,
    draw: (c, coat) => {
      c.path(
        "M-42 -14C-42 -70 -30 -84 -10 -80C-4 -76 4 -76 10 -80C30 -84 42 -70 42 -14Z",
        c.lit(coat.main, 0.12),
      );
      c.path("M-43 -34Q0 -22 43 -34V-16Q0 -4 -43 -16Z", coat.accent);
      c.path("M-80 -20C-50 -4 50 -4 80 -20C70 6 -70 6 -80 -20Z", coat.dark);
    },
  },
  shoe: {
    words: "shoe sneaker boot sandal heel footwear",
    colors: ["#d8402f", "#3f7fd0"],
    realm: "ground",
    size: 0.55,
    wide: 1.8,
    draw: (c, coat) => {
      c.path(
        "M-70 -16L-66 -78C-50 -70 -34 -72 -26 -80C-14 -56 10 -46 40 -42C64 -38 74 -28 74 -14Z",
        c.lit(coat.main, 0.12),
      );
      c.path("M44 -42C64 -38 74 -28 74 -14H38C36 -26 38 -36 44 -42Z", coat.soft);
      c.path("M-74 -16H76C80 -4 76 0 68 0H-66C-76 0 -76 -8 -74 -16Z", coat.own("#f4f1ea"));
      c.line("M-18 -62L-4 -70M-6 -54L8 -62M8 -48L20 -57", coat.own("#f4f1ea"), 4);
      c.path("M-58 -34C-40 -28 -14 -28 10 -34C-10 -22 -40 -20 -58 -34Z", coat.accent);
    },
  },
  ball: {
    words: "ball football soccer basketball globe sphere bubble marble-ball",
    colors: ["#e8833a", "#3f8fd0"],
    realm: "ground",
    size: 0.6,
    wide: 1,
    draw: (c, coat) => {
      c.circle(0, -44, 44, c.lit(coat.main, 0.16));
      c.line(
        "M-44 -44H44M0 -88V0M-30 -76C-12 -58 -12 -30 -30 -12M30 -76C12 -58 12 -30 30 -12",
        coat.ink,
        2.6,
        0.8,
      );
      c.ellipse(-18, -62, 7, 11, "#ffffff", 0.4, 36);
    },
  },
  key: {
    words: "key lock sword tool hammer",
    colors: ["#e0b030"],
    realm: "air",
    size: 0.8,
    wide: 1.1,
    draw: (c, coat) => {
      c.place({ rotate: -32 }, () => {
        c.line("M-44 0a18 18 0 1 0 36 0a18 18 0 1 0 -36 0", coat.main, 9);
        c.line("M-8 0H56", coat.main, 8);
        c.path("M36 0V18H44V8H48V16H56V0Z", coat.dark);
      });
    },
  },
  telescope: {
    words: "telescope observatory microscope binoculars",
    colors: ["#b8863a"],
    realm: "ground",
    size: 1,
    wide: 1,
    home: "mountains",
    draw: (c, coat) => {
      c.line("M0 -50L-26 0M0 -50L26 0M0 -50V-2", coat.own("#5a3f30"), 4);
      c.place({ y: -58, rotate: -32 }, () => {
        c.rect(-46, -8, 34, 16, coat.dark, 3);
        c.rect(-16, -11, 38, 22, c.vertical({ at: 0, color: coat.light }, { at: 1, color: coat.dark }), 3);
        c.rect(
          18,
          -14,
          40,
          28,
          c.vertical(
            { at: 0, color: coat.light },
            { at: 0.5, color: coat.main },
            { at: 1, color: coat.dark },
          ),
          3,
        );
        c.rect(54, -16, 7, 32, coat.ink, 2);
      });
    },
  },
} satisfies Record<string, Motif>;
