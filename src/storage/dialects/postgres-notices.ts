import type { Client, QueryResult } from "pg";
import type { Clock } from "../../kernel/clock.ts";
import { randomIds } from "../../kernel/ids.ts";
import { connectionOf, destroySoon, PostgresClient } from "./postgres-connection.ts";

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
