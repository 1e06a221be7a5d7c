import type { lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";
import { Agent, type Dispatcher, EnvHttpProxyAgent } from "undici";
import type { AnswerHeaders } from "../../http/transport.ts";
import type { AdapterDeps } from "./adapter.ts";
import { isPrivateAddress, isPrivateHost } from "./private-addresses.ts";

/** How long a connection may take to be made. */
const CONNECT_MS = 10_000;

/** The code of the error for an address that must not be asked. */
export const PRIVATE_ADDRESS = "PRIVATE_ADDRESS";

/** The connections of one provider. */
export interface Connections {
  /** Leads to the upstream, wherever it is. */
  own: Dispatcher;
  /** Leads to public addresses only, checked when a connection is made: a name may mean another address by then. */
  foreign: Dispatcher;
  /** Whether a proxy makes the connections to foreign hosts, and looks their names up. */
  isProxied: boolean;
}

/**
 * Opens at most `concurrency` connections to the upstream, when they are needed. Only connecting has a time limit. The
 * usual proxy variables apply, except to an upstream on this machine or in a private network.
 */
export function openConnections(
  baseUrl: string,
  concurrency: number,
  { secret }: Pick<AdapterDeps, "secret">,
  lookup: typeof systemLookup,
): Connections {
  const limits = { headersTimeout: 0, bodyTimeout: 0, connections: concurrency };
  const variable = (name: string) => secret(name) ?? secret(name.toUpperCase()) ?? "";
  const [httpProxy, httpsProxy] = [variable("http_proxy"), variable("https_proxy")];
  const isProxied = httpProxy !== "" || httpsProxy !== "";
  const connect = { timeout: CONNECT_MS };
  const guarded = { ...connect, lookup: publicOnly(lookup) };
  const agent = (toPrivate: boolean): Dispatcher => {
    const direct = { ...limits, connect: toPrivate ? connect : guarded };
    if (!isProxied) return new Agent(direct);
    const tls = { requestTls: connect, proxyTls: connect };
    return new EnvHttpProxyAgent({ ...direct, ...tls, httpProxy, httpsProxy, noProxy: variable("no_proxy") });
  };
  const own = isPrivateHost(new URL(baseUrl).hostname) ? new Agent({ ...limits, connect }) : agent(true);
  return { own, foreign: agent(false), isProxied };
}

/** Looks names up, and fails with `PRIVATE_ADDRESS` for one that means an address outside the public internet. */
function publicOnly(lookup: typeof systemLookup): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, []);
      const isRefused = addresses.some(({ address }) => isPrivateAddress(address));
      const [first] = addresses;
      if (isRefused || first === undefined) return callback(privateAddress(), []);
      if (options.all) return callback(null, addresses);
      callback(null, first.address, first.family);
    });
  };
}

function privateAddress(): NodeJS.ErrnoException {
  return Object.assign(new Error("not an address of the public internet"), { code: PRIVATE_ADDRESS });
}

/** Calls `leave` when a request has its connection, before anything is written to it. */
export function beforeFirstByte(leave: () => void): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (options, handler) =>
    dispatch(options, {
      onRequestStart: (controller, context) => {
        leave();
        handler.onRequestStart?.(controller, context);
      },
      onRequestUpgrade: (...args) => handler.onRequestUpgrade?.(...args),
      onResponseStart: (...args) => handler.onResponseStart?.(...args),
      onResponseData: (...args) => handler.onResponseData?.(...args),
      onResponseEnd: (...args) => handler.onResponseEnd?.(...args),
      onResponseError: (...args) => handler.onResponseError?.(...args),
    });
}

/** Returns the bytes of a body, or null when it has more. They are also left in `chunks` as they come. */
export async function readUpTo(
  body: AsyncIterable<Buffer>,
  maxBytes: number,
  chunks: Buffer[] = [],
): Promise<Buffer | null> {
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    // Leaving the loop ends the connection.
    if (length > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

/** The headers of an answer, by their names in lower case. */
export type UpstreamHeaders = Pick<AnswerHeaders, "get">;

/** Returns those of a response. Node takes tens of milliseconds to load its `Headers`, while answers wait. */
export function headersOf(headers: Dispatcher.ResponseData["headers"]): UpstreamHeaders {
  return {
    get: (name) => {
      const value = headers[name];
      return value === undefined ? null : [value].flat().join(", ");
    },
  };
}
