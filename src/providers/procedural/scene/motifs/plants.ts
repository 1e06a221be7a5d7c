import { createRandom } from "../../random.ts";
import { type Canvas, short } from "../../svg/canvas.ts";
import type { Hex } from "../../svg/color.ts";
import { blob } from "../../svg/shapes.ts";
import { fir, palm, roundTree } from "../scenery/trees.ts";
import type { Coat, Motif } from "./motif.ts";

const STEM = "#3f8f4a";

function stem(c: Canvas, coat: Coat, height: number): void {
  c.line(
    `M0 0C-3 ${short(-height * 0.35)} 3 ${short(-height * 0.6)} 0 ${short(-height)}`,
    coat.own(STEM),
    3.6,
  );
  c.path(
    `M0 ${short(-height * 0.25)}C12 ${short(-height * 0.55)} 26 ${short(-height * 0.5)} 30 ${short(-height * 0.46)}C24 ${short(-height * 0.24)} 10 ${short(-height * 0.16)} 0 ${short(-height * 0.2)}Z`,
    coat.own("#4fa35a"),
  );
  c.path(
    `M0 ${short(-height * 0.4)}C-10 ${short(-height * 0.64)} -22 ${short(-height * 0.62)} -28 ${short(-height * 0.58)}C-22 ${short(-height * 0.36)} -8 ${short(-height * 0.3)} 0 ${short(-height * 0.34)}Z`,
    coat.own("#3a8548"),
  );
}

function petals(
  c: Canvas,
  y: number,
  count: number,
  reach: number,
  wide: number,
  color: Hex,
  turn = 0,
): void {
  for (let i = 0; i < count; i++) {
    const angle = (i / count) * 360 + turn;
    const radians = (angle * Math.PI) / 180;
    c.ellipse(Math.cos(radians) * reach, y + Math.sin(radians) * reach, reach * 0.8, wide, color, 1, angle);
  }
}

function potted(c: Canvas, coat: Coat): void {
  c.path("M-24 -34H24L18 0H-18Z", c.lit(coat.own("#c9653f"), 0.12));
  c.rect(-27, -40, 54, 9, coat.own("#d9774c"), 2);
}

