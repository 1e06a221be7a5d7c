import { type Agent, request } from "undici";
import { z } from "zod";
import { ProviderError, type Trouble } from "../../domain/ports/image-provider.ts";
import { formatBytes } from "../../kernel/text.ts";
import { upstreamWords } from "../upstream/words.ts";

/** More than one image of 64 MiB in Base64. */
const MAX_BODY_BYTES = 128 * 1024 * 1024;
const MAX_ERROR_BYTES = 64 * 1024;

/** The errors of a connection that was never made: nothing was sent. */
const NOT_CONNECTED: ReadonlySet<string> = new Set([
  ...["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "EADDRNOTAVAIL"],
  "UND_ERR_CONNECT_TIMEOUT",
]);

const AMBIGUOUS: ReadonlySet<number> = new Set([408, 409, 502, 504, 520, 521, 522, 523, 524]);

export interface Call {
  method: "GET" | "POST";
  url: string;
  headers: Record<string, string>;
  body?: object;
  signal: AbortSignal;
}

/**
 * Sends a request and returns the JSON of the response. Throws `ProviderError` for any other end, or the reason of the
 * signal.
 */
export async function callServer(
  agent: Agent,
  { method, url, headers, body, signal }: Call,
): Promise<unknown> {
  signal.throwIfAborted();
  try {
    const response = await request(url, {
      method,
      headers: { accept: "application/json", "content-type": "application/json", ...headers },
      body: body === undefined ? null : JSON.stringify(body),
      dispatcher: agent,
      signal,
    });
    const isFine = response.statusCode >= 200 && response.statusCode < 300;
    const text = await readText(response.body, isFine ? MAX_BODY_BYTES : MAX_ERROR_BYTES, isFine);
    if (!isFine) throw refusal(url, response.statusCode, response.headers["retry-after"], text);
    return parse(text);
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof ProviderError ? error : noResponse(url, error as NodeJS.ErrnoException);
  }
}

/** Reads a body to its end. One that is too long is cut, or is an error if all of it is needed. */
async function readText(body: AsyncIterable<Buffer>, maxBytes: number, isWhole: boolean): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes <= maxBytes) continue;
    if (isWhole) throw ambiguous(`The response is larger than ${formatBytes(maxBytes)}.`);
    break;
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw ambiguous("The response is not JSON.");
  }
}

/** An answer that cannot be read: the image may have been made. */
export function ambiguous(message: string): ProviderError {
  return new ProviderError("PROVIDER_ITEM_FAILED", message, { trouble: "ambiguous" });
}

function noResponse(url: string, error: NodeJS.ErrnoException): ProviderError {
  const { origin } = new URL(url);
  if (NOT_CONNECTED.has(error.code ?? ""))
    return new ProviderError("PROVIDER_ITEM_FAILED", `${origin} cannot be reached (${error.code}).`, {
      trouble: "unreachable",
    });
  return ambiguous(`The connection to ${origin} broke (${upstreamWords(error.code ?? error.message)}).`);
}

function refusal(
  url: string,
  status: number,
  retryAfter: string | string[] | undefined,
  text: string,
): ProviderError {
  const words = wordsOf(text);
  const { origin, pathname } = new URL(url);
  // Some of these servers have the interface only when they are told to at their start.
  const hint = status === 404 ? ` Does it serve ${pathname}? Some servers need the option --api.` : "";
  const message = `${origin} returned ${status}${words === "" ? "." : `: ${words}`}${hint}`;
  const trouble = troubleOf(status);
  const seconds = Number(retryAfter ?? Number.NaN);
  const code =
    trouble === null
      ? "INVALID_ARGUMENT"
      : trouble === "limited"
        ? "PROVIDER_RATE_LIMITED"
        : "PROVIDER_ITEM_FAILED";
  return new ProviderError(code, message, {
    trouble,
    upstreamStatus: status,
    retryAfterMs: Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : null,
  });
}

function troubleOf(status: number): Trouble | null {
  if (status === 400 || status === 413 || status === 422) return null;
  if (status === 401 || status === 403) return "credential";
  if (status === 402) return "billing";
  if (status === 404) return "no-model";
  if (status === 429) return "limited";
  return AMBIGUOUS.has(status) ? "ambiguous" : "failing";
}

/** A1111 writes `errors`, FastAPI `detail` (a text, or a list for fields that are wrong), sd-server `error`. */
const errorBody = z.object({
  errors: z.string().catch(""),
  detail: z
    .union([
      z.string(),
      z.array(z.object({ loc: z.array(z.union([z.string(), z.number()])), msg: z.string() })),
    ])
    .catch(""),
  error: z.string().catch(""),
});

function wordsOf(text: string): string {
  try {
    const { errors, detail, error } = errorBody.parse(JSON.parse(text));
    const details =
      typeof detail === "string"
        ? detail
        : detail.map(({ loc, msg }) => `${loc.join(".")}: ${msg}`).join("; ");
    return upstreamWords([error, details, errors].filter((words) => words !== "").join(": "));
  } catch {
    return upstreamWords(text);
  }
}
