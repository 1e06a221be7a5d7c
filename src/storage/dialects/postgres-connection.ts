import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";
import type { ClientConfig } from "pg";
import pg from "pg";
import { ImgbatchError } from "../../contract/errors.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { isLoopback } from "../../kernel/loopback.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";

/**
 * Codes of Node, and of PostgreSQL (https://www.postgresql.org/docs/current/errcodes-appendix.html), for a server that
 * cannot be reached, that ends the connection, or that takes no writes because another one does by now.
 */
const LOST =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ENOENT|08\w{3}|57P0[1-4]|25P03|25006|53300)$/;

/** Errors of the client have no codes. */
const LOST_MESSAGE = /^(Connection terminated|Client has encountered a connection error|timeout expired)/;

/** What to do about an error at the first connection, by PostgreSQL's code, Node's, or the message. The first that fits counts. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [/^3D000$/, "create it on the server first: CREATE DATABASE is enough, the tables are made here"],
  [/no encryption$/, "add sslmode=verify-full to the URL of the database"],
  [/^28|asks for a password/, "set PGUSER and PGPASSWORD, or the whole URL in IMGBATCH_DATABASE_URL"],
  [
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    "use a host name of the certificate, or sslmode=verify-ca with sslrootcert for an authority that signs for this server alone",
  ],
  [
    /CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE/,
    "add sslrootcert=/path/of/ca.pem to the URL: the certificate of the authority that has signed that of the server",
  ],
  [
    /statement pooling mode/,
    "set pool_mode=transaction or pool_mode=session in the pooler, for this database",
  ],
  [/not support SSL/, "turn on `ssl` at the server; sslmode=disable sends everything in plain text"],
];

/** Returns the next step for a database that cannot be used. */
export function adviceAfter(error: Error): string {
  const found = ADVICE.find(([sign]) => sign.test(systemCodeOf(error)) || sign.test(error.message));
  return found?.[1] ?? "check that the database runs at this address, and takes connections from here";
}

/** No connection could be made, or none was free. */
export class CannotConnect extends Error {
  constructor(cause: unknown) {
    super("no connection to the database", { cause });
    this.name = "CannotConnect";
  }
}

const reasonOf = (error: unknown) => (error instanceof CannotConnect ? error.cause : error);

/** Whether the connection is gone, or could not be made for now: another one may work. */
export function isConnectionLost(failure: unknown): boolean {
  const error = reasonOf(failure);
  return LOST.test(systemCodeOf(error)) || (error instanceof Error && LOST_MESSAGE.test(error.message));
}

const SERIALIZATION_FAILURE = "40001";
const DEADLOCK = "40P01";
const UNIQUE_VIOLATION = "23505";

/**
 * Returns how often work may be repeated after an error; 0 when another try would end like this one. A row that exists
 * already may come from another transaction, which the next try sees.
 */
export function repeatsAfter(error: unknown): number {
  const code = systemCodeOf(error);
  if (code === SERIALIZATION_FAILURE || code === DEADLOCK) return 20;
  return code === UNIQUE_VIOLATION ? 1 : 0;
}

/** `disk_full`; `lock_not_available` and `query_canceled`, after the times that a transaction sets. */
const [DISK_FULL, BUSY] = ["53100", /^(55P03|57014|40001|40P01)$/];
/** The pool has no free connection. */
const NONE_FREE = /^timeout exceeded when trying to connect/;

/** Whether the request failed because others held a lock, or all connections, for too long. */
function isBusy(failure: unknown): boolean {
  const error = reasonOf(failure);
  return BUSY.test(systemCodeOf(error)) || (error instanceof Error && NONE_FREE.test(error.message));
}

/** Returns the error to throw in place of one after which nothing was stored; any other error as it is. */
export function notStoredInPostgres(failure: unknown): unknown {
  const error = reasonOf(failure);
  const code = systemCodeOf(error);
  if (code === DISK_FULL) {
    return new StorageUnavailable("full", "The disk of the service's database is full.", error);
  }
  if (isBusy(failure)) {
    return new StorageUnavailable("busy", "The service's database is busy; try again.", error);
  }
  if (isConnectionLost(failure) || failure instanceof CannotConnect) {
    const message = `The service cannot use its database now (${code}).`;
    return new StorageUnavailable("broken", message, error);
  }
  return error;
}

/** The connection was lost during a commit. */
export function perhapsStoredInPostgres(cause: unknown): StorageUnavailable {
  const message = "The service lost its database during a commit: this may have been done, or not.";
  return new StorageUnavailable("unknown-commit", message, cause);
}

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
