import type { Request, RequestHandler, Response } from "express";
import type { Session, SignInCode } from "../../contract/console-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { activeKey, authenticate as authenticateKey } from "../../domain/keys.ts";
import type { ApiKeyRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { callerAddress } from "../limits/failed-auth-limit.ts";
import { bearerToken, callerOf } from "../middleware/authenticate.ts";

/** Hides the console's own operations where it is switched off. */
export function requireConsole({ features }: Pick<ApiDeps, "features">): RequestHandler {
  return (_request, _response, next) => {
    if (!features.console) throw new ImgbatchError("NOT_FOUND");
    next();
  };
}

/** `POST /v1/console/codes`: a new code for the key of the caller. A session makes none: it would never end. */
export function makeCode(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    if (await isSession(deps, request)) {
      throw new ImgbatchError("INVALID_API_KEY", "A session makes no codes: send the key itself.");
    }
    const { secret: code, expiresAtMs } = await deps.secrets.codes.issue({
      keyId: callerOf(response).key.id,
    });
    const view: SignInCode = {
      object: "console.code",
      code,
      expires_at: Math.floor(expiresAtMs / 1000),
    };
    response.setHeader("Cache-Control", "no-store");
    response.json(view);
  };
}

/** Accepts a code, or a key, in `Authorization: Bearer`. */
export function authenticateSignIn(deps: ApiDeps): RequestHandler {
  return async (request, response, next) => {
    try {
      response.locals.key = await keyOfSignIn(deps, request);
    } catch (error) {
      const isWrong = error instanceof ImgbatchError && error.code !== "API_KEY_REQUIRED";
      if (isWrong) deps.failedAuth.note(callerAddress(request));
      throw error;
    }
    next();
  };
}

async function keyOfSignIn(
  { stores, clock, secrets }: Pick<ApiDeps, "stores" | "clock" | "secrets">,
  request: Request,
): Promise<ApiKeyRecord> {
  const credential = bearerToken(request);
  const ofCode = credential === null ? null : await secrets.codes.take(credential);
  if (ofCode) return activeKey(stores.read, ofCode.keyId, clock.nowMs());
  try {
    return await authenticateKey(stores.read, credential, clock.nowMs());
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "INVALID_API_KEY") throw error;
    const message = "This code or key is not known here. A code works once, within 10 minutes.";
    throw new ImgbatchError("INVALID_API_KEY", message);
  }
}

/** `POST /v1/console/sessions`: begins a session of the key. */
export function signIn({ secrets }: Pick<ApiDeps, "secrets">) {
  return async (_request: Request, response: Response): Promise<void> => {
    const { secret: token, expiresAtMs } = await secrets.sessions.issue({ keyId: callerOf(response).key.id });
    const view: Session = { object: "console.session", token, expires_at: Math.floor(expiresAtMs / 1000) };
    response.setHeader("Cache-Control", "no-store");
    response.json(view);
  };
}

/** `DELETE /v1/console/session`: ends the session whose token comes with the request. */
export function signOut({ secrets }: Pick<ApiDeps, "secrets">) {
  return async (request: Request, response: Response): Promise<void> => {
    await secrets.sessions.end(bearerToken(request) ?? "");
    response.status(204).end();
  };
}

async function isSession({ secrets }: Pick<ApiDeps, "secrets">, request: Request): Promise<boolean> {
  return (await secrets.sessions.find(bearerToken(request) ?? "")) !== null;
}
