import { errorBody } from "../../contract/errors.ts";
import type { ErrorStyle } from "../operation.ts";

/** Errors of the batch API, and of every path that belongs to no other surface. */
export const batchErrorStyle: ErrorStyle = {
  body: errorBody,
  schema: (codes) => ({
    allOf: [
      { $ref: "#/components/schemas/Error" },
      { properties: { error: { properties: { code: { enum: codes } } } } },
    ],
  }),
};
