import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";

const run = promisify(execFile);

/** Where Debian, Ubuntu and the images made of them keep a folder for each major version. */
const VERSIONS = "/usr/lib/postgresql";
const OLDEST_VERSION = 15;

/** Lets a program end with the process that starts it, which may be killed. Linux can do that. */
const UNTIL_ITS_PARENT_DIES = existsSync("/usr/bin/setpriv") ? ["setpriv", "--pdeathsig", "SIGQUIT"] : [];

export interface PostgresServer {
  port: number;
  /** Without a password: the server trusts whoever reaches it. */
  url(database?: string): string;
  /**
   * Runs statements and returns the values: one row a line, with `|` between the columns. The connection is kept for the
   * next ones.
   */
  sql(statements: string, database?: string): Promise<string>;
  /** Stops the server and starts it again on the same port. `immediate` is as good as a crash: it then recovers. */
  restart(how: "fast" | "immediate"): Promise<void>;
  stop(): Promise<void>;
}

/** The folder of the newest PostgreSQL's programs, or null when this machine has none that is new enough. */
export function postgresBin(): string | null {
  const named = process.env.IMGBATCH_TEST_POSTGRES_BIN;
  if (named) return named;
  const versions = existsSync(VERSIONS) ? readdirSync(VERSIONS).map(Number) : [];
  const newest = Math.max(0, ...versions.filter((version) => version >= OLDEST_VERSION));
  const folder = join(VERSIONS, String(newest), "bin");
  return existsSync(join(folder, "postgres")) ? folder : null;
}

/**
 * Starts a new PostgreSQL server on a free loopback port, in a directory of its own below `parent` that `stop`
 * removes. Without `fsync` it is quick, and a crash of the machine (not one of the server) could cost data.
 */
export async function startPostgresServer(
  options: {
    fsync?: boolean;
    parent?: string;
    settings?: Record<string, string>;
    /** Whether its files are searched for the secrets of tests at its end. Default: true. */
    isSearched?: boolean;
    /** Further files in its directory, by name. */
    files?: Readonly<Record<string, string>>;
  } = {},
): Promise<PostgresServer> {
  const bin = postgresBin();
  if (bin === null) throw new Error(`there is no PostgreSQL ${OLDEST_VERSION} or later here`);
  const user = await unprivilegedUser();
  const directory = mkdtempSync(join(options.parent ?? tmpdir(), "imgbatch-postgres-"));
  if (user.uid !== undefined && user.gid !== undefined) chownSync(directory, user.uid, user.gid);
  const initial = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"];
  await run(join(bin, "initdb"), ["-D", directory, ...initial], { ...user, cwd: directory });

  for (const [name, content] of Object.entries(options.files ?? {})) {
    const path = join(directory, name);
    writeFileSync(path, content, { mode: 0o600 });
    if (user.uid !== undefined && user.gid !== undefined) chownSync(path, user.uid, user.gid);
  }

  const port = await freePort();
  const settings = {
    port: String(port),
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    fsync: options.fsync === true ? "on" : "off",
    ...options.settings,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const start = async () => {
    const [program = "", ...options] = [
      ...UNTIL_ITS_PARENT_DIES,
      join(bin, "postgres"),
      "-D",
      directory,
      ...args,
    ];
    const child = spawn(program, options, {
      ...user,
      cwd: directory,
      stdio: ["ignore", "ignore", "pipe"],
    });
    await ready(child);
    return child;
  };
  let postmaster = await start();
  const end = async (signal: "SIGINT" | "SIGQUIT") => {
    const exited = once(postmaster, "exit");
    if (postmaster.kill(signal)) await exited;
  };
  const url = (database = "postgres") => `postgres://postgres@127.0.0.1:${port}/${database}`;
  const clients = new Map<string, Promise<pg.Client>>();
  /** A connection takes one statement at a time. */
  const asked = new Map<string, Promise<unknown>>();
  const connect = (database: string) => {
    const client = new pg.Client({ connectionString: url(database), types: { getTypeParser: () => String } });
    const forget = () => clients.delete(database);
    client.on("error", forget).on("end", forget);
    const connecting = client.connect().then(() => client);
    clients.set(database, connecting);
    connecting.catch(forget);
    return connecting;
  };
  const disconnect = async () => {
    const all = await Promise.allSettled(clients.values());
    // Whoever asks from now on connects anew.
    clients.clear();
    for (const each of all) if (each.status === "fulfilled") await each.value.end();
  };
  return {
    port,
    url,
    sql: async (statements, database = "postgres") => {
      const client = await (clients.get(database) ?? connect(database));
      const query = { text: statements, rowMode: "array" } as const;
      const last = asked.get(database) ?? Promise.resolve();
      const answer = last.then(() => client.query<(string | null)[]>(query));
      asked.set(
        database,
        answer.catch(() => {}),
      );
      return [await answer]
        .flat()
        .flatMap(({ rows }) => rows)
        .map((row) => row.map((value) => value ?? "").join("|"))
        .join("\n");
    },
    restart: async (how) => {
      await disconnect();
      await end(how === "fast" ? "SIGINT" : "SIGQUIT");
      postmaster = await start();
    },
    stop: async () => {
      await disconnect();
      await end("SIGQUIT");
      // It belongs to Vitest, which must be at work when it is loaded.
      if (options.isSearched ?? true) await (await import("./secrets.ts")).watchDirectory(directory);
      await rm(directory, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** PostgreSQL refuses to run as root. */
async function unprivilegedUser(): Promise<{ uid?: number; gid?: number }> {
  if (userInfo().uid !== 0) return {};
  const ids = await Promise.all(["-u", "-g"].map((which) => run("id", [which, "postgres"])));
  const [uid, gid] = ids.map(({ stdout }) => Number(stdout));
  return { uid, gid } as { uid: number; gid: number };
}

/** Resolves when the server takes connections; its words stay in memory, for the error. */
async function ready(child: ChildProcess): Promise<void> {
  let words = "";
  await new Promise<void>((resolve, reject) => {
    child.once("exit", () => reject(new Error(`PostgreSQL did not start:\n${words}`)));
    child.once("error", reject);
    child.stderr?.on("data", (chunk) => {
      if (words.length < 10_000) words += chunk;
      if (String(chunk).includes("ready to accept connections")) resolve();
    });
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
