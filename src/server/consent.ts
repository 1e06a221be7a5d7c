import type { Request, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../contract/errors.ts";
import { MAX_COST_HEADER } from "../contract/routes.ts";
import type { Caller } from "../domain/batches/create-batch.ts";
import { parseUsd } from "../kernel/money.ts";
import type { ApiDeps } from "./deps.ts";
import { callerOf } from "./middleware/authenticate.ts";

/**
 * Returns the caller with the consent of the request: the amount that the person at this machine agrees to pay. Only the
 * local key can carry one; that of any other key is ignored. Throws the given error for a text that is no amount.
 */
export function consentingCaller(
  { isLocalKey }: Pick<ApiDeps, "isLocalKey">,
  request: Request,
  response: Response,
  code: ServiceErrorCode,
): Caller {
  const caller = callerOf(response);
  const text = request.get(MAX_COST_HEADER);
  if (text === undefined || !isLocalKey(caller.key.id)) return caller;
  const consentMicroUsd = parseUsd(text);
  if (consentMicroUsd !== null) return { ...caller, consentMicroUsd };
  const message = `${MAX_COST_HEADER}: write an amount in US dollars with at most 6 decimals, such as 1.25`;
  throw new ImgbatchError(code, message, { param: MAX_COST_HEADER });
}
