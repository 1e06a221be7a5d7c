import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { vi } from "vitest";
import { loadConfig } from "../../../src/config/load.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { createLog } from "../../../src/service/pino-log.ts";
import { type LocalService, startService } from "../../../src/service/start-service.ts";
import { type InProcessResult, runInProcess } from "../cli-in-process.ts";
import { SUITE_ROOT } from "../global-setup.ts";
import { putDatabase } from "../made-database.ts";
import { BIN, cleanEnvironment } from "../processes.ts";
import { watchDirectory, watchEnvironment, watchText } from "../secrets.ts";
import { NATIVE_KEY } from "./native.ts";
import { OPENAI_KEY } from "./openai.ts";

export interface ChainBatch {
  id: string;
  status: string;
  item_count: number;
  success_count: number;
  fail_count: number;
  pending_count: number;
  actual_cost: number | null;
  waiting?: { code: string; message: string; until?: number | string | null } | null;
}

export interface ChainItem {
  custom_id: string;
  status: string;
  prompt_preview: string;
  error: { code: string; message: string; source: string } | null;
  provider?: string | null;
  seed?: number | null;
  model_version?: string | null;
  notes?: string[];
}

/** The keys of the fakes, as an operator would set them. */
const UPSTREAM_KEYS = { NATIVE_API_KEY: NATIVE_KEY, OPENAI_API_KEY: OPENAI_KEY };
const ENDED = ["completed", "failed", "cancelled", "output_deleted"];
const PATIENCE_MS = 40_000;

/** Whether an item says that it may be paid twice. */
export function isMarked(item: Pick<ChainItem, "notes" | "error">): boolean {
  return /paid twice/.test([...(item.notes ?? []), item.error?.message ?? ""].join("\n"));
}

/** A configured model of the tests with a price of 0.10 USD. */
export const model = (id: string) => ({ id, ratios: "common", sizes: ["1K"], prices: { "1K": 0.1 } });

/** A service with upstreams, in a directory of its own. End it with `close`. */
export class Chain {
  /** The environment of the programs that are started from now on. */
  readonly env: NodeJS.ProcessEnv;
  #child: ChildProcess | null = null;
  #here: LocalService | null = null;
  /** All that the program has written, of all its lives. */
  output = "";
  url = "";
  key = "";

  readonly directory: string;
  readonly #clock: Clock | null;

  private constructor(directory: string, env: Record<string, string>, clock: Clock | null) {
    this.directory = directory;
    this.#clock = clock;
    this.env = cleanEnvironment({ HOME: directory, ...UPSTREAM_KEYS, ...env });
    watchEnvironment(this.env);
  }

  /**
   * Writes the configuration and starts nothing. A paid request whose answer was lost is sent once more, unless the configuration
   * has limits of its own.
   */
  static async prepare(
    config: object,
    env: Record<string, string> = {},
    clock: Clock | null = null,
  ): Promise<Chain> {
    const directory = await mkdtemp(join(process.env[SUITE_ROOT] ?? tmpdir(), "imgbatch-chain-"));
    const chain = new Chain(directory, env, clock);
    await writeFile(chain.#file, JSON.stringify({ limits: { unknownOutcome: "once" }, ...config }));
    await mkdir(chain.data, { mode: 0o700 });
    await putDatabase(chain.data);
    return chain;
  }

  /** A running service of the built program, whose account has money, served with more arguments. */
  static async start(
    config: object,
    env: Record<string, string> = {},
    args: readonly string[] = [],
  ): Promise<Chain> {
    const chain = await Chain.prepare(config, env);
    await chain.serve(args);
    await chain.#topUp();
    return chain;
  }

  /** Like `start`, but inside the test's own process, by this clock: a signal only stops it. Starts in a tenth of the time. */
  static async startHere(
    config: object,
    env: Record<string, string> = {},
    clock: Clock = systemClock,
  ): Promise<Chain> {
    const chain = await Chain.prepare(config, env, clock);
    await chain.serve();
    await chain.#topUp();
    return chain;
  }

  async #topUp(): Promise<void> {
    const topUp = await this.run(["admin", "accounts", "top-up", "default", "1000"]);
    if (topUp.code !== 0) throw new Error(`top-up: ${topUp.stderr}`);
  }

