import type { Request, RequestHandler } from "express";
import { ImgbatchError, nativeErrorBody, type ServiceErrorCode } from "../../contract/errors.ts";
import { FILE_VERBS, MODEL_VERBS } from "../../contract/routes.ts";
import type { ApiDeps } from "../deps.ts";
import { bearerToken, keyOfCredential } from "../http/authenticate.ts";
import { invalidArgument } from "../http/errors.ts";
import { callerAddress } from "../http/limits.ts";
import type { Credential, ErrorStyle, MakeHandler } from "../operation.ts";

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
function vendorKeyOf(request: Request, keyHeaders: readonly string[]): string | null {
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

/**
 * The table of operations has the native API once, below `/v1beta`. Here its other paths are read as those: the ones
 * below `/v1` when the vendor's key header is there (every other client on `/v1` is OpenAI's), verbs of models below `/v1`
 * in any case, `/upload/v1` and `/download/v1`.
 */
export function readVersion({ keyHeaders }: { keyHeaders: readonly string[] }): RequestHandler {
  return (request, _response, next) => {
    request.url = nativeUrl(readColons(request), vendorKeyOf(request, keyHeaders) !== null);
    next();
  };
}

/** The URL of a request as the table of operations has it. */
export function nativeUrl(url: string, hasVendorKey: boolean): string {
  const isNative = hasVendorKey ? /^\/v1\/(?!images\/)/ : /^\/v1\/(?=models\/[^?]*:)/;
  return url.replace(/^\/(download|upload)\/v1\//, "/$1/v1beta/").replace(isNative, "/v1beta/");
}

const ENCODED_COLON =
  /^((?:\/download)?\/v1(?:beta)?\/(?:models|files|batches)\/[^?]*)%3a([^/?:%]*)(?=\?|$)/i;
const VERBS: readonly string[] = [...MODEL_VERBS, ...FILE_VERBS];
const MODEL_PATH = /^\/v1(?:beta)?\/models\/(.+)$/;

/**
 * Clients that encode every part of a path also encode the colon before the verb: `…/models/{model}%3AgenerateContent`.
 * Before a verb it is read as a colon. Elsewhere it stays a part of the model's id.
 */
function readColons({ method, url }: Request): string {
  return url.replace(ENCODED_COLON, (whole, path: string, verb: string) =>
    method === "POST" || VERBS.includes(verb) ? `${path}:${verb}` : whole,
  );
}

/**
 * A path that cannot name a model is a bad request, not an unknown model, and a verb that does not exist is not a model.
 * The router could not decode some of these paths, so they are looked at before it. The key is checked first.
 */
export function screenModelPath(authenticate: MakeHandler): MakeHandler {
  return (deps) => {
    const authenticated = authenticate(deps);
    return (request, response, next) => {
      const raw = MODEL_PATH.exec(request.path)?.[1];
      const problem = raw === undefined ? null : modelPathProblem(raw);
      if (problem === null) return next();
      return authenticated(request, response, (error) => next(error ?? problem));
    };
  };
}

/** The error of the part of a path behind `/models/`, as it was sent; null when it names a model, perhaps with a verb. */
export function modelPathProblem(raw: string): ImgbatchError | null {
  if (!canNameModel(raw)) {
    return invalidArgument("model", "the path does not name a model");
  }
  const hasVerb = /^[^/]+?:[^/]+$/.test(raw);
  const isKnown = MODEL_VERBS.some((verb) => raw.endsWith(`:${verb}`));
  return hasVerb && !isKnown ? new ImgbatchError("NOT_FOUND") : null;
}

function canNameModel(raw: string): boolean {
  let name: string;
  try {
    name = decodeURIComponent(raw);
  } catch {
    return false;
  }
  const colon = name.lastIndexOf(":");
  const [model, verb] = colon < 0 ? [name, ""] : [name.slice(0, colon), name.slice(colon + 1)];
  if (model === "" || /[\p{Cc}\s]/u.test(model)) return false;
  // Without a verb, more parts are a path that does not exist.
  return verb === "" || !raw.includes("/");
}

/** The model that the path names. */
export function modelParameter(request: Request): string {
  const { model } = request.params;
  return typeof model === "string" ? model : "";
}

const schema = { $ref: "#/components/schemas/NativeError" };

/** Errors as the native API writes them. Where the response is a stream that is one JSON array, so is the error. */
const nativeErrorStyle: ErrorStyle = {
  body(error, request) {
    const body = nativeErrorBody(error);
    const isArray = request?.path.endsWith(":streamGenerateContent") && request.query.alt !== "sse";
    return isArray ? [body] : body;
  },
  schema: () => schema,
};

/**
 * The error style of each path, the first match deciding. Paths below `/v1` that belong to native clients are read as
 * those below `/v1beta` before; a path with a verb is native also where no request could be parsed.
 */
export const nativeErrorStyles: readonly (readonly [RegExp, ErrorStyle])[] = [
  [/^\/(v1beta|upload|download)(\/|$)/, nativeErrorStyle],
  [/^\/v1\/models\/.*(:|%3a)/i, nativeErrorStyle],
];
