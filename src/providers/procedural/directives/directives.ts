import { ITEM_ERROR_CODES, type ItemErrorCode } from "../../../contract/item-errors.ts";
import { JOB_DIRECTIVES, stuckMs } from "../../../contract/job-directives.ts";
import { ProviderError } from "../../../domain/ports/image-provider.ts";

/** The directives of a prompt. A prompt without any has nulls, no delay, and one image. */
export interface Directives {
  /** Fail with this code. */
  fail: ItemErrorCode | null;
  /** Fail with this code, except in a batch that retries another. */
  failOnce: ItemErrorCode | null;
  /** Fail like an upstream that responds with this HTTP status. */
  status: number | null;
  delayMs: number;
  /** The delay before the next try that a failure asks for. */
  retryAfterMs: number | null;
  refuse: boolean;
  badBytes: boolean;
  imageCount: number;
}

/** The most images that one prompt can ask for. */
const MAX_IMAGES = 8;
const MAX_WAIT_MS = 24 * 60 * 60_000;
const UNIT_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

const DIRECTIVE = /\[\[(.*?)(\]\]|$)/gs;

/** Returns the earlier turns without their directives, which no longer have an effect. Malformed ones go, too. */
export function withoutDirectives(earlier: string): string {
  return tidy(earlier.replaceAll(DIRECTIVE, " "), earlier);
}

function tidy(text: string, prompt: string): string {
  return text === prompt ? prompt : text.replaceAll(/[ \t]+/g, " ").trim();
}

/**
 * Splits a prompt into its directives and the text to draw. A directive is written `[[name]]` or `[[name:value]]`, anywhere
 * in the prompt. If one is repeated, the last counts. Throws a `ProviderError` with the code `INVALID_ARGUMENT` for a
 * directive that is unknown, malformed, or not closed.
 */
export function parseDirectives(prompt: string): { text: string; directives: Directives } {
  const directives: Directives = {
    fail: null,
    failOnce: null,
    status: null,
    delayMs: 0,
    retryAfterMs: null,
    refuse: false,
    badBytes: false,
    imageCount: 1,
  };
  const text = prompt.replaceAll(DIRECTIVE, (whole, inside: string, end: string) => {
    if (end === "") throw malformed(whole, "it is not closed by ]]");
    apply(directives, whole, inside.trim());
    return " ";
  });
  return { text: tidy(text, prompt), directives };
}

function apply(directives: Directives, whole: string, inside: string): void {
  const colon = inside.indexOf(":");
  const name = (colon < 0 ? inside : inside.slice(0, colon)).trim();
  const value = colon < 0 ? null : inside.slice(colon + 1).trim();
  const flag = () => {
    if (value !== null) throw malformed(whole, `${name} takes no value`);
  };
  const needed = (what: string) => {
    if (value === null || value === "")
      throw malformed(whole, `${name} needs ${what}, as in [[${name}:${EXAMPLES[name]}]]`);
    return value;
  };
  switch (name) {
    case "fail":
      directives.fail = errorCode(whole, needed("an error code"));
      return;
    case "fail-once":
      directives.failOnce = errorCode(whole, needed("an error code"));
      return;
    case "status":
      directives.status = integer(whole, needed("an HTTP status"), 400, 599);
      return;
    case "delay":
      directives.delayMs = duration(whole, needed("a time"));
      return;
    case "retry-after":
      directives.retryAfterMs = duration(whole, needed("a time"));
      return;
    case "images":
      directives.imageCount = integer(whole, needed("a number"), 0, MAX_IMAGES);
      return;
    case "empty":
      flag();
      directives.imageCount = 0;
      return;
    case "refuse":
      flag();
      directives.refuse = true;
      return;
    case "bad-bytes":
      flag();
      directives.badBytes = true;
      return;
    case "job-stuck":
      if (stuckMs(needed("a time")) === null)
        throw malformed(whole, "the time must be like 10m, at most 24h");
      return;
    default:
      // The others for jobs have no effect on a picture.
      if (!JOB_DIRECTIVES.some((known) => known === name)) {
        throw malformed(whole, `there is no directive ${JSON.stringify(name)}`);
      }
      flag();
  }
}

const EXAMPLES: Record<string, string> = {
  fail: "PROVIDER_ITEM_FAILED",
  "fail-once": "PROVIDER_TIMEOUT",
  status: "503",
  delay: "2s",
  "retry-after": "1s",
  "job-stuck": "10m",
  images: "2",
};

function malformed(whole: string, why: string): ProviderError {
  const shown = whole.length > 60 ? `${whole.slice(0, 59)}…` : whole;
  return new ProviderError("INVALID_ARGUMENT", `directive ${shown} in the prompt: ${why}`);
}

function errorCode(whole: string, value: string): ItemErrorCode {
  const code = ITEM_ERROR_CODES.find((known) => known === value);
  if (code === undefined) throw malformed(whole, `the code must be one of ${ITEM_ERROR_CODES.join(", ")}`);
  return code;
}

function integer(whole: string, value: string, low: number, high: number): number {
  const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= low && number <= high)) throw malformed(whole, `the value must be from ${low} to ${high}`);
  return number;
}

function duration(whole: string, value: string): number {
  const [, amount, unit] = /^(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h)$/.exec(value) ?? [];
  const ms = Math.round(Number(amount) * (UNIT_MS[unit ?? ""] ?? Number.NaN));
  if (!(ms <= MAX_WAIT_MS)) throw malformed(whole, "the time must be like 500ms, 2s or 1m, and at most 24h");
  return ms;
}
