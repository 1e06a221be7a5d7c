import { isIP } from "node:net";
import { hostname } from "node:os";
import type { Request, RequestHandler } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { FILE_VERBS, MODEL_VERBS } from "../../contract/routes.ts";
import { isLoopback } from "../../kernel/loopback.ts";

/** The addresses and names by which clients reach the service. */
interface Reach {
  /** The name or address that it listens on. */
  host: string;
  /** The URL under which clients know it; null when that is its address. */
  publicUrl: string | null;
}

/**
 * Refuses a request for another host. It can come from a web page whose name was made to resolve to this machine (DNS
 * rebinding): the browser treats the page and this service as one site, and only the Host header shows the difference.
 * The port does not matter. On a wildcard address every IP address is taken, since rebinding needs a name. Throws
 * `MISDIRECTED_REQUEST`, and `MALFORMED_REQUEST` for a Host that is missing, repeated or not well formed.
 */
export function requireKnownHost({ host, publicUrl }: Reach): RequestHandler {
  const bound = hostOf(host.includes(":") ? `[${host}]` : host);
  const isWildcard = bound === "0.0.0.0" || bound === "[::]";
  const names = new Set([bound]);
  if (publicUrl !== null) names.add(hostOf(new URL(publicUrl).host));
  if (isWildcard) names.add(hostOf(hostname()));
  return (request, _response, next) => {
    const count = request.headersDistinct.host?.length ?? 0;
    const isRequired = Number(request.httpVersion) > 1;
    if (count > 1 || (count === 0 && isRequired)) throw malformed("is required, once");
    const sent = request.get("host");
    if (sent === undefined) return next();
    const name = hostOf(sent);
    if (name === null) throw malformed("must be a name or an address, with a port or without");
    const isAddress = isIP(name.replace(/^\[|\]$/g, "")) > 0;
    const isKnown = isLoopback(name) || names.has(name) || (isAddress && isWildcard);
    // The service may listen on a name; a client may use its address.
    if (!isKnown && name !== urlHost(request.socket.localAddress)) {
      throw new ImgbatchError("MISDIRECTED_REQUEST", undefined, { param: "Host" });
    }
    next();
  };
}

/**
 * The host of `host[:port]` as URLs spell it: in lower case, an address in its shortest form, without a zone and without
 * the dot behind a whole name. Null for anything else, such as a host with a user.
 */
function hostOf(text: string): string | null {
  const host = /^(\[[\da-f:.]{2,45}(?:%[\w.~%-]{1,64})?\]|[^\s/?#@\\:[\]]{1,254})(?::\d{0,5})?$/i.exec(
    text,
  )?.[1];
  const url = `http://${host?.replace(/%.*\]$/, "]").replace(/\.$/, "")}`;
  return host !== undefined && URL.canParse(url) ? new URL(url).hostname : null;
}

/** An address of a socket as a host of a URL. */
function urlHost(address = ""): string | null {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  return hostOf(plain.includes(":") ? `[${plain}]` : plain);
}

function malformed(problem: string): ImgbatchError {
  return new ImgbatchError("MALFORMED_REQUEST", `Host: ${problem}.`, { param: "Host" });
}

/**
 * The URL under which the caller of a request reaches the service, without a trailing slash: `server.publicUrl` with its
 * path, else the host of the request. A proxy is believed about it as `server.trustProxy` says.
 */
export function publicUrlOf({ server }: { server: Reach }, request: Request): string {
  if (server.publicUrl !== null) return server.publicUrl.replace(/\/+$/, "");
  const { localAddress = "", localPort } = request.socket;
  const own = `${localAddress.includes(":") ? `[${localAddress}]` : localAddress}:${localPort}`;
  const host = [request.host, request.get("host")].find(
    (name) => name !== undefined && hostOf(name) !== null,
  );
  return `${request.protocol}://${host ?? own}`;
}

/**
 * Reads other spellings of a path as the one in the table of operations, which has the native API once, below `/v1beta`:
 * paths below `/v1` when the vendor's key header is there (every other client on `/v1` is OpenAI's), verbs of models below
 * `/v1` in any case, `/upload/v1` and `/download/v1`.
 */
export function readTarget({ keyHeaders }: { keyHeaders: readonly string[] }): RequestHandler {
  return (request, _response, next) => {
    const hasVendorKey = keyHeaders.some((name) => request.get(name));
    const isNative = hasVendorKey ? /^\/v1\/(?!images\/)/ : /^\/v1\/(?=models\/[^?]*:)/;
    request.url = readColons(request)
      .replace(/^\/(download|upload)\/v1\//, "/$1/v1beta/")
      .replace(isNative, "/v1beta/");
    next();
  };
}

const ENCODED_COLON =
  /^((?:\/download)?\/v1(?:beta)?\/(?:models|files|batches)\/[^?]*)%3a([^/?:%]*)(?=\?|$)/i;
const VERBS: readonly string[] = [...MODEL_VERBS, ...FILE_VERBS];

/**
 * Clients that encode every part of a path also encode the colon before the verb: `…/models/{model}%3AgenerateContent`.
 * Before a verb it is read as a colon. Elsewhere it stays a part of the model's id.
 */
function readColons({ method, url }: Request): string {
  return url.replace(ENCODED_COLON, (whole, path: string, verb: string) =>
    method === "POST" || VERBS.includes(verb) ? `${path}:${verb}` : whole,
  );
}
