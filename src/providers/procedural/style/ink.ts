import { chroma, type Hex, lighten, lightness, mix, tone } from "../svg/color.ts";

/** The way in which shapes reach the paper. */
export interface Ink {
  /** Changes every colour, for example to sepia, pastel, or black and white. */
  grade(color: Hex): Hex;
  /**
   * `fill` paints shapes, `wet` paints them as watercolour with darker edges, `outline` draws their edges, and `neon` turns
   * their edges into glowing tubes.
   */
  mode: "fill" | "wet" | "outline" | "neon";
  /** The ground that shows inside outlined and neon shapes. */
  paper: Hex;
  /** The colour of outlines. */
  ink: Hex;
  /** Returns the colour of a surface without edges, such as a sky or a shadow. */
  wash(color: Hex): Hex;
  stroke(d: string, color: Hex, width: number, opacity: number | undefined): string;
}

/** Creates an ink. Without `grade`, colours stay as they are. */
export function createInk(
  mode: Ink["mode"],
  options: { grade?: (color: Hex) => Hex; paper?: Hex; ink?: Hex } = {},
): Ink {
  const grade = options.grade ?? ((color: Hex) => color);
  const ink: Ink = {
    mode,
    grade,
    paper: options.paper ?? "#fbf7ee",
    ink: options.ink ?? "#23243a",
    wash: (color) =>
      mode === "fill" || mode === "wet"
        ? grade(color)
        : mix(ink.paper, grade(color), mode === "outline" ? 0.24 : 0.3),
    stroke: (d, color, width, opacity) => {
      const shown =
        mode === "outline" ? mix(ink.ink, grade(color), 0.35) : mode === "neon" ? glow(color) : grade(color);
      const thin = mode === "outline" ? Math.min(width, 2.5) : width;
      return `<path d="${d}" fill="none" stroke="${shown}" stroke-width="${round(thin)}" stroke-linecap="round" stroke-linejoin="round"${attribute("stroke-opacity", opacity)}/>`;
    },
  };
  return ink;
}

/** Returns the element that `tag` opens, painted. `flat` replaces a gradient where the ink needs one colour. */
export function inked(
  ink: Ink,
  tag: string,
  paint: string,
  flat: Hex,
  opacity: number | undefined,
  scale: number,
): string {
  if (ink.mode === "fill") {
    const fill = paint.startsWith("#") ? ink.grade(paint) : paint;
    return `${tag} fill="${fill}"${attribute("fill-opacity", opacity)}/>`;
  }
  if (ink.mode === "wet") {
    const fill = paint.startsWith("#") ? ink.grade(paint) : paint;
    const pooled = mix(ink.grade(flat), "#2a2c4a", 0.28);
    return `${tag} fill="${fill}" fill-opacity="${round((opacity ?? 1) * 0.84)}" stroke="${pooled}" stroke-opacity="${round((opacity ?? 1) * 0.34)}" stroke-width="${round(2.4 / scale)}"/>`;
  }
  if (opacity !== undefined && opacity < 0.6) {
    return `${tag} fill="${mix(ink.paper, ink.grade(flat), 0.5)}" fill-opacity="${round(opacity * 0.5)}"/>`;
  }
  if (ink.mode === "outline") {
    const fill = mix(ink.paper, ink.grade(flat), 0.16);
    return `${tag} fill="${fill}" stroke="${ink.ink}" stroke-width="${round(2.2 / scale)}" stroke-linejoin="round"/>`;
  }
  const light = glow(flat);
  return `${tag} fill="${mix(ink.paper, light, 0.13)}" stroke="${light}" stroke-opacity="0.28" stroke-width="${round(9 / scale)}"/>${tag} fill="none" stroke="${lighten(light, 0.08)}" stroke-width="${round(2.6 / scale)}" stroke-linejoin="round"/>`;
}

/** Returns the colour of a lit tube: bright, and strong unless it is a grey. */
function glow(color: Hex): Hex {
  const strength = chroma(color);
  const wanted = Math.max(0.72, lightness(color));
  return strength < 0.03
    ? tone("#cfe8ff", 0.85, 1)
    : tone(color, Math.min(0.85, wanted), Math.min(3, 0.21 / strength));
}

function attribute(name: string, value: number | undefined): string {
  return value === undefined ? "" : ` ${name}="${round(value)}"`;
}

function round(value: number): string {
  return String(Math.round(value * 100) / 100);
}
