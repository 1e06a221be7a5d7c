import type { Answer } from "../../operation.ts";

/** Parameters of a download that may be unchanged, or wanted in parts. */
export const conditions = ["IfNoneMatch"];
export const ranges = [...conditions, "Range", "IfRange"];

const partOfDownload = ["ETag", "AcceptRanges", "CacheControl", "NoSniff"];
/** The response of 304. */
export const unchanged: Answer = {
  description: "Unchanged since the ETag of `If-None-Match`.",
  headers: ["ETag"],
};
const unsatisfiable: Answer = { description: "The range begins after the end.", headers: ["ContentRange"] };

/** The successful responses of a download. */
export function downloadAnswers(what: string, bytes: readonly string[]): Record<number, Answer> {
  const headers = ["ContentLength", "ContentDisposition", ...partOfDownload];
  return {
    200: { description: what, bytes, headers },
    206: { description: "The range that was asked for.", bytes, headers: [...headers, "ContentRange"] },
    304: unchanged,
    416: unsatisfiable,
  };
}

/** Those of its `HEAD`. */
export function headAnswers(what: string): Record<number, Answer> {
  const headers = ["ContentLength", "ContentDisposition", ...partOfDownload];
  return { 200: { description: `The headers of ${what}.`, headers }, 304: unchanged };
}
