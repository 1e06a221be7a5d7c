import type { lookup as systemLookup } from "node:dns";
import { Agent, type Dispatcher, EnvHttpProxyAgent } from "undici";
import type { Engine } from "../../http/transport.ts";
import { overConnections } from "../../http/undici-engine.ts";
import type { AdapterDeps } from "./adapter.ts";
import { isPrivateHost, publicOnly } from "./addresses.ts";

/** How long a connection may take to be made. */
const CONNECT_MS = 10_000;

/** The connections of one provider. */
export interface Connections {
  /** Leads to the upstream, wherever it is. */
  own: Engine;
  /** Leads to public addresses only, checked when a connection is made: a name may mean another address by then. */
  foreign: Engine;
  /** Ends all connections, and what still runs over them. */
  close(): Promise<void>;
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
  const foreign = agent(false);
  const close = async () => {
    await Promise.all([own.destroy(), foreign.destroy()]);
  };
  return { own: overConnections(own), foreign: overConnections(foreign), close, isProxied };
}
