// Longer than other files, because it is all that the storage knows of PostgreSQL: connections, transactions and notices.
import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";
import { sql } from "kysely";
import pg, {
  type Client,
  type ClientConfig,
  type CustomTypesConfig,
  type Pool,
  type PoolClient,
  type PoolConfig,
  type QueryArrayResult,
  type QueryConfig,
  type QueryResult,
} from "pg";
import { ImgbatchError } from "../../contract/errors.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { randomIds } from "../../kernel/ids.ts";
import { isLoopback } from "../../kernel/loopback.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { postgresSession } from "./postgres-session.ts";
import { type SqlDatabase, type SqlSession, written } from "./sql-session.ts";

/**
 * Codes of Node, and of PostgreSQL (https://www.postgresql.org/docs/current/errcodes-appendix.html), for a server that
 * cannot be reached, that ends the connection, or that takes no writes because another one does by now.
 */
const LOST =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ENOENT|08\w{3}|57P0[1-4]|25P03|25006|53300)$/;

/** Errors of the client have no codes. */
const LOST_MESSAGE = /^(Connection terminated|Client has encountered a connection error|timeout expired)/;

/**
 * What to do about an error at the first connection. A pattern is compared with the code of PostgreSQL or Node and with the
 * message; the first pattern that matches counts.
 */
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
function adviceAfter(error: Error): string {
  const found = ADVICE.find(([sign]) => sign.test(systemCodeOf(error)) || sign.test(error.message));
  return found?.[1] ?? "check that the database runs at this address, and takes connections from here";
}

/** No connection could be made, or none was free. */
class CannotConnect extends Error {
  constructor(cause: unknown) {
    super("no connection to the database", { cause });
    this.name = "CannotConnect";
  }
}

const reasonOf = (error: unknown) => (error instanceof CannotConnect ? error.cause : error);

