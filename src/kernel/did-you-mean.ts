import { distance } from "fastest-levenshtein";

/** More edits than these make another word. */
const MOST_EDITS = 2;
/** A longer word is hardly a typing error, and comparing it takes long. */
const MOST_CHARS = 100;

/** The nearest known word that is at most `mostEdits` (two) edits away from a typing error; null when there is none. */
export function didYouMean(word: string, known: readonly string[], mostEdits = MOST_EDITS): string | null {
  if (word.length > MOST_CHARS) return null;
  const plain = word.toLowerCase().replace(/[-\s]/g, "_");
  let best: string | null = null;
  let bestDistance = mostEdits + 1;
  for (const candidate of known) {
    const edits = distance(plain, candidate);
    if (edits < bestDistance) [best, bestDistance] = [candidate, edits];
  }
  return best;
}
