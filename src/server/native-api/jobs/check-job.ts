import type { z } from "zod";
import type { ImgbatchError } from "../../../contract/errors.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { createJobSchema } from "../../../contract/native-jobs.ts";
import { inWords } from "../../../contract/text-rules.ts";
import type { SentTexts } from "../../../domain/images/sent-image.ts";
import type { LineText } from "../../../domain/lines/create-job.ts";
import { fieldsOf } from "../../../kernel/json/fields.ts";
import { hasUnstorableText, truncateCodePoints } from "../../../kernel/text.ts";
import type { TakenBody } from "../../request-body/image-extraction.ts";
import { fieldError, schemaProblem } from "../../request-problems.ts";
import { camelKeys } from "../request/camel-keys.ts";

/** The request in a body: the lines of a file, or those that came with it. */
export interface JobBody {
  name: string | null;
  input: { fileName: string } | { lines: Iterable<LineText> };
}

const INPUT = "batch.inputConfig";
const REQUESTS = `${INPUT}.requests.requests`;
/** The body, `batch` and `inputConfig`. Anything further inside belongs to the lines, and comes back as it was. */
const OWN_LEVELS = 3;

/** Checks the body of `:batchGenerateContent`. The requests themselves are checked later, each by itself. */
export function checkJob({ value, sent }: TakenBody): JobBody {
  const given = camelKeys(value, OWN_LEVELS);
  refuseTooMany(given);
  const parsed = createJobSchema.safeParse(given, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  const { displayName, inputConfig } = parsed.data.batch;
  const name = truncateCodePoints((displayName ?? "").trim(), FIXED_LIMITS.taskNameChars) || null;
  if (name !== null && hasUnstorableText(name)) {
    throw invalid("batch.displayName", "must not hold NUL or half of a surrogate pair");
  }
  const requests = inputConfig.requests?.requests;
  const fileName = inputConfig.fileName || null;
  if (fileName !== null && requests !== undefined) {
    throw invalid(INPUT, "takes either fileName or requests, not both");
  }
  if (fileName !== null) return { name, input: { fileName } };
  if (requests === undefined) throw invalid(INPUT, "needs the fileName of an uploaded file, or requests");
  if (requests.length === 0) throw invalid(REQUESTS, "must not be empty");
  const mostChars = FIXED_LIMITS.lineKeyJsonChars;
  const long = requests.findIndex(
    ({ metadata }) => metadata != null && JSON.stringify(metadata).length > mostChars,
  );
  if (long >= 0)
    throw invalid(`${REQUESTS}[${long}].metadata`, `has more than ${mostChars} characters as JSON`);
  return { name, input: { lines: linesOf(requests, sent) } };
}

/** Comes first: the schema would describe every wrong element of a long list. */
function refuseTooMany(body: unknown): void {
  const names = ["batch", "inputConfig", "requests", "requests"];
  const requests = names.reduce<unknown>((holder, name) => fieldsOf(holder)?.[name], body);
  const most = FIXED_LIMITS.inlineLines;
  if (!Array.isArray(requests) || requests.length <= most) return;
  const problem = `has ${requests.length} requests; at most ${most} can come inline. Upload a file with more`;
  throw invalid(REQUESTS, problem);
}

type Requests = NonNullable<z.infer<typeof createJobSchema>["batch"]["inputConfig"]["requests"]>["requests"];

/** The lines as they came, with the images that were taken out. */
function* linesOf(requests: Requests, sent: SentTexts): Generator<LineText> {
  for (const { request, metadata } of requests) {
    const line = JSON.stringify({ key: metadata ?? undefined, request });
    yield line.split(/"([0-9a-f]{32}\.\d+)"/).flatMap((text, i) => {
      if (i % 2 === 0) return [text];
      const content = sent.get(text)?.content;
      // What is no Base64 can be any other text that is none.
      return content === undefined || typeof content === "string" ? [`"${text}"`] : ['"', content, '"'];
    });
  }
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
}
