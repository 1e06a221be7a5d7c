import type { z } from "zod";
import type { ImgbatchError } from "../../../contract/errors.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { createJobSchema } from "../../../contract/native-api/batch-jobs.ts";
import { inWords } from "../../../contract/schema-words.ts";
import { hasUnstorableText, truncateCodePoints } from "../../../kernel/text.ts";
import { fieldError, schemaProblem } from "../../request-problems.ts";
import { camelKeys } from "../request/camel-keys.ts";

/** The request in a body: the lines of a file, or those that came with it, one JSON text each. */
export interface JobBody {
  name: string | null;
  input: { fileName: string } | { lines: string[] };
}

const INPUT = "batch.inputConfig";
const REQUESTS = `${INPUT}.requests.requests`;
/** The body, `batch` and `inputConfig`. Anything further inside belongs to the lines, and comes back as it was. */
const OWN_LEVELS = 3;

/** Checks the body of `:batchGenerateContent`. The requests themselves are checked later, each by itself. */
export function checkJob(body: unknown): JobBody {
  const parsed = createJobSchema.safeParse(camelKeys(body, OWN_LEVELS), { error: inWords });
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
  const most = FIXED_LIMITS.inlineLines;
  if (requests.length === 0) throw invalid(REQUESTS, "must not be empty");
  if (requests.length > most) {
    const problem = `has ${requests.length} requests; at most ${most} can come inline. Upload a file with more`;
    throw invalid(REQUESTS, problem);
  }
  const lines = requests.map(({ request, metadata }) =>
    JSON.stringify({ key: metadata ?? undefined, request }),
  );
  return { name, input: { lines } };
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
}
