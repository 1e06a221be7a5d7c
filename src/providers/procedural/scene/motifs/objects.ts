import type { Motif } from "./motif.ts";

/** Household things. */
export const OBJECTS = {
  book: {
    words: "book novel diary notebook encyclopedia story dictionary magazine",
    colors: ["#b8402f", "#2f5f9a", "#3f7f5a"],
    realm: "ground",
    size: 0.62,
    wide: 1.6,
    draw: (c, coat) => {
      c.path(
        "M-78 -12L-70 -66C-44 -76 -18 -70 0 -58C18 -70 44 -76 70 -66L78 -12C46 -20 20 -14 0 -2C-20 -14 -46 -20 -78 -12Z",
        c.lit(coat.main, 0.1),
      );
      c.path("M-70 -18L-63 -70C-40 -78 -16 -72 0 -60V-8C-20 -20 -44 -24 -70 -18Z", coat.own("#f8f1de"));
      c.path("M70 -18L63 -70C40 -78 16 -72 0 -60V-8C20 -20 44 -24 70 -18Z", coat.own("#efe3c6"));
      c.line(
        "M-56 -60q22 -7 46 6M-58 -50q24 -7 48 6M-59 -40q24 -7 49 6M-61 -30q26 -7 51 6M56 -60q-22 -7 -46 6M58 -50q-24 -7 -48 6M59 -40q-24 -7 -49 6",
        coat.own("#a8977a"),
        1.8,
        0.8,
      );
      c.path("M22 -70L34 -72V-34L27 -40L20 -32Z", coat.accent);
    },
  },
  lamp: {
    words: "lamp lampshade bulb lightbulb chandelier",
    colors: ["#f0b53a", "#d9655a", "#5f9aa0"],
    realm: "ground",
    size: 0.95,
    wide: 0.7,
    home: "room",
    draw: (c, coat) => {
      c.circle(
        0,
        -62,
        60,
        c.radial({ at: 0.1, color: "#ffe6a0", opacity: 0.55 }, { at: 1, color: "#ffe6a0", opacity: 0 }),
      );
      c.ellipse(0, -3, 24, 5, coat.ink);
      c.path("M-5 -6C-12 -18 -12 -26 -4 -34V-56H4V-34C12 -26 12 -18 5 -6Z", c.lit(coat.own("#8a5a3c"), 0.14));
      c.path("M-20 -98H20L36 -52H-36Z", c.lit(coat.main, 0.12));
      c.path("M-36 -52H36L34 -57H-34Z", "#fff2c8", 0.8);
    },
  },
  clock: {
    words: "clock watch alarm time timepiece hourglass compass",
    colors: ["#d8503f", "#3f7fa0"],
    realm: "ground",
    size: 0.8,
    wide: 0.9,
    draw: (c, coat) => {
      c.line("M-24 -8L-32 0M24 -8L32 0", coat.ink, 6);
      c.circle(-24, -84, 14, coat.own("#e0b040"));
      c.circle(24, -84, 14, coat.own("#e0b040"));
      c.circle(0, -46, 44, c.lit(coat.main, 0.13));
      c.circle(0, -46, 35, coat.own("#fbf6ea"));
      for (let i = 0; i < 12; i++)
        c.circle(
          Math.sin((i * Math.PI) / 6) * 29,
          -46 - Math.cos((i * Math.PI) / 6) * 29,
          i % 3 === 0 ? 2.4 : 1.3,
          coat.ink,
        );
      c.line("M0 -46V-68M0 -46L15 -38", coat.ink, 3.6);
      c.circle(0, -46, 3.4, coat.accent);
    },
  },
  chair: {
    words: "chair armchair stool seat throne couch sofa bench furniture",
    colors: ["#2f8a8a", "#d98a3a", "#b0506a"],
    realm: "ground",
    size: 1,
    wide: 0.9,
    home: "room",
    draw: (c, coat) => {
      c.line("M-28 -20L-34 -1M28 -20L34 -1", coat.own("#6b4430"), 5);
      c.path("M-34 -92C-34 -104 34 -104 34 -92L38 -38H-38Z", c.lit(coat.main, 0.12));
      c.rect(-34, -46, 68, 20, coat.light, 8);
      c.rect(-48, -58, 18, 40, c.lit(coat.main, 0.1), 9);
      c.rect(30, -58, 18, 40, coat.dark, 9);
      c.rect(-38, -30, 76, 14, coat.dark, 5);
      for (const [x, y] of [
        [-13, -80],
        [13, -80],
        [0, -66],
      ] as const)
        c.circle(x, y, 2.6, coat.dark);
    },
  },
  camera: {
    words: "camera photograph polaroid lens",
    colors: ["#3f4658", "#a8623c"],
    realm: "ground",
    size: 0.62,
    wide: 1.4,
    draw: (c, coat) => {
      c.path("M-22 -76L-14 -92H18L26 -76Z", coat.dark);
      c.rect(-60, -78, 120, 78, c.lit(coat.main, 0.12), 9);
      c.rect(-60, -56, 120, 34, coat.ink, 0, 0.7);
      c.circle(2, -39, 33, coat.own("#c9ced8"));
      c.circle(2, -39, 27, coat.own("#1f2635"));
      c.circle(2, -39, 17, coat.own("#3f6fa8"));
      c.ellipse(-6, -47, 6, 4.4, "#ffffff", 0.65, -30);
      c.rect(36, -72, 16, 9, coat.own("#f4e6b0"), 2);
      c.circle(-46, -67, 4.4, coat.accent);
    },
  },
  guitar: {
    words: "guitar violin cello ukulele instrument banjo music piano band",
    colors: ["#c8783a", "#a8402f"],
    realm: "ground",
    size: 1.1,
    wide: 0.5,
    draw: (c, coat) => {
      c.place({ rotate: 14, y: -2 }, () => {
        c.rect(-4, -92, 8, 52, coat.own("#5a3a2a"));
        c.rect(-7, -103, 14, 15, coat.own("#3f2a22"), 3);
        c.path(
          "M0 -58C14 -58 20 -50 15 -42C12 -36 26 -32 26 -16C26 -4 14 0 0 0C-14 0 -26 -4 -26 -16C-26 -32 -12 -36 -15 -42C-20 -50 -14 -58 0 -58Z",
          c.lit(coat.main, 0.15),
        );
        c.circle(0, -34, 8, coat.own("#3a241c"));
        c.rect(-10, -14, 20, 4, coat.own("#3a241c"), 1);
        c.line("M-2.4 -94V-12M0 -94V-12M2.4 -94V-12", coat.own("#f4ead2"), 0.8);
        for (const y of [-100, -95]) c.line(`M-10 ${y}h3M7 ${y}h3`, coat.own("#d9ced0"), 2.4);
      });
    },
  },
  umbrella: {
    words: "umbrella parasol",
    colors: ["#d8342c", "#f2b52c", "#3f7fc0"],
    realm: "ground",
    size: 1,
    wide: 1,
    draw: (c, coat) => {
      c.line("M0 -84V-10C0 4 18 2 16 -8", coat.own("#6b4430"), 3.6);
      c.path(
        "M-52 -46C-50 -86 -22 -96 0 -96C22 -96 50 -86 52 -46C44 -54 34 -54 26 -46C18 -54 8 -54 0 -46C-8 -54 -18 -54 -26 -46C-34 -54 -44 -54 -52 -46Z",
        c.lit(coat.main, 0.13),
      );
      c.path(
        "M0 -96C-18 -84 -26 -66 -26 -46C-18 -54 -8 -54 0 -46C8 -54 18 -54 26 -46C26 -66 18 -84 0 -96Z",
        coat.light,
        0.65,
      );
      c.line("M0 -96V-102", coat.ink, 3);
    },
  },
  laptop: {
    words: "laptop computer screen monitor keyboard television tv website dashboard",
    colors: ["#3a4258"],
    realm: "ground",
    size: 0.75,
    wide: 1.3,
    home: "room",
    draw: (c, coat) => {
      c.path("M-58 -88H58C61 -88 62 -86 62 -84V-14H-62V-84C-62 -86 -61 -88 -58 -88Z", coat.main);
      c.rect(
        -55,
        -81,
        110,
        61,
        c.vertical({ at: 0, color: coat.own("#4f7fe0") }, { at: 1, color: coat.own("#f29ab0") }),
        2,
      );
      c.path("M-55 -20V-36L-28 -58L-6 -36L12 -50L55 -26V-20Z", coat.own("#2f3a6b"), 0.8);
      c.circle(28, -64, 8, "#fff4c8");
      c.path(
        "M-76 -12H76L66 0H-66Z",
        c.vertical({ at: 0, color: coat.own("#c9ced8") }, { at: 1, color: coat.own("#8f97a6") }),
      );
      c.rect(-14, -11, 28, 4, coat.own("#9aa3b0"), 2);
    },
  },
  phone: {
    words: "phone smartphone tablet iphone mobile app",
    colors: ["#2f3648", "#d9a0a8"],
    realm: "ground",
    size: 0.9,
    wide: 0.55,
    draw: (c, coat) => {
      c.rect(-25, -100, 50, 100, coat.main, 9);
      c.rect(
        -21,
        -94,
        42,
        88,
        c.vertical({ at: 0, color: coat.own("#6a7ff0") }, { at: 1, color: coat.own("#f5a0b8") }),
        5,
      );
      for (const [i, color] of ["#f2c02c", "#4ac08a", "#e4503f", "#5fb0e8", "#ffffff", "#a36bd8"].entries())
        c.rect(-16 + (i % 3) * 12, -66 + Math.floor(i / 3) * 14, 8, 8, coat.own(color), 2);
      c.rect(-8, -92, 16, 4, coat.ink, 2);
      c.rect(-9, -11, 18, 2, "#ffffff", 1, 0.8);
    },
  },
} satisfies Record<string, Motif>;
