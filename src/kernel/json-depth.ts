/**
 * Whether JSON text is nested deeper than `max`, by looking at its bytes only. A parser given such text can take
 * seconds; this takes one pass. Text that is no JSON gets some answer: the parser will refuse it.
 */
export function isNestedDeeperThan(json: Uint8Array, max: number): boolean {
  const [quote, backslash, open, openBrace, close, closeBrace] = [0x22, 0x5c, 0x5b, 0x7b, 0x5d, 0x7d];
  let depth = 0;
  let isInString = false;
  for (let i = 0; i < json.length; i++) {
    const byte = json[i];
    if (isInString) {
      if (byte === backslash) i++;
      else if (byte === quote) isInString = false;
    } else if (byte === quote) isInString = true;
    else if (byte === open || byte === openBrace) {
      if (++depth > max) return true;
    } else if (byte === close || byte === closeBrace) depth--;
  }
  return false;
}
