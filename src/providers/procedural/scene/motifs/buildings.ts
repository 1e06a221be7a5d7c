import type { Motif } from "./motif.ts";

const GLOW = "#ffe08a";

/** Houses and towers. */
export const BUILDINGS = {
  house: {
    words: "house cottage cabin home hut barn farmhouse villa bungalow treehouse chalet church chapel",
    colors: ["#e8dcc4", "#d9825a", "#c7d5d8"],
    realm: "ground",
    size: 1.35,
    wide: 1.15,
    home: "meadow",
    draw: (c, coat) => {
      c.rect(18, -92, 10, 26, coat.own("#9a5240"));
      c.rect(16, -95, 14, 5, coat.own("#7d4034"));
      c.path("M-40 0V-50H40V0Z", c.lit(coat.main, 0.06));
      c.path("M8 0V-50H40V0Z", coat.dark, 0.35);
      c.path("M-52 -46L-34 -84H34L52 -46Z", c.lit(coat.accent, 0.12));
      c.line("M-44 -58H44M-38 -70H38", coat.own("#5a2f2a"), 1.4, 0.35);
      c.path("M-22 -50L-4 -76L14 -50Z", coat.light);
      c.circle(-4, -58, 5.4, coat.own(GLOW));
      c.rect(-10, -32, 16, 32, coat.own("#6b4436"), 2);
      c.circle(2, -16, 1.4, coat.own("#f4cf6a"));
      for (const x of [-34, 14]) {
        c.rect(x, -36, 18, 18, coat.soft, 1);
        c.rect(x + 2, -34, 14, 14, coat.own(GLOW), 1);
        c.line(`M${x + 9} -34v14M${x + 2} -27h14`, coat.soft, 1.4);
      }
      for (const [x, r] of [
        [-40, 8],
        [-32, 6],
        [38, 8],
        [30, 6],
      ] as const)
        c.circle(x, -r * 0.5, r, coat.own("#4f8f4a"));
      c.path("M-10 0L-20 8H16L6 0Z", coat.own("#cdbb9a"), 0.8);
    },
  },
  castle: {
    words: "castle fortress palace tower ruins temple pagoda kingdom cathedral",
    colors: ["#b9b3c4", "#c9b79c"],
    realm: "ground",
    size: 1.7,
    wide: 1.2,
    home: "mountains",
    draw: (c, coat) => {
      const wall = c.split(coat.main, coat.dark, 0.6);
      const tower = (x: number, w: number, h: number) => {
        c.rect(x - w / 2, -h, w, h, wall);
        c.path(
          `M${x - w / 2 - 3} ${-h}L${x} ${-h - w * 1.5}L${x + w / 2 + 3} ${-h}Z`,
          c.split(coat.accent, coat.own("#5a2440"), 0.55),
        );
        c.rect(x - 2, -h + 8, 4, 8, coat.own(GLOW), 2);
        c.line(`M${x} ${-h - w * 1.5}v-7`, coat.ink, 1);
        c.path(`M${x} ${-h - w * 1.5 - 7}l8 2.4l-8 2.4Z`, coat.accent);
      };
      tower(-20, 15, 66);
      tower(18, 17, 76);
      c.path("M-34 0V-40h6v-5h7v5h7v-5h7v5h7v-5h7v5h7v-5h7v5h7v-5h6v5V0Z", wall);
      tower(-40, 17, 50);
      tower(40, 17, 54);
      c.path("M-10 0V-18C-10 -30 10 -30 10 -18V0Z", coat.own("#4a3038"));
      c.line("M-5 0V-24M0 0V-27M5 0V-24", coat.own("#6d4a44"), 1.3);
      for (const x of [-24, 22]) c.rect(x, -28, 5, 9, coat.own(GLOW), 2);
    },
  },
  lighthouse: {
    words: "lighthouse beacon",
    colors: ["#d8402f", "#2f6fb0"],
    realm: "ground",
    size: 1.7,
    wide: 0.7,
    home: "sea",
    draw: (c, coat) => {
      c.path("M2 -88L86 -112V-66Z", "#fff3b8", 0.3);
      c.path("M-2 -88L-86 -112V-66Z", "#fff3b8", 0.3);
      c.path("M-36 2C-30 -8 -16 -6 -6 -10C6 -12 24 -10 36 2Z", coat.own("#6f6a70"));
      c.path("M-15 -6L-9 -76H9L15 -6Z", c.split(coat.own("#f8f4ec"), coat.own("#d5cdc6"), 0.58));
      for (const [top, bottom] of [
        [-66, -52],
        [-40, -24],
      ] as const) {
        const half = (y: number) => 9 + ((y + 76) / 70) * 6;
        c.path(
          `M${-half(top)} ${top}H${half(top)}L${half(bottom)} ${bottom}H${-half(bottom)}Z`,
          c.split(coat.main, coat.dark, 0.58),
        );
      }
      c.rect(-13, -80, 26, 5, coat.ink, 1);
      c.rect(-7, -95, 14, 15, coat.own("#fff0a8"), 1);
      c.line("M-7 -95V-80M0 -95V-80M7 -95V-80", coat.ink, 1.2);
      c.path("M-10 -95L0 -106L10 -95Z", coat.main);
      c.rect(-3.4, -18, 7, 12, coat.ink, 3);
    },
  },
  windmill: {
    words: "windmill mill turbine",
    colors: ["#e9dcc4"],
    realm: "ground",
    size: 1.5,
    wide: 0.9,
    home: "meadow",
    draw: (c, coat) => {
      c.path("M-19 0L-11 -62H11L19 0Z", c.split(coat.main, coat.dark, 0.58));
      c.path("M-13 -61C-10 -80 10 -80 13 -61Z", coat.accent);
      c.rect(-5, -16, 10, 16, coat.own("#6b4436"), 4);
      c.rect(-3, -44, 6, 8, coat.own(GLOW), 1);
      c.place({ y: -64, rotate: 22 }, () => {
        for (const turn of [0, 90, 180, 270]) {
          c.place({ rotate: turn }, () => {
            c.line("M0 0V-46", coat.own("#6b4a34"), 2);
            c.path("M1 -10H11V-45H1Z", coat.soft);
            c.line("M1 -18H11M1 -27H11M1 -36H11", coat.own("#9a7a5a"), 1);
          });
        }
      });
      c.circle(0, -64, 3.4, coat.ink);
    },
  },
  tent: {
    words: "tent camp camping campsite teepee yurt campfire bonfire fire",
    colors: ["#e07a3f", "#3f8f8a"],
    realm: "ground",
    size: 0.8,
    wide: 1.5,
    home: "forest",
    draw: (c, coat) => {
      c.path("M-56 0L-12 -70L8 0Z", c.lit(coat.main, 0.1));
      c.path("M-12 -70L36 -62L60 0H8Z", coat.dark);
      c.path("M-12 -70L-26 0H-2Z", coat.own("#3a2a34"));
      c.path("M-12 -70L-26 0H-16Z", coat.own("#ffd27a"), 0.85);
      c.place({ x: 84, y: 0 }, () => {
        c.circle(
          0,
          -12,
          30,
          c.radial({ at: 0, color: "#ffb347", opacity: 0.6 }, { at: 1, color: "#ffb347", opacity: 0 }),
        );
        c.path(
          "M-12 -3C-18 -18 -4 -22 -4 -36C8 -28 4 -20 8 -18C10 -22 10 -24 10 -26C18 -16 16 -6 12 -3Z",
          coat.own("#f2702c"),
        );
        c.path("M-6 -3C-8 -12 0 -14 1 -22C8 -14 8 -8 6 -3Z", coat.own("#ffd94a"));
        c.line("M-16 0L14 -5M-14 -5L16 0", coat.own("#6b4430"), 4);
      });
    },
  },
  bridge: {
    words: "bridge viaduct aqueduct",
    colors: ["#c8503f", "#8a8f9c"],
    realm: "ground",
    size: 0.9,
    wide: 2.6,
    home: "sea",
    draw: (c, coat) => {
      for (const x of [-62, 62]) {
        c.rect(x - 5, -100, 10, 100, c.split(coat.main, coat.dark));
        c.rect(x - 8, -72, 16, 5, coat.main);
      }
      c.line("M-140 -26C-110 -40 -80 -80 -62 -98C-40 -40 40 -40 62 -98C80 -80 110 -40 140 -26", coat.main, 3);
      for (let x = -50; x <= 50; x += 12.5)
        c.line(`M${x} -28V${-30 - (x / 62) ** 2 * 52 - 14}`, coat.dark, 1.2);
      c.rect(-150, -30, 300, 8, c.vertical({ at: 0, color: coat.light }, { at: 1, color: coat.dark }));
    },
  },
} satisfies Record<string, Motif>;
