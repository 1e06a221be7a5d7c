import { type Hex, lighten } from "./color.ts";
import { drawingData, motifFiles } from "./drawing.ts";
import { hashSeed, Random } from "./random.ts";
import words from "./words.json" with { type: "json" };

/** A table from words to what they mean. */
type Table<K extends string> = ReadonlyMap<string, K>;

function table<K extends string>(meanings: Readonly<Record<K, string>>): Table<K> {
  const entries = Object.entries(meanings) as [K, string][];
  return new Map(
    entries.flatMap(([meaning, list]) => list.split(" ").map((word) => [word, meaning] as const)),
  );
}

const tables = {
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
type Meaning<T> = T extends Table<infer K> ? K : never;
/** The place that a picture shows. `stage` is a plain studio, and `pattern` is no place at all. */
type Place = Meaning<typeof tables.places> | "stage" | "pattern";

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
function tokenize(text: string): string[] {
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
function lookUp<V>(word: string, meanings: ReadonlyMap<string, V>): V | undefined {
  const forms = [word, irregular.get(word) ?? word];
  if (word.length > 3 && word.endsWith("s")) forms.push(word.slice(0, -1));
  if (word.length > 4 && word.endsWith("es")) forms.push(word.slice(0, -2));
  if (word.length > 4 && word.endsWith("ies")) forms.push(`${word.slice(0, -3)}y`);
  return forms.map((form) => meanings.get(form)).find((meaning) => meaning !== undefined);
}

/** Returns the number that a word asks for, from 1 to 8, or null if it is no number. */
function amountOf(word: string): number | null {
  const amount = /^\d{1,2}$/.test(word) ? Number(word) : (amounts.get(word) ?? 0);
  return amount === 0 ? null : Math.min(8, amount);
}

/** Returns the colour that a word names. */
function namedColor(word: string): Hex | undefined {
  return colors.get(word) ?? colors.get(word.replace(/ish$/, ""));
}

/** Returns the change of lightness that a word before a colour asks for, as in "dark blue", or 0. */
function shadeOf(word: string | undefined): number {
  return shades.get(word ?? "") ?? 0;
}

/** Whether a word asks for a pattern instead of a scene. */
function isPatternWord(word: string): boolean {
  return patternWords.has(word);
}

/** A kind of thing that a word can name. The attributes of its SVG file describe it. */
interface Motif {
  /** The name of the file. */
  name: string;
  /** Its usual colours. The seed chooses one. */
  colors: readonly Hex[];
  /** Where it lives. On the `ground` it stands on its foot; in `air` and `water` it floats around its middle. */
  realm: "ground" | "air" | "water";
  /** Its height relative to other motifs. */
  size: number;
  /** Its width over its height. It decides how many fit side by side. */
  wide: number;
  /** The place to show it in if the prompt names none. */
  home: Place | undefined;
  /** Whether it may stand in a meadow if the prompt names no place. */
  isOutdoors: boolean;
}

const byWord = new Map<string, Motif>();

/** All motifs by each word, in the singular, that names them. The files are read once. */
export function motifsByWord(): ReadonlyMap<string, Motif> {
  if (byWord.size > 0) return byWord;
  for (const name of motifFiles()) {
    const {
      words = "",
      colors = "",
      realm,
      size = 1,
      wide = 1,
      home,
      outdoors,
    } = drawingData(`motifs/${name}`);
    const motif: Motif = {
      name,
      colors: colors.split(" "),
      realm: realm as Motif["realm"],
      size: Number(size),
      wide: Number(wide),
      home: home as Place | undefined,
      isOutdoors: outdoors !== undefined,
    };
    for (const word of words.split(" ")) byWord.set(word, motif);
  }
  return byWord;
}

type Part = "sky" | "place" | "water" | "leaf";

/** One kind of thing to show. */
export interface Subject {
  motif: Motif;
  count: number;
  /** The colour that the prompt gives it; null for one of its usual colours. */
  color: Hex | null;
}

/** The things that the words of a prompt name, in their order. */
interface Found {
  subjects: Subject[];
  places: Place[];
  extras: Set<Meaning<typeof tables.extras>>;
  /** Colours that the prompt gives to no thing. */
  accents: Hex[];
  /** Colours that it gives to parts of the scene. */
  parts: Partial<Record<Part, Hex>>;
}

/** The wishes of a prompt. The seed decides everything that they leave open. */
export interface Plan extends Found {
  /** The places to show, at least one. The first one is the ground. */
  places: [Place, ...Place[]];
  time: Meaning<typeof tables.times>;
  season: Meaning<typeof tables.seasons>;
  weather: Meaning<typeof tables.weathers> | "clear";
  isBold: boolean;
  style: Meaning<typeof tables.styles> | "flat";
  tint: Meaning<typeof tables.tints> | "none";
  pattern: Meaning<typeof tables.patterns>;
  /** Whether the first subject sits on the second. */
  isRiding: boolean;
}

/** Returns the seed of a picture. Another model, prompt or index gives another seed. */
export function pictureSeed(model: string, prompt: string, picture: number | string): number {
  return hashSeed("picture", model, prompt, picture);
}

/** Reads a prompt into a plan, without the words of the negative prompt. Every text gives a plan, and the same text and seed give the same plan. */
export function planScene(prompt: string, seed: number, negativePrompt = ""): Plan {
  const random = new Random(seed).fork("plan");
  const unwanted = new Set(tokenize(negativePrompt));
  const words = tokenize(prompt).filter((word) => !unwanted.has(word));
  const first = <K extends string>(meanings: Table<K>): K | undefined =>
    words.map((word) => lookUp(word, meanings)).find((meaning) => meaning !== undefined);
  const isPattern = words.some(isPatternWord);
  const found = readWords(words, isPattern);
  const [time, weather, season] = [first(tables.times), first(tables.weathers), first(tables.seasons)];
  const isWeatherly = (time ?? weather ?? season) !== undefined;
  const subjects = found.subjects.slice(0, 3);
  const places = choosePlaces({ ...found, subjects }, { isPattern, isWeatherly }, random);
  const mild = random.pick(["spring", "summer", "summer", "autumn"] as const);
  const bright = random.pick(["day", "day", "day", "dawn", "sunset"] as const);
  return {
    ...found,
    places,
    subjects,
    time: time ?? (found.extras.has("rainbow") ? "day" : places[0] === "space" ? "night" : bright),
    season: weather === "snow" ? "winter" : (season ?? (places[0] === "sea" ? "summer" : mild)),
    weather: weather ?? "clear",
    isBold: first(tables.moods) === "bold",
    style: first(tables.styles) ?? "flat",
    tint: first(tables.tints) ?? "none",
    pattern: first(tables.patterns) ?? random.pick([...new Set(tables.patterns.values())]),
    isRiding: subjects.length > 1 && (words.includes("riding") || words.includes("rides")),
  };
}

function choosePlaces(
  { places, subjects, extras }: Found,
  { isPattern, isWeatherly }: { isPattern: boolean; isWeatherly: boolean },
  random: Random,
): Plan["places"] {
  const [first, ...others] = places;
  const home = subjects.map(({ motif }) => motif.home).find((place) => place !== undefined);
  // Mountains, houses and the sky stand behind a ground that one can walk on.
  const grounds = first === "sky" ? others : others.filter((place) => WALKABLE.has(place));
  const [ground = first === "sky" ? home : undefined] = grounds;
  if (first !== undefined && BEHIND.has(first) && ground !== undefined) return [ground, first, ...others];
  if (first !== undefined) return [first, ...others];
  if (home !== undefined) return [home];
  if (subjects.length > 0) {
    const isOutdoors = subjects.every(({ motif }) => motif.isOutdoors);
    return [isOutdoors && (isWeatherly || random.chance(0.55)) ? "meadow" : "stage"];
  }
  if (isPattern || (extras.size === 0 && !isWeatherly)) return ["pattern"];
  const [view, behind] = [random.pick(["mountains", "sea", "meadow", "forest"] as const), random.chance(0.4)];
  return behind ? [view, "mountains"] : [view];
}

const BEHIND = new Set<Place>(["mountains", "city", "sky"]);
const WALKABLE = new Set<Place>(["sea", "meadow", "forest", "desert"]);

/** The most words between a colour or number and its thing: "a red and very fluffy fox". */
const REACH = 4;
const SKY = new Set(["sky", "sunset", "sunrise", "sundown", "dusk", "dawn", "aurora", "cloud", "clouds"]);
const LEAVES = new Set(["leaf", "leaves", "foliage"]);

/** Reads the words in order. Colours and numbers belong to the next thing that is named. */
function readWords(words: readonly string[], isPattern: boolean): Found {
  const motifs = motifsByWord();
  const found: Found = { subjects: [], places: [], extras: new Set(), accents: [], parts: {} };
  let color: { hex: Hex; at: number } | null = null;
  let amount: { count: number; at: number } | null = null;
  // Orange, rose and peach are things if nothing follows that could have that colour.
  const canHaveColor = (word: string) =>
    lookUp(word, motifs) !== undefined ||
    lookUp(word, tables.places) !== undefined ||
    namedColor(word) !== undefined;
  for (const [at, word] of words.entries()) {
    const motif = lookUp(word, motifs);
    const named = namedColor(word);
    const isThing = motif !== undefined && !words.slice(at + 1, at + 3).some(canHaveColor);
    if (color !== null && ((named !== undefined && !isThing) || at - color.at > REACH)) {
      found.accents.push(color.hex);
      color = null;
    }
    if (named !== undefined && !isThing) {
      color = { hex: lighten(named, shadeOf(words[at - 1])), at };
      continue;
    }
    const count = amountOf(word);
    if (count !== null) {
      amount = { count, at };
      continue;
    }
    // In an abstract picture waves and rings are shapes, not the sea and jewels.
    if (isPattern && lookUp(word, tables.patterns) !== undefined) continue;
    const extra = lookUp(word, tables.extras);
    if (extra !== undefined) found.extras.add(extra);
    if (motif !== undefined) {
      // The files list singulars, so a word that is found under another form is a plural.
      const usual = motifs.has(word) ? 1 : 3;
      const near = amount !== null && at - amount.at <= REACH ? amount.count : usual;
      addSubject(found, { motif, count: near, color: color?.hex ?? null });
      [color, amount] = [null, null];
    }
    const place = lookUp(word, tables.places);
    if (place !== undefined && !found.places.includes(place)) found.places.push(place);
    const part = partOf(word, extra === "river" ? "sea" : place);
    if (color !== null && part !== undefined) {
      found.parts[part] = color.hex;
      color = null;
    }
  }
  if (color !== null) found.accents.push(color.hex);
  return found;
}

/** Returns the part of a scene that the colour before a word belongs to. */
function partOf(word: string, place: Place | undefined): Part | undefined {
  if (SKY.has(word)) return "sky";
  if (place === "sea" || place === "underwater" || word === "water") return "water";
  if (place === "forest" || LEAVES.has(word)) return "leaf";
  return place === undefined ? undefined : "place";
}

function addSubject({ subjects }: Found, subject: Subject): void {
  const same = subjects.find(({ motif }) => motif === subject.motif);
  if (same === undefined) subjects.push(subject);
  else same.color ??= subject.color;
}
