import { sql } from "kysely";
import pg, {
  type ClientConfig,
  type CustomTypesConfig,
  type Pool,
  type PoolClient,
  type QueryConfig,
  type QueryResultRow,
} from "pg";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import { connectionOf, isOpenToOthers, PostgresClient } from "./postgres-connection.ts";
import { postgresSession } from "./postgres-session.ts";
import { destroySoon, endWhenSilent, workAsker } from "./postgres-silence.ts";
import { beginReading, beginWriting, CLOCK, commit, runInTransaction } from "./postgres-transaction.ts";
import {
  adviceAfter,
  CannotConnect,
  isConnectionLost,
  notStoredInPostgres,
  perhapsStoredInPostgres,
  repeatsAfter,
} from "./postgres-trouble.ts";
import { type SqlDatabase, type Warning, written } from "./sql-session.ts";

/** How many connections a process has at most. A server takes 100 unless it is told otherwise. */
const MOST_CONNECTIONS = 10;
/** After how long without a byte the system looks whether the other side is still there. */
const KEEP_ALIVE_MS = 10_000;
/** A server that restarts is back within seconds: everything waits this long for it. */
const GIVE_UP_MS = 10_000;
const PAUSE_MS = 50;
const OLDEST_VERSION = 15;

/** 64-bit integers, and the sums of them, which PostgreSQL makes exact decimals. */
const [INT8, NUMERIC] = [20, 1700];

const FACTS = `${CLOCK}, current_setting('server_version') as version, getdatabaseencoding() as encoding`;

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

export interface PostgresOptions {
  /** With the password, if there is one. */
  url: string;
  /** Once it is aborted, nothing waits any more for a server that is away. Default: never. */
  hurry?: AbortSignal | undefined;
}

/**
 * Opens a PostgreSQL database, version 15 or later, which may be empty. A server that goes away never ends the process:
 * whatever was certainly not stored is done again on another connection, for `GIVE_UP_MS`, and then rejects with
 * `StorageUnavailable`; so does, at once, a write whose commit got no answer. Throws `STORAGE_FAILED` when the server cannot be reached or
 * refuses, and `INVALID_CONFIG` for one that cannot be used.
 */
export async function openPostgres({ url, hurry }: PostgresOptions, clock: Clock): Promise<SqlDatabase> {
  const connection = connectionOf(url);
  const { pool, close } = openPool(connection);
  const time = new DatabaseClock(clock);
  const warnings = isOpenToOthers(connection) ? [PLAIN_TEXT] : [];
  const again = <T>(attempt: () => Promise<T>) => untilConnected(clock, attempt, hurry);
  const database: SqlDatabase = {
    reader: postgresSession((statement) => again(() => query(pool, statement))),
    transaction: (work) => again(() => repeated(() => write(pool, time, work))),
    snapshot: (work) =>
      again(() =>
        withClient(pool, async (client) => {
          await beginReading(client);
          const result = await runInTransaction(client, work);
          await commit(client);
          return result;
        }),
      ),
    clock: time,
    clockMs: async (session) =>
      (await session.first(written(session, sql<{ ms: number }>`${sql.raw(CLOCK)}`)))?.ms ?? 0,
    // The server checks its own files.
    integrityProblems: async () => [],
    warnings,
    close,
  };
  try {
    await again(() => prepare(pool, time));
    const aheadMs = clock.nowMs() - time.nowMs();
    if (Math.abs(aheadMs) > MOST_ASTRAY_MS) warnings.push(astray(aheadMs));
  } catch (error) {
    await close();
    throw error instanceof ImgbatchError ? error : cannotUse(error);
  }
  return database;
}

function openPool(place: ClientConfig): { pool: Pool; close: () => Promise<void> } {
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
  const pool = new pg.Pool({ ...connection, max: MOST_CONNECTIONS, types, Client: PostgresClient });
  const ask = workAsker(connection);
  const open = new Set<PoolClient>();
  // Without a listener, a connection that breaks while it is idle would end the process. A query that runs on it gets
  // the error itself.
  pool.on("error", () => {});
  pool.on("connect", (client) => {
    client.on("error", () => {});
    endWhenSilent(client, ask);
    open.add(client);
    client.on("end", () => open.delete(client));
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
class DatabaseClock implements Clock {
  readonly #own: Clock;
  #aheadMs = 0;

  constructor(own: Clock) {
    this.#own = own;
  }

  nowMs(): number {
    return this.#own.nowMs() + this.#aheadMs;
  }

  monotonicMs(): number {
    return this.#own.monotonicMs();
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return this.#own.sleep(ms, signal);
  }

  /** Asks for the time with `ask`, and for anything else. */
  async corrected<T extends { ms: number }>(ask: () => Promise<T>): Promise<T> {
    const startMs = this.#own.nowMs();
    const answer = await ask();
    const [least, most] = [answer.ms - this.#own.nowMs(), answer.ms - startMs];
    this.#aheadMs = Math.min(Math.max(this.#aheadMs, least), most);
    return answer;
  }
}

async function prepare(pool: Pool, time: DatabaseClock): Promise<void> {
  // In a transaction, which not every mode of a pooler takes.
  const { version, encoding } = await withClient(pool, async (client) => {
    await beginReading(client);
    const ask = () => client.query<{ version: string; encoding: string; ms: number }>(FACTS);
    const facts = await time.corrected(async () => {
      const [row] = (await ask()).rows;
      if (row === undefined) throw new Error("the database answers nothing");
      return row;
    });
    await commit(client);
    return facts;
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

/** Repeats an attempt that lost its connection and has changed nothing. */
async function untilConnected<T>(
  clock: Clock,
  attempt: () => Promise<T>,
  hurry: AbortSignal | undefined,
): Promise<T> {
  const startMs = clock.monotonicMs();
  for (let pauseMs = PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, 1000)) {
    try {
      return await attempt();
    } catch (error) {
      const isOver = hurry?.aborted || clock.monotonicMs() - startMs >= GIVE_UP_MS;
      if (!isConnectionLost(error) || isOver) throw notStoredInPostgres(error);
      await clock.sleep(pauseMs, hurry).catch(() => {});
    }
  }
}

/** Repeats an attempt that lost against another transaction. */
async function repeated<T>(attempt: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      if (tries > repeatsAfter(error)) throw error;
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
async function query<Row extends QueryResultRow>(pool: Pool, statement: QueryConfig) {
  const client = await connect(pool);
  let failure: unknown = null;
  try {
    return await client.query<Row>(statement);
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

async function write<T>(
  pool: Pool,
  time: DatabaseClock,
  work: Parameters<typeof runInTransaction<T>>[1],
): Promise<T> {
  return withClient(pool, async (client) => {
    await time.corrected(() => beginWriting(client));
    const result = await runInTransaction(client, work);
    await commit(client).catch((error) => {
      throw isConnectionLost(error) ? perhapsStoredInPostgres(error) : error;
    });
    return result;
  });
}
