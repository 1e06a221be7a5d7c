import type { Request, RequestHandler, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { IDEMPOTENCY_KEY_HEADER, MAX_COST_HEADER } from "../../contract/routes.ts";
import { activeKey, authenticate as authenticateKey, type Scope } from "../../domain/accounts.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import type { AccountRecord, ApiKeyRecord } from "../../domain/records.ts";
import { holdsApiKey } from "../../kernel/hide-keys.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { parseUsd } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import type { Credential } from "../operation.ts";
import { callerAddress } from "./limits.ts";
import { PARAMETERS } from "./parameters.ts";

/** The errors of a credential in `Authorization: Bearer`. */
export const bearerErrors: readonly ServiceErrorCode[] = [
  "API_KEY_REQUIRED",
  "INVALID_API_KEY",
  "API_KEY_DISABLED",
  "RATE_LIMITED",
];

/** Who makes a request: the key and the group that its batches are made with, and what it sees. */
export interface ScopedCaller extends Caller {
  scope: Scope;
}

/** The key of the live view of `serve`, as far as requests need one. It is not in the database. */
const OPERATOR: Readonly<ApiKeyRecord> = {
  id: "operator",
  name: "operator",
  prefix: "",
  accountId: "",
  group: "",
  createdAtMs: 0,
  expiresAtMs: null,
  disabledAtMs: null,
  enabledAtMs: null,
};

type KeyDeps = Pick<ApiDeps, "stores" | "clock" | "secrets" | "operatorToken">;

/**
 * Returns the active key that a credential is or stands for: an API key, or the token of a session of the console, which ends
 * when its key is disabled, also when that is enabled again before anybody asks. Throws as `authenticate` of the domain does.
 */
export async function keyOfCredential(
  { stores, clock, secrets, operatorToken }: KeyDeps,
  credential: string | null,
): Promise<ApiKeyRecord> {
  if (operatorToken !== null) {
    if (credential !== null && sha256Hex(credential) === sha256Hex(operatorToken)) return OPERATOR;
    throw new ImgbatchError("INVALID_API_KEY");
  }
  const nowMs = clock.nowMs();
  const session = credential === null ? null : await secrets.sessions.find(credential);
  if (session === null) return authenticateKey(stores.read, credential, nowMs);
  try {
    const key = await activeKey(stores.read, session.value.keyId, nowMs);
    const hasEndedWithKey = key.enabledAtMs !== null && session.issuedAtMs <= key.enabledAtMs;
    if (hasEndedWithKey) throw new ImgbatchError("INVALID_API_KEY");
    return key;
  } catch (error) {
    if (credential !== null) await secrets.sessions.end(credential);
    throw error;
  }
}

/** Makes a key the one of a request, with its scope. */
export function admit({ scopeOf }: Pick<ApiDeps, "scopeOf">, response: Response, key: ApiKeyRecord): void {
  response.locals.key = key;
  response.locals.scope = scopeOf(key.id);
}

/** Makes a handler that finds the key of a request. A wrong key counts for the address of its caller. */
export function authenticateBy(
  find: (deps: ApiDeps, request: Request) => Promise<ApiKeyRecord>,
): (deps: ApiDeps) => RequestHandler {
  return (deps) => async (request, response, next) => {
    try {
      admit(deps, response, await find(deps, request));
    } catch (error) {
      const isWrongKey = error instanceof ImgbatchError && error.code !== "API_KEY_REQUIRED";
      if (isWrongKey) deps.failedAuth.note(callerAddress(request));
      throw error;
    }
    next();
  };
}

/** Accepts only `Authorization: Bearer <key>`, for the batch API. Afterwards `callerOf` returns the caller. */
export const authenticate = authenticateBy(async (deps, request) =>
  keyOfCredential(deps, bearerToken(request)),
);

/**
 * Refuses a key in the URL on every path, because URLs end up in logs and histories. It searches the text of the query:
 * parts that a parser would skip are in the logs all the same.
 */
export const refuseKeyInUrl: RequestHandler = (request, _response, next) => {
  if (!namesApiKey(request.originalUrl)) {
    next();
    return;
  }
  const message = "api_key: keys are not taken from the URL; send `Authorization: Bearer <key>`";
  throw new ImgbatchError("BATCH_IMAGE_INVALID_QUERY", message, { param: "api_key" });
};

/** Whether a target has the parameter `api_key` in its query: also encoded, as a list (`api_key[]`) or behind another `?`. */
function namesApiKey(target: string): boolean {
  const [, ...parameters] = target.split(/[?#&;]/);
  const names = parameters.map((parameter) => parameter.split("=", 1)[0] ?? "");
  return names.some((name) => /(?<![\w-])api_key(?![\w-])/i.test(decodeAscii(name)));
}

/** Decodes percent-encoded ASCII and leaves everything else as it is. */
function decodeAscii(text: string): string {
  return text.replace(/%([0-7][\da-f])/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
}

/** Lets requests for new batches through, unless the operator has switched them off. */
export function requireBatchFeature({ features }: ApiDeps): RequestHandler {
  return (_request, _response, next) => {
    if (!features.batchImages) throw new ImgbatchError("BATCH_IMAGE_DISABLED");
    next();
  };
}

/** Lets through keys whose group is of the native platform and may make batches. */
export function requireBatchGroup(deps: ApiDeps): RequestHandler {
  return (_request, response, next) => {
    // The live view makes no batches.
    if (callerOf(response).scope.keys === "all") return next();
    const group = deps.groups.find((g) => g.name === response.locals.key.group);
    if (!group?.allowBatchImages || group.platform !== "native") {
      throw new ImgbatchError("BATCH_IMAGE_GROUP_DISABLED");
    }
    response.locals.group = group;
    next();
  };
}

/** The caller of a request; only behind `authenticate` and `requireBatchGroup`. */
export function callerOf(response: Response): ScopedCaller {
  const { key, scope, group } = response.locals;
  return { key, scope, group };
}

/** Returns the account of the caller. */
export async function accountOf({ stores }: ApiDeps, response: Response): Promise<AccountRecord> {
  const { accountId } = callerOf(response).key;
  const account = await stores.read.accounts.byId(accountId);
  if (account) return account;
  throw new Error(`there is no account ${accountId}`);
}

/** The token of the header; null when there is none. Throws `INVALID_API_KEY` for any other scheme, and for two headers. */
export function bearerToken({ headersDistinct }: Pick<Request, "headersDistinct">): string | null {
  const [header, ...more] = headersDistinct.authorization ?? [];
  if (header === undefined) return null;
  if (more.length > 0) throw new ImgbatchError("INVALID_API_KEY", "Authorization: may be sent once.");
  const token = /^bearer +(\S+)$/i.exec(header.trim())?.[1];
  if (token === undefined) throw new ImgbatchError("INVALID_API_KEY");
  return token;
}

/**
 * Returns the caller with the consent of the request: the amount that the person at this machine agrees to pay. Only the
 * local key can carry one; that of any other key is ignored. Throws the given error for a text that is no amount.
 */
export function consentingCaller(request: Request, response: Response, code: ServiceErrorCode): ScopedCaller {
  const caller = callerOf(response);
  const text = request.get(MAX_COST_HEADER);
  if (text === undefined || !caller.scope.mayPay) return caller;
  const consentMicroUsd = parseUsd(text);
  if (consentMicroUsd !== null) return { ...caller, consentMicroUsd };
  const message = `${MAX_COST_HEADER}: write an amount in US dollars with at most 6 decimals, such as 1.25`;
  throw new ImgbatchError(code, message, { param: MAX_COST_HEADER });
}

/** Returns the idempotency key of a request as it is stored; null without one. Throws the given error for a malformed one. */
export function idempotencyKeyOf(request: Request, code: ServiceErrorCode): string | null {
  const key = request.get(IDEMPOTENCY_KEY_HEADER);
  if (key === undefined) return null;
  const max = FIXED_LIMITS.idempotencyKeyChars;
  const isWellFormed = PARAMETERS.IdempotencyKey.schema.safeParse(key).success;
  // An API key that was sent by mistake works like any other text, but must not be stored in clear.
  if (isWellFormed) return holdsApiKey(key) ? `sha256:${sha256Hex(key)}` : key;
  const message = `Idempotency-Key: must be 1 to ${max} printable ASCII characters`;
  throw new ImgbatchError(code, message, { param: "Idempotency-Key" });
}

/** Where the query parameter `key` counts, too. */
const TAKES_KEY_IN_URL = /^\/(?:upload\/)?v1beta\//;

/** A header without a value counts as absent. */
function credentialOf(request: Request, keyHeaders: readonly string[]): string | null {
  const vendorKey = keyHeaders.map((name) => request.get(name)).find((key) => key);
  if (vendorKey) return vendorKey;
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

const authenticateVendorKey = authenticateBy(async (deps, request) => {
  const credential = credentialOf(request, deps.keyHeaders);
  if (credential !== null) return keyOfCredential(deps, credential);
  const vendor = deps.keyHeaders[0] === undefined ? "" : `in \`${deps.keyHeaders[0]}\` or `;
  const message = `An API key is required: send it ${vendor}as \`Authorization: Bearer <key>\`.`;
  throw new ImgbatchError("API_KEY_REQUIRED", message);
});

/**
 * Only the first credential in a fixed order counts: the vendor's headers, `Authorization: Bearer`, `x-api-key`, and
 * below `/v1beta` and `/upload/v1beta` the query parameter `key`. The group of the key must be of the native platform.
 */
export const headerKey: Credential = {
  schemes: ["apiKey", "headerKey"],
  errors: [...bearerErrors, "REALTIME_GROUP_NOT_NATIVE"],
  authenticate: (deps) => {
    const authenticated = authenticateVendorKey(deps);
    return (request, response, next) =>
      authenticated(request, response, () => {
        const group = deps.groups.find((g) => g.name === response.locals.key.group);
        if (group?.platform !== "native") {
          throw new ImgbatchError("REALTIME_GROUP_NOT_NATIVE", undefined, { param: "key" });
        }
        response.locals.group = group;
        next();
      });
  },
};

export const headerOrQueryKey: Credential = { ...headerKey, schemes: [...headerKey.schemes, "queryKey"] };
