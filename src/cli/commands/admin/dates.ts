/** Converts ms since 1970 to Unix seconds, the form of the API. */
export function toSeconds(ms: number): number {
  return Math.floor(ms / 1000);
}

/** Formats a time as `2030-01-31T18:00:00Z`, for people and for `--expires`. */
export function formatMoment(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
}
