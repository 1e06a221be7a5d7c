const STRUCTURE = /["{}[\]]/g;
const COLON = /\s*:/y;

/**
 * The keys that a JSON object has more than once, each once; of objects inside it nothing is said. `text` must be the
 * valid JSON text of an object: only the last value of such a key is left when that is parsed. Long strings are not read.
 */
export function repeatedKeys(text: string): string[] {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  let depth = 0;
  STRUCTURE.lastIndex = 0;
  for (let found = STRUCTURE.exec(text); found !== null; found = STRUCTURE.exec(text)) {
    const [sign] = found;
    if (sign !== '"') {
      depth += sign === "{" || sign === "[" ? 1 : -1;
      continue;
    }
    const end = endOfString(text, found.index);
    STRUCTURE.lastIndex = end;
    COLON.lastIndex = end;
    if (depth !== 1 || !COLON.test(text)) continue;
    const key: string = JSON.parse(text.slice(found.index, end));
    if (seen.has(key)) repeated.add(key);
    seen.add(key);
  }
  return [...repeated];
}

/** Behind the quote that closes the string: one before which there is no odd number of backslashes. */
function endOfString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let before = quote;
    while (text[before - 1] === "\\") before--;
    if ((quote - before) % 2 === 0) return quote + 1;
  }
  return text.length;
}
