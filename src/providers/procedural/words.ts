import type { Hex } from "./color.ts";
import words from "./words.json" with { type: "json" };

/** A table from words to what they mean. */
export type Table<K extends string> = ReadonlyMap<string, K>;

function table<K extends string>(meanings: Readonly<Record<K, string>>): Table<K> {
  const entries = Object.entries(meanings) as [K, string][];
  return new Map(
    entries.flatMap(([meaning, list]) => list.split(" ").map((word) => [word, meaning] as const)),
  );
}

export const tables = {
  places: table(words.places),
  times: table(words.times),
  weathers: table(words.weathers),
  seasons: table(words.seasons),
  moods: table(words.moods),
  styles: table(words.styles),
  tints: table(words.tints),
  extras: table(words.extras),
  patterns: table(words.patterns),
};
/** What the words of a table mean. */
export type Meaning<T> = T extends Table<infer K> ? K : never;
/** The place that a picture shows. `stage` is a plain studio, and `pattern` is no place at all. */
export type Place = Meaning<typeof tables.places> | "stage" | "pattern";

const colors = table<Hex>(words.colors);
const shades = new Map(Object.entries(words.shades));
const amounts = new Map(Object.entries(words.amounts));
const irregular = new Map(Object.entries(words.irregular));
const pairs = new Set(words.pairs.split(" "));
const patternWords = new Set(words.patternWords.split(" "));
/** The characters that are read. The rest of a text changes only the seed. */
const MAX_TEXT = 4000;

/**
 * Returns the words of a text in order, in lower case and without accents. Everything but letters and digits separates
 * words. Negated words are left out, and pairs with a meaning of their own, such as ice cream, become one word with a hyphen.
 */
export function tokenize(text: string): string[] {
  const plain = text
    .slice(0, MAX_TEXT)
    .toLowerCase()
    .replaceAll(/\bblack\s*(?:and|&|n)\s*white\b/g, "monochrome")
    .normalize("NFKD")
    .replaceAll(/\p{M}/gu, "");
  const found: string[] = [];
  for (const word of plain.match(/[\p{L}\p{N}]+/gu) ?? []) {
    const pair = `${found.at(-1)}-${word.replace(/s$/, "")}`;
    if (pairs.has(pair)) found.splice(-1, 1, pair);
    else found.push(word);
  }
  const isNot = (word: string | undefined) => word === "no" || word === "without" || word === "not";
  return found.filter((word, i) => !isNot(word) && !isNot(found[i - 1]));
}

/** Returns what a word means in a table, also as a plural. */
export function lookUp<V>(word: string, meanings: ReadonlyMap<string, V>): V | undefined {
  const forms = [word, irregular.get(word) ?? word];
  if (word.length > 3 && word.endsWith("s")) forms.push(word.slice(0, -1));
  if (word.length > 4 && word.endsWith("es")) forms.push(word.slice(0, -2));
  if (word.length > 4 && word.endsWith("ies")) forms.push(`${word.slice(0, -3)}y`);
  return forms.map((form) => meanings.get(form)).find((meaning) => meaning !== undefined);
}

/** Returns the number that a word asks for, from 1 to 8, or null if it is no number. */
export function amountOf(word: string): number | null {
  const amount = /^\d{1,2}$/.test(word) ? Number(word) : (amounts.get(word) ?? 0);
  return amount === 0 ? null : Math.min(8, amount);
}

/** Returns the colour that a word names. */
export function namedColor(word: string): Hex | undefined {
  return colors.get(word) ?? colors.get(word.replace(/ish$/, ""));
}

/** Returns the change of lightness that a word before a colour asks for, as in "dark blue", or 0. */
export function shadeOf(word: string | undefined): number {
  return shades.get(word ?? "") ?? 0;
}

/** Whether a word asks for a pattern instead of a scene. */
export function isPatternWord(word: string): boolean {
  return patternWords.has(word);
}
