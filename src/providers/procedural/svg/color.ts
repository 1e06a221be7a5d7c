/** A colour as `#rrggbb`. */
export type Hex = string;

interface Oklab {
  /** Lightness, 0 to 1. */
  l: number;
  a: number;
  b: number;
}

function toOklab(hex: Hex): Oklab {
  const value = Number.parseInt(hex.slice(1), 16);
  const r = toLinear((value >> 16) & 255);
  const g = toLinear((value >> 8) & 255);
  const b = toLinear(value & 255);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return {
    l: 0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    a: 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    b: 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  };
}

function toHex({ l, a, b }: Oklab): Hex {
  const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const channels = [
    4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z,
    -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z,
    -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z,
  ];
  return `#${channels.map((channel) => fromLinear(channel).toString(16).padStart(2, "0")).join("")}`;
}

function toLinear(byte: number): number {
  const share = byte / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function fromLinear(linear: number): number {
  const share = linear <= 0.0031308 ? linear * 12.92 : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(Math.min(1, Math.max(0, share)) * 255);
}

/** Mixes two colours in even steps to the eye. `share` 0 is the first colour, 1 the second. */
export function mix(first: Hex, second: Hex, share: number): Hex {
  const from = toOklab(first);
  const to = toOklab(second);
  const part = (start: number, end: number) => start + (end - start) * share;
  return toHex({ l: part(from.l, to.l), a: part(from.a, to.a), b: part(from.b, to.b) });
}

/** Adds `amount` to the lightness; 0.1 is a clear step. Hue and strength stay, as far as a screen can show them. */
export function lighten(hex: Hex, amount: number): Hex {
  const { l, a, b } = toOklab(hex);
  return toHex({ l: Math.min(1, Math.max(0, l + amount)), a, b });
}

export function darken(hex: Hex, amount: number): Hex {
  return lighten(hex, -amount);
}

/** The lightness to the eye, from 0 (black) to 1 (white). */
export function lightness(hex: Hex): number {
  return toOklab(hex).l;
}

/** The strength of a colour: 0 for greys, about 0.3 for the strongest. */
export function chroma(hex: Hex): number {
  const { a, b } = toOklab(hex);
  return Math.hypot(a, b);
}

/** Returns a colour of the same hue with this lightness, and with its strength multiplied by `strength`. */
export function tone(hex: Hex, l: number, strength = 1): Hex {
  const { a, b } = toOklab(hex);
  return toHex({ l, a: a * strength, b: b * strength });
}

/** Turns the hue by `degrees` on the colour wheel. */
export function turnHue(hex: Hex, degrees: number): Hex {
  const { l, a, b } = toOklab(hex);
  const angle = (degrees * Math.PI) / 180;
  return toHex({
    l,
    a: a * Math.cos(angle) - b * Math.sin(angle),
    b: a * Math.sin(angle) + b * Math.cos(angle),
  });
}

/** Makes a colour of lightness, strength and hue in degrees: 30 red, 90 yellow, 140 green, 250 blue, 320 purple. */
export function fromHue(l: number, strength: number, degrees: number): Hex {
  const angle = (degrees * Math.PI) / 180;
  return toHex({ l, a: strength * Math.cos(angle), b: strength * Math.sin(angle) });
}
