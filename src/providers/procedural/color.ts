/** A colour as `#rrggbb`. */
export type Hex = string;

/** A colour as the eye sees it (Oklab): lightness from 0 to 1, and two coordinates of hue and strength. */
type Oklab = readonly [l: number, a: number, b: number];

function toOklab(hex: Hex): Oklab {
  const value = Number.parseInt(hex.slice(1), 16);
  const [r, g, b] = [toLinear((value >> 16) & 255), toLinear((value >> 8) & 255), toLinear(value & 255)];
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toHex(lightness: number, a: number, b: number): Hex {
  const l = Math.min(1, Math.max(0, lightness));
  const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const red = fromLinear(4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z);
  const green = fromLinear(-1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z);
  const blue = fromLinear(-0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z);
  return `#${((red << 16) | (green << 8) | blue).toString(16).padStart(6, "0")}`;
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
  const [l, a, b] = toOklab(first);
  const [l2, a2, b2] = toOklab(second);
  return toHex(l + (l2 - l) * share, a + (a2 - a) * share, b + (b2 - b) * share);
}

/** Adds `amount` to the lightness; 0.1 is a clear step, and a negative one darkens. */
export function lighten(hex: Hex, amount: number): Hex {
  const [l, a, b] = toOklab(hex);
  return toHex(l + amount, a, b);
}

/** The lightness to the eye, from 0 (black) to 1 (white). */
export function lightness(hex: Hex): number {
  return toOklab(hex)[0];
}

/** The strength of a colour: 0 for greys, about 0.3 for the strongest. */
export function chroma(hex: Hex): number {
  const [, a, b] = toOklab(hex);
  return Math.hypot(a, b);
}

/** Returns a colour of the same hue with this lightness, and with its strength multiplied by `strength`. */
export function tone(hex: Hex, l: number, strength = 1): Hex {
  const [, a, b] = toOklab(hex);
  return toHex(l, a * strength, b * strength);
}

/** Turns the hue by `degrees` on the colour wheel. */
export function turnHue(hex: Hex, degrees: number): Hex {
  const [l, a, b] = toOklab(hex);
  const [cos, sin] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  return toHex(l, a * cos - b * sin, a * sin + b * cos);
}

/**
 * Returns the colour that differs from `to` as `color` differs from `from`: lighter, paler, or of a turned hue. In the dark
 * the differences are smaller.
 */
export function recolor(color: Hex, from: Hex, to: Hex): Hex {
  const [l, a, b] = toOklab(color);
  const [fromL, fromA, fromB] = toOklab(from);
  const [toL, toA, toB] = toOklab(to);
  const lightness = toL + (l - fromL) * Math.min(1, toL / fromL);
  const strength = fromA ** 2 + fromB ** 2;
  // A grey has no hue that could be turned.
  if (strength < 0.004) return toHex(lightness, toA + a - fromA, toB + b - fromB);
  const [turnA, turnB] = [(a * fromA + b * fromB) / strength, (b * fromA - a * fromB) / strength];
  return toHex(lightness, toA * turnA - toB * turnB, toA * turnB + toB * turnA);
}
