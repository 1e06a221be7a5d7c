import { type Canvas, short } from "../../../svg/canvas.ts";
import type { Hex } from "../../../svg/color.ts";
import type { Coat } from "../motif.ts";

/** The features that distinguish one sitting animal from another. */
export interface CritterLook {
  ears: "pointed" | "tall" | "round" | "floppy" | "long" | "fluffy" | "small";
  tail: "curl" | "bushy" | "up" | "tuft" | "none" | "thin";
  /** The shape of the lower face. */
  face: "cheeks" | "muzzle" | "long" | "snout" | "flat";
  head?: "round" | "wide" | "wedge";
  /** The colour of a mane behind the head. */
  mane?: Hex;
  /** Marks on head and body, in the dark or the ink colour. */
  marks?: "stripes" | "mask" | "patches" | "spots" | "none";
  ink?: Hex;
  whiskers?: boolean;
  collar?: boolean;
  eyes?: Hex;
}

/** An animal that sits and faces the viewer. */
export function drawCritter(c: Canvas, coat: Coat, look: CritterLook): void {
  const fur = c.lit(coat.main, 0.08);
  drawTail(c, coat, look);
  if (look.mane !== undefined) {
    c.circle(0, -64, 36, coat.own(look.mane));
    for (let i = 0; i < 14; i++) {
      const angle = (i / 14) * Math.PI * 2;
      c.circle(Math.cos(angle) * 31, -64 + Math.sin(angle) * 30, 9, coat.own(look.mane));
    }
  }
  c.ellipse(-17, -5, 12, 7, coat.dark);
  c.ellipse(17, -5, 12, 7, coat.dark);
  c.path("M-25 -4C-32 -28 -20 -56 0 -56C20 -56 32 -28 25 -4Q0 3 -25 -4Z", fur);
  c.path("M-13 -10C-16 -32 -9 -50 0 -50C9 -50 16 -32 13 -10Q0 -6 -13 -10Z", coat.soft, 0.92);
  if (look.marks === "stripes") {
    c.line(
      "M-27 -14q6 1 9 -1M-26 -24q6 2 9 0M-22 -34q5 2 7 1M27 -14q-6 1 -9 -1M26 -24q-6 2 -9 0M22 -34q-5 2 -7 1",
      look.ink ?? coat.dark,
      2.6,
    );
  }
  if (look.marks === "spots")
    for (const [x, y] of [
      [-19, -20],
      [20, -26],
      [-16, -36],
      [17, -12],
    ] as const)
      c.circle(x, y, 4, look.ink ?? coat.dark, 0.9);
  c.path("M-13 -28C-14 -14 -14 -8 -12 -2L-1 -2L-1 -26Z", fur);
  c.path("M13 -28C14 -14 14 -8 12 -2L1 -2L1 -26Z", fur);
  c.line("M0 -24V-4", coat.dark, 1.2, 0.7);
  const paws =
    look.marks === "patches"
      ? coat.ink
      : look.face === "cheeks" || look.head === "wedge"
        ? coat.soft
        : coat.light;
  c.ellipse(-7, -2.5, 7, 4, paws);
  c.ellipse(7, -2.5, 7, 4, paws);
  if (look.collar) {
    c.path("M-14 -49Q0 -40 14 -49L13 -44Q0 -35 -13 -44Z", coat.accent);
    c.circle(0, -39, 3, coat.own("#f4c542"));
  }
  drawEars(c, coat, look);
  drawHead(c, coat, look);
}

function drawTail(c: Canvas, coat: Coat, look: CritterLook): void {
  switch (look.tail) {
    case "curl":
      c.line("M20 -8C44 -6 46 -28 36 -38C31 -43 27 -38 31 -34", coat.dark, 7);
      return;
    case "bushy":
      c.path("M18 -4C30 4 52 -2 54 -26C56 -44 46 -54 42 -58C40 -44 34 -34 20 -22Z", c.lit(coat.main));
      c.path("M54 -26C56 -44 46 -54 42 -58C41 -50 39 -43 35 -38C42 -38 50 -34 54 -26Z", coat.soft);
      return;
    case "up":
      c.path("M20 -8C40 -12 48 -34 40 -62C58 -50 62 -4 22 -2Z", c.lit(coat.main));
      c.path("M40 -62C38 -76 56 -76 56 -60C56 -54 50 -50 46 -54", coat.light);
      return;
    case "tuft":
      c.line("M20 -6C40 -4 42 -22 40 -32", coat.main, 4.5);
      c.ellipse(40, -36, 6, 8, look.mane === undefined ? coat.dark : coat.own(look.mane));
      return;
    case "thin":
      c.line("M20 -6C42 2 50 -14 42 -24", coat.own("#e8a0a0"), 3);
      return;
    default:
  }
}

