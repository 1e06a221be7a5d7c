import { ImgbatchError } from "../contract/errors.ts";
import { CONNECT_TIMEOUT } from "./send.ts";

/** Failures before a connection was made: no byte of the request has left. */
const NOT_CONNECTED = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  CONNECT_TIMEOUT,
  "CERT_HAS_EXPIRED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "ERR_TLS_CERT_ALTNAME_INVALID",
]);

/** An end of the connection before that of the answer. */
const CLOSED = "ERR_STREAM_PREMATURE_CLOSE";

/** The usual reasons in words. */
const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ENOTFOUND: "no such host",
  EAI_AGAIN: "the host name cannot be looked up",
  EHOSTUNREACH: "the host cannot be reached",
  ENETUNREACH: "the network cannot be reached",
  [CONNECT_TIMEOUT]: "the connection timed out",
  ECONNRESET: "connection reset",
  [CLOSED]: "the connection was closed",
  ETIMEDOUT: "the connection timed out",
};

/** The reason for ending an attempt when no bytes come, or too few. */
export class Silence extends Error {}

/**
 * The cause of a `BAD_RESPONSE` that does not come from the service itself but from something before it, such as the
 * sign-in page of a network.
 */
export class NotTheService extends Error {}

/** Whether something other than the service has answered. The service may be back a moment later. */
export function isFromElsewhere(error: unknown): error is ImgbatchError {
  return error instanceof ImgbatchError && error.cause instanceof NotTheService;
}

/** Turns an error of `send`, or of reading a body, into one of the catalogue. Also returns whether the request may have arrived. */
export function networkError(
  thrown: unknown,
  baseUrl: string,
): { error: ImgbatchError; mayHaveArrived: boolean } {
  const code = systemCode(thrown);
  const reason =
    thrown instanceof Silence ? thrown.message : (WORDS[code ?? ""] ?? code ?? messageOf(thrown));
  const mayHaveArrived = code === null || !NOT_CONNECTED.has(code);
  const message = mayHaveArrived
    ? `The connection to ${baseUrl} broke: ${reason}`
    : `No answer from ${baseUrl} (${reason})`;
  const because = mayHaveArrived ? undefined : code;
  return { error: new ImgbatchError("NETWORK", message, { cause: thrown, because }), mayHaveArrived };
}

/** Node may nest the system's code: an error may have a cause, or bundle one error per address. */
function systemCode(thrown: unknown, depth = 0): string | null {
  if (!(thrown instanceof Error) || depth > 4) return null;
  const { code, errors } = thrown as { code?: unknown; errors?: unknown };
  // Node reports an end of the connection as a reset, too, but one without a system call.
  if (code === "ECONNRESET" && !("syscall" in thrown)) return CLOSED;
  if (typeof code === "string") return code;
  const inner = Array.isArray(errors) ? errors[0] : thrown.cause;
  return systemCode(inner, depth + 1);
}

function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? thrown.cause.message : thrown.message;
}
