import { inspect } from "node:util";
import type { ErrorRequestHandler, Request, Response } from "express";
import type { ZodError, ZodType } from "zod";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { inWords } from "../../contract/limits.ts";
import { withUpstreamWords } from "../../contract/waiting.ts";
import { RealMoneyMissing } from "../../domain/billing/payer.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { ProviderError } from "../../domain/ports/image-provider.ts";
import type { Log } from "../../kernel/log.ts";
import { hasUnstorableText, lowerFirst } from "../../kernel/text.ts";
import { drainUnreadBody } from "./exchange.ts";

/** The shape of error bodies. */
export interface ErrorStyle {
  /** The body of an error. The request is missing where none could be parsed. */
  body(error: ImgbatchError, request?: Request): object;
  /** The OpenAPI schema of the bodies for these codes. */
  schema(codes: readonly ServiceErrorCode[]): object;
  /** The head of the response: by default, the name of the status and no further header. */
  head?(error: ImgbatchError): { reason?: string; headers: Record<string, string> };
}

/** An error about one field: the message names it, and so does `param`. */
export function fieldError(code: ServiceErrorCode, param: string, problem: string): ImgbatchError {
  return new ImgbatchError(code, `${param}: ${problem}`, { param });
}

/** The error about a field of a request to a vendor's API. */
export const invalidArgument = (param: string, problem: string): ImgbatchError =>
  fieldError("REALTIME_INVALID_ARGUMENT", param, problem);

/** Returns an error about a field with the name that the field has in the API of its caller; any other error as it is. */
export function withParam<E>(error: E, nameOf: (param: string) => string): E | ImgbatchError {
  if (!(error instanceof ImgbatchError) || error.param === undefined) return error;
  const param = nameOf(error.param);
  const message = error.message.replace(`${error.param}: `, () => `${param}: `);
  return new ImgbatchError(error.code, message, { ...error, cause: error.cause, param });
}

/** The first type error of a body, or of the part of it that `prefix` names. */
export function schemaProblem(error: ZodError, code: ServiceErrorCode, prefix = ""): ImgbatchError {
  const issue = error.issues[0];
  const path = issue?.path ?? [];
  const param = path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    return text === "" ? String(part) : `${text}.${String(part)}`;
  }, "");
  const at = [prefix, param].filter((part) => part !== "").join(".");
  return fieldError(code, at || "body", lowerFirst(issue?.message ?? "is not valid"));
}

/** Returns a part of a request to a vendor's API as its schema describes it. Throws the error about its first problem. */
export function parseArgument<T>(schema: ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value, { error: inWords });
  if (parsed.success) return parsed.data;
  throw schemaProblem(parsed.error as ZodError, "REALTIME_INVALID_ARGUMENT");
}

/** Throws when a text has lone surrogates or NUL, which no database stores. */
export function requireStorable(param: string, text: string): void {
  if (hasUnstorableText(text)) throw invalidArgument(param, "must not hold NUL or half of a surrogate pair");
}

/** Headers that a download sets before it can fail. */
const DOWNLOAD_HEADERS = [
  "Accept-Ranges",
  "Cache-Control",
  "Content-Disposition",
  "Content-Length",
  "Content-Range",
  "Content-Type",
  "ETag",
];

/**
 * The last handler: it turns every error into an error body in the style of the path, and reveals no internals. `isOwner`: the
 * caller owns the service, and sees the upstream's own words. It throws nothing: when that fails, it ends the connection.
 */
export function answerErrors(
  log: Log,
  styleOf: (path: string) => ErrorStyle,
  isOwner: (response: Response) => boolean = () => false,
): ErrorRequestHandler {
  const answer = (thrown: unknown, request: Request, response: Response): void => {
    const plain = toServiceError(thrown);
    const error = isOwner(response) ? forOwner(plain) : plain;
    // The caller went away before its body was read: no response can reach it, and nothing failed here.
    if (request.destroyed && (!request.complete || request.errored)) {
      response.destroy();
      return;
    }
    if (error.code === "INTERNAL_ERROR") {
      const facts = { request_id: response.locals.requestId, error: stackOf(thrown) };
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
    const style = styleOf(request.path);
    const head = style.head?.(error);
    if (head !== undefined) {
      if (head.reason !== undefined) response.statusMessage = head.reason;
      response.setHeaders(new Map(Object.entries(head.headers)));
    }
    response.status(error.httpStatus);
    drainUnreadBody(request, response, style.body(error, request));
  };
  return (thrown, request, response, _next) => {
    try {
      answer(thrown, request, response);
    } catch (error) {
      response.destroy();
      log.error("an error could not be answered", { error: stackOf(error), of: stackOf(thrown) });
    }
  };
}

// Some objects cannot be converted to a string.
const stackOf = (thrown: unknown) =>
  (thrown instanceof Error && thrown.stack) || inspect(thrown, { depth: -1 });

/** Returns the error that callers see for a storage that cannot be used now; any other error as it is. */
export function withApiCode<E>(error: E): E | ImgbatchError {
  if (!(error instanceof StorageUnavailable)) return error;
  return new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED", error.message, { cause: error.cause });
}

/** Returns the error that callers see: `INTERNAL_ERROR` for everything that has no code of the HTTP APIs. */
export function toServiceError(error: unknown): ImgbatchError {
  const thrown = withApiCode(error);
  if (thrown instanceof RealMoneyMissing) {
    const message = `${thrown.message} \`imgbatch admin accounts top-up\` adds real money to an account.`;
    return new ImgbatchError(thrown.code, message);
  }
  if (thrown instanceof ImgbatchError) return thrown.httpStatus === 0 ? internal(thrown) : thrown;
  // A part of the path does not decode.
  if (thrown instanceof URIError) return new ImgbatchError("NOT_FOUND");
  return internal(thrown);
}

function forOwner(error: ImgbatchError): ImgbatchError {
  const { cause, code } = error;
  if (!(cause instanceof ProviderError)) return error;
  return new ImgbatchError(code, withUpstreamWords(error.message, cause.said), { ...error, cause });
}

const internal = (cause: unknown) => new ImgbatchError("INTERNAL_ERROR", undefined, { cause });
