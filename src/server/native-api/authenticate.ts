import type { Request, RequestHandler } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { authenticate as authenticateKey } from "../../domain/keys.ts";
import type { ApiDeps } from "../deps.ts";
import { callerAddress } from "../limits/failed-auth-limit.ts";
import { bearerToken } from "../middleware/authenticate.ts";

/**
 * Only the first credential in a fixed order counts: the vendor's headers, `Authorization: Bearer`, `x-api-key`, and
 * the query parameter where one is accepted. The group of the key must be of the native platform.
 */
export function authenticateNative(deps: ApiDeps, sources: { queryParameter?: string } = {}): RequestHandler {
  return async (request, response, next) => {
    try {
      const key = credentialOf(request, deps.keyHeaders, sources.queryParameter);
      response.locals.key = await authenticateKey(deps.stores.read, key, deps.clock.nowMs());
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
function credentialOf(
  request: Request,
  keyHeaders: readonly string[],
  queryParameter: string | undefined,
): string | null {
  for (const name of keyHeaders) {
    const key = request.get(name);
    if (key) return key;
  }
  const token = bearerToken(request);
  if (token !== null) return token;
  const key = request.get("x-api-key");
  if (key) return key;
  const inUrl = queryParameter === undefined ? undefined : request.query[queryParameter];
  if (inUrl === undefined || inUrl === "") return null;
  if (typeof inUrl !== "string") throw new ImgbatchError("INVALID_API_KEY");
  return inUrl;
}
