import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { type FakeS3, startFakeS3 } from "../fake-s3.ts";
import { SUITE_ROOT } from "../global-setup.ts";
import { type PgProxy, startPgProxy } from "../pg-proxy.ts";
import { type PostgresServer, startPostgresServer } from "../postgres-server.ts";
import { BIN, cleanEnvironment } from "../processes.ts";
import { watchDirectory, watchEnvironment, watchText } from "../secrets.ts";
import { model } from "../upstreams/chain.ts";
import type { FakeUpstream } from "../upstreams/fake-upstream.ts";
import { NATIVE_KEY, startNative } from "../upstreams/native.ts";

type Role = "api" | "worker";

interface MemberOptions {
  name: string;
  role: Role;
  /** The arguments that lead to the configuration, and to a data directory of its own. */
  where: readonly string[];
  env: NodeJS.ProcessEnv;
}

/** How many characters of its output are kept for a report. */
const MAX_OUTPUT_CHARS = 200_000;
const GRACE = "5s";
const START_MS = 60_000;
const AGAIN_MS = 500;
/** On a busy machine the first of them alone may take longer than `START_MS`. */
const FEWEST_STARTS = 3;

/** One process of `imgbatch serve --role …`, which can be ended and started again. */
export class Member {
  readonly name: string;
  readonly role: Role;
  /** The newest output of all its lives. */
  output = "";
  /** Where it answers; null while it is not ready. */
  url: string | null = null;
  /** How often it ended without having been told to. */
  crashes = 0;
  readonly #options: MemberOptions;
  #child: ChildProcess | null = null;
  #isPaused = false;
  #isEnding = false;

  constructor(options: MemberOptions) {
    this.#options = options;
    this.name = options.name;
    this.role = options.role;
  }

