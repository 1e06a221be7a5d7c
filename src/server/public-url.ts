import type { Request } from "express";
import type { ApiDeps } from "./deps.ts";
import { hostOf } from "./middleware/known-host.ts";

/**
 * The URL under which the caller of a request reaches the service, without a trailing slash: `server.publicUrl` with its
 * path, else the host of the request. A proxy is believed about it as `server.trustProxy` says.
 */
export function publicUrlOf({ server }: Pick<ApiDeps, "server">, request: Request): string {
  if (server.publicUrl !== null) return server.publicUrl.replace(/\/+$/, "");
  const { localAddress = "", localPort } = request.socket;
  const own = `${localAddress.includes(":") ? `[${localAddress}]` : localAddress}:${localPort}`;
  const host = [request.host, request.get("host")].find(
    (name) => name !== undefined && hostOf(name) !== null,
  );
  return `${request.protocol}://${host ?? own}`;
}
