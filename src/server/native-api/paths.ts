import type { Request, RequestHandler } from "express";
import { ImgbatchError, nativeErrorBody } from "../../contract/errors.ts";
import { FILE_VERBS, MODEL_VERBS } from "../../contract/routes.ts";
import { fieldError } from "../http/errors.ts";
import type { ErrorStyle, MakeHandler } from "../operation.ts";
import { vendorKeyOf } from "./credential.ts";

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
    return fieldError("REALTIME_INVALID_ARGUMENT", "model", "the path does not name a model");
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
