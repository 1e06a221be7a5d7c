import type { Canvas } from "../../svg/canvas.ts";
import type { Coat, Motif } from "./motif.ts";

const GLASS = "#bfe3f2";

function wheel(c: Canvas, coat: Coat, x: number, y: number, r: number): void {
  c.circle(x, y, r, coat.ink);
  c.circle(x, y, r * 0.58, coat.own("#c9ced8"));
  c.circle(x, y, r * 0.2, coat.own("#6d7482"));
}

function drawCar(c: Canvas, coat: Coat): void {
  c.path("M-38 -38C-30 -64 -22 -68 2 -68C22 -68 30 -58 42 -40Z", c.lit(coat.main, 0.1));
  c.path("M-31 -40C-26 -58 -20 -62 -3 -62V-40ZM3 -62C20 -62 25 -54 34 -40H3Z", coat.own(GLASS));
  c.path("M-24 -44L-14 -60M8 -44L16 -58", "#ffffff", 0.5);
  c.path(
    "M-72 -14C-74 -34 -66 -40 -40 -41H42C62 -38 72 -34 73 -16C73 -10 70 -9 66 -9H-66C-70 -9 -72 -10 -72 -14Z",
    c.lit(coat.main, 0.1),
  );
  c.path("M-72 -20H73V-14C73 -10 70 -9 66 -9H-66C-70 -9 -72 -10 -72 -14Z", coat.dark, 0.6);
  c.rect(-74, -30, 6, 9, coat.own("#e4483c"), 2);
  c.ellipse(68, -28, 4.4, 5.4, coat.own("#fff2b0"));
  c.line("M0 -40V-14M6 -33h8", coat.dark, 1.6);
  wheel(c, coat, -42, -11, 14);
  wheel(c, coat, 42, -11, 14);
}

function drawBus(c: Canvas, coat: Coat): void {
  c.rect(-80, -76, 160, 66, c.lit(coat.main, 0.08), 10);
  c.rect(-80, -32, 160, 7, coat.soft);
  for (const x of [-70, -42, -14, 14]) c.rect(x, -66, 24, 25, coat.own(GLASS), 3);
  c.rect(46, -66, 28, 25, coat.own(GLASS), 3);
  c.rect(46, -40, 16, 30, coat.dark, 2);
  c.circle(75, -20, 4, coat.own("#fff2b0"));
  wheel(c, coat, -46, -10, 13);
  wheel(c, coat, 34, -10, 13);
}

function drawTrain(c: Canvas, coat: Coat): void {
  for (const [x, y, r] of [
    [44, -104, 9],
    [28, -114, 12],
    [8, -122, 14],
  ] as const)
    c.circle(x, y, r, "#eef1f4", 0.8);
  c.rect(40, -88, 12, 28, coat.ink, 2);
  c.rect(37, -92, 18, 7, coat.dark, 2);
  c.rect(10, -76, 12, 16, coat.own("#e0b030"), 5);
  c.rect(
    -22,
    -62,
    88,
    34,
    c.vertical({ at: 0, color: coat.light }, { at: 0.4, color: coat.main }, { at: 1, color: coat.dark }),
    14,
  );
  c.rect(-62, -88, 44, 62, c.lit(coat.main, 0.08), 3);
  c.rect(-68, -94, 56, 8, coat.dark, 3);
  c.rect(-54, -78, 28, 22, coat.own(GLASS), 2);
  c.rect(-66, -30, 134, 9, coat.ink, 2);
  c.path("M66 -24L84 -4H62Z", coat.own("#c9ced8"));
  c.circle(66, -45, 7, coat.own("#fff2b0"));
  for (const x of [-48, -20, 8, 36, 56]) wheel(c, coat, x, -12, x === 56 ? 10 : 12);
  c.line("M-48 -12H36", coat.own("#e0b030"), 4);
}

