import type { Canvas } from "../../../svg/canvas.ts";
import type { Coat, Motif } from "../motif.ts";

/** A small standing bird. */
function drawSongbird(c: Canvas, coat: Coat): void {
  c.line("M-4 -14V-1M8 -14V-1M-9 -0.5h10M3 -0.5h10", coat.own("#c9762c"), 2.6);
  c.path("M-26 -34L-62 -22L-58 -32L-64 -38L-22 -50Z", coat.dark);
  c.path(
    "M-32 -42C-28 -64 -8 -66 2 -76C8 -92 34 -94 40 -74C46 -54 36 -14 4 -12C-18 -11 -30 -26 -32 -42Z",
    c.lit(coat.main, 0.09),
  );
  c.path("M40 -62C42 -38 28 -14 4 -12C14 -26 18 -50 30 -58Z", coat.soft, 0.92);
  c.path("M-34 -40C-20 -64 6 -62 14 -50C10 -30 -10 -24 -36 -26C-30 -30 -28 -32 -34 -40Z", coat.dark);
  c.line("M-24 -37C-14 -47 -2 -50 6 -47M-28 -30C-16 -36 -6 -37 4 -38", coat.light, 2, 0.7);
  c.path("M39 -79L56 -72L39 -68Z", coat.own("#f0a02c"));
  c.circle(27, -76, 3.6, coat.ink);
  c.circle(28.2, -77.4, 1.2, "#ffffff");
}

/** A flying bird with spread wings, seen from below and from the side. */
function drawFlier(c: Canvas, coat: Coat): void {
  c.path(
    "M-8 -2C-20 -34 -44 -46 -74 -44C-66 -38 -66 -34 -58 -32C-60 -26 -52 -24 -46 -20C-44 -12 -28 2 -8 8Z",
    coat.dark,
  );
  c.path("M-44 16L-68 22L-62 28L-70 36L-34 28Z", coat.dark);
  c.path("M-48 20C-30 2 0 -12 28 -14C46 -18 54 -6 48 2C34 20 -16 34 -48 26Z", c.lit(coat.main, 0.08));
  c.path("M24 -13C46 -20 56 -6 48 2C42 8 32 8 26 4Z", coat.soft);
  c.path("M47 -8C56 -8 60 -4 58 2C55 0 52 1 49 1Z", coat.own("#f0b02c"));
  c.circle(40, -7, 2.3, coat.ink);
  c.path(
    "M-14 2C-10 -38 14 -56 44 -58C38 -50 40 -46 32 -42C36 -36 28 -32 24 -28C24 -16 16 2 2 12Z",
    c.lit(coat.main, 0.1),
  );
  c.line("M4 -6C6 -26 18 -42 32 -42M8 -4C12 -18 18 -26 24 -28", coat.dark, 2, 0.7);
}

function drawWader(c: Canvas, coat: Coat): void {
  c.line("M-4 -46V-1M6 -46L6 -24L-4 -16", coat.own("#e0808a"), 2.6);
  c.path("M-36 -52C-24 -66 6 -72 22 -58C16 -42 -14 -40 -36 -52Z", c.lit(coat.main, 0.09));
  c.path("M-40 -50C-28 -60 -6 -62 6 -56C-6 -48 -24 -46 -40 -50Z", coat.dark);
  c.line("M18 -58C34 -62 30 -74 24 -82C18 -90 24 -97 31 -95", coat.main, 6.4);
  c.circle(31, -93, 6, coat.main);
  c.path("M34 -97C44 -96 46 -88 42 -82C40 -86 37 -89 33 -89Z", coat.ink);
  c.circle(31, -94, 1.7, coat.ink);
}

function drawOwl(c: Canvas, coat: Coat): void {
  c.path("M-26 -86L-30 -102L-10 -92ZM26 -86L30 -102L10 -92Z", coat.dark);
  c.path(
    "M-30 -70C-32 -100 32 -100 30 -70C38 -34 26 -4 0 -4C-26 -4 -38 -34 -30 -70Z",
    c.lit(coat.main, 0.09),
  );
  c.path("M-18 -50C-18 -62 18 -62 18 -50C22 -26 14 -8 0 -8C-14 -8 -22 -26 -18 -50Z", coat.soft, 0.92);
  c.line(
    "M-10 -44q4 4 8 0M2 -44q4 4 8 0M-14 -35q4 4 8 0M-4 -35q4 4 8 0M6 -35q4 4 8 0M-10 -26q4 4 8 0M2 -26q4 4 8 0M-4 -17q4 4 8 0",
    coat.main,
    1.9,
  );
  c.path(
    "M-30 -60C-44 -40 -36 -16 -22 -10C-22 -28 -22 -46 -30 -60ZM30 -60C44 -40 36 -16 22 -10C22 -28 22 -46 30 -60Z",
    coat.dark,
  );
  for (const x of [-12, 12]) {
    c.circle(x, -74, 13.5, coat.soft);
    c.circle(x, -74, 8.6, coat.own("#f4b62c"));
    c.circle(x, -74, 5.2, "#17151c");
    c.circle(x + 2, -76.4, 1.8, "#ffffff");
  }
  c.path("M-4 -68L4 -68L0 -58Z", coat.own("#e08a2c"));
  c.line("M-10 -4v4M-6 -4v4M6 -4v4M10 -4v4", coat.own("#e08a2c"), 3);
}

