import type { ErrorRequestHandler, Request, RequestHandler } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { StorageUnavailable } from "../../domain/ports/storage-unavailable.ts";
import type { Log } from "../../kernel/log.ts";
import { drainUnreadBody } from "../connections/drain-unread-body.ts";

/** What a download had announced before it failed. */
const DOWNLOAD_HEADERS = [
  "Accept-Ranges",
  "Cache-Control",
  "Content-Disposition",
  "Content-Length",
  "Content-Range",
  "ETag",
];

/**
 * The last handler: every error becomes an error body of the API that was asked, and nothing of our inside is told.
 */
export function answerErrors(
  log: Log,
  bodyOf: (error: ImgbatchError, request: Request) => object,
): ErrorRequestHandler {
  return (thrown, request, response, _next) => {
    const error = toServiceError(thrown);
    // The caller went away before all of its body was read: there is nobody to answer, and nothing is wrong here.
    if (request.destroyed && (!request.complete || request.errored)) {
      response.destroy();
      return;
    }
    if (error.code === "INTERNAL_ERROR") {
      const facts = { request_id: response.locals.requestId, error: String(thrown?.stack ?? thrown) };
      log.error("unexpected error", facts);
    }
    if (response.headersSent) {
      response.destroy();
      return;
    }
    if (error.retryAfterMs !== undefined) {
      response.setHeader("Retry-After", String(Math.ceil(error.retryAfterMs / 1000)));
    }
    for (const header of DOWNLOAD_HEADERS) response.removeHeader(header);
    response.status(error.httpStatus);
    drainUnreadBody(request, response, bodyOf(error, request));
  };
}

/** Behind the routes of a path: what is left is another method. `allow` lists those that the path takes. */
export function methodNotAllowed(allow: readonly string[]): RequestHandler {
  return (_request, response) => {
    response.setHeader("Allow", allow.join(", "));
    throw new ImgbatchError("METHOD_NOT_ALLOWED", `This path takes ${allow.join(", ")}.`);
  };
}

export const notFound: RequestHandler = () => {
  throw new ImgbatchError("NOT_FOUND");
};

/** Returns the error that callers see for a storage that cannot be used now; any other error as it is. */
export function withApiCode<E>(error: E): E | ImgbatchError {
  if (!(error instanceof StorageUnavailable)) return error;
  return new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED", error.message, { cause: error.cause });
}

/** Returns the error that callers see: `INTERNAL_ERROR` for everything that has no code of the HTTP APIs. */
export function toServiceError(error: unknown): ImgbatchError {
  const thrown = withApiCode(error);
  if (thrown instanceof ImgbatchError) return thrown.httpStatus === 0 ? internal(thrown) : thrown;
  // Express reports a path that does not decode this way.
  if (thrown instanceof URIError) return new ImgbatchError("NOT_FOUND");
  return internal(thrown);
}

const internal = (cause: unknown) => new ImgbatchError("INTERNAL_ERROR", undefined, { cause });
