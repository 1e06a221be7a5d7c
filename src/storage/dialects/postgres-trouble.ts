import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";

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
