import type { Request, RequestHandler } from "express";
import { fieldError } from "../request-problems.ts";

const ENCODED_COLON = /^(\/v1(?:beta)?\/models\/[^?]*)%3a([^/?:%]*)(?=\?|$)/i;
const VERBS = ["generateContent", "streamGenerateContent"];

/**
 * Clients that encode every part of a path also encode the colon before the verb: `…/models/{model}%3AgenerateContent`.
 * In front of a verb it is read as a colon. Elsewhere it stays a part of a model's id.
 */
export const readColons: RequestHandler = (request, _response, next) => {
  request.url = request.url.replace(ENCODED_COLON, (whole, path: string, verb: string) =>
    request.method === "POST" || VERBS.includes(verb) ? `${path}:${verb}` : whole,
  );
  next();
};

/** A path that cannot name a model is a bad request, not an unknown model. */
export const checkModelPath: RequestHandler = (request, _response, next) => {
  const raw = request.path.slice(1);
  if (raw !== "" && !canNameModel(raw)) {
    throw fieldError("REALTIME_INVALID_ARGUMENT", "model", "the path does not name a model");
  }
  next();
};

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
  // Without a verb, more parts are a path that is not there.
  return verb === "" || !raw.includes("/");
}

/** What `:model` of the path says. */
export function modelParameter(request: Request): string {
  const { model } = request.params;
  return typeof model === "string" ? model : "";
}
