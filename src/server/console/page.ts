import express, { type RequestHandler } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type { ApiDeps } from "../deps.ts";

/**
 * Headers of the page and its parts. Nothing runs or loads that is not a file of this service; pictures are shown from the
 * memory of the page, which fetched them with its token.
 */
const HEADERS: Readonly<Record<string, string>> = {
  "Content-Security-Policy": [
    "default-src 'none'",
    "script-src 'self'",
    "worker-src 'self'",
    "style-src 'self'",
    "font-src 'self'",
    "img-src 'self' blob: data:",
    "connect-src 'self'",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
};

/** The build names these files by their content, so a name never changes its meaning. */
const FOREVER = "public, max-age=31536000, immutable";
const MISSING =
  "The web console is not part of this copy of imgbatch: it has no dist/console. In a checkout of the source, `npm run build` makes it. The HTTP APIs and the command line work without it.";

/** `GET /` and the files that the page consists of. Every path that is no such file is passed on. */
export function consolePage({
  features,
  consoleDirectory,
}: Pick<ApiDeps, "consoleDirectory"> & { features: Pick<ApiDeps["features"], "console"> }): RequestHandler[] {
  if (!features.console) return [];
  const files = express.static(consoleDirectory, {
    cacheControl: false,
    redirect: false,
    // Nobody needs a part of these files, and a range behind the end would be an error.
    acceptRanges: false,
    setHeaders: (response, path) => {
      for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
      response.setHeader("Cache-Control", /[\\/]assets[\\/]/.test(path) ? FOREVER : "no-cache");
    },
  });
  const missing: RequestHandler = (request, _response, next) => {
    if (request.path !== "/" || !["GET", "HEAD"].includes(request.method)) return next();
    throw new ImgbatchError("NOT_FOUND", MISSING);
  };
  return [files, missing];
}