function drawBicycle(c: Canvas, coat: Coat): void {
  for (const x of [-38, 38]) {
    c.line(`M${x - 25} -26a25 25 0 1 0 50 0a25 25 0 1 0 -50 0`, coat.ink, 3.6);
    c.line(
      `M${x} -51V-1M${x - 25} -26h50M${x - 17} -43l34 34M${x + 17} -43l-34 34`,
      coat.own("#9aa3b0"),
      0.8,
    );
  }
  c.line("M-38 -26L-18 -62H24L-4 -26H-38M-4 -26L-20 -68M38 -26L22 -72", coat.main, 4.6);
  c.line("M22 -72C24 -80 34 -80 38 -76", coat.ink, 4);
  c.line("M-30 -70H-10", coat.ink, 6);
  c.circle(-4, -26, 6, coat.own("#6d7482"));
}

function drawPlane(c: Canvas, coat: Coat): void {
  c.path("M-2 -4L-34 -40H-22L24 -6Z", coat.dark);
  c.path("M-58 -2L-74 -30H-62L-42 -6Z", coat.accent);
  c.path("M-70 -2C-40 -16 30 -18 58 -10C74 -6 74 4 58 8C30 14 -40 14 -70 2Z", c.lit(coat.main, 0.12));
  c.path("M66 -6C72 -4 72 2 66 5C62 2 60 -3 62 -7Z", coat.own(GLASS));
  for (let x = -40; x <= 44; x += 12) c.circle(x, -4, 2.7, coat.own("#4f8fc0"));
  c.path("M-6 4L-40 44H-24L28 8Z", c.lit(coat.accent, 0.1));
}

function drawRocket(c: Canvas, coat: Coat): void {
  c.path("M-9 28C-14 46 -4 52 0 66C4 52 14 46 9 28Z", coat.own("#ff8a2c"));
  c.path("M-5 28C-7 40 -2 44 0 52C2 44 7 40 5 28Z", coat.own("#ffe36a"));
  c.path(
    "M-16 4C-34 12 -34 28 -30 36C-24 28 -18 26 -12 26ZM16 4C34 12 34 28 30 36C24 28 18 26 12 26Z",
    coat.accent,
  );
  c.path("M0 -60C24 -40 24 0 12 28H-12C-24 0 -24 -40 0 -60Z", c.split(coat.main, coat.dark, 0.58));
  c.path(
    "M0 -60C10 -52 16 -42 18 -32Q0 -24 -18 -32C-16 -42 -10 -52 0 -60Z",
    c.split(coat.accent, coat.own("#7a1f2f"), 0.58),
  );
  c.circle(0, -12, 9.5, coat.own("#8f9bb0"));
  c.circle(0, -12, 6.8, coat.own("#9fe0f5"));
  c.path("M-4 -15q2 -3 5 -3q-4 3 -4 6Z", "#ffffff", 0.8);
  c.rect(-9, 22, 18, 6, coat.ink, 2);
}

function drawBalloon(c: Canvas, coat: Coat): void {
  c.line("M-14 16L-7 36M14 16L7 36M0 20V36", coat.own("#6b4a34"), 1.3);
  c.path("M0 -50C40 -50 44 -10 14 18H-14C-44 -10 -40 -50 0 -50Z", c.lit(coat.main, 0.13));
  c.path("M0 -50C16 -50 20 -10 6 18H-6C-20 -10 -16 -50 0 -50Z", coat.soft, 0.92);
  c.path(
    "M-12 -48C-30 -36 -30 -6 -12 18H-14C-44 -10 -34 -46 -12 -48ZM12 -48C30 -36 30 -6 12 18H14C44 -10 34 -46 12 -48Z",
    coat.dark,
  );
  c.rect(-9, 36, 18, 13, coat.own("#a8703c"), 3);
  c.rect(-10, 35, 20, 4, coat.own("#7d5030"), 2);
}

function drawSailboat(c: Canvas, coat: Coat): void {
  c.path("M-4 -52V22H-46C-34 0 -16 -28 -4 -52Z", c.lit(coat.soft, 0.08));
  c.path("M4 -48C28 -26 36 0 36 22H4Z", c.lit(coat.main, 0.1));
  c.line("M0 -58V28", coat.own("#6b4a34"), 3);
  c.path("M0 -60l14 4l-14 4Z", coat.accent);
  c.path("M-54 27H54C48 42 40 46 28 46H-30C-42 46 -50 38 -54 27Z", c.lit(coat.own("#9a5a34"), 0.1));
  c.path("M-54 27H54L52 32H-52Z", coat.soft);
  c.line("M-66 47h30M-24 49h52M40 47h26", "#ffffff", 2.4, 0.7);
}

