import type { Canvas } from "../../svg/canvas.ts";
import type { Hex } from "../../svg/color.ts";
import type { Coat, Motif } from "./motif.ts";

interface Look {
  hair: "short" | "long" | "bun" | "bald" | "curly";
  skin: Hex;
  hairColor: Hex;
  hat?: "wizard" | "helmet" | "crown" | "chef" | "pirate" | "cowboy";
  beard?: boolean;
  glasses?: boolean;
}

/** A person's head and shoulders, facing the viewer. */
function drawBust(c: Canvas, coat: Coat, look: Look): void {
  const skin = coat.own(look.skin);
  const hair = coat.own(look.hairColor);
  if (look.hair === "long")
    c.path(
      "M-27 -66C-30 -104 30 -104 27 -66C30 -40 34 -26 28 -18C10 -12 -10 -12 -28 -18C-34 -26 -30 -40 -27 -66Z",
      hair,
    );
  if (look.hair === "bun") c.circle(0, -98, 11, hair);
  if (look.hair === "curly")
    for (const [x, y] of [
      [-22, -76],
      [-24, -62],
      [-14, -90],
      [0, -95],
      [14, -90],
      [22, -76],
      [24, -62],
    ] as const)
      c.circle(x, y, 11, hair);
  c.path("M-46 0C-46 -22 -30 -30 -12 -32L12 -32C30 -30 46 -22 46 0Z", c.lit(coat.main, 0.1));
  c.path("M-14 -32L0 -18L14 -32L9 -35H-9Z", coat.soft);
  c.path("M-8 -44H8V-32Q0 -24 -8 -32Z", c.lit(skin, 0.12));
  c.circle(-22, -63, 4.6, skin);
  c.circle(22, -63, 4.6, skin);
  c.path("M-21 -66C-22 -92 22 -92 21 -66C21 -48 12 -38 0 -38C-12 -38 -21 -48 -21 -66Z", c.lit(skin, 0.06));
  if (look.beard)
    c.path(
      "M-21 -62C-22 -34 -10 -24 0 -22C10 -24 22 -34 21 -62C16 -52 8 -54 0 -54C-8 -54 -16 -52 -21 -62Z",
      hair,
    );
  if (look.hair === "short")
    c.path(
      "M-23 -64C-27 -98 26 -100 24 -66C20 -74 18 -78 14 -80C4 -76 -8 -78 -16 -80C-19 -76 -21 -72 -23 -64Z",
      hair,
    );
  if (look.hair === "long" || look.hair === "bun" || look.hair === "curly")
    c.path("M-22 -62C-26 -96 26 -96 22 -62C18 -72 12 -80 2 -84C-6 -80 -18 -76 -22 -62Z", hair);
  for (const x of [-8.6, 8.6]) {
    c.circle(x, -63, 2.4, "#201a22");
    c.line(`M${x - 4} -70q4 -2.6 8 0`, hair, 1.7);
    c.circle(x * 1.5, -55, 3.6, coat.own("#ee8a80"), 0.4);
  }
  if (look.glasses)
    c.line(
      "M-15 -63a6.4 6.4 0 1 0 12.8 0a6.4 6.4 0 1 0 -12.8 0M2.2 -63a6.4 6.4 0 1 0 12.8 0a6.4 6.4 0 1 0 -12.8 0M-2.2 -63h4.4",
      coat.ink,
      1.6,
    );
  c.line("M0 -61q2.4 4 -0.6 6", coat.own("#a8655a"), 1.4, 0.8);
  c.path("M-6 -49Q0 -43 6 -49Q0 -47.6 -6 -49Z", coat.own("#b8443f"));
  drawHat(c, coat, look.hat);
}

