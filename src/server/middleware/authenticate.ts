import type { RequestHandler, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { authenticate as authenticateKey } from "../../domain/keys.ts";
import type { ApiDeps } from "../deps.ts";

/**
 * Only `Authorization: Bearer <key>` counts on the batch API. Afterwards `callerOf` knows who asks.
 * Rules: AUTH-1, AUTH-2.
 */
export function authenticate(deps: ApiDeps): RequestHandler {
  return async (request, response, next) => {
    try {
      response.locals.key = await authenticateKey(deps.stores.read, bearerToken(request), deps.clock.nowMs());
    } catch (error) {
      const isWrongKey = error instanceof ImgbatchError && error.code !== "API_KEY_REQUIRED";
      if (isWrongKey) deps.failedAuth.note(request.socket.remoteAddress ?? "");
      throw error;
    }
    next();
  };
}

/**
 * Addresses end up in logs and histories: a key in one is refused on every path, whatever else the request says.
 * Rule: AUTH-4.
 */
export const refuseKeyInUrl: RequestHandler = (request, _response, next) => {
  if (request.query.api_key === undefined) {
    next();
    return;
  }
  const message = "api_key: keys are not taken from the URL; send `Authorization: Bearer <key>`";
  throw new ImgbatchError("BATCH_IMAGE_INVALID_QUERY", message, { param: "api_key" });
};

/** Lets through keys whose group is of the native platform and may make batches. */
export function requireBatchGroup(deps: ApiDeps): RequestHandler {
  return (_request, response, next) => {
    const group = deps.groups.find((g) => g.name === response.locals.key.group);
    if (!group?.allowBatchImages || group.platform !== "native") {
      throw new ImgbatchError("BATCH_IMAGE_GROUP_DISABLED");
    }
    response.locals.group = group;
    next();
  };
}

/** Who asks; only behind `authenticate` and `requireBatchGroup`. */
export function callerOf(response: Response): Caller {
  return { key: response.locals.key, group: response.locals.group };
}

/** The token of the header; null when there is none. Throws `INVALID_API_KEY` for any other scheme. */
export function bearerToken(request: { get(name: string): string | undefined }): string | null {
  const header = request.get("authorization");
  if (header === undefined) return null;
  const token = /^bearer +(\S+)$/i.exec(header.trim())?.[1];
  if (token === undefined) throw new ImgbatchError("INVALID_API_KEY");
  return token;
}
