import { hideUsedKeys } from "../../kernel/hide-keys.ts";

/**
 * Characters that no XML document may hold, and that no page can show; and those that would reverse the order of the
 * text after them. Marks of one character's direction stay: some languages need them.
 */
const CONTROLS = /(?![\t\n\r])[\p{Cc}\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu;
const NAMES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Removes keys, and characters that a document cannot hold, from foreign text. Controls become visible symbols. */
export function printable(text: string): string {
  return hideUsedKeys(text)
    .toWellFormed()
    .replace(CONTROLS, (c) => {
      const code = c.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : "\ufffd";
    });
}

/** For the text and the quoted attributes of HTML and XML alike. */
export function escapeMarkup(text: string): string {
  return printable(text).replace(/[&<>"']/g, (c) => NAMES[c] ?? c);
}

/** For an XML attribute, where a plain line break would be read as a blank. */
export function escapeAttribute(text: string): string {
  return escapeMarkup(text).replace(/[\t\n\r]/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** Formatting, tags, mentions, addresses, emoji names and issue numbers; at the start, what begins a heading or a list. */
const MARKDOWN =
  /[\\`*[\]|~<>&@]|(?<![a-z0-9])_|_(?![a-z0-9])|:(?=\/\/|[\w+-]+:)|(?<=\bwww)\.|#(?=\d)|^[#+-]/gi;

/** For one line of Markdown, inside a table too: nothing in it is formatting, a link, a mention or a tag. */
export function escapeMarkdown(text: string): string {
  return printable(text)
    .replace(/\s+/g, " ")
    .replace(MARKDOWN, (c) => `&#${c.charCodeAt(0)};`);
}
