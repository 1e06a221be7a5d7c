import type { Hex } from "../svg/color.ts";

/** The words of each colour, as people use them in descriptions. */
const COLORS: Record<Hex, string> = {
  "#d8342c": "red",
  "#b3122b": "crimson ruby carmine",
  "#e23d28": "scarlet vermilion",
  "#7d1d2f": "maroon burgundy wine",
  "#c8553d": "rust terracotta brick",
  "#ff7f66": "coral",
  "#fa8f7a": "salmon",
  "#f28322": "orange tangerine",
  "#e8963c": "amber apricot",
  "#ffc09a": "peach",
  "#f6c927": "yellow",
  "#fae04a": "lemon canary",
  "#e0b030": "gold golden mustard ochre saffron",
  "#f2e2b0": "cream vanilla",
  "#f3ead8": "ivory",
  "#d9bd8f": "beige tan khaki sand sandy",
  "#37a24b": "green",
  "#8ccf3c": "lime chartreuse",
  "#1f9d6b": "emerald jade",
  "#7a8b3a": "olive moss",
  "#8fb996": "sage",
  "#a5e3c4": "mint",
  "#2b5d3a": "pine",
  "#1b9a96": "teal",
  "#35c4c9": "turquoise aqua cyan",
  "#2f6fdc": "blue",
  "#7cc0f0": "azure",
  "#1e3f9e": "cobalt ultramarine sapphire",
  "#1c2a5e": "navy",
  "#4b3fae": "indigo",
  "#8a4fd0": "purple violet",
  "#6c2f6f": "plum aubergine eggplant",
  "#b79be8": "lavender lilac mauve periwinkle",
  "#d63fb4": "magenta fuchsia",
  "#f387b4": "pink",
  "#ff9fb6": "rose blush",
  "#8a5a35": "brown",
  "#5d3b26": "chocolate umber mahogany",
  "#c58a4d": "caramel copper bronze hazel",
  "#8c8f96": "gray grey ash",
  "#c3c9d3": "silver platinum chrome",
  "#4a4d57": "charcoal graphite slate",
  "#23242c": "black ebony onyx",
  "#f6f5f1": "white",
};

const BY_WORD = new Map(
  Object.entries(COLORS).flatMap(([hex, words]) => words.split(" ").map((word) => [word, hex] as const)),
);
/** Words that change the lightness of the next colour, as in "dark blue" and "pale green". */
const SHADES: Record<string, number> = {
  dark: -0.16,
  deep: -0.12,
  midnight: -0.2,
  light: 0.12,
  pale: 0.16,
  bright: 0.04,
  pastel: 0.14,
};

/** Returns the colour that a word names, or null. */
export function namedColor(word: string): Hex | null {
  return BY_WORD.get(word) ?? BY_WORD.get(word.replace(/ish$/, "")) ?? null;
}

/** Returns the change of lightness that a word before a colour asks for, or 0. */
export function shadeOf(word: string | undefined): number {
  return word !== undefined && Object.hasOwn(SHADES, word) ? (SHADES[word] ?? 0) : 0;
}