function drawShip(c: Canvas, coat: Coat): void {
  for (const [x, y, r] of [
    [-26, -52, 7],
    [-40, -58, 9],
  ] as const)
    c.circle(x, y, r, "#eef1f4", 0.7);
  c.rect(-18, -44, 15, 30, c.split(coat.accent, coat.dark), 2);
  c.rect(10, -38, 15, 24, c.split(coat.accent, coat.dark), 2);
  c.rect(-44, -18, 86, 14, coat.soft, 3);
  c.rect(-54, -4, 106, 14, coat.own("#e9e4da"), 3);
  for (let x = -46; x < 48; x += 11) c.rect(x, -0.5, 6, 5.5, coat.own("#4f8fc0"), 1);
  c.path("M-76 8H80C76 28 66 40 54 40H-58C-70 40 -74 24 -76 8Z", c.lit(coat.main, 0.1));
  c.path("M-74 16H78L77 20H-74Z", coat.soft, 0.9);
  c.line("M-86 41h34M-40 43h70M44 41h40", "#ffffff", 2.4, 0.7);
}

export const VEHICLES = {
  car: {
    words: "car taxi automobile convertible jeep truck van beetle-car sedan racecar cadillac ferrari",
    colors: ["#d8402f", "#2f7fc0", "#f2b52c", "#3f9a7a"],
    realm: "ground",
    size: 0.62,
    wide: 2,
    draw: drawCar,
  },
  bus: {
    words: "bus tram trolley camper caravan ambulance",
    colors: ["#f2b52c", "#d8402f"],
    realm: "ground",
    size: 0.75,
    wide: 2,
    home: "city",
    draw: drawBus,
  },
  train: {
    words: "train locomotive railway subway metro",
    colors: ["#3f6f5a", "#a83a34"],
    realm: "ground",
    size: 0.9,
    wide: 1.6,
    home: "meadow",
    draw: drawTrain,
  },
  bicycle: {
    words: "bicycle bike cycle scooter motorcycle moped vespa",
    colors: ["#2f9aa0", "#d8503f"],
    realm: "ground",
    size: 0.7,
    wide: 1.6,
    draw: drawBicycle,
  },
  plane: {
    words: "plane airplane aeroplane jet aircraft airliner helicopter drone glider",
    colors: ["#f1f3f6"],
    realm: "air",
    size: 0.75,
    wide: 1.6,
    home: "sky",
    draw: drawPlane,
  },
  rocket: {
    words: "rocket spaceship spacecraft shuttle starship missile satellite ufo",
    colors: ["#f1f3f6"],
    realm: "air",
    size: 1,
    wide: 0.7,
    home: "space",
    draw: (c, coat) => c.place({ rotate: 24, scale: 0.92 }, () => drawRocket(c, coat)),
  },
  balloon: {
    words: "balloon hot-air airship zeppelin",
    colors: ["#e4503f", "#f2a52c", "#3f8fc0"],
    realm: "air",
    size: 0.85,
    wide: 0.8,
    home: "sky",
    draw: drawBalloon,
  },
  sailboat: {
    words: "boat sailboat yacht canoe kayak gondola dinghy sail rowboat raft",
    colors: ["#e8563f", "#f2c35a", "#3f8fb0"],
    realm: "water",
    size: 0.85,
    wide: 1.1,
    home: "sea",
    draw: drawSailboat,
  },
  ship: {
    words: "ship ferry cruise steamer vessel galleon submarine tanker",
    colors: ["#2f4a6f", "#8a2f2f"],
    realm: "water",
    size: 0.9,
    wide: 1.7,
    home: "sea",
    draw: drawShip,
  },
} satisfies Record<string, Motif>;