function drawEars(c: Canvas, coat: Coat, look: CritterLook): void {
  for (const side of [-1, 1]) {
    const at = (x: number) => short(x * side);
    switch (look.ears) {
      case "pointed":
        c.path(`M${at(23)} -70L${at(21)} -101Q${at(10)} -96 ${at(5)} -84Z`, coat.main);
        c.path(`M${at(19)} -76L${at(18.5)} -94Q${at(12)} -91 ${at(9)} -83Z`, coat.own("#f2b5ac"));
        break;
      case "tall":
        c.path(`M${at(25)} -70L${at(24)} -107Q${at(10)} -98 ${at(4)} -82Z`, coat.main);
        c.path(`M${at(24)} -92L${at(24)} -107Q${at(19)} -104 ${at(15)} -99Z`, coat.ink);
        c.path(`M${at(21)} -76L${at(20)} -93Q${at(13)} -90 ${at(9)} -82Z`, coat.soft);
        break;
      case "round":
        c.circle(18 * side, -83, 9.5, look.marks === "patches" ? coat.ink : coat.main);
        c.circle(18 * side, -82, 5.2, look.marks === "patches" ? coat.ink : coat.dark);
        break;
      case "fluffy":
        c.circle(25 * side, -80, 14, coat.main);
        c.circle(25 * side, -79, 9, coat.own("#f0bfc0"), 0.9);
        break;
      case "floppy":
        c.path(
          `M${at(14)} -86C${at(30)} -88 ${at(36)} -70 ${at(31)} -54C${at(24)} -52 ${at(20)} -62 ${at(18)} -72Z`,
          coat.dark,
        );
        break;
      case "long":
        c.ellipse(10 * side, -97, 6.6, 20, coat.main, 1, 9 * side);
        c.ellipse(10 * side, -96, 3.4, 15, coat.own("#f4b6b6"), 1, 9 * side);
        break;
      default:
        c.path(`M${at(21)} -78L${at(22)} -90Q${at(13)} -90 ${at(9)} -84Z`, coat.dark);
    }
  }
}

function drawHead(c: Canvas, coat: Coat, look: CritterLook): void {
  const fur = c.lit(coat.main, 0.07);
  if (look.head === "wedge")
    c.path(
      "M-22 -82Q0 -92 22 -82C26 -74 36 -66 34 -62C26 -52 10 -46 0 -42C-10 -46 -26 -52 -34 -62C-36 -66 -26 -74 -22 -82Z",
      fur,
    );
  else c.ellipse(0, -66, look.head === "wide" ? 29 : 25, look.head === "wide" ? 22 : 21, fur);
  if (look.marks === "patches")
    for (const side of [-1, 1]) c.ellipse(10 * side, -67, 6.5, 8, coat.ink, 1, 24 * side);
  if (look.marks === "mask") {
    c.path(
      "M-25 -68C-16 -76 -6 -68 0 -68C6 -68 16 -76 25 -68C24 -58 12 -58 0 -64C-12 -58 -24 -58 -25 -68Z",
      look.ink ?? coat.ink,
      0.92,
    );
  }
  if (look.marks === "stripes")
    c.line(
      "M0 -86V-78M-6 -85l1.5 6M6 -85l-1.5 6M-25 -68l7 1.4M-23 -60l6.5 -1M25 -68l-7 1.4M23 -60l-6.5 -1",
      look.ink ?? coat.dark,
      2.4,
    );
  if (look.face === "cheeks") {
    c.path(
      "M0 -42C-10 -46 -26 -52 -34 -62C-22 -66 -10 -64 -4 -56Q0 -62 4 -56C10 -64 22 -66 34 -62C26 -52 10 -46 0 -42Z",
      coat.soft,
    );
  } else if (look.face === "flat") {
    c.path("M0 -80C14 -86 24 -74 20 -62C16 -50 -16 -50 -20 -62C-24 -74 -14 -86 0 -80Z", coat.soft, 0.95);
  }
  drawFace(c, coat, look);
}

function drawFace(c: Canvas, coat: Coat, look: CritterLook): void {
  const eyeY = look.head === "wedge" ? -67 : -69;
  const apart = look.marks === "patches" ? 9.5 : 10.5;
  for (const side of [-1, 1]) {
    if (look.eyes !== undefined) c.ellipse(apart * side, eyeY, 4.4, 4.6, coat.own(look.eyes));
    c.ellipse(
      apart * side,
      eyeY,
      look.eyes === undefined ? 3.1 : 2.2,
      look.eyes === undefined ? 3.7 : 4.2,
      look.marks === "patches" ? "#15151c" : coat.ink,
    );
    c.circle(apart * side + 1.1, eyeY - 1.4, 1.1, "#ffffff", 0.95);
  }
  switch (look.face) {
    case "cheeks":
      c.ellipse(0, -46, 4.2, 3.2, coat.ink);
      return;
    case "snout":
      c.ellipse(0, -58, 10, 7.4, coat.own("#f08fa0"));
      c.ellipse(-3.4, -58, 1.6, 2.6, coat.own("#a34f60"));
      c.ellipse(3.4, -58, 1.6, 2.6, coat.own("#a34f60"));
      return;
    case "long":
      c.ellipse(0, -56, 12, 10.5, coat.soft);
      c.ellipse(0, -61, 5.4, 4, coat.ink);
      c.line("M0 -57v4M-6 -52q3 3 6 -1q3 4 6 1", coat.ink, 1.5);
      c.path("M-3.4 -49.6Q0 -40 3.8 -49.6Q0 -51 -3.4 -49.6Z", coat.own("#ee7c86"));
      return;
    case "flat":
      c.ellipse(0, -60, 5, look.ears === "fluffy" ? 8 : 3, coat.ink);
      c.line("M-6 -52q6 4 12 0", coat.ink, 1.5);
      return;
    default:
      c.ellipse(0, -57, 10, 7.4, coat.soft);
      c.path(
        "M-3.4 -61.4h6.8Q3 -58 0 -57Q-3 -58 -3.4 -61.4Z",
        look.whiskers ? coat.own("#e8808a") : coat.ink,
      );
      c.line("M0 -57v2.4M-5 -53.6q2.6 2 5 -1q2.4 3 5 1", coat.ink, 1.3);
  }
  if (look.whiskers) c.line("M-13 -58l-17 -3M-13 -56l-17 2M13 -58l17 -3M13 -56l17 2", coat.ink, 0.8, 0.75);
}
