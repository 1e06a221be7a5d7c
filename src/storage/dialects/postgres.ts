import { sql } from "kysely";
import pg, {
  type CustomTypesConfig,
  type Pool,
  type PoolClient,
  type PoolConfig,
  type QueryArrayResult,
  type QueryConfig,
  type QueryResult,
} from "pg";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import {
  adviceAfter,
  CannotConnect,
  connectionOf,
  destroySoon,
  isConnectionLost,
  isOpenToOthers,
  notStoredInPostgres,
  PostgresClient,
  perhapsStoredInPostgres,
  repeatsAfter,
} from "./postgres-connection.ts";
import { postgresSession } from "./postgres-session.ts";
import { type SqlDatabase, type SqlSession, written } from "./sql-session.ts";

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
const HURRIED_SILENCE_MS = 2000;

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
  hurry?: AbortSignal | undefined;
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
  { url, connections, hurry, isPatient = false }: PostgresOptions,
  clock: Clock,
): Promise<SqlDatabase> {
  const connection = connectionOf(url);
  const { pool, close } = openPool({ ...connection, max: connections }, isPatient, hurry);
  const time = databaseClock(clock);
  const limits = `${LIMITS}${isPatient ? "0" : "'10s'"}`;
  const warnings = isOpenToOthers(connection) ? [PLAIN_TEXT] : [];
  const again = <T>(attempt: () => Promise<T>) => repeated(clock, attempt, hurry);
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
  hurry: AbortSignal | undefined,
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
    setTimeout(end, HURRIED_SILENCE_MS).unref();
  };
  hurry?.addEventListener("abort", endInFlight, { once: true });
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
      const timer = setTimeout(() => endSilent(client), hurry?.aborted ? HURRIED_SILENCE_MS : SILENCE_MS);
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
  hurry: AbortSignal | undefined,
): Promise<T> {
  let lostAtMs: number | null = null;
  let conflicts = 0;
  for (let pauseMs = PAUSE_MS; ; ) {
    try {
      return await attempt();
    } catch (error) {
      if (conflicts++ < repeatsAfter(error)) {
        await clock.sleep(backoffMs(conflicts, CONFLICT_PAUSE, Math.random), hurry).catch(() => {});
        continue;
      }
      lostAtMs ??= clock.monotonicMs();
      const isOver = hurry?.aborted || clock.monotonicMs() - lostAtMs >= GIVE_UP_MS;
      if (!isConnectionLost(error) || isOver) throw notStoredInPostgres(error);
      await clock.sleep(pauseMs, hurry).catch(() => {});
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
