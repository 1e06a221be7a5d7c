import { PATHS } from "../../contract/routes.ts";
import type { JobOfLines, LineReader } from "../../domain/lines/line.ts";
import { MAX_INPUT_IMAGES } from "../../domain/realtime/models.ts";
import { isObject } from "../jobs/json-lines.ts";
import { type LineFormat, type LineRules, lineReader } from "../jobs/line-reader.ts";
import { checkFields } from "../openai-images/check-request.ts";
import { EDIT_IMAGES, IMAGES_SHAPE, imagesFormat, readJson } from "../openai-images/with-request.ts";
import { fieldError } from "../request-problems.ts";

/** A line as it was sent. */
interface SentLine {
  custom_id?: unknown;
  method?: unknown;
  url?: unknown;
  body?: unknown;
}

const LINE_SHAPE = { custom_id: "any", method: "any", url: "any", body: IMAGES_SHAPE } as const;

/**
 * Returns the reader of OpenAI's batches: a JSON object a line, with a `body` as the images API takes it as JSON, and a
 * `custom_id` that no other line has. A line asks for one image, of the model of its batch.
 */
export function openaiLines(rules: LineRules): LineReader {
  const format = imagesFormat(rules.limits, LINE_SHAPE);
  return lineReader(rules, { format, images: EDIT_IMAGES }, (job) => formatOf(rules, job));
}

function formatOf(rules: LineRules, { input }: JobOfLines): LineFormat {
  const endpoint = input?.openai?.endpoint ?? "";
  const modelName = input?.openai?.modelName ?? null;
  const known = new Set<string>();
  return {
    keyOf: ({ custom_id: id }: SentLine) => (typeof id === "string" ? id : undefined),
    check: async (line: SentLine, { model, sent, findFileImage }) => {
      checkEnvelope(line, endpoint, known);
      if (!isObject(line.body)) throw invalid("body", "must be an object");
      const request = await readJson(line.body, endpoint === PATHS.imageEdits, sent, findFileImage);
      const named = request.fields.model ?? null;
      if (named !== modelName) {
        throw invalid(
          "body.model",
          `must be the same in all lines: ${modelName ?? "absent"}, as in the first one`,
        );
      }
      const { content, count, isByUrl, isStream } = await checkFields(
        rules,
        model,
        MAX_INPUT_IMAGES,
        request,
      );
      if (count !== 1) throw invalid("body.n", "must be 1 in a batch: write a line for each image");
      if (isStream) throw invalid("body.stream", "must not be true in a batch");
      if (isByUrl) throw invalid("body.response_format", "must be b64_json in a batch");
      return content;
    },
  };
}

/** Checks all but the body. `known` has the names of the lines before, and gets this one's. */
function checkEnvelope({ custom_id: id, method, url }: SentLine, endpoint: string, known: Set<string>): void {
  if (typeof id !== "string" || id === "") throw invalid("custom_id", "is required: a text");
  if (known.has(id)) throw invalid("custom_id", "must differ from those of the lines before");
  known.add(id);
  if (method !== "POST") throw invalid("method", "must be POST");
  if (url !== endpoint) throw invalid("url", `must be the endpoint of the batch, ${endpoint}`);
}

const invalid = (param: string, problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