export const PLANTS = {
  flower: {
    words: "flower daisy bloom blossom lily orchid poppy dandelion petal bouquet marigold hibiscus",
    colors: ["#f2708f", "#f4a93a", "#a36bd8", "#f5f0e6", "#e4503f"],
    realm: "ground",
    size: 0.75,
    wide: 0.62,
    home: "meadow",
    draw: (c, coat) => {
      stem(c, coat, 70);
      petals(c, -74, 8, 17, 8, coat.dark, 22);
      petals(c, -74, 8, 16, 7.4, coat.main);
      c.circle(0, -74, 10, c.lit(coat.own("#f6c22c"), 0.16));
    },
  },
  sunflower: {
    words: "sunflower",
    colors: ["#f6b91c"],
    realm: "ground",
    size: 1,
    wide: 0.66,
    home: "meadow",
    draw: (c, coat) => {
      stem(c, coat, 70);
      petals(c, -72, 14, 20, 5.6, coat.dark, 12);
      petals(c, -72, 14, 19, 5.6, coat.main);
      c.circle(0, -72, 15, c.lit(coat.own("#6b4024"), 0.14));
      for (let i = 0; i < 22; i++)
        c.circle(
          Math.cos(i * 2.4) * Math.sqrt(i) * 2.7,
          -72 + Math.sin(i * 2.4) * Math.sqrt(i) * 2.7,
          1.1,
          coat.own("#c98a3a"),
        );
    },
  },
  rose: {
    words: "rose peony camellia",
    colors: ["#d0243f"],
    realm: "ground",
    size: 0.85,
    wide: 0.6,
    home: "meadow",
    draw: (c, coat) => {
      stem(c, coat, 66);
      c.path("M-24 -80C-28 -60 -14 -52 0 -52C14 -52 28 -60 24 -80C16 -74 -16 -74 -24 -80Z", coat.dark);
      c.circle(0, -76, 22, c.lit(coat.main, 0.12));
      c.path("M-22 -80C-10 -66 10 -66 22 -82C24 -64 12 -55 0 -55C-14 -55 -24 -66 -22 -80Z", coat.dark, 0.7);
      c.line("M-9 -80C-10 -92 8 -94 10 -82C11 -72 -4 -70 -4 -79C-3 -85 4 -84 4 -80", coat.dark, 2.6);
      c.path("M-16 -56L0 -50L16 -56L6 -46H-6Z", coat.own(STEM));
    },
  },
  tulip: {
    words: "tulip crocus iris lotus",
    colors: ["#e4483c", "#f2b52c", "#c85fc0"],
    realm: "ground",
    size: 0.8,
    wide: 0.5,
    home: "meadow",
    draw: (c, coat) => {
      stem(c, coat, 62);
      c.path(
        "M-20 -94C-24 -66 -14 -56 0 -56C14 -56 24 -66 20 -94L10 -82L0 -98L-10 -82Z",
        c.lit(coat.main, 0.13),
      );
      c.path("M0 -98C-12 -82 -12 -62 0 -56C12 -62 12 -82 0 -98Z", coat.light, 0.75);
    },
  },
  tree: {
    words: "tree oak maple willow bonsai birch apple-tree",
    colors: ["#4a9a4f", "#3f8a5a"],
    realm: "ground",
    size: 1.6,
    wide: 0.8,
    home: "meadow",
    draw: (c, coat) => roundTree(c, createRandom(7), 0, 0, 100, coat.main, coat.own("#6b4630")),
  },
  sakura: {
    words: "sakura cherry-blossom",
    colors: ["#f7a8c4"],
    realm: "ground",
    size: 1.6,
    wide: 0.9,
    home: "meadow",
    draw: (c, coat) => roundTree(c, createRandom(11), 0, 0, 100, coat.main, coat.own("#5a3a34")),
  },
  fir: {
    words: "fir spruce conifer evergreen christmas",
    colors: ["#2f7a54"],
    realm: "ground",
    size: 1.5,
    wide: 0.5,
    home: "forest",
    draw: (c, coat) => {
      fir(c, 0, 0, 100, coat.main, null);
      for (const [x, y, color] of [
        [-9, -22, "#e4483c"],
        [8, -30, "#f2c02c"],
        [-4, -45, "#5fb0e8"],
        [6, -58, "#e4483c"],
        [-3, -72, "#f2c02c"],
      ] as const)
        c.circle(x, y, 2.6, coat.own(color));
    },
  },
  palm: {
    words: "palm palm-tree coconut",
    colors: ["#3a9a5a"],
    realm: "ground",
    size: 1.5,
    wide: 0.9,
    home: "sea",
    draw: (c, coat) => palm(c, createRandom(5), 0, 0, 100, coat.main, coat.own("#8a6238")),
  },
  cactus: {
    words: "cactus cacti succulent",
    colors: ["#3f9a62"],
    realm: "ground",
    size: 0.95,
    wide: 0.8,
    home: "desert",
    draw: (c, coat) => {
      c.line("M-2 -52H-26V-72", coat.dark, 11);
      c.line("M2 -40H26V-64", coat.dark, 11);
      c.line("M0 -24V-88", coat.main, 19);
      c.line("M-5 -26V-88M4 -26V-88", coat.light, 1.6, 0.7);
      for (const [x, y] of [
        [0, -98],
        [-26, -79],
        [26, -71],
      ] as const)
        c.place({ x }, () => petals(c, y, 5, 3, 2.2, coat.own("#f2708f")));
      potted(c, coat);
    },
  },
  plant: {
    words: "plant houseplant fern monstera ivy herb bamboo",
    colors: ["#3f9a5c"],
    realm: "ground",
    size: 0.85,
    wide: 0.8,
    home: "room",
    draw: (c, coat) => {
      for (const [turn, reach, shade] of [
        [-62, 50, coat.dark],
        [58, 52, coat.dark],
        [-32, 62, coat.main],
        [30, 60, coat.main],
        [0, 66, coat.light],
      ] as const) {
        c.place({ y: -34, rotate: turn }, () => {
          c.path(
            `M0 0C-20 ${-reach * 0.4} -14 ${-reach * 0.85} 0 ${-reach}C14 ${-reach * 0.85} 20 ${-reach * 0.4} 0 0Z`,
            shade,
          );
          c.line(`M0 0V${-reach * 0.86}`, coat.dark, 1.3, 0.8);
        });
      }
      potted(c, coat);
    },
  },
  mushroom: {
    words: "mushroom toadstool fungus fungi",
    colors: ["#d8342c"],
    realm: "ground",
    size: 0.7,
    wide: 1,
    home: "forest",
    draw: (c, coat) => {
      c.path("M-13 -44C-16 -20 -18 -8 -16 0H16C18 -8 16 -20 13 -44Z", c.lit(coat.soft, 0.1));
      c.path(
        "M-50 -40C-50 -84 -20 -98 0 -98C20 -98 50 -84 50 -40C34 -30 -34 -30 -50 -40Z",
        c.lit(coat.main, 0.12),
      );
      for (const [x, y, r] of [
        [-26, -60, 8],
        [4, -78, 9],
        [28, -56, 7],
        [-2, -50, 6],
      ] as const)
        c.ellipse(x, y, r, r * 0.85, coat.soft);
    },
  },
  bush: {
    words: "bush shrub hedge",
    colors: ["#4a9a4f"],
    realm: "ground",
    size: 0.6,
    wide: 1.3,
    home: "meadow",
    draw: (c, coat) => {
      const random = createRandom(3);
      c.path(blob(random, -26, -30, 32, 0.12), coat.dark);
      c.path(blob(random, 26, -28, 30, 0.12), coat.dark);
      c.path(blob(random, 0, -42, 40, 0.1), coat.main);
      c.wash(blob(random, -10, -54, 18, 0.16), coat.light, 0.7);
    },
  },
} satisfies Record<string, Motif>;
