import { hideApiKeys } from "../../kernel/hide-keys.ts";
import { escapeControls, truncateCodePoints } from "../../kernel/text.ts";

const MAX_CHARS = 500;
/** No more is looked at. */
const MAX_READ_CHARS = 64_000;

/** Names that an upstream gives to what belongs to its customer: projects, organisations, files, models. */
const RESOURCES =
  /\b(?:projects|organizations|locations|endpoints|models|tunedModels|deployments|files|batches|operations|cachedContents|consumers)\/[\w.:@-]+(?:\/[\w.:@-]+)*|\b(?:org|proj)[-_][A-Za-z0-9]{10,}|\bproject[ :]+\d{6,}/g;
/** Keys of well-known vendors, also those that the vendor has half hidden itself. */
const KEYS = /\b(?:sk|xai|gsk|tgp)[-_][\w*.-]{6,}|\bAIza[\w*.-]{8,}/g;

/**
 * Makes an upstream's words fit for a caller: without keys, without names of the customer's resources, without control
 * characters, and no longer than 500 characters.
 */
export function upstreamWords(text: string): string {
  // Keys are hidden before the text is cut: a part of a key would not be recognized.
  const safe = hideApiKeys(text.slice(0, MAX_READ_CHARS))
    .replace(KEYS, "[API key]")
    .replace(RESOURCES, "[name]");
  return truncateCodePoints(oneLine(safe), MAX_CHARS, "…");
}

const OWNERS_LINES = 2;
const OWNERS_LINE_CHARS = 200;

/** Returns the first two lines of an upstream's words for the owner of the service, as safe as `upstreamWords`. */
export function ownersWords(text: string): string {
  const lines = text.slice(0, MAX_READ_CHARS).split(/[\r\n]+/);
  return lines
    .map((line) => truncateCodePoints(upstreamWords(line), OWNERS_LINE_CHARS, "…"))
    .filter((line) => line !== "")
    .slice(0, OWNERS_LINES)
    .join("\n");
}

/**
 * Returns the matches of a pattern (with the flag `g`) in an upstream's message that are its own words. A match whose
 * letters are also in the caller's texts may be a repeated prompt, however it was shortened or escaped.
 */
export function ownMatches(message: string, pattern: RegExp, asked: string): RegExpExecArray[] {
  const theirs = lettersOf(asked);
  return [...message.matchAll(pattern)].filter(([phrase]) => !theirs.includes(lettersOf(phrase)));
}

function lettersOf(text: string): string {
  return text
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "");
}

/** Joins the lines with ` | `, and makes control characters visible. */
export function oneLine(text: string): string {
  return escapeControls(text.trim().replace(/\s*[\r\n]\s*/g, " | "));
}
