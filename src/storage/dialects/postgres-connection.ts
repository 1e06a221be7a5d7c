import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";
import pg, { type ClientConfig } from "pg";
import { ImgbatchError } from "../../contract/errors.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import { isLoopback } from "../../kernel/loopback.ts";

/** For a new connection, and for a free one. */
const CONNECT_TIMEOUT_MS = 10_000;

/** What `sslmode` means. Without it, a URL with `sslrootcert` means `verify-full`, and any other one plain text. */
const TLS: Readonly<Record<string, ConnectionOptions | false>> = {
  disable: false,
  "no-verify": { rejectUnauthorized: false },
  "verify-ca": { checkServerIdentity: () => undefined },
  require: {},
  "verify-full": {},
};

/** The server asks for a password, and there is none. */
class NoPassword extends Error {
  constructor() {
    super("the server asks for a password, and none is set");
  }
}

/**
 * Returns how the driver connects. The URL alone decides: not the driver, which reads it in other ways with each version, nor
 * its variables and files. Throws `INVALID_CONFIG` when the file of `sslrootcert` cannot be read.
 */
export function connectionOf(place: string): ClientConfig & { host: string } {
  const { hostname, port, username, password, pathname, searchParams } = new URL(place);
  const host = searchParams.get("host") ?? decoded(hostname).replace(/^\[|\]$/g, "");
  const authority = searchParams.get("sslrootcert");
  const mode = searchParams.get("sslmode") ?? (authority === null ? "disable" : "verify-full");
  const tls = isSocket(host) ? false : (TLS[mode] ?? {});
  return {
    host: host || "localhost",
    port: Number(searchParams.get("port") ?? port) || 5432,
    user: decoded(username) || searchParams.get("user") || undefined,
    // The driver would look for one in a file of the user's.
    password: decoded(password) || searchParams.get("password") || (() => Promise.reject(new NoPassword())),
    database: decoded(pathname.slice(1)) || undefined,
    ssl: tls && { ...tls, ...(authority !== null && { ca: certificatesOf(authority) }) },
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  };
}

/** A `%` that begins no character stands for itself, as in a password that was not escaped. */
function decoded(text: string): string {
  return decodeURIComponent(text.replace(/%(?![0-9a-f]{2})/gi, "%25"));
}

const isSocket = (host: string) => host.startsWith("/");

function certificatesOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new ImgbatchError(
      "INVALID_CONFIG",
      `sslrootcert: ${file} cannot be read (${systemCodeOf(error)}).`,
      {
        advice:
          "correct sslrootcert in the URL of the database (or PGSSLROOTCERT), then run the same command again",
      },
    );
  }
}

/** Whether others on the network can read what is sent to the server. */
export function isOpenToOthers({ host, ssl }: ReturnType<typeof connectionOf>): boolean {
  return ssl === false && !isSocket(host) && !isLoopback(host);
}

/** How long a server has to take note of the end of a connection. */
const FAREWELL_MS = 1000;

/** Closes connections that have said farewell, also when the server does not hear it. */
export function destroySoon(clients: Iterable<pg.Client>): void {
  const destroy = () => {
    for (const client of clients) client.connection.stream.destroy();
  };
  setTimeout(destroy, FAREWELL_MS).unref();
}

/** The driver leaves the socket of a failed handshake open, and the process with it, until the server closes it. */
export class PostgresClient extends pg.Client {
  override connect(): Promise<pg.Client>;
  override connect(done: (error: Error | null) => void): void;
  override connect(done?: (error: Error | null) => void): Promise<unknown> {
    const connected = super.connect();
    connected.catch(() => this.connection.stream.destroy());
    return done === undefined ? connected : connected.then(() => done(null), done);
  }
}
