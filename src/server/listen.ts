import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Express } from "express";
import { ImgbatchError } from "../contract/errors.ts";

const MAX_TIMER_MS = 2 ** 31 - 1;

export interface Listening {
  /** `http://127.0.0.1:8787`, without a trailing slash. */
  url: string;
  /** Stops accepting, lets answers end up to `graceMs`, then closes what is left. */
  close(graceMs: number): Promise<void>;
}

/** Listens; port 0 takes a free one. Throws `ADDRESS_IN_USE` when the port is taken. */
export async function listen(app: Express, address: { host: string; port: number }): Promise<Listening> {
  const server = createServer(app);
  // Node would say "continue" before any check; the body is asked for by its reader, once the request may go on.
  server.on("checkContinue", (request, response) => app(request, response));
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(toListenError(error, address)));
    server.listen(address.port, address.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return { url: `http://${host}:${port}`, close: (graceMs) => close(server, graceMs) };
}

async function close(server: Server, graceMs: number): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const timer = setTimeout(() => server.closeAllConnections(), Math.min(graceMs, MAX_TIMER_MS));
  await closed;
  clearTimeout(timer);
}

function toListenError(error: NodeJS.ErrnoException, address: { host: string; port: number }): Error {
  const where = `${address.host}:${address.port}`;
  if (error.code === "EADDRINUSE") {
    const message = `${where} is taken by another program; choose another --port, or 0 for a free one.`;
    return new ImgbatchError("ADDRESS_IN_USE", message);
  }
  return new ImgbatchError("USAGE", `${where} cannot be listened on (${error.code}).`, { cause: error });
}
