import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { resetConnection } from "./listen.ts";

/** How a connection ends at a statement. Both sides see a reset, except where nothing is said. */
export type PgCut =
  /** The statement never reaches the server. */
  | "before"
  /** The server has done the statement, and its answer is lost. */
  | "answer"
  /** The client is cut off at once, and the statement reaches the server `LATE_MS` later all the same. */
  | "late"
  /** The server has done the statement, and the connection stays open and carries nothing any more. */
  | "silent";

export const LATE_MS = 300;

export interface PgProxy {
  port: number;
  /** Connections that are open. */
  connections: number;
  /** Cuts that were made so far. */
  cuts: number;
  /** New connections are closed at once. */
  isRefusing: boolean;
  /** How long bytes take, each way, on connections that begin from now on. */
  delayMs: number;
  /** The next `times` statements (default 1) that match (default: COMMIT) end their connections. */
  cut(how: PgCut, options?: { times?: number; when?: (sql: string) => boolean }): void;
  /** Resets all connections. */
  cutAll(): void;
  /** The connections that are open now stay open and carry nothing any more, as when a machine loses power. */
  silence(): void;
  /** Forgets all cuts to come, delays and refusals. */
  heal(): void;
  close(): Promise<void>;
}

/** The first message of a connection has no type, and these codes ask for something else than a session. */
const NO_SESSION = [80877102, 80877103, 80877104];
const IS_COMMIT = (sql: string) => /^\s*(commit|end)\b/i.test(sql);

/**
 * Stands between clients and a PostgreSQL server on this machine, on a free loopback port. It reads the statements of
 * the clients (frontend/backend protocol 3.0, simple and extended queries) and changes no byte.
 */
export async function startPgProxy(target: { port: number }): Promise<PgProxy> {
  const planned: { how: PgCut; left: number; when: (sql: string) => boolean }[] = [];
  const open = new Set<() => void>();
  const silencers = new Set<() => void>();
  const timers = new Set<NodeJS.Timeout>();
  const later = (ms: number, work: () => void) => {
    const timer = setTimeout(() => {
      timers.delete(timer);
      work();
    }, ms);
    timers.add(timer);
  };

  const serve = (client: Socket) => {
    if (proxy.isRefusing) return void client.destroy();
    const server = connect(target.port, "127.0.0.1");
    const { delayMs } = proxy;
    const pass = (to: Socket, bytes: Buffer) => {
      if (delayMs === 0) to.write(bytes);
      else later(delayMs, () => to.write(bytes));
    };
    let isSilent = false;
    const silence = () => {
      isSilent = true;
    };
    silencers.add(silence);
    const end = () => {
      silencers.delete(silence);
      open.delete(end);
      proxy.connections = open.size;
      for (const socket of [client, server]) if (!socket.destroyed) resetConnection(socket);
    };
    open.add(end);
    proxy.connections = open.size;
    let isAnswerLost = false;
    const statements = statementReader((bytes, sql) => {
      const plan = sql === null ? undefined : planned.find(({ left, when }) => left > 0 && when(sql));
      if (isSilent) return;
      if (plan === undefined) return pass(server, bytes);
      plan.left--;
      proxy.cuts++;
      if (plan.how === "before") return end();
      if (plan.how === "silent") {
        pass(server, bytes);
        return silence();
      }
      if (plan.how === "late") {
        resetConnection(client);
        later(LATE_MS, () => server.end(bytes));
        return;
      }
      isAnswerLost = true;
      pass(server, bytes);
    });
    client.on("data", statements);
    server.on("data", (bytes) => {
      if (isSilent) return;
      if (isAnswerLost) end();
      else if (!client.destroyed) pass(client, bytes);
    });
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on("error", () => {});
    }
    // A client that was cut off is gone before its statement arrives.
    client.on("end", end);
    server.on("close", end);
  };

  const listener = createServer(serve);
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const proxy: PgProxy = {
    port: (listener.address() as AddressInfo).port,
    connections: 0,
    cuts: 0,
    isRefusing: false,
    delayMs: 0,
    cut: (how, { times = 1, when = IS_COMMIT } = {}) => {
      planned.push({ how, left: times, when });
    },
    cutAll: () => {
      for (const end of [...open]) end();
    },
    silence: () => {
      for (const silence of silencers) silence();
    },
    heal: () => {
      planned.length = 0;
      proxy.delayMs = 0;
      proxy.isRefusing = false;
    },
    close: () =>
      new Promise((resolve) => {
        for (const timer of timers) clearTimeout(timer);
        listener.close(() => resolve());
        proxy.cutAll();
      }),
  };
  return proxy;
}

/**
 * Returns a reader of one client's bytes. It hands on each whole message, with the SQL if the message makes the server
 * run a statement.
 */
function statementReader(take: (bytes: Buffer, sql: string | null) => void): (chunk: Buffer) => void {
  const prepared = new Map<string, string>();
  const portals = new Map<string, string>();
  let waiting: Buffer = Buffer.alloc(0);
  let hasSession = false;
  return (chunk) => {
    waiting = waiting.length === 0 ? chunk : Buffer.concat([waiting, chunk]);
    for (;;) {
      const head = hasSession ? 1 : 0;
      if (waiting.length < head + 4) return;
      const length = head + waiting.readInt32BE(head);
      if (waiting.length < length) return;
      const message = waiting.subarray(0, length);
      waiting = waiting.subarray(length);
      if (!hasSession) {
        hasSession = !NO_SESSION.includes(message.readInt32BE(4));
        take(message, null);
        continue;
      }
      const [first = "", second = ""] = message.subarray(5).toString("latin1").split("\0", 2);
      const type = String.fromCharCode(message[0] ?? 0);
      if (type === "P") prepared.set(first, second);
      if (type === "B") portals.set(first, prepared.get(second) ?? "");
      take(message, type === "Q" ? first : type === "E" ? (portals.get(first) ?? "") : null);
    }
  };
}
