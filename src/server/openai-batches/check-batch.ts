import type { Request } from "express";
import type { z } from "zod";
import { type CreateOpenaiBatch, createOpenaiBatchSchema } from "../../contract/openai-api.ts";
import { inWords } from "../../contract/text-rules.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { fieldError, schemaProblem } from "../request-problems.ts";

/** Checks the body of `POST /v1/batches`. Throws `REALTIME_INVALID_ARGUMENT`. */
export function checkBatch(body: unknown): CreateOpenaiBatch {
  const parsed = createOpenaiBatchSchema.safeParse(body, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  if (
    hasUnstorableText(
      Object.entries(parsed.data.metadata ?? {})
        .flat()
        .join(""),
    )
  ) {
    const problem = "must not hold NUL or half of a surrogate pair";
    throw fieldError("REALTIME_INVALID_ARGUMENT", "metadata", problem);
  }
  return parsed.data;
}

/** Whether OpenAI's library sends a request again, after an answer that it did not get or did not like. */
export function isRepeated(request: Request): boolean {
  return Number(request.get("x-stainless-retry-count") ?? 0) > 0;
}