  /** Whether it takes requests or work: it is ready and no signal has stopped it. */
  get isUp(): boolean {
    return this.url !== null && !this.#isPaused;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /**
   * Resolves when it is ready. A process that does not start is started again for a while, as any supervisor does: it
   * ends when the database is busy for too long at its start.
   */
  async start(): Promise<void> {
    this.#isEnding = false;
    const deadline = Date.now() + START_MS;
    for (let starts = 1; !(await this.#try()); starts++) {
      if (this.#isEnding) return;
      if (starts >= FEWEST_STARTS && Date.now() > deadline)
        throw new Error(`${this.name} did not start:\n${this.output}`);
      await sleep(AGAIN_MS);
    }
  }

  /** Returns whether it is ready; false when it has ended instead. */
  async #try(): Promise<boolean> {
    const { role, where, env } = this.#options;
    const args = ["serve", "--role", role, "--port", "0", "--grace", GRACE, "--log-level", "info", ...where];
    const child = spawn(process.execPath, [BIN, ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.#isPaused = false;
    child.stderr.on("data", (chunk) => this.#keep(chunk));
    const closed = once(child, "close").then(([code, signal]) => {
      if (!this.#isEnding && this.url !== null) this.crashes++;
      this.url = null;
      this.#keep(`-- ${this.name} ended: ${code ?? signal}\n`);
      return null;
    });
    const lines = createInterface({ input: child.stdout });
    const first = await Promise.race([once(lines, "line"), closed]);
    if (first === null) return false;
    this.url = JSON.parse(first[0]).url;
    return true;
  }

  /** Ends it, and resolves with its exit code or signal; null when it did not run. */
  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number | string | null> {
    this.#isEnding = true;
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return null;
    const closed = once(child, "close");
    this.url = null;
    child.kill(signal);
    if (this.#isPaused) child.kill("SIGCONT");
    const [code, by] = await closed;
    return code ?? by;
  }

  /** Stops it in its tracks, as a machine that swaps or a debugger would. */
  pause(): void {
    this.#isPaused = this.#child?.kill("SIGSTOP") ?? false;
  }

  resume(): void {
    this.#child?.kill("SIGCONT");
    this.#isPaused = false;
  }

  #keep(chunk: Buffer | string): void {
    watchText(chunk, `output of ${this.name}`);
    this.output = (this.output + chunk).slice(-MAX_OUTPUT_CHARS);
  }
}

const run = promisify(execFile);

export const CLUSTER_MODEL = "vendorx-3.1-flash-image";
const UPSTREAM_MODEL = "gemini-3.1-flash-image";
const MOVED_CLOCK = pathToFileURL(resolve(import.meta.dirname, "../upstreams/moved-clock.mjs")).href;
const CLOCK_FILE = "clock-off-by-ms";
const RESTART_MS = 20_000;
const DATABASE = "imgbatch";
const BALANCE_USD = "100000";

interface ClusterOptions {
  /** Default 2 and 3. */
  apis?: number;
  workers?: number;
  /** Joined over the usual configuration, whose only provider is a fake upstream that keeps the bill. */
  config?: object;
  /** Default true: what is confirmed survives a crash of the machine, too. */
  fsync?: boolean;
  /** Whether `setClock` works. Default: false. */
  hasMovableClock?: boolean;
}

interface Parts {
  directory: string;
  postgres: PostgresServer;
  proxy: PgProxy;
  s3: FakeS3;
  upstream: FakeUpstream;
  env: NodeJS.ProcessEnv;
}

/** Services of both roles in processes of their own, on one PostgreSQL and one S3 server. End it with `close`. */
export class Cluster {
  readonly members: readonly Member[];
  readonly directory: string;
  readonly postgres: PostgresServer;
  /** All processes reach PostgreSQL through it. */
  readonly proxy: PgProxy;
  readonly s3: FakeS3;
  readonly upstream: FakeUpstream;
  readonly #env: NodeJS.ProcessEnv;
  /** Sends the local key of the default account. */
  key = "";
  #next = 0;

  private constructor(parts: Parts, { apis = 2, workers = 3 }: ClusterOptions) {
    const { directory, postgres, proxy, s3, upstream, env } = parts;
    this.directory = directory;
    this.postgres = postgres;
    this.proxy = proxy;
    this.s3 = s3;
    this.upstream = upstream;
    this.#env = env;
    const some = (role: Role, count: number) =>
      Array.from({ length: count }, (_, i) => {
        const name = `${role}-${i + 1}`;
        return new Member({ name, role, env, where: this.where(name) });
      });
    this.members = [...some("api", apis), ...some("worker", workers)];
  }

  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    const directory = await mkdtemp(join(process.env[SUITE_ROOT] ?? tmpdir(), "imgbatch-cluster-"));
    const [postgres, s3, upstream] = await Promise.all([
      startPostgresServer({ fsync: options.fsync ?? true }),
      startFakeS3(),
      startNative({ models: [UPSTREAM_MODEL] }),
    ]);
    await postgres.sql(`create database ${DATABASE}`);
    const proxy = await startPgProxy(postgres);
    const native = { name: "upstream", type: "native", baseUrl: upstream.url, keyHeader: "x-goog-api-key" };
    const config = {
      storage: { blobs: `s3://${s3.bucket}/cluster`, s3: { endpoint: s3.url, region: s3.region } },
      models: [model(CLUSTER_MODEL)],
      providers: [
        {
          ...native,
          apiKeyEnv: "NATIVE_API_KEY",
          models: { [CLUSTER_MODEL]: UPSTREAM_MODEL },
          concurrency: 4,
        },
      ],
      ...options.config,
    };
    await writeFile(join(directory, "config.json"), JSON.stringify(config));
    await writeFile(join(directory, CLOCK_FILE), "0");
    const clock = options.hasMovableClock
      ? { NODE_OPTIONS: `--import ${MOVED_CLOCK}`, MOVED_CLOCK: join(directory, CLOCK_FILE) }
      : {};
    const env = cleanEnvironment({
      ...clock,
      HOME: directory,
      NATIVE_API_KEY: NATIVE_KEY,
      IMGBATCH_DATABASE_URL: `postgres://postgres@127.0.0.1:${proxy.port}/${DATABASE}`,
      AWS_ACCESS_KEY_ID: s3.credentials.accessKeyId,
      AWS_SECRET_ACCESS_KEY: s3.credentials.secretAccessKey,
    });
    watchEnvironment(env);
    const cluster = new Cluster({ directory, postgres, proxy, s3, upstream, env }, options);
    try {
      await Promise.all(cluster.members.map(({ name }) => mkdir(join(directory, name))));
      // The first one makes the tables, as it would at the first start anywhere.
      const made = await cluster.admin("keys", "create");
      cluster.key = made.key;
      await cluster.admin("accounts", "top-up", "default", BALANCE_USD);
      await Promise.all(cluster.members.map((member) => member.start()));
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  /** The arguments that lead a command to the shared stores, from a data directory of its own. */
  where(name: string): string[] {
    return ["--config", join(this.directory, "config.json"), "--data", join(this.directory, name)];
  }

  /** Sets the clocks of all processes so many milliseconds off the true time. */
  async setClock(offMs: number): Promise<void> {
    await writeFile(join(this.directory, CLOCK_FILE), String(offMs));
  }

  get apis(): readonly Member[] {
    return this.members.filter(({ role }) => role === "api");
  }

  get workers(): readonly Member[] {
    return this.members.filter(({ role }) => role === "worker");
  }

  /** Runs `imgbatch admin …` and returns its document; throws, with its output, when it fails. */
  async admin(...args: string[]) {
    const command = ["admin", ...args, "--json", ...this.where("admin")];
    const { stdout } = await run(process.execPath, [BIN, ...command], { env: this.#env });
    return JSON.parse(stdout);
  }

  /** The address of the next API that is up, in turns. */
  nextUrl(): string {
    const up = this.apis.filter(({ isUp }) => isUp);
    const api = up[this.#next++ % up.length];
    if (!api?.url) throw new Error("no API is up");
    return api.url;
  }

  /** Asks the next API, with the key; `path` is the whole one. */
  async ask(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { authorization: `Bearer ${this.key}`, "content-type": "application/json" };
    return fetch(this.nextUrl() + path, { ...init, headers: { ...headers, ...(init.headers as object) } });
  }

  /** The rows of a query, each a list of texts. It waits for a server that restarts, and does not go through the proxy. */
  async rows(query: string): Promise<string[][]> {
    for (const deadline = Date.now() + RESTART_MS; ; await sleep(100)) {
      try {
        const text = await this.postgres.sql(query, DATABASE);
        return text === "" ? [] : text.split("\n").map((line) => line.split("|"));
      } catch (error) {
        const isAway =
          /ECONN|onnection terminated|terminating connection|Client was closed|the database system is /.test(
            String(error),
          );
        if (!isAway || Date.now() > deadline) throw error;
      }
    }
  }

  /** The last lines of every process, for the report of a failure. */
  get output(): string {
    return this.members.map(({ name, output }) => `== ${name}\n${output.slice(-4000)}`).join("\n");
  }

  async close(): Promise<void> {
    await Promise.all(this.members.map((member) => member.end("SIGKILL")));
    await this.proxy.close();
    await Promise.all([this.postgres.stop(), this.s3.close(), this.upstream.close()]);
    await watchDirectory(this.directory);
    await rm(this.directory, { recursive: true, force: true, maxRetries: 3 });
  }
}
