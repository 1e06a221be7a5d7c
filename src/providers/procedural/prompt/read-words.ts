import { type MotifName, motifOfWord } from "../scene/motifs/registry.ts";
import { type Hex, lighten } from "../svg/color.ts";
import { namedColor, shadeOf } from "./color-names.ts";
import type { SubjectPlan } from "./scene-plan.ts";
import { amountOf, formsOf } from "./tokenize.ts";
import { type Extra, extraWords, isPatternWord, type Place, patternWords, placeWords } from "./vocabulary.ts";

/** The things that the words of a prompt name, in their order. */
export interface FoundWords {
  words: string[];
  subjects: SubjectPlan[];
  places: Place[];
  extras: Set<Extra>;
  accents: Hex[];
  skyColor: Hex | null;
  placeColor: Hex | null;
  waterColor: Hex | null;
  leafColor: Hex | null;
  riding: boolean;
  pattern: boolean;
  /** Returns the meaning of the first word that is in the table, or null. */
  first<K extends string>(table: ReadonlyMap<string, K>): K | null;
}

/** The most words between a colour or number and its thing: "a red and very fluffy fox". */
const REACH = 4;

/** Reads the words in order. Colours and numbers belong to the next thing that is named. */
export function readWords(words: string[]): FoundWords {
  const found: FoundWords = {
    words,
    subjects: [],
    places: [],
    extras: new Set(),
    accents: [],
    skyColor: null,
    placeColor: null,
    waterColor: null,
    leafColor: null,
    riding: words.includes("riding") || words.includes("rides"),
    pattern: words.some(isPatternWord),
    first: (table) => lookUpFirst(words, table),
  };
  let color: { hex: Hex; at: number } | null = null;
  let aloft = false;
  let amount: { count: number; at: number } | null = null;
  const takeColor = (): Hex | null => {
    const hex = color?.hex ?? null;
    color = null;
    return hex;
  };
  words.forEach((word, at) => {
    if (color !== null && at - color.at > REACH) found.accents.push(takeColor() ?? "#000000");
    const named = namedColor(word);
    if (named !== null && !(standsAlone(words, at) && motifOfForms(word) !== null)) {
      if (color !== null) found.accents.push(color.hex);
      color = { hex: lighten(named, shadeOf(words[at - 1])), at };
      return;
    }
    if (FLIGHT.has(word)) {
      const before = found.subjects.at(-1);
      if (before !== undefined && motifOfForms(words[at - 1] ?? "") === before.motif) before.aloft = true;
      else aloft = true;
      return;
    }
    const count = amountOf(word);
    if (count !== null) {
      amount = { count, at };
      return;
    }
    // In an abstract picture waves and rings are shapes, not the sea and jewels.
    if (found.pattern && lookUp(word, patternWords) !== null) return;
    const extra = lookUp(word, extraWords);
    if (extra !== null) found.extras.add(extra);
    const motif = motifOfForms(word);
    if (motif !== null) {
      // The tables list singulars, so a word found under another form is a plural.
      const plural = motifOfWord(word) === null;
      const near = amount !== null && at - amount.at <= REACH ? amount.count : plural ? 3 : 1;
      addSubject(found, { motif, count: near, color: takeColor(), aloft });
      amount = null;
      aloft = false;
    }
    const place = lookUp(word, placeWords);
    if (place !== null && !found.places.includes(place)) found.places.push(place);
    if (color === null) return;
    if (["sky", "sunset", "sunrise", "sundown", "dusk", "dawn", "aurora", "cloud", "clouds"].includes(word))
      found.skyColor = takeColor();
    else if (place === "sea" || place === "underwater" || word === "water" || extra === "river")
      found.waterColor = takeColor();
    else if (place === "forest" || ["leaf", "leaves", "foliage"].includes(word))
      found.leafColor = takeColor();
    else if (place !== null) found.placeColor = takeColor();
  });
  const rest = takeColor();
  if (rest !== null) found.accents.push(rest);
  return found;
}

const FLIGHT = new Set(["flying", "flies", "soaring", "floating", "hovering", "levitating", "jumping"]);

function addSubject(found: FoundWords, subject: SubjectPlan): void {
  const same = found.subjects.find(({ motif }) => motif === subject.motif);
  if (same === undefined) found.subjects.push(subject);
  else same.color ??= subject.color;
}

/** Whether a word such as orange, rose or peach is a thing: nothing follows that could have that colour. */
function standsAlone(words: readonly string[], at: number): boolean {
  return words
    .slice(at + 1, at + 3)
    .every(
      (word) => motifOfForms(word) === null && lookUp(word, placeWords) === null && namedColor(word) === null,
    );
}

function motifOfForms(word: string): MotifName | null {
  for (const form of formsOf(word)) {
    const motif = motifOfWord(form);
    if (motif !== null) return motif;
  }
  return null;
}

function lookUp<K extends string>(word: string, table: ReadonlyMap<string, K>): K | null {
  for (const form of formsOf(word)) {
    const value = table.get(form);
    if (value !== undefined) return value;
  }
  return null;
}

function lookUpFirst<K extends string>(words: readonly string[], table: ReadonlyMap<string, K>): K | null {
  for (const word of words) {
    const value = lookUp(word, table);
    if (value !== null) return value;
  }
  return null;
}