function drawHat(c: Canvas, coat: Coat, hat: Look["hat"]): void {
  switch (hat) {
    case "wizard":
      c.path("M-22 -78C-10 -96 -6 -118 14 -128C10 -116 16 -98 22 -78Z", c.lit(coat.main, 0.12));
      c.ellipse(0, -78, 36, 7, coat.dark);
      c.path("M0 -104l2 5l5 0l-4 3l2 5l-5 -3l-5 3l2 -5l-4 -3l5 0Z", coat.own("#f4cf4a"));
      return;
    case "helmet":
      c.path("M-25 -54C-30 -104 30 -104 25 -54L18 -46V-66H-18V-46Z", c.lit(coat.own("#a9b4c4"), 0.14));
      c.path("M-3 -96C-6 -112 -22 -112 -30 -100C-18 -104 -10 -98 3 -92Z", coat.accent);
      c.line("M-18 -66H18M0 -92V-52", coat.own("#7a8698"), 2.6);
      return;
    case "crown":
      c.path("M-19 -82L-22 -102L-10 -92L0 -106L10 -92L22 -102L19 -82Z", c.lit(coat.own("#f2c33a"), 0.1));
      return;
    case "chef":
      c.rect(-18, -100, 36, 20, coat.own("#f4f1ea"), 2);
      for (const [x, y] of [
        [-14, -100],
        [0, -106],
        [14, -100],
      ] as const)
        c.circle(x, y, 11, coat.own("#faf8f3"));
      return;
    case "pirate":
      c.path("M-34 -78C-26 -104 26 -104 34 -78Q0 -88 -34 -78Z", coat.ink);
      c.circle(0, -91, 4.6, coat.own("#f4f1ea"));
      return;
    case "cowboy":
      c.path("M-18 -80C-20 -104 -6 -102 0 -98C6 -102 20 -104 18 -80Z", coat.own("#9a6236"));
      c.path("M-42 -86C-24 -74 24 -74 42 -86C36 -70 -36 -70 -42 -86Z", coat.own("#7d4c28"));
      return;
    default:
  }
}

function person(words: string, colors: Motif["colors"], look: Look, size = 1.15): Motif {
  return { words, colors, realm: "ground", size, wide: 0.9, draw: (c, coat) => drawBust(c, coat, look) };
}

export const PEOPLE = {
  woman: person(
    "woman girl lady mother queen-mother her portrait face actress ballerina dancer mermaid princess bride sister",
    ["#c8503f", "#2f7f8f", "#8a5fc0"],
    { hair: "long", skin: "#e8b48f", hairColor: "#4a2c22" },
  ),
  man: person(
    "man guy father gentleman him sailor detective farmer businessman brother human person hero warrior samurai runner",
    ["#2f5f8f", "#4a7a5a", "#b5512f"],
    { hair: "short", skin: "#d9a078", hairColor: "#3a2a24" },
  ),
  child: person(
    "child kid boy baby toddler student",
    ["#f2b52c", "#4aa3d0"],
    { hair: "curly", skin: "#b97f58", hairColor: "#2f201c" },
    0.85,
  ),
  elder: person(
    "old-woman grandmother grandma scientist professor teacher doctor librarian artist painter",
    ["#6f7fc0", "#8f5f8a"],
    { hair: "bun", skin: "#e3b999", hairColor: "#c9c4c0", glasses: true },
  ),
  oldman: person("old-man grandfather grandpa fisherman monk santa viking", ["#c8402f", "#3f6f8a"], {
    hair: "bald",
    skin: "#e6b592",
    hairColor: "#e9e5de",
    beard: true,
  }),
  wizard: person(
    "wizard witch mage sorcerer magician gandalf",
    ["#4a3fae", "#2f5f9a"],
    { hair: "long", skin: "#e6bb98", hairColor: "#e4e0da", hat: "wizard", beard: true },
    1.3,
  ),
  knight: person("knight soldier guard paladin", ["#8a2f3f", "#2f4f8f"], {
    hair: "bald",
    skin: "#dba27c",
    hairColor: "#3a2a24",
    hat: "helmet",
  }),
  king: person(
    "king queen prince emperor royal",
    ["#7a2f8a", "#b3122b"],
    { hair: "long", skin: "#d9a078", hairColor: "#6b3f24", hat: "crown" },
    1.2,
  ),
  chef: person("chef cook baker", ["#f1eee6"], {
    hair: "short",
    skin: "#c98f66",
    hairColor: "#3a2a24",
    hat: "chef",
  }),
  pirate: person("pirate captain buccaneer", ["#8a2f2f"], {
    hair: "long",
    skin: "#c98f66",
    hairColor: "#2a201c",
    hat: "pirate",
    beard: true,
  }),
  cowboy: person("cowboy cowgirl sheriff ranger", ["#b5652f", "#3f6fa0"], {
    hair: "short",
    skin: "#d9a078",
    hairColor: "#5a3a24",
    hat: "cowboy",
  }),
} satisfies Record<string, Motif>;
