/** Length in Unicode code points, without building an array for long plain text. */
export function codePointLength(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** The first `max` code points; `ellipsis` is added when something was cut. */
export function truncateCodePoints(text: string, max: number, ellipsis = ""): string {
  if (text.length <= max) return text;
  const points = Array.from(text);
  return points.length <= max ? text : points.slice(0, max).join("") + ellipsis;
}

/** NUL and lone surrogates cannot be stored and given back faithfully. */
export function hasUnstorableText(text: string): boolean {
  return text.includes("\0") || !text.isWellFormed();
}

const CONTROLS = /\p{Cc}/gu;

/** Text for a terminal or a log line: control characters become visible escapes. */
export function escapeControls(text: string): string {
  return text.replace(CONTROLS, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