/** Whether the connection is gone, or could not be made for now: another one may work. */
function isConnectionLost(failure: unknown): boolean {
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
function repeatsAfter(error: unknown): number {
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
function notStoredInPostgres(failure: unknown): unknown {
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
function perhapsStoredInPostgres(cause: unknown): StorageUnavailable {
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
function destroySoon(clients: Iterable<pg.Client>): void {
  const destroy = () => {
    for (const client of clients) client.connection.stream.destroy();
  };
  setTimeout(destroy, FAREWELL_MS).unref();
}

/** The driver leaves the socket of a failed handshake open, and the process with it, until the server closes it. */
class PostgresClient extends pg.Client {
  override connect(): Promise<pg.Client>;
  override connect(done: (error: Error | null) => void): void;
  override connect(done?: (error: Error | null) => void): Promise<unknown> {
    const connected = super.connect();
    connected.catch(() => this.connection.stream.destroy());
    return done === undefined ? connected : connected.then(() => done(null), done);
  }
}

const CHANNEL = "imgbatch";
/** Pauses between two attempts to connect. */
const AGAIN_MS = { first: 500, longest: 10_000 };
/** Between two texts to the server, which show whether it is still there, and how long it has to answer one. */
const PING_MS = 3000;
/** How long the end waits for the last text to be sent. */
const LAST_WORDS_MS = 500;

/**
 * Short texts from process to process (PostgreSQL's LISTEN and NOTIFY). A text can get lost at any time: a
 * process that gets one only looks earlier than it would have anyway.
 */
export interface Notices {
  /** Whether texts of others arrive now. */
  readonly isListening: boolean;
  /** Tells all processes, this one among them. At most 8000 bytes. Does nothing while there is no connection. */
  send(text: string): void;
  /** Sends what is on its way first. */
  close(): Promise<void>;
}

/** Listens on a connection of its own, which is made again whenever it is lost. */
export function openNotices(url: string, clock: Clock, onNotice: (text: string) => void): Notices {
  const closing = new AbortController();
  let client: Client | null = null;
  let sent: Promise<unknown> = Promise.resolve();
  /** A connection takes one statement at a time. */
  const ask = (to: Client, text: string, values: string[] = []) => {
    const answer = sent.then(() => to.query(text, values));
    sent = answer.catch(() => {});
    return answer;
  };
  const running = (async () => {
    for (let pauseMs = AGAIN_MS.first; !closing.signal.aborted; pauseMs = 2 * pauseMs) {
      const listening = await listen(url, clock, closing.signal, onNotice).catch(() => null);
      if (listening !== null) {
        client = listening.client;
        pauseMs = AGAIN_MS.first;
        await Promise.race([
          listening.lost,
          silence(() => ask(listening.client, "select 1"), clock, closing.signal),
        ]);
        client = null;
        destroySoon([listening.client]);
        await listening.client.end().catch(() => {});
      }
      await clock.sleep(Math.min(pauseMs, AGAIN_MS.longest), closing.signal).catch(() => {});
    }
  })();
  return {
    get isListening() {
      return client !== null;
    },
    send: (text) => {
      if (client !== null) ask(client, "select pg_notify($1, $2)", [CHANNEL, text]).catch(() => {});
    },
    close: async () => {
      const isSent = new AbortController();
      const last = sent.finally(() => isSent.abort());
      await Promise.race([last, clock.sleep(LAST_WORDS_MS, isSent.signal).catch(() => {})]);
      closing.abort();
      await running;
    },
  };
}

/** Resolves when the server does not answer, or when the signal is aborted. */
async function silence(ping: () => Promise<unknown>, clock: Clock, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await clock.sleep(PING_MS, signal).catch(() => {});
    if (signal.aborted) return;
    // The ping stands behind earlier notices, and each of these may wait for a silent server until its own time is over.
    const isLate = clock.sleep(PING_MS, signal).then(() => false);
    const isAnswered = await Promise.race([ping().then(() => true), isLate]).catch(() => false);
    if (!isAnswered) return;
  }
}

/** `lost` resolves when the connection is lost. Rejects where a pooler keeps back what others send. */
async function listen(
  url: string,
  clock: Clock,
  signal: AbortSignal,
  onNotice: (text: string) => void,
): Promise<{ client: Client; lost: Promise<void> }> {
  const client = clientFor(url);
  const lost = new Promise<void>((resolve) => {
    client.on("error", () => resolve()).on("end", () => resolve());
  });
  client.on("notification", ({ channel, payload }) => channel === CHANNEL && onNotice(payload ?? ""));
  try {
    await client.connect();
    const answer = await client.query(`listen ${CHANNEL}; select pg_backend_pid() as pid`);
    // The types of `pg` know only the answer to a single statement.
    const [, pids] = answer as unknown as QueryResult<{ pid: number }>[];
    const isBehindPooler = pids?.rows[0]?.pid !== backendOf(client);
    if (isBehindPooler && !(await hearsOthers(client, url, clock, signal)))
      throw new Error("a pooler does not pass on LISTEN");
    return { client, lost };
  } catch (error) {
    await client.end().catch(() => {});
    throw error;
  }
}

function clientFor(url: string): PostgresClient {
  const name = { application_name: "imgbatch notices" };
  return new PostgresClient({ ...connectionOf(url), ...name, query_timeout: PING_MS });
}

/** Returns the process id that the client was told. Behind a pooler it is none of the server's. The types do not know it. */
function backendOf(client: Client): number {
  return (client as unknown as { processID: number }).processID;
}

/** A pooler may give each statement another connection: only a text of another client shows whether any arrives. */
async function hearsOthers(
  client: PostgresClient,
  url: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<boolean> {
  const channel = `imgbatch_${randomIds.leaseToken().slice(0, 16)}`;
  const isHeard = new Promise<boolean>((resolve) => {
    client.on("notification", (notice) => notice.channel === channel && resolve(true));
  });
  await client.query(`listen ${channel}`);
  const other = clientFor(url);
  other.on("error", () => {});
  try {
    await other.connect();
    await other.query(`notify ${channel}`);
    return await Promise.race([isHeard, clock.sleep(PING_MS, signal).then(() => false)]);
  } finally {
    await client.query(`unlisten ${channel}`);
    await other.end();
  }
}

type Ask = Parameters<typeof postgresSession>[0];

/** After how long without a byte the system looks whether the other side is still there. */
const KEEP_ALIVE_MS = 10_000;
/** A server that restarts is back within seconds: everything waits this long for it. */
const GIVE_UP_MS = 10_000;
const PAUSE_MS = 50;
const CONFLICT_PAUSE = { baseMs: 20, capMs: 500 };
const OLDEST_VERSION = 15;

/**
 * A server that goes away without a word ends no connection: the system sends again for a quarter of an hour. A
 * connection without an answer for this long is closed. The server itself ends a statement of a transaction before.
 */
const SILENCE_MS = 15_000;
/** The same limit while the service stops. */
const STOPPING_SILENCE_MS = 2000;

/**
 * The times after which the server itself ends what hangs, so that its locks come free. Between two statements a
 * transaction waits for nothing but this process: one that is stopped, or gone without a word, holds up others no longer
 * than this.
 */
const LIMITS =
  "SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = ";

/** Asks for the time of the database as `ms`, since 1970. */
const CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms";

/** 64-bit integers, and the sums of them, which PostgreSQL makes exact decimals. */
const [INT8, NUMERIC] = [20, 1700];

const FACTS = `${CLOCK}, current_setting('server_version') as version, getdatabaseencoding() as encoding`;

type Warning = SqlDatabase["warnings"][number];

const PLAIN_TEXT: Warning = {
  message: "everything goes to the database in plain text, and others on the network can read it",
  advice: "add sslmode=verify-full to its URL, and sslrootcert=/path/of/ca.pem for an authority of your own",
};

/** A clock of this process that differs by more is reported. */
const MOST_ASTRAY_MS = 30_000;

const astray = (aheadMs: number): Warning => ({
  message: `the clock of this machine is ${formatDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? "ahead of" : "behind"} that of the database, which counts`,
  advice: "let both machines set their clocks by the network (NTP)",
});

interface PostgresOptions {
  /** With the password, if there is one. */
  url: string;
  /** How many connections there are at most. Default: the driver's, 10. */
  connections?: number | undefined;
  /** Once it is aborted, nothing waits any more for a server that is away. Default: never. */
  stopping?: AbortSignal | undefined;
  /** Statements may take as long as they need, as when everything is read. Default: false. */
  isPatient?: boolean | undefined;
}

/**
 * Opens a PostgreSQL database, version 15 or later, which may be empty. A server that goes away never ends the process:
 * whatever was certainly not stored is done again on another connection, for `GIVE_UP_MS`, and then rejects with
 * `StorageUnavailable`; so does, at once, a write whose commit got no answer. Throws `STORAGE_FAILED` when the server cannot be reached or
 * refuses, and `INVALID_CONFIG` for one that cannot be used.
 */
export async function openPostgres(
  { url, connections, stopping, isPatient = false }: PostgresOptions,
  clock: Clock,
): Promise<SqlDatabase> {
  const connection = connectionOf(url);
  const { pool, close } = openPool({ ...connection, max: connections }, isPatient, stopping);
  const time = databaseClock(clock);
  const limits = `${LIMITS}${isPatient ? "0" : "'10s'"}`;
  const warnings = isOpenToOthers(connection) ? [PLAIN_TEXT] : [];
  const again = <T>(attempt: () => Promise<T>) => repeated(clock, attempt, stopping);
  /** Runs work in a transaction that sees the database as it was at one moment. */
  const snapshot = <T>(work: (session: SqlSession) => Promise<T>) =>
    again(() =>
      withClient(pool, async (client) => {
        await client.query(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ${limits}`);
        const result = await runInTransaction(client, work);
        await commit(client);
        return result;
      }),
    );
  const database: SqlDatabase = {
    reader: postgresSession((statement) => again(() => query(pool, statement))),
    transaction: (work) =>
      again(() =>
        withClient(pool, async (client) => {
          await time.corrected(() => beginWriting(client, limits));
          const result = await runInTransaction(client, work);
          await commit(client).catch((error) => {
            throw isConnectionLost(error) ? perhapsStoredInPostgres(error) : error;
          });
          return result;
        }),
      ),
    snapshot,
    clock: time.clock,
    clockMs: async (session) =>
      (await session.first(written(session, sql<{ ms: number }>`${sql.raw(CLOCK)}`)))?.ms ?? 0,
    // The server checks its own files.
    integrityProblems: async () => [],
    warnings,
    close,
  };
  try {
    // In a transaction, which not every mode of a pooler takes.
    await snapshot((session) => prepare(session, time));
    const aheadMs = clock.nowMs() - time.clock.nowMs();
    if (Math.abs(aheadMs) > MOST_ASTRAY_MS) warnings.push(astray(aheadMs));
  } catch (error) {
    await close();
    throw error instanceof ImgbatchError ? error : cannotUse(error);
  }
  return database;
}

function openPool(
  place: PoolConfig,
  isPatient: boolean,
  stopping: AbortSignal | undefined,
): { pool: Pool; close: () => Promise<void> } {
  const types: CustomTypesConfig = {
    getTypeParser: (oid: number, format?: "text" | "binary") =>
      oid === INT8 || oid === NUMERIC ? toSafeInteger : pg.types.getTypeParser(oid, format),
  };
  const connection = {
    ...place,
    application_name: "imgbatch",
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
  };
  const pool = new pg.Pool({ ...connection, types, Client: PostgresClient });
  const open = new Set<PoolClient>();
  /** The timers of statements that are not answered yet. */
  const busy = new Map<PoolClient, NodeJS.Timeout>();
  /** Closes the idle connections too: they are as dead as this one, and the next queries would wait for them. */
  const endSilent = (silent: PoolClient) => {
    for (const client of open) if (client === silent || !busy.has(client)) client.connection.stream.destroy();
  };
  const endInFlight = () => {
    const before = [...busy];
    const end = () => {
      for (const [client, timer] of before)
        if (busy.get(client) === timer) client.connection.stream.destroy();
    };
    setTimeout(end, STOPPING_SILENCE_MS).unref();
  };
  stopping?.addEventListener("abort", endInFlight, { once: true });
  // Without a listener, a connection that breaks while it is idle would end the process. A query that runs on it gets
  // the error itself.
  pool.on("error", () => {});
  pool.on("connect", (client) => {
    client.on("error", () => {});
    open.add(client);
    client.on("end", () => open.delete(client));
    if (isPatient) return;
    const query = client.query.bind(client) as (statement: QueryConfig) => Promise<QueryResult>;
    const limited = async (statement: QueryConfig) => {
      const timer = setTimeout(() => endSilent(client), stopping?.aborted ? STOPPING_SILENCE_MS : SILENCE_MS);
      busy.set(client, timer);
      try {
        return await query(statement);
      } finally {
        clearTimeout(timer);
        busy.delete(client);
      }
    };
    client.query = limited as typeof client.query;
  });
  const close = async () => {
    await pool.end();
    destroySoon(open);
  };
  return { pool, close };
}

function toSafeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} from the database is no safe integer`);
  return value;
}

/**
 * The time of the database, which is the same for all processes: one with a wrong clock would make items too early, or
 * let others wait. Each answer with the time corrects it, by no more than is certain, because it may have come late.
 */
function databaseClock(own: Clock) {
  let aheadMs = 0;
  const clock: Clock = {
    nowMs: () => own.nowMs() + aheadMs,
    monotonicMs: () => own.monotonicMs(),
    sleep: (ms, signal) => own.sleep(ms, signal),
  };
  /** Asks for the time with `ask`, and for anything else. */
  const corrected = async <T extends { ms: number }>(ask: () => Promise<T>): Promise<T> => {
    const startMs = own.nowMs();
    const answer = await ask();
    const [least, most] = [answer.ms - own.nowMs(), answer.ms - startMs];
    aheadMs = Math.min(Math.max(aheadMs, least), most);
    return answer;
  };
  return { clock, corrected };
}

async function prepare(session: SqlSession, time: ReturnType<typeof databaseClock>): Promise<void> {
  const facts = sql<{ version: string; encoding: string; ms: number }>`${sql.raw(FACTS)}`;
  const { version, encoding } = await time.corrected(async () => {
    const row = await session.first(written(session, facts));
    if (row === null) throw new Error("the database answers nothing");
    return row;
  });
  const refuse = (message: string) => new ImgbatchError("INVALID_CONFIG", message);
  if (Number.parseInt(version, 10) < OLDEST_VERSION) {
    throw refuse(
      `The database is PostgreSQL ${version}; version ${OLDEST_VERSION} is the oldest that works.`,
    );
  }
  if (encoding !== "UTF8") throw refuse(`The database has the encoding ${encoding}; it must be UTF8.`);
}

/** The reason is PostgreSQL's or the system's, which name no password. */
function cannotUse(error: unknown): ImgbatchError {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : (error as Error);
  const code = systemCodeOf(cause);
  const reason = code === "unknown" ? cause.message : `${cause.message || code} (${code})`;
  const message = `The database cannot be used: ${reason}.`;
  return new ImgbatchError("STORAGE_FAILED", message, { advice: adviceAfter(cause), cause });
}

/**
 * Repeats an attempt that has changed nothing: after a pause if it lost its connection, until `GIVE_UP_MS` after the first
 * loss, and after pauses that differ if it lost against other transactions: at once, the same ones would meet again.
 */
async function repeated<T>(
  clock: Clock,
  attempt: () => Promise<T>,
  stopping: AbortSignal | undefined,
): Promise<T> {
  let lostAtMs: number | null = null;
  let conflicts = 0;
  for (let pauseMs = PAUSE_MS; ; ) {
    try {
      return await attempt();
    } catch (error) {
      if (conflicts++ < repeatsAfter(error)) {
        await clock.sleep(backoffMs(conflicts, CONFLICT_PAUSE, Math.random), stopping).catch(() => {});
        continue;
      }
      lostAtMs ??= clock.monotonicMs();
      const isOver = stopping?.aborted || clock.monotonicMs() - lostAtMs >= GIVE_UP_MS;
      if (!isConnectionLost(error) || isOver) throw notStoredInPostgres(error);
      await clock.sleep(pauseMs, stopping).catch(() => {});
      pauseMs = Math.min(2 * pauseMs, 1000);
    }
  }
}

async function connect(pool: Pool): Promise<PoolClient> {
  try {
    return await pool.connect();
  } catch (error) {
    throw new CannotConnect(error);
  }
}

/** Asks one statement that belongs to no transaction. */
async function query(pool: Pool, statement: Parameters<Ask>[0]) {
  const client = await connect(pool);
  let failure: unknown = null;
  try {
    return await client.query(statement);
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    client.release(isConnectionLost(failure));
  }
}

/** Lends a connection. It is closed when it is broken, or when what was begun on it cannot be undone. */
async function withClient<T>(pool: Pool, use: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await connect(pool);
  let isUsable = true;
  try {
    return await use(client);
  } catch (error) {
    const isUndone = await client.query("ROLLBACK").then(
      () => true,
      () => false,
    );
    isUsable = isUndone && !isConnectionLost(error);
    throw error;
  } finally {
    client.release(!isUsable);
  }
}

/** Begins a transaction that sees what others have committed. Returns the time of the database. */
async function beginWriting(client: PoolClient, limits: string): Promise<{ ms: number }> {
  const answer = await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; ${limits}; ${CLOCK}`);
  // The types of `pg` know only the answer to a single statement.
  const last = (answer as unknown as QueryResult<{ ms: number }>[]).at(-1)?.rows[0];
  if (last === undefined) throw new Error("the database has not said its time");
  return last;
}

/**
 * Runs work in the open transaction of a connection. Rejects when it waits for anything but the database: the
 * transaction would hold its locks meanwhile, and with all connections in use, it would wait for ever for one more.
 */
function runInTransaction<T>(client: PoolClient, work: (session: SqlSession) => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let state: "working" | "asking" | "ended" = "working";
    let turned: NodeJS.Immediate | undefined;
    let failure: unknown = null;
    const end = (settle: () => void) => {
      if (state === "ended") return;
      state = "ended";
      clearImmediate(turned);
      settle();
    };
    const watch = () => {
      state = "working";
      turned = setImmediate(() => {
        const message = "a transaction waited for something other than its database";
        end(() => reject(new Error(message)));
      });
    };
    const ask: Ask = async (query) => {
      if (state === "ended") throw new Error("a query came after the end of its transaction");
      if (state === "asking") throw new Error("two queries of a transaction came at the same time");
      clearImmediate(turned);
      state = "asking";
      try {
        return await client.query(query);
      } catch (error) {
        failure ??= error;
        throw error;
      } finally {
        watch();
      }
    };
    watch();
    work(postgresSession(ask)).then(
      // After a query that failed, the server takes no other, and a commit undoes everything.
      (result) => end(() => (failure === null ? resolve(result) : reject(failure))),
      (error) => end(() => reject(error)),
    );
  });
}

/** Throws when the server has undone the transaction instead. */
async function commit(client: PoolClient): Promise<void> {
  const { command } = (await client.query("COMMIT")) as QueryArrayResult;
  if (command !== "COMMIT") throw new Error("the database has undone a transaction instead of its commit");
}
