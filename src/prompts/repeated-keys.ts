import { visit } from "jsonc-parser";

/**
 * Returns the keys that a JSON object has more than once, each key once. The objects inside it are not looked at. `text`
 * must be the valid JSON text of an object. A parser alone would keep only the last value of such a key.
 */
export function repeatedKeys(text: string): string[] {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  let depth = 0;
  visit(text, {
    // False leaves out everything inside an inner object.
    onObjectBegin: () => ++depth === 1,
    onObjectEnd: () => {
      depth--;
    },
    onObjectProperty: (key) => {
      if (seen.has(key)) repeated.add(key);
      seen.add(key);
    },
  });
  return [...repeated];
}
