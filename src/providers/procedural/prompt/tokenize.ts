/**
 * Returns the words of a text in order, in lower case and without accents. Everything but letters and digits separates
 * words. Negated words are left out, and pairs with a meaning of their own become one word with a hyphen.
 */
export function tokenize(text: string): string[] {
  return withoutNegated(joinPairs(split(text)));
}

function split(text: string): string[] {
  const plain = text
    .slice(0, MAX_TEXT)
    .toLowerCase()
    .replaceAll(/\bblack\s*(?:and|&|n)\s*white\b/g, "monochrome")
    .normalize("NFKD")
    .replaceAll(/\p{M}/gu, "");
  return plain.match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** The characters that are read. The rest of a text changes only the seed. */
const MAX_TEXT = 4000;

const IRREGULAR: Record<string, string> = {
  mice: "mouse",
  geese: "goose",
  wolves: "wolf",
  leaves: "leaf",
  knives: "knife",
  men: "man",
  women: "woman",
  people: "person",
  children: "child",
  sheep: "sheep",
  cherries: "cherry",
  berries: "berry",
  strawberries: "strawberry",
};

/** Returns the forms that a table may list: the word itself, and its possible singulars. */
export function formsOf(word: string): string[] {
  const irregular = Object.hasOwn(IRREGULAR, word) ? IRREGULAR[word] : undefined;
  if (irregular !== undefined) return [word, irregular];
  const forms = [word];
  if (word.length > 3 && word.endsWith("s")) forms.push(word.slice(0, -1));
  if (word.length > 4 && word.endsWith("es")) forms.push(word.slice(0, -2));
  if (word.length > 4 && word.endsWith("ies")) forms.push(`${word.slice(0, -3)}y`);
  return forms;
}

const NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"];
const AMOUNTS: Record<string, number> = {
  pair: 2,
  couple: 2,
  several: 3,
  few: 3,
  group: 4,
  family: 3,
  herd: 4,
  flock: 5,
  many: 5,
  dozen: 6,
};

/** Returns the number that a word asks for, from 1 to 8, or null if it is no number. */
export function amountOf(word: string): number | null {
  const spelled = NUMBERS.indexOf(word);
  const count = spelled >= 0 ? spelled : /^\d{1,2}$/.test(word) ? Number(word) : null;
  if (count !== null) return count === 0 ? null : Math.min(8, count);
  return Object.hasOwn(AMOUNTS, word) ? (AMOUNTS[word] ?? null) : null;
}

/** Removes words such as "clouds" in "without clouds", and the negation. */
function withoutNegated(words: readonly string[]): string[] {
  return words.filter(
    (word, i) => ![word, words[i - 1]].some((one) => one === "no" || one === "without" || one === "not"),
  );
}

const PAIRS = new Set(
  "ice-cream northern-light old-man old-woman golden-hour hot-air teddy-bear palm-tree coffee-cup cherry-blossom polar-bear red-panda street-lamp pixel-art line-art low-poly travel-poster stained-glass van-gogh".split(
    " ",
  ),
);

/** Joins pairs that have another meaning together: an ice cream is neither ice nor cream. */
function joinPairs(words: readonly string[]): string[] {
  const joined: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const pair = `${words[i]}-${words[i + 1]?.replace(/s$/, "")}`;
    if (PAIRS.has(pair)) {
      joined.push(pair);
      i++;
    } else {
      joined.push(words[i] ?? "");
    }
  }
  return joined;
}
