import { escapeControls, escapeJsonControls } from "./text.ts";

/**
 * An API key of this program, or enough of one to be worth guessing the rest, inside other text. Each character may be
 * percent-encoded, as it can be in an address. Batch ids (`imgbatch_…`) are no such thing.
 */
const API_KEY = /(?:i|%69)(?:m|%6d)(?:g|%67)(?:b|%62)(?:_|%5f)(?:[\w-]|%[2-7][0-9a-f]){20,}/gi;

const HIDDEN = "[API key]";
/** A shorter key would be found in ordinary words. */
const SHORTEST_HIDDEN_KEY = 8;
/** The keys that this process sends, each with what finds it in text: as a whole, and with characters escaped. */
const used = new Map<string, { whole: RegExp; escaped: RegExp }>();
/** Without one of these nothing is escaped; to look for them is quick, also in the megabytes of an image. */
const ESCAPES = /[%\\&]/;

/**
 * Names a key that this process is about to send, of whatever shape: from now on `hideUsedKeys` takes it out of all text.
 * One of fewer than eight characters is not hidden.
 */
export function watchKey(key: string): void {
  if (key.length < SHORTEST_HIDDEN_KEY || used.has(key)) return;
  used.set(key, { whole: new RegExp(wholeForms(key), "g"), escaped: new RegExp(escapedForm(key), "gi") });
}

/** A key as it stands, as Base64 of either alphabet, and as hex. */
function wholeForms(key: string): string {
  const bytes = Buffer.from(key);
  const hex = bytes.toString("hex");
  const base64 = [0, 1, 2].map((shift) =>
    base64Core(bytes, shift).replace(/[+/]/g, (c) => (c === "+" ? "[+-]" : "[/_]")),
  );
  const plain = [...key].map((character) => `\\u${hexOf(character).padStart(4, "0")}`).join("");
  return [plain, ...base64, hex, hex.toUpperCase()].join("|");
}

/** A key with some or all characters escaped as in addresses, JSON and HTML, maybe more than once. */
function escapedForm(key: string): string {
  const forms = [...key].map((character) => {
    const hex = hexOf(character);
    const escapes = `%(?:25){0,2}${hex}|\\\\{1,4}(?:u00|x)${hex}|&#(?:x0{0,4}${hex}|0{0,4}${character.charCodeAt(0)});`;
    return `(?:\\\\{0,4}\\u00${hex}|${escapes})`;
  });
  return forms.join("");
}

function hexOf(character: string): string {
  return character.charCodeAt(0).toString(16).padStart(2, "0");
}

/** The characters of the Base64 of any text that has `bytes` behind `shift` (modulo 3) others. */
function base64Core(bytes: Buffer, shift: number): string {
  const whole = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
  return whole.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + bytes.length) * 8) / 6));
}

/** The text with `[API key]` in the place of every key that this process sends, in any form that is read back easily. */
export function hideUsedKeys(text: string): string {
  let safe = text;
  for (const { whole, escaped } of used.values()) {
    safe = safe.replace(whole, HIDDEN);
    if (ESCAPES.test(safe)) safe = safe.replace(escaped, HIDDEN);
  }
  return safe;
}

/**
 * The same for a value of JSON, in every text and name in it: after parsing, where an escape can hide nothing any more.
 * What is neither text, list nor plain object stays as it is.
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

/** Whether an API key stands anywhere in the text. */
export function holdsApiKey(text: string): boolean {
  return text.search(API_KEY) >= 0;
}

/**
 * The text with `imgb_…` in the place of every API key of this program, and without the keys that this process sends: for
 * logs and messages, whatever they were made of.
 */
export function hideApiKeys(text: string): string {
  return hideUsedKeys(text).replace(API_KEY, "imgb_…");
}

/** A line for a person or a log: it can neither move the cursor nor show a key. */
export function safeLine(text: string): string {
  return hideApiKeys(escapeControls(text));
}

/** A line of a result, maybe of fields between tabs. Keys that are a result, such as a new one, stay. */
export function safeResultLine(text: string): string {
  return hideUsedKeys(escapeControls(text, "\t"));
}

/** A value as JSON for a terminal or a file: it shows no key that this process sends, and no control character. */
export function safeJson(value: unknown, indent?: number): string {
  return escapeJsonControls(JSON.stringify(hideUsedKeysIn(value), null, indent));
}
