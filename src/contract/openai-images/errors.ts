import { z } from "zod";
import { type ErrorCode, errorType, type ImgbatchError } from "../errors.ts";

/** The codes that clients know by another name. */
const CODES: { [code in ErrorCode]?: string } = {
  INVALID_API_KEY: "invalid_api_key",
  RATE_LIMITED: "rate_limit_exceeded",
  REALTIME_INSUFFICIENT_BALANCE: "insufficient_quota",
  REALTIME_MODEL_NOT_FOUND: "model_not_found",
  REALTIME_NO_IMAGE: "no_image",
  REALTIME_REFUSED: "moderation_blocked",
};

/** The types that are not those of their status. */
const TYPES: { [code in ErrorCode]?: string } = {
  REALTIME_INSUFFICIENT_BALANCE: "insufficient_quota",
  REALTIME_REFUSED: "image_generation_user_error",
};

export const openaiErrorSchema = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable().describe("the field or header at fault, when it is one"),
    code: z.string().describe("decide by this, never by the message"),
  }),
});
export type OpenaiErrorBody = z.infer<typeof openaiErrorSchema>;

/** The code of an error as OpenAI's clients know it. Codes that they have no name for stay as they are. */
export function openaiCode(code: ErrorCode): string {
  return CODES[code] ?? code;
}

/** The JSON body of an error in OpenAI's shape. */
export function openaiErrorBody({ code, message, param, httpStatus }: ImgbatchError): OpenaiErrorBody {
  const type = TYPES[code] ?? errorType(httpStatus);
  return { error: { message, type, param: param ?? null, code: openaiCode(code) } };
}
