import { escapeControls, escapeJsonControls } from "./text.ts";

/**
 * Finds an API key of this program inside other text, or so much of one that the rest could be guessed. Each character
 * may be percent-encoded, as in an address, even more than once. Batch ids (`imgbatch_…`) do not match.
 */
const API_KEY =
  /(?:i|%(?:25)*69)(?:m|%(?:25)*6d)(?:g|%(?:25)*67)(?:b|%(?:25)*62)(?:_|%(?:25)*5f)(?:[\w-]|%(?:25)*[2-7][0-9a-f]){20,}/gi;

const HIDDEN = "[API key]";
/** A shorter key would be found in ordinary words. */
const SHORTEST_HIDDEN_KEY = 8;
interface UsedKey {
  /** Text that has the key unescaped contains one of these. Looking for them is quicker than matching. */
  signs: readonly string[];
  whole: RegExp;
  escaped: RegExp;
}
/**
 * The keys that this process sends, each with the patterns that find it: as a whole, and with characters escaped. One
 * registry for the whole process, on purpose: logs and errors are written by code that does not know whose key it may
 * print, so a key of any service must be hidden everywhere.
 */
const used = new Map<string, UsedKey>();
/** Text without one of these has no escapes. Looking for them is quick, even in the megabytes of an image. */
const ESCAPES = /[%\\&]/;

/**
 * Registers a key that this process is about to send, of any form. From now on `hideUsedKeys` removes it from all text.
 * A key of fewer than eight characters is not hidden.
 */
export function watchKey(key: string): void {
  if (key.length < SHORTEST_HIDDEN_KEY || used.has(key)) return;
  const forms = wholeForms(key);
  const whole = new RegExp(forms.map(eitherAlphabet).join("|"), "g");
  used.set(key, { signs: forms.map(longestSign), whole, escaped: new RegExp(escapedForm(key), "gi") });
}

/** Forgets all of these keys. For tests: many services share their process, and each key is searched for in every line. */
export function forgetKeys(): void {
  used.clear();
}

/** Returns a key as it is, as Base64 and as hexadecimal digits. */
function wholeForms(key: string): string[] {
  const bytes = Buffer.from(key);
  const hex = bytes.toString("hex");
  return [key, ...[0, 1, 2].map((shift) => base64Core(bytes, shift)), hex, hex.toUpperCase()];
}

/** Matches a form of a key, also in the Base64 alphabet of addresses. */
function eitherAlphabet(form: string): string {
  const alike: Record<string, string> = { "+": "[+-]", "/": "[/_]" };
  return [...form].map((each) => alike[each] ?? `\\u${hexOf(each).padStart(4, "0")}`).join("");
}

/** Returns the longest part of a form that is the same in both alphabets of Base64. */
function longestSign(form: string): string {
  return form.split(/[+/]/).reduce((longest, part) => (part.length > longest.length ? part : longest));
}

/** Matches a key with some or all characters escaped as in addresses, JSON or HTML, even more than once. */
function escapedForm(key: string): string {
  const parts = key.match(/\\+|[^\\]/gsu) ?? [];
  return parts
    .map((part) => {
      const hex = hexOf(part);
      const escapes = `%(?:25)*${hex}|&#(?:x0{0,4}${hex}|0{0,4}${part.charCodeAt(0)});`;
      // Each backslash may be escaped by others: a pattern for each of a run would try all ways to share them out.
      if (part.startsWith("\\"))
        return `(?:\\\\|(?:u00|x)${hex}|${escapes}){${part.length},${6 * part.length}}`;
      return `(?:\\\\{0,4}\\u00${hex}|\\\\{1,4}(?:u00|x)${hex}|${escapes})`;
    })
    .join("");
}

function hexOf(character: string): string {
  return character.charCodeAt(0).toString(16).padStart(2, "0");
}

/** Returns the Base64 characters that `bytes` have in any text, where `shift` (modulo 3) other bytes come before them. */
function base64Core(bytes: Buffer, shift: number): string {
  const whole = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
  return whole.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + bytes.length) * 8) / 6));
}

/** Replaces every key that this process sends with `[API key]`, in any form that is easily read back. */
export function hideUsedKeys(text: string): string {
  let safe = text;
  for (const { signs, whole, escaped } of used.values()) {
    if (signs.some((sign) => text.includes(sign))) safe = safe.replace(whole, HIDDEN);
    if (ESCAPES.test(safe)) safe = safe.replace(escaped, HIDDEN);
  }
  return safe;
}

/**
 * Does the same for every string and property name of a JSON value. After parsing, no escape can hide a key. Other
 * values than strings, lists and plain objects stay as they are.
 */
export function hideUsedKeysIn<T>(value: T): T {
  return used.size === 0 ? value : (hiddenIn(value) as T);
}

function hiddenIn(value: unknown): unknown {
  if (typeof value === "string") return hideUsedKeys(value);
  if (Array.isArray(value)) return value.map(hiddenIn);
  if (typeof value !== "object" || value === null || !isPlain(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [hideUsedKeys(name), hiddenIn(each)]),
  );
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Whether the text contains an API key of this program. */
export function holdsApiKey(text: string): boolean {
  return text.search(API_KEY) >= 0;
}

/**
 * Replaces every API key of this program with `imgb_…`, and removes the keys that this process sends. For logs and
 * messages.
 */
export function hideApiKeys(text: string): string {
  return hideUsedKeys(text).replace(API_KEY, "imgb_…");
}

/** Makes a line safe for a terminal or a log: it cannot move the cursor, and shows no key. */
export function safeLine(text: string): string {
  return hideApiKeys(escapeControls(text));
}

/** Makes a line of a result safe; tabs between fields stay. A key that is itself the result, such as a new one, stays. */
export function safeResultLine(text: string): string {
  return hideUsedKeys(escapeControls(text, "\t"));
}

/** Writes a value as JSON for a terminal or a file, without control characters and without the keys that this process sends. */
export function safeJson(value: unknown, indent?: number): string {
  return escapeJsonControls(JSON.stringify(hideUsedKeysIn(value), null, indent));
}
