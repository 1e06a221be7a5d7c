import type { Motif } from "./motif.ts";

/** Things that stand on a table. */
export const TABLEWARE = {
  cup: {
    words: "cup mug coffee tea cappuccino latte espresso cocoa teacup coffee-cup",
    colors: ["#d9553f", "#3f8f9a", "#f0e6d4"],
    realm: "ground",
    size: 0.7,
    wide: 1.2,
    draw: (c, coat) => {
      c.line("M-14 -78C-22 -88 -6 -92 -14 -104M8 -78C0 -88 16 -92 8 -104", "#ffffff", 3.4, 0.6);
      c.ellipse(0, -3, 58, 7, coat.soft);
      c.ellipse(0, -4.6, 40, 4, coat.dark, 0.4);
      c.line("M36 -56C60 -60 60 -24 32 -24", coat.main, 7.4);
      c.path("M-40 -66H40C40 -26 30 -6 16 -4H-16C-30 -6 -40 -26 -40 -66Z", c.lit(coat.main, 0.13));
      c.ellipse(0, -66, 40, 8, coat.light);
      c.ellipse(0, -65, 35, 6, coat.own("#5a3524"));
      c.ellipse(-4, -66, 16, 2.4, coat.own("#a8744a"), 0.8);
    },
  },
  teapot: {
    words: "teapot kettle pot",
    colors: ["#3f8fa8", "#c8657a"],
    realm: "ground",
    size: 0.75,
    wide: 1.4,
    draw: (c, coat) => {
      c.line("M-38 -56C-70 -66 -68 -16 -36 -20", coat.dark, 7);
      c.path("M34 -34C52 -34 50 -66 68 -72L72 -62C60 -52 64 -16 34 -16Z", coat.main);
      c.path(
        "M-44 -34C-44 -66 44 -66 44 -34C44 -10 28 -2 20 -2H-20C-28 -2 -44 -10 -44 -34Z",
        c.lit(coat.main, 0.14),
      );
      c.path("M-26 -58C-22 -74 22 -74 26 -58Z", coat.light);
      c.circle(0, -76, 5.6, coat.accent);
      c.line("M-40 -30Q0 -20 40 -30", coat.soft, 3, 0.9);
    },
  },
  bottle: {
    words: "bottle wine whiskey beer perfume flask potion jar champagne",
    colors: ["#2f7a5a", "#7a2f3f", "#c9822c"],
    realm: "ground",
    size: 1.05,
    wide: 0.42,
    draw: (c, coat) => {
      c.path(
        "M-7 -96H7V-70C7 -60 20 -58 20 -44V-6C20 -2 17 0 13 0H-13C-17 0 -20 -2 -20 -6V-44C-20 -58 -7 -60 -7 -70Z",
        c.lit(coat.main, 0.15),
      );
      c.rect(-8.6, -101, 17, 13, coat.accent, 2);
      c.rect(-20, -40, 40, 26, coat.own("#f4ead2"));
      c.line("M-12 -32H12M-8 -26H8M-10 -20H10", coat.own("#8a6a4a"), 1.8);
      c.path("M-14 -46C-14 -54 -8 -58 -5 -62V-90H-3V-60C-6 -56 -10 -52 -10 -46Z", "#ffffff", 0.4);
    },
  },
  glass: {
    words: "glass cocktail juice lemonade water-glass martini smoothie milk drink goblet",
    colors: ["#f4a02c", "#e4607a"],
    realm: "ground",
    size: 0.85,
    wide: 0.6,
    draw: (c, coat) => {
      c.line("M12 -66L28 -104", coat.accent, 4);
      c.path("M-28 -84H28L22 -4C22 0 -22 0 -22 -4Z", "#eaf6fb", 0.55);
      c.path("M-25 -64H25L20.6 -7C20 -4 -20 -4 -20.6 -7Z", c.lit(coat.main, 0.1), 0.95);
      c.rect(-16, -58, 15, 15, "#ffffff", 3, 0.5);
      c.rect(2, -50, 15, 15, "#ffffff", 3, 0.4);
      c.circle(-26, -84, 13, coat.own("#f7d92c"));
      c.circle(-26, -84, 9.4, coat.own("#fbeb8a"));
      c.line("M-26 -92V-76M-34 -84H-18", coat.own("#f7d92c"), 1.4);
    },
  },
  vase: {
    words: "vase pottery ceramic urn amphora pitcher jug",
    colors: ["#4a7fb0", "#c8694a"],
    realm: "ground",
    size: 0.95,
    wide: 0.7,
    draw: (c, coat) => {
      for (const [turn, color, reach] of [
        [-30, "#f2708f", 48],
        [28, "#f4b53a", 46],
        [0, "#e4503f", 58],
        [-13, "#f5f0e6", 42],
        [14, "#a36bd8", 40],
      ] as const) {
        c.place({ y: -46, rotate: turn }, () => {
          c.line(`M0 0V${-reach}`, coat.own("#3f8f4a"), 2.4);
          for (let i = 0; i < 5; i++)
            c.circle(Math.cos(i * 1.257) * 5.4, -reach + Math.sin(i * 1.257) * 5.4, 5, coat.own(color));
          c.circle(0, -reach, 3.6, coat.own("#f6c22c"));
        });
      }
      c.path(
        "M-11 -50H11C11 -42 28 -36 26 -20C25 -8 16 0 12 0H-12C-16 0 -25 -8 -26 -20C-28 -36 -11 -42 -11 -50Z",
        c.lit(coat.main, 0.15),
      );
      c.line("M-25 -24Q0 -16 25 -24", coat.soft, 3, 0.85);
    },
  },
  candle: {
    words: "candle candlelight candlestick lantern lamplight flame torch",
    colors: ["#f3e6cc", "#d8607a"],
    realm: "ground",
    size: 0.8,
    wide: 0.6,
    draw: (c, coat) => {
      c.circle(
        0,
        -84,
        46,
        c.radial({ at: 0, color: "#ffc861", opacity: 0.6 }, { at: 1, color: "#ffc861", opacity: 0 }),
      );
      c.ellipse(0, -4, 34, 6, coat.own("#b8863a"));
      c.rect(-16, -64, 32, 60, c.lit(coat.main, 0.13), 5);
      c.path(
        "M-16 -60C-16 -66 16 -66 16 -60C16 -46 10 -44 10 -52C10 -56 4 -58 4 -48C4 -40 -4 -42 -4 -52C-6 -58 -16 -46 -16 -60Z",
        coat.soft,
      );
      c.line("M0 -64V-72", coat.ink, 2);
      c.path("M0 -100C11 -84 10 -70 0 -70C-10 -70 -11 -84 0 -100Z", coat.own("#ff9c2c"));
      c.path("M0 -88C6 -80 5 -72 0 -72C-5 -72 -6 -80 0 -88Z", coat.own("#fff0a8"));
    },
  },
} satisfies Record<string, Motif>;