function drawPenguin(c: Canvas, coat: Coat): void {
  c.ellipse(-11, -3, 11, 4.4, coat.own("#f0972c"));
  c.ellipse(11, -3, 11, 4.4, coat.own("#f0972c"));
  c.path(
    "M-26 -60C-42 -46 -44 -30 -40 -18C-32 -26 -28 -34 -24 -42ZM26 -60C42 -46 44 -30 40 -18C32 -26 28 -34 24 -42Z",
    coat.dark,
  );
  c.path(
    "M-24 -74C-24 -106 24 -106 24 -74C34 -40 30 -4 0 -4C-30 -4 -34 -40 -24 -74Z",
    c.lit(coat.main, 0.08),
  );
  c.path(
    "M0 -82C-10 -94 -20 -84 -17 -70C-26 -36 -20 -8 0 -8C20 -8 26 -36 17 -70C20 -84 10 -94 0 -82Z",
    coat.soft,
  );
  c.circle(-8, -80, 2.9, "#17151c");
  c.circle(8, -80, 2.9, "#17151c");
  c.path("M-6 -75Q0 -78 6 -75L0 -66Z", coat.own("#f0972c"));
  c.circle(-13, -71, 3, coat.own("#f6a9a4"), 0.8);
  c.circle(13, -71, 3, coat.own("#f6a9a4"), 0.8);
}

function drawFloating(c: Canvas, coat: Coat): void {
  c.path(
    "M-44 -10C-52 -26 -30 -34 -14 -30C4 -26 14 -30 18 -40C10 -52 12 -72 28 -74C42 -75 48 -62 42 -52C38 -44 48 -36 44 -22C38 -2 -32 2 -44 -10Z",
    c.lit(coat.main, 0.08),
  );
  c.path("M-48 -16C-40 -34 -8 -34 8 -26C4 -10 -22 -6 -48 -16Z", coat.dark);
  c.path("M44 -64L58 -60Q54 -54 42 -55Z", coat.own("#f0972c"));
  c.circle(33, -63, 2.6, coat.ink);
  c.line("M-58 0h24M-20 2h44M38 0h20", "#ffffff", 2, 0.6);
}

function drawRooster(c: Canvas, coat: Coat): void {
  c.line("M-4 -18V-1M8 -18V-1M-9 -1h10M3 -1h10", coat.own("#e0a02c"), 3);
  c.path("M-18 -40C-40 -44 -44 -78 -34 -92C-30 -80 -22 -78 -20 -86C-12 -74 -8 -56 -6 -46Z", coat.accent);
  c.path(
    "M-26 -44C-20 -54 4 -46 12 -60C14 -76 20 -88 30 -86C42 -84 40 -66 38 -52C36 -26 20 -14 2 -14C-18 -14 -30 -28 -26 -44Z",
    c.lit(coat.main, 0.08),
  );
  c.path("M-18 -42C-8 -50 12 -44 16 -34C8 -22 -10 -24 -18 -42Z", coat.dark);
  c.path("M20 -84C18 -96 26 -98 28 -92C30 -102 38 -98 36 -91C42 -96 44 -86 38 -82Z", coat.own("#d8342c"));
  c.path("M37 -66C44 -64 42 -52 36 -54Z", coat.own("#d8342c"));
  c.path("M39 -78L51 -73L39 -69Z", coat.own("#f0b02c"));
  c.circle(31, -77, 2.5, coat.ink);
}

export const BIRDS = {
  bird: {
    words: "bird sparrow robin finch songbird bluebird canary hummingbird wren nightingale kingfisher",
    colors: ["#3f7fd0", "#d9553f", "#f0b52c", "#2f9a8f"],
    realm: "ground",
    size: 0.6,
    wide: 1.15,
    outdoors: true,
    draw: drawSongbird,
  },
  parrot: {
    words: "parrot macaw cockatoo parakeet toucan",
    colors: ["#d8342c", "#2fa04a"],
    realm: "ground",
    size: 0.75,
    wide: 1.15,
    home: "forest",
    outdoors: true,
    draw: drawSongbird,
  },
  crow: {
    words: "crow raven magpie blackbird",
    colors: ["#33333f"],
    realm: "ground",
    size: 0.65,
    wide: 1.15,
    outdoors: true,
    draw: drawSongbird,
  },
  eagle: {
    words: "eagle hawk falcon phoenix dove pigeon swallow crane albatross seagull gull",
    colors: ["#8a5a34", "#c9bfae", "#6b7484"],
    realm: "air",
    size: 0.8,
    wide: 1.4,
    home: "sky",
    draw: drawFlier,
  },
  owl: {
    words: "owl owlet",
    colors: ["#a0713f", "#8b7d70"],
    realm: "ground",
    size: 0.8,
    wide: 0.75,
    home: "forest",
    outdoors: true,
    draw: drawOwl,
  },
  penguin: {
    words: "penguin puffin",
    colors: ["#2c3448"],
    realm: "ground",
    size: 0.85,
    wide: 0.85,
    outdoors: true,
    draw: drawPenguin,
  },
  flamingo: {
    words: "flamingo heron stork ostrich ibis egret",
    colors: ["#f58fa6"],
    realm: "ground",
    size: 1.1,
    wide: 0.8,
    home: "sea",
    draw: drawWader,
  },
  duck: {
    words: "duck duckling goose mallard",
    colors: ["#f4c838", "#e9e2d2"],
    realm: "water",
    size: 0.6,
    wide: 1.1,
    home: "sea",
    draw: (c, coat) => c.place({ y: 36 }, () => drawFloating(c, coat)),
  },
  swan: {
    words: "swan cygnet",
    colors: ["#f7f6f2"],
    realm: "water",
    size: 0.75,
    wide: 1.1,
    home: "sea",
    draw: (c, coat) => c.place({ y: 36 }, () => drawFloating(c, coat)),
  },
  rooster: {
    words: "rooster chicken hen cock chick turkey peacock",
    colors: ["#f1e6d2", "#c8692f"],
    realm: "ground",
    size: 0.8,
    wide: 1,
    outdoors: true,
    draw: drawRooster,
  },
} satisfies Record<string, Motif>;
