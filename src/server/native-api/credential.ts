import type { Request, RequestHandler } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import type { ApiDeps } from "../deps.ts";
import { bearerToken, keyOfCredential } from "../http/authenticate.ts";
import { callerAddress } from "../http/limits.ts";
import type { Credential } from "../operation.ts";

/** Where the query parameter `key` counts, too. */
const TAKES_KEY_IN_URL = /^\/(?:upload\/)?v1beta\//;

/**
 * Only the first credential in a fixed order counts: the vendor's headers, `Authorization: Bearer`, `x-api-key`, and
 * below `/v1beta` and `/upload/v1beta` the query parameter `key`. The group of the key must be of the native platform.
 */
function authenticateNative(deps: ApiDeps): RequestHandler {
  return async (request, response, next) => {
    try {
      const key = credentialOf(request, deps.keyHeaders);
      response.locals.key = await keyOfCredential(deps, key);
    } catch (error) {
      if (!(error instanceof ImgbatchError)) throw error;
      if (error.code !== "API_KEY_REQUIRED") deps.failedAuth.note(callerAddress(request));
      else {
        const vendor = deps.keyHeaders[0] === undefined ? "" : `in \`${deps.keyHeaders[0]}\` or `;
        const message = `An API key is required: send it ${vendor}as \`Authorization: Bearer <key>\`.`;
        throw new ImgbatchError("API_KEY_REQUIRED", message);
      }
      throw error;
    }
    const group = deps.groups.find((g) => g.name === response.locals.key.group);
    if (group?.platform !== "native") {
      throw new ImgbatchError("REALTIME_GROUP_NOT_NATIVE", undefined, { param: "key" });
    }
    response.locals.group = group;
    next();
  };
}

/** A header without a value counts as absent. */
function credentialOf(request: Request, keyHeaders: readonly string[]): string | null {
  const vendorKey = vendorKeyOf(request, keyHeaders);
  if (vendorKey !== null) return vendorKey;
  const token = bearerToken(request);
  if (token !== null) return token;
  const key = request.get("x-api-key");
  if (key) return key;
  // The path as the caller wrote it: others are read as paths below `/v1beta`.
  const inUrl = TAKES_KEY_IN_URL.test(request.originalUrl) ? request.query.key : undefined;
  if (inUrl === undefined || inUrl === "") return null;
  if (typeof inUrl !== "string") throw new ImgbatchError("INVALID_API_KEY");
  return inUrl;
}

/** The key in one of the vendor's headers, which marks a client of the vendor; null without one. */
export function vendorKeyOf(request: Request, keyHeaders: readonly string[]): string | null {
  for (const name of keyHeaders) {
    const key = request.get(name);
    if (key) return key;
  }
  return null;
}

const errors: readonly ServiceErrorCode[] = [
  "API_KEY_REQUIRED",
  "INVALID_API_KEY",
  "API_KEY_DISABLED",
  "RATE_LIMITED",
  "REALTIME_GROUP_NOT_NATIVE",
];

export const headerKey: Credential = {
  schemes: ["apiKey", "headerKey"],
  authenticate: authenticateNative,
  errors,
};

export const headerOrQueryKey: Credential = { ...headerKey, schemes: [...headerKey.schemes, "queryKey"] };
