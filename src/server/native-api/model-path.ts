import type { Request, RequestHandler } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { FILE_VERBS, MODEL_VERBS } from "../../contract/routes.ts";
import type { MakeHandler } from "../operation.ts";
import { fieldError } from "../request-problems.ts";

const ENCODED_COLON =
  /^((?:\/download)?\/v1(?:beta)?\/(?:models|files|batches)\/[^?]*)%3a([^/?:%]*)(?=\?|$)/i;
const VERBS: readonly string[] = [...MODEL_VERBS, ...FILE_VERBS];
const MODEL_PATH = /^\/v1(?:beta)?\/models\/(.+)$/;

/**
 * Clients that encode every part of a path also encode the colon before the verb: `…/models/{model}%3AgenerateContent`.
 * Before a verb it is read as a colon. Elsewhere it stays a part of the model's id.
 */
export const readColons: RequestHandler = (request, _response, next) => {
  request.url = request.url.replace(ENCODED_COLON, (whole, path: string, verb: string) =>
    request.method === "POST" || VERBS.includes(verb) ? `${path}:${verb}` : whole,
  );
  next();
};

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
