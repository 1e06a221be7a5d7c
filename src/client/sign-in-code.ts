import { ImgbatchError } from "../contract/errors.ts";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { unexpectedAnswer } from "./answers.ts";

/** A code that signs in to the web console of a service once. */
interface SignInCode {
  code: string;
  /** Unix time in seconds. */
  expiresAt: number;
}

/** Asks a service for a code for its web console. Throws `NOT_FOUND` where it has none. */
export async function makeSignInCode(http: Http, signal?: AbortSignal): Promise<SignInCode> {
  const request = { method: "POST", path: routes.consoleCodes, signal } as const;
  const { json, requestId } = await http.json(request).catch((error) => {
    if (!(error instanceof ImgbatchError) || error.httpStatus !== 404) throw error;
    const message = `${http.baseUrl} has no web console: it is switched off, or the service is older.`;
    const advice = "set features.console to true in the configuration of the service, and restart it";
    throw new ImgbatchError("NOT_FOUND", message, { advice, cause: error });
  });
  const { code, expires_at } = (json ?? {}) as { code?: unknown; expires_at?: unknown };
  if (typeof code !== "string" || !/^[\w-]+$/.test(code) || !Number.isInteger(expires_at))
    throw unexpectedAnswer("a code to sign in with", requestId);
  return { code, expiresAt: expires_at as number };
}
