import type { Request, RequestHandler, Response } from "express";
import type { ConsoleBody } from "../../contract/console-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { activeKey, authenticate as authenticateKey } from "../../domain/accounts.ts";
import type { ApiKeyRecord } from "../../domain/records.ts";
import { authenticateTicket, batchDownload } from "../batch-api/zip.ts";
import type { ApiDeps } from "../deps.ts";
import { authenticate, bearerErrors, bearerToken, callerOf } from "../http/authenticate.ts";
import { callerAddress } from "../http/limits.ts";
import type { Surface } from "../operation.ts";
import { overview, requireOwner, setPaused } from "./overview.ts";

/** Hides the console's own operations where it is switched off. */
function requireConsole({ features, operatorToken }: ApiDeps): RequestHandler {
  return (_request, _response, next) => {
    if (!features.console && operatorToken === null) throw new ImgbatchError("NOT_FOUND");
    next();
  };
}

/** `POST /v1/console/codes`: a new code for the key of the caller. A session makes none: it would never end. */
function makeCode(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    if (await isSession(deps, request)) {
      throw new ImgbatchError("INVALID_API_KEY", "A session makes no codes: send the key itself.");
    }
    const { secret: code, expiresAtMs } = await deps.secrets.codes.issue({
      keyId: callerOf(response).key.id,
    });
    const view: ConsoleBody<"SignInCode"> = {
      object: "console.code",
      code,
      expires_at: Math.floor(expiresAtMs / 1000),
    };
    response.setHeader("Cache-Control", "no-store");
    response.json(view);
  };
}

/** Accepts a code, or a key, in `Authorization: Bearer`. */
function authenticateSignIn(deps: ApiDeps): RequestHandler {
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
function signIn({ secrets }: Pick<ApiDeps, "secrets">) {
  return async (_request: Request, response: Response): Promise<void> => {
    const { secret: token, expiresAtMs } = await secrets.sessions.issue({ keyId: callerOf(response).key.id });
    const view: ConsoleBody<"Session"> = {
      object: "console.session",
      token,
      expires_at: Math.floor(expiresAtMs / 1000),
    };
    response.setHeader("Cache-Control", "no-store");
    response.json(view);
  };
}

/** `DELETE /v1/console/session`: ends the session whose token comes with the request. */
function signOut({ secrets }: Pick<ApiDeps, "secrets">) {
  return async (request: Request, response: Response): Promise<void> => {
    await secrets.sessions.end(bearerToken(request) ?? "");
    response.status(204).end();
  };
}

async function isSession({ secrets }: Pick<ApiDeps, "secrets">, request: Request): Promise<boolean> {
  return (await secrets.sessions.find(bearerToken(request) ?? "")) !== null;
}

const usesConsole = [requireConsole];
const off: readonly ServiceErrorCode[] = ["NOT_FOUND"];

/** Signing in to the web console. */
const signingIn: Surface = {
  tag: "console",
  prefix: PATHS.consoleSessions,
  operations: [
    {
      id: "signIn",
      method: "post",
      path: PATHS.consoleSessions,
      summary: "Begin a session of the web console, with a code or a key",
      answers: { 200: { description: "The session.", schema: "Session" } },
      errors: off,
      guards: usesConsole,
      handler: signIn,
    },
  ],
  credential: { schemes: ["signInCode", "apiKey"], authenticate: authenticateSignIn, errors: bearerErrors },
};

/** Operations of the web console for a person who is signed in, and for the command that makes a code. */
const signedIn: Surface = {
  tag: "console",
  prefix: PATHS.console,
  operations: [
    {
      id: "makeSignInCode",
      method: "post",
      path: PATHS.consoleCodes,
      summary: "A code that begins a session of the web console, once, within 10 minutes",
      answers: { 200: { description: "The code.", schema: "SignInCode" } },
      errors: off,
      guards: usesConsole,
      handler: makeCode,
    },
    {
      id: "getService",
      method: "get",
      path: PATHS.consoleService,
      summary: "Providers, queue, disk and the requests of all keys, for the key of `credentials.json`",
      answers: { 200: { description: "The service.", schema: "ServiceOverview" } },
      errors: [...off, "OWNER_ONLY"],
      guards: [...usesConsole, requireOwner],
      handler: overview,
    },
    // Without the console, too: the live view of `serve` uses them.
    {
      id: "pauseWorkers",
      method: "post",
      path: PATHS.consolePause,
      summary: "Let the workers begin no more images, for the key of `credentials.json`",
      answers: { 204: { description: "The workers finish what they have begun." } },
      errors: ["OWNER_ONLY"],
      guards: [requireOwner],
      handler: setPaused(true),
    },
    {
      id: "resumeWorkers",
      method: "delete",
      path: PATHS.consolePause,
      summary: "Let paused workers go on, for the key of `credentials.json`",
      answers: { 204: { description: "The workers go on." } },
      errors: ["OWNER_ONLY"],
      guards: [requireOwner],
      handler: setPaused(false),
    },
    {
      id: "signOut",
      method: "delete",
      path: PATHS.consoleSession,
      summary: "End the session whose token comes with the request",
      answers: { 204: { description: "It has ended." } },
      errors: off,
      guards: usesConsole,
      handler: signOut,
    },
  ],
  credential: { schemes: ["apiKey"], authenticate, errors: bearerErrors },
};

/** Downloads by a link that a browser follows without a key. */
const ticketDownloads: Surface = {
  tag: "console",
  prefix: "/v1/downloads",
  operations: [
    {
      ...batchDownload,
      id: "downloadByTicket",
      path: PATHS.ticketDownload,
      summary: "The ZIP of a batch, by the link of a ticket",
      parameters: [...(batchDownload.parameters ?? []), "Ticket"],
      errors: [...(batchDownload.errors ?? []), ...bearerErrors],
      guards: [authenticateTicket, ...(batchDownload.guards ?? [])],
    },
  ],
  credential: null,
};

/** The web console's own operations. Everything else that it shows comes from the other surfaces. */
export const consoleApis: readonly Surface[] = [signingIn, signedIn, ticketDownloads];
