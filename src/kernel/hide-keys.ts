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
/**
 * The keys that this process sends: as they are, as Base64 of both alphabets, and as hexadecimal digits. One registry for
 * the whole process, on purpose: logs and errors are written by code that does not know whose key it may print, so a key
 * of any service must be hidden everywhere.
 */
const used = new Set<string>();

/**
 * Registers a key that this process is about to send, of any form. From now on `hideUsedKeys` removes it from all text.
 * A key of fewer than eight characters is not hidden.
 */
export function watchKey(key: string): void {
  if (key.length < SHORTEST_HIDDEN_KEY || used.has(key)) return;
  const bytes = Buffer.from(key);
  const hex = bytes.toString("hex");
  for (const form of [key, hex, hex.toUpperCase()]) used.add(form);
  for (const base64 of [0, 1, 2].map((shift) => base64Core(bytes, shift)))
    used.add(base64).add(base64.replaceAll("+", "-").replaceAll("/", "_"));
}

/** Forgets all of these keys. For tests: many services share their process, and each key is searched for in every line. */
export function forgetKeys(): void {
  used.clear();
}

/** Returns the Base64 characters that `bytes` have in any text, where `shift` (modulo 3) other bytes come before them. */
function base64Core(bytes: Buffer, shift: number): string {
  const whole = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
  return whole.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + bytes.length) * 8) / 6));
}

/** The escapes of JSON, addresses and HTML. */
const ESCAPES = /(?:\\u00|\\x|%|&#x0*)([0-9a-f]{2});?|&#0*(\d{2,3});|\\([\\"/])/gi;
/** How often a text is escaped at most, such as an address in JSON in an error message. */
const MOST_ESCAPED = 3;

/**
 * Replaces every key that this process sends with `[API key]`, in any form that is easily read back. The rest of the text
 * stays as it is, with its escapes: it may be JSON, and an escape may stand for a control character.
 */
export function hideUsedKeys(text: string): string {
  let safe = text;
  for (const form of used) safe = safe.replaceAll(form, HIDDEN);
  let read = safe;
  for (let depth = 0; depth < MOST_ESCAPED && used.size > 0; depth++) {
    const plain = read.replace(ESCAPES, characterOf);
    if (plain === read) break;
    read = plain;
    for (const form of used) if (read.includes(form)) return withoutEscaped(safe);
  }
  return safe;
}

function characterOf(_: string, hex?: string, decimal?: string, itself?: string): string {
  return itself ?? String.fromCharCode(hex === undefined ? Number(decimal) : Number.parseInt(hex, 16));
}

/** Replaces the escaped keys of a text. */
function withoutEscaped(text: string): string {
  const found: [start: number, end: number][] = [];
  let read: Read = { plain: text, starts: Uint32Array.from({ length: text.length + 1 }, (_, at) => at) };
  for (let depth = 0; depth < MOST_ESCAPED; depth++) {
    read = unescaped(read);
    const { plain, starts } = read;
    for (const form of used)
      for (let at = plain.indexOf(form); at >= 0; at = plain.indexOf(form, at + form.length))
        found.push([starts[at] ?? 0, starts[at + form.length] ?? text.length]);
  }
  let safe = "";
  let end = 0;
  for (const [from, to] of found.sort(([a], [b]) => a - b)) {
    if (from >= end) safe += text.slice(end, from) + HIDDEN;
    end = Math.max(end, to);
  }
  return safe + text.slice(end);
}

/** A text without its escapes, and where in the original each of its characters starts, and the end of all. */
interface Read {
  plain: string;
  starts: Uint32Array;
}

function unescaped({ plain, starts }: Read): Read {
  const kept = new Uint32Array(starts.length);
  let text = "";
  let count = 0;
  let at = 0;
  const copyTo = (end: number) => {
    text += plain.slice(at, end);
    for (; at < end; at++) kept[count++] = starts[at] ?? 0;
  };
  for (const match of plain.matchAll(ESCAPES)) {
    const [whole, ...parts] = match;
    copyTo(match.index);
    text += characterOf(whole, ...parts);
    kept[count++] = starts[at] ?? 0;
    at += whole.length;
  }
  copyTo(plain.length);
  kept[count++] = starts[at] ?? 0;
  return { plain: text, starts: kept.subarray(0, count) };
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