  get #file(): string {
    return join(this.directory, "upstreams.json");
  }

  get data(): string {
    return join(this.directory, "data");
  }

  /** Runs a command to its end inside the test's own process, on the data directory and the configuration of the chain. */
  async run(args: readonly string[]): Promise<InProcessResult> {
    const end = await this.#inEnv(() => runInProcess([...args, ...this.where], { cwd: this.directory }));
    watchText(end.stdout + end.stderr, `output of ${args[0]}`);
    return end;
  }

  /** Starts the service, again when it has ended. */
  async serve(args: readonly string[] = []): Promise<void> {
    if (this.#clock !== null) return this.#serveHere(this.#clock);
    const child = this.#spawn(["serve", "--port", "0", "--log-level", "debug", ...args]);
    this.#child = child;
    child.stderr?.on("data", (chunk) => {
      this.output += chunk;
    });
    if (!child.stdout) throw new Error("no stdout");
    const ready = new Promise<string>((resolve, reject) => {
      createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => {
        this.output += `${line}\n`;
        resolve(line);
      });
      child.once("close", () => reject(new Error(`the service ended: ${this.output}`)));
    });
    this.url = JSON.parse(await ready).url;
    this.key = JSON.parse(await readFile(join(this.data, "credentials.json"), "utf8")).api_key;
  }

  /** Ends the service with a signal, and resolves once it has ended. */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    await this.#here?.close(0);
    this.#here = null;
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const closed = once(child, "close");
    child.kill(signal);
    return (await closed)[0];
  }

  /** Ends the service, searches all that it wrote for secrets, and removes it. */
  async close(): Promise<void> {
    await this.end("SIGKILL");
    watchText(this.output, "the service's output");
    await watchDirectory(this.directory);
    await rm(this.directory, { recursive: true, force: true, maxRetries: 3 });
  }

  ask(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { authorization: `Bearer ${this.key}`, "content-type": "application/json" };
    return fetch(this.url + path, { ...init, headers: { ...headers, ...(init.headers as object) } });
  }

  /** Creates a batch with an item for each prompt. */
  async submit(model: string, prompts: readonly string[], more: object = {}): Promise<ChainBatch> {
    const items = prompts.map((prompt, at) => ({ custom_id: `i${at + 1}`, prompt }));
    const body = JSON.stringify({ model, items, ...more });
    const answer = await this.ask("/v1/images/batches", { method: "POST", body });
    if (answer.status !== 200) throw new Error(`create: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as ChainBatch;
  }

  async batch(id: string): Promise<ChainBatch> {
    return (await (await this.ask(`/v1/images/batches/${id}`)).json()) as ChainBatch;
  }

  async items(id: string): Promise<ChainItem[]> {
    const answer = await this.ask(`/v1/images/batches/${id}/items?limit=500`);
    return ((await answer.json()) as { data: ChainItem[] }).data;
  }

  /** Resolves with the batch once it has ended, or once `isThere`. */
  async until(
    id: string,
    isThere: (batch: ChainBatch) => boolean = ({ status }) => ENDED.includes(status),
    patienceMs = PATIENCE_MS,
  ): Promise<ChainBatch> {
    let hasChanged = false;
    const unsubscribe = this.#here?.feed.subscribe((event) => {
      if (event.type === "batch" && event.batchId === id) hasChanged = true;
    });
    try {
      for (const deadline = Date.now() + patienceMs; ; ) {
        const asked = Date.now();
        hasChanged = unsubscribe === undefined;
        const batch = await this.batch(id);
        if (isThere(batch)) return batch;
        if (Date.now() > deadline) throw new Error(`still ${JSON.stringify(batch)}`);
        // Asking is work: it is done when something is new, and else a few times a second.
        do await sleep(30);
        while (!hasChanged && Date.now() < asked + 300);
      }
    } finally {
      unsubscribe?.();
    }
  }

  /** The bytes of an item's image. */
  async image(id: string, customId: string): Promise<Buffer> {
    const answer = await this.ask(`/v1/images/batches/${id}/items/${customId}/content`);
    return Buffer.from(await answer.arrayBuffer());
  }

  /** Asks for one image in real time. */
  realtime(model: string, parts: readonly object[], imageConfig: object = {}): Promise<Response> {
    const contents = [{ role: "user", parts }];
    const generationConfig = { responseModalities: ["TEXT", "IMAGE"], imageConfig };
    const body = JSON.stringify({ contents, generationConfig });
    return this.ask(`/v1beta/models/${model}:generateContent`, { method: "POST", body });
  }

  /** The arguments that lead a command to the data directory and the configuration. */
  get where(): string[] {
    return ["--data", this.data, "--config", this.#file];
  }

  async #serveHere(clock: Clock): Promise<void> {
    const write = (line: string) => {
      this.output += line;
    };
    const start = {
      config: loadConfig({ file: this.#file, cwd: this.directory }),
      dataDirectory: this.data,
      address: { host: "127.0.0.1", port: 0 },
      ...{ workers: true, clock },
      log: createLog({ level: "debug", forPeople: false, write }),
    };
    this.#here = await this.#inEnv(() => startService(start));
    this.url = this.#here.url;
    this.key = this.#here.credentials.api_key;
  }

  /** Runs work that reads the environment in that of the chain. */
  async #inEnv<T>(work: () => Promise<T>): Promise<T> {
    for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, undefined);
    for (const [name, value] of Object.entries(this.env)) vi.stubEnv(name, value);
    return work().finally(() => vi.unstubAllEnvs());
  }

  #spawn(args: readonly string[]): ChildProcess {
    const { env } = this;
    return spawn(process.execPath, [BIN, ...args, ...this.where], {
      cwd: this.directory,
      env,
      stdio: "pipe",
    });
  }
}
