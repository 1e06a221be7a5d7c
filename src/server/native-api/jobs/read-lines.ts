import type { LineReader } from "../../../domain/lines/line.ts";
import { isObject } from "../../jobs/json-lines.ts";
import { type LineFormat, type LineRules, lineReader } from "../../jobs/line-reader.ts";
import { fieldError } from "../../request-problems.ts";
import { CONTENT_SHAPE, contentFormat } from "../generate.ts";
import { checkContent } from "../request/check-content.ts";

/**
 * Returns the reader of the native API's batch jobs: a JSON object a line, with the `request` as `generateContent` takes it,
 * and the client's `key`. A line without `request` is the request itself.
 */
export function nativeLines(rules: LineRules): LineReader {
  const images = { base64: "lenient", maxBytes: rules.limits.referenceImageBytes } as const;
  const shape = { ...(CONTENT_SHAPE as object), key: "any", request: CONTENT_SHAPE } as const;
  const format: LineFormat = {
    keyOf: ({ key }: { key?: unknown }) => key,
    check: async (line: { request?: unknown }, { model, ...given }) => {
      const request = line.request === undefined ? line : line.request;
      if (!isObject(request)) throw fieldError("REALTIME_INVALID_ARGUMENT", "request", "must be an object");
      const { strictImageConfig } = rules.features;
      return checkContent(request, model, { ...rules, strictImageConfig, ...given });
    },
  };
  return lineReader(rules, { format: contentFormat(rules.limits, shape), images }, () => format);
}
