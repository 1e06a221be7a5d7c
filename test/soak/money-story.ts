// Longer than 700 lines: the steps of a story share one person's knowledge of the runs, and the accounts at its end all of it.
import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/client";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { parseConfig } from "../../src/config/load.ts";
import { LOCAL_STORAGE, type StoragePlaces } from "../../src/config/storage-places.ts";
import { MAY_BE_BILLED, MAY_BE_PAID_TWICE } from "../../src/contract/batch-api.ts";
import { routes } from "../../src/contract/routes.ts";
import { isTerminal } from "../../src/contract/statuses.ts";
import { issueKey, openAccount } from "../../src/domain/accounts.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { numberToMicros } from "../../src/kernel/money.ts";
import { createLog } from "../../src/service/pino-log.ts";
import { type LocalService, type Service, startService } from "../../src/service/start-service.ts";
import { openStorage } from "../../src/service/storage/open-storage.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { allowKeyFile } from "../support/secrets.ts";
import { type Fate, JOB_MODELS, JOB_PRICE, PaidJobs, PaidUpstream, PRICES } from "./paid-upstream.ts";
import { type Random, seeded } from "./random.ts";

const AT_ONCE = 3;
/** Far more than a story can cost. */
const ENOUGH = ["--max-cost", "1000"];
const TIMEOUT = "0.3s";
/** In micro-dollars. */
const DEAREST = Math.max(...Object.values(PRICES).flatMap((prices) => Object.values(prices)));
/** Longer than any answer takes. */
const PATIENCE_S = 20;
/** How long a service that stops may take. */
const GRACE_MS = 5000;
/** By then, a request on its way has come. */
const SETTLING_MS = 150;
const RICH_MICRO_USD = 1_000_000_000;
/** Of a story. */
const MOST_IMAGES = 100;
/** The model of real-time images. */
const REALTIME = "small-image";

/** What becomes of the requests for a prompt, by weight. */
const LIVES: readonly (readonly [number, readonly Fate[]])[] = [
  [22, []],
  [6, ["slow", "slow"]],
  [4, ["429"]],
  [3, ["500"]],
  [2, ["refused", "refused", "refused", "refused", "refused", "refused"]],
  [1, ["500", "500", "500", "500", "500", "500", "500", "500"]],
  [2, ["lost"]],
  [2, ["cut"]],
  [1, ["504"]],
  [1, ["garbled"]],
  [1, ["lost", "lost"]],
  [1, ["429", "lost", "500"]],
];
const ALL_LIVES = LIVES.flatMap(([weight, life]) => Array<readonly Fate[]>(weight).fill(life));

/** The acts of a story, by weight. */
const DEEDS = (
  [
    [5, "submit"],
    [5, "stop"],
    [3, "update"],
    [2, "cancel"],
    [2, "giveUp"],
    [3, "retry"],
    [2, "retryLost"],
    [2, "tooDear"],
    [2, "overBudget"],
    [2, "timeOut"],
    [2, "look"],
    [1, "generate"],
    [2, "generateFile"],
    [2, "wait"],
    [3, "serve"],
    [2, "goOn"],
    [2, "cancelByApi"],
    [2, "finish"],
    [2, "agent"],
  ] as const
).flatMap(([weight, deed]) => Array<typeof deed>(weight).fill(deed));

interface Line {
  prompt: string;
  custom_id: string;
  model?: string;
  quality?: string;
  output_count?: number;
}

interface Result {
  code: number | null;
  stderr: string;
  json: Record<string, unknown>;
}

interface ResultLine {
  batch_id: string;
  custom_id: string;
  status: string;
  files: { path: string }[];
  notes?: string[];
  cost?: number;
  may_be_billed?: number;
}

interface RunItem {
  batch_id: string;
  custom_id: string;
  status: string;
  cost: number | null;
  may_be_billed?: number;
}

export interface MoneyStoryOptions {
  seed: number;
  number: number;
  /** Whether commands are killed, too: as processes of their own, which take longer. */
  kills: boolean;
  /**
   * `jobs`: a vendor's jobs make the images of batches, at half the price. `postgres`: a service on PostgreSQL takes all
   * commands.
   */
  kind: "usual" | "jobs" | "postgres";
  /** How long the story may take. */
  limitMs: number;
}

/**
 * A person's story with one or two runs at a paid upstream that fails, refuses and loses answers, and with commands that are
 * stopped, killed, given up and repeated, with and without a service that stays. While it goes on, nothing may cost more than
 * its dry run said; where it ends, the upstream's bill, `admin usage`, the ledger, the summaries and the results must agree to
 * the micro-dollar.
 */
export class MoneyStory {
  readonly #random: Random;
  readonly #cwd: string;
  readonly #options: MoneyStoryOptions;
  readonly #lines = new Map<string, Line[]>();
  readonly #submitted = new Set<string>();
  readonly #edited = new Set<string>();
  /** Runs that a command left unfinished. */
  readonly #unfinished = new Set<string>();
  /** The files of prompts of which `generate --file` makes images, with their number. */
  readonly #files = new Map<string, number>();
  readonly #log: string[] = [];
  readonly #unknownRule: "stop" | "once";
  #upstream = new PaidUpstream();
  /** Null where the images of batches are requests of their own. */
  #jobs: PaidJobs | null = null;
  /** The service on PostgreSQL, and the key there. */
  #shared: { storage: StoragePlaces; key: string; keyFile: string; url: string } | null = null;
  #config: object = {};
  #prompts = 0;
  #generated = 0;
  /** What agents may spend in all, and what they have spent: in micro-dollars. */
  readonly #allowance: number;
  #agents = 0;
  #kills = 0;
  /** The number of requests that the log knows. */
  #told = 0;
  /** The service that stays; null while the commands start their own. */
  #service: Pick<LocalService, "url" | "queue" | "close" | "credentials"> | Service | null = null;
  /** Whether a service was stopped before it had ended its work. */
  #isLeft = false;
  #isOver = false;
  /** Stop what runs now. */
  readonly #stops = new Set<() => void>();
  readonly #realtime = { summaries: 0, marked: 0 };

  constructor(directory: string, options: MoneyStoryOptions) {
    this.#cwd = directory;
    this.#options = options;
    this.#random = seeded(options.seed, options.number, "money");
    this.#unknownRule = this.#random.chance(0.75) ? "stop" : "once";
    this.#allowance = this.#random.pick([50_000, 300_000, 3_000_000]);
  }

  /** Throws when two of the accounts differ or the time is up, with the number of the story and all that happened in it. */
  async run(): Promise<void> {
    const { seed, number, limitMs } = this.#options;
    this.#upstream = await PaidUpstream.start();
    const limit = new AbortController();
    const isLate = sleep(limitMs, undefined, { signal: limit.signal }).then(() => {
      throw new Error(`it is not over after ${limitMs / 1000} s`);
    });
    const telling = this.#tell();
    try {
      await Promise.race([telling, isLate]);
    } catch (error) {
      const told = `story ${number} of seed ${seed}: ${(error as Error).message}\n${this.#log.join("\n")}`;
      throw new Error(told, { cause: error });
    } finally {
      limit.abort();
      this.#isOver = true;
      for (const stop of this.#stops) stop();
      await Promise.allSettled([isLate, this.#upstream.close(), this.#jobs?.close()]);
      // What does not end must not keep the other stories.
      await Promise.race([telling.catch(() => {}), sleep(GRACE_MS)]);
      await Promise.race([this.#service?.close(0).catch(() => {}), sleep(GRACE_MS)]);
    }
  }

  async #tell(): Promise<void> {
    await this.#prepare();
    const deeds = this.#random.whole(2, 6);
    for (let i = 0; i < deeds; i++) await this.#deed(this.#random.pick([...this.#lines.keys()]));
    await this.#settle();
  }

  async #prepare(): Promise<void> {
    await mkdir(this.#cwd, { recursive: true });
    const inUsd = (micros: number) => ({ "1K": micros / 1e6 });
    const models = Object.entries(PRICES).map(([id, { low = 0, high = 0 }]) => ({
      id,
      sizes: ["1K"],
      prices: inUsd(low),
      qualities: ["low", "high"],
      defaultQuality: "low",
      jobPrice: JOB_PRICE,
      qualityPrices: { low: inUsd(low), high: inUsd(high) },
    }));
    const shop = {
      name: "shop",
      type: "openai",
      baseUrl: this.#upstream.url,
      concurrency: AT_ONCE,
      models: Object.keys(PRICES),
      timeoutSeconds: PATIENCE_S,
    };
    if (this.#options.kind === "jobs")
      this.#jobs = await PaidJobs.start(`${this.#options.seed}/${this.#options.number}`);
    const jobs = this.#jobs && {
      name: "jobs",
      type: "openai-batch",
      baseUrl: this.#jobs.url,
      models: JOB_MODELS,
      apiKeyEnv: "OPENAI_API_KEY",
      pollSeconds: 0.1,
    };
    const providers = jobs === null ? [shop] : [jobs, shop];
    const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
    const limits = { unknownOutcome: this.#unknownRule };
    this.#config = { models, groups, limits, providers };
    await writeFile(join(this.#cwd, "imgbatch.config.json"), JSON.stringify(this.#config));
    if (this.#options.kind === "postgres") await this.#serveShared();
    for (const run of this.#random.chance(0.4) ? ["a", "b"] : ["a"]) {
      const count = this.#random.whole(1, 9);
      this.#lines.set(
        run,
        Array.from({ length: count }, (_, i) => this.#newLine(run, `i${i}`)),
      );
      await this.#write(run);
    }
  }

  #newLine(run: string, id: string): Line {
    const prompt = `${run} ${id} ${++this.#prompts}`;
    const life = this.#random.pick(ALL_LIVES);
    if (life.length > 0) this.#upstream.fates.set(prompt, [...life]);
    return {
      custom_id: id,
      prompt,
      ...(this.#random.chance(0.3) ? { model: "large-image" } : {}),
      ...(this.#random.chance(0.3) ? { quality: "high" } : {}),
      ...(this.#random.chance(0.15) ? { output_count: 2 } : {}),
    };
  }

  #write(run: string): Promise<void> {
    const lines = (this.#lines.get(run) ?? []).map((line) => `${JSON.stringify(line)}\n`);
    return writeFile(join(this.#cwd, `${run}.jsonl`), lines.join(""));
  }

  /** The command that makes the run as its file is now. */
  #submit(run: string): string[] {
    const isUpdate = this.#edited.has(run) && this.#submitted.has(run);
    return ["submit", `${run}.jsonl`, "-o", run, ...(isUpdate ? ["--update"] : [])];
  }

  async #deed(run: string): Promise<void> {
    const deed = this.#random.pick(DEEDS);
    this.#log.push(`- ${deed} ${run}`);
    const isThere = this.#submitted.has(run);
    switch (deed) {
      case "submit":
        await this.#pay(run, this.#submit(run));
        return;
      case "stop":
        await this.#pay(run, this.#submit(run), { after: this.#random.whole(0, 6) });
        return;
      case "giveUp":
        await this.#pay(run, [...this.#submit(run), "--cancel-on-interrupt"], {
          after: this.#random.whole(0, 6),
        });
        return;
      case "timeOut":
        await this.#pay(run, [...this.#submit(run), "--timeout", TIMEOUT]);
        return;
      case "update":
        await this.#edit(run);
        await this.#pay(run, this.#submit(run));
        return;
      case "cancel":
        if (isThere) await this.#free(["cancel", run]);
        return;
      case "retry":
        if (isThere && !this.#unfinished.has(run)) await this.#pay(run, ["retry", run]);
        return;
      case "retryLost":
        if (isThere && !this.#unfinished.has(run)) await this.#pay(run, ["retry", run, "--include-lost"]);
        return;
      case "tooDear": {
        const price = await this.#priceOf(this.#submit(run));
        if (price === 0) return;
        const { code } = await this.#free([...this.#submit(run), "--max-cost", String((price - 1) / 1e6)]);
        // Without consent the failed images of an ended run stay as they are.
        const isLeft = isThere && (code === 4 || code === 5);
        expect(code === 8 || isLeft, `above --max-cost the exit code is ${code}`);
        return;
      }
      case "agent":
        if (this.#options.kills && this.#shared === null) await this.#agent();
        return;
      case "finish":
        if (!isThere || this.#jobs === null) return;
        return this.#finish(run);
      case "overBudget": {
        // The money of an unfinished run may be held already: then no budget refuses it.
        if (this.#unfinished.has(run)) return;
        const price = await this.#priceOf(this.#submit(run));
        if (price === 0) return;
        await this.#free(["budget", "0.001/month"]);
        const { code } = await this.#free([...this.#submit(run), ...ENOUGH]);
        expect(code === 8, `over the budget the exit code is ${code}`);
        await this.#free(["budget", "none"]);
        return;
      }
      case "look":
        for (const command of ["list", "admin usage", ...(isThere ? [`status ${run}`] : [])])
          await this.#free(command.split(" "));
        return;
      case "generate":
        return this.#generate();
      case "generateFile":
        return this.#generateFile();
      case "wait":
        if (!isThere || this.#edited.has(run)) return;
        await this.#within(run, await this.#priceOf(this.#submit(run)), () => this.#command(["wait", run]));
        return;
      case "serve":
        if (this.#service === null) await this.#serve();
        else await this.#stopServing();
        if (this.#shared !== null) await this.#serve();
        return;
      case "goOn":
        if (!isThere || this.#edited.has(run) || this.#service === null) return;
        await this.#within(run, await this.#priceOf(this.#submit(run)), () => this.#ask(run, routes.goOn));
        return;
      case "cancelByApi":
        if (isThere && this.#service !== null)
          await this.#within(run, 0, () => this.#ask(run, routes.cancel));
        return;
    }
  }

  async #edit(run: string): Promise<void> {
    const lines = this.#lines.get(run) ?? [];
    const kept = lines.flatMap((line) => {
      const way = this.#random.next();
      if (way < 0.6) return [line];
      return way < 0.9 ? [this.#newLine(run, line.custom_id)] : [];
    });
    const added =
      this.#random.chance(0.4) || kept.length === 0 ? [this.#newLine(run, `n${this.#prompts}`)] : [];
    this.#lines.set(run, [...kept, ...added]);
    this.#edited.add(run);
    await this.#write(run);
  }

  async #generate(): Promise<void> {
    const name = `g${++this.#generated}`;
    const { prompt } = this.#newLine("generate", name);
    const command = ["generate", prompt, "-m", "small-image", "-o", `${name}.png`, ...ENOUGH];
    const { json, code } = await this.#command(command);
    const { cost, error, notes } = json as { cost?: number; error?: { code: string }; notes?: string[] };
    const price = PRICES["small-image"]?.low ?? 0;
    if (code === 0) this.#realtime.summaries += numberToMicros(cost ?? Number.NaN);
    if (notes !== undefined) this.#realtime.marked += price;
    if (error?.code.endsWith("OUTCOME_UNKNOWN"))
      this.#realtime.marked += this.#unknownRule === "once" ? 2 * price : price;
  }

  /** Makes the images of a new or an earlier file in real time; some commands are stopped. */
  async #generateFile(): Promise<void> {
    const isNew = this.#files.size === 0 || this.#random.chance(0.5);
    const name = isNew ? `f${this.#files.size}` : this.#random.pick([...this.#files.keys()]);
    if (isNew) {
      const count = this.#random.whole(1, 6);
      this.#files.set(name, count);
      const lines = Array.from({ length: count }, (_, i) => {
        const { prompt, custom_id } = this.#newLine(name, `i${i}`);
        return `${JSON.stringify({ prompt, custom_id })}\n`;
      });
      await writeFile(join(this.#cwd, `${name}.jsonl`), lines.join(""));
    }
    const stop = this.#random.chance(0.5) ? { after: this.#random.whole(0, 4) } : undefined;
    if (stop !== undefined && this.#options.kills && this.#random.chance(0.6))
      await this.#killed(this.#fileCommand(name), stop.after);
    else await this.#command(this.#fileCommand(name), stop);
    await this.#idle();
  }

  /** An agent submits a run of its own, to a server that may spend a total; some servers are killed meanwhile. */
  async #agent(): Promise<void> {
    const run = `agent${this.#lines.size}`;
    const count = this.#random.whole(1, 4);
    this.#lines.set(
      run,
      Array.from({ length: count }, (_, i) => this.#newLine(run, `i${i}`)),
    );
    await this.#write(run);
    const price = await this.#priceOf(this.#submit(run));
    const killAfter = this.#random.chance(0.4) ? this.#random.whole(0, 3) : null;
    const left = this.#allowance - this.#agents;
    const args = [BIN, "mcp", "--max-cost", String(this.#allowance / 1e6), ...this.#where([])];
    const server = spawn(process.execPath, args, { cwd: this.#cwd, env: cleanEnvironment() });
    let stderr = "";
    server.stderr.on("data", (text) => {
      stderr += text;
    });
    const exited = once(server, "exit");
    const kill = () => void server.kill("SIGKILL");
    this.#stops.add(kill);
    const before = this.#mostBilled;
    const hold = killAfter === null ? null : this.#upstream.holdAfter(killAfter);
    void hold?.reached.then(kill);
    let isRefused = false;
    const talk = async () => {
      const client = new Client({ name: "story", version: "1" });
      await client.connect(new StdioServerTransport(server.stdout, server.stdin));
      const call = async (name: string, input: object) => {
        const { isError, content } = await client.callTool({ name, arguments: { ...input } });
        const [{ text = "" } = {}] = content as { text?: string }[];
        return {
          isError,
          json: JSON.parse(text) as { error?: { code: string }; batches?: { status: string }[] },
        };
      };
      const submitted = await call("submit", { files: [`${run}.jsonl`], output: run });
      isRefused = submitted.json.error?.code === "COST_LIMIT";
      const isOver = ({ status }: { status: string }) => isTerminal(status);
      for (; !submitted.isError; await sleep(50)) {
        const { json } = await call("status", { targets: [run] });
        if (json.batches?.every(isOver)) break;
      }
      if (!submitted.isError) await call("download", { target: run });
      server.stdin.end();
    };
    const talking = talk().catch((error) => {
      if (server.killed) return;
      kill();
      throw error;
    });
    await Promise.race([talking, exited]);
    const [code, signal] = (await exited) as [number | null, string | null];
    this.#stops.delete(kill);
    hold?.release();
    if (signal !== null) await this.#afterKill();
    await this.#idle();
    this.#note(["mcp", run], `of ${price}, ${left} were left${isRefused ? ", refused" : ""}`, code, stderr);
    const spent = this.#mostBilled - before;
    this.#agents += spent;
    if (this.#unknownRule === "stop") expect(spent <= left, `an agent may spend ${left}, and spent ${spent}`);
    if (price <= left && this.#kills === 0) expect(!isRefused, `an agent may spend ${left}, not ${price}`);
    if (isRefused) expect(spent === 0, "an agent was refused, and spent all the same");
    else {
      this.#submitted.add(run);
      this.#unfinished.add(run);
    }
  }

  #fileCommand(name: string): string[] {
    return ["generate", "--file", `${name}.jsonl`, "-m", REALTIME, "-o", name, ...ENOUGH];
  }

  /** Lets another upstream make what the jobs of a run have not made. */
  async #finish(run: string): Promise<void> {
    const command = ["finish", run, "--upstream", "shop"];
    const { json, code } = await this.#free([...command, "--dry-run"]);
    // The jobs have ended well, or the rest was asked for already.
    if (typeof json.estimated_cost !== "number") {
      this.#log.push(`no price of finish (exit ${code})`);
      return;
    }
    const price = numberToMicros(json.estimated_cost);
    const { result } = await this.#within(run, price, () => this.#command([...command, ...ENOUGH]));
    if (typeof result.json.actual_cost === "number") this.#unfinished.delete(run);
  }

  async #serveShared(): Promise<void> {
    const { newDatabase } = await import("../support/postgres.ts");
    const database = { kind: "postgres" as const, url: await newDatabase(), name: "postgres" };
    const storage = { database, blobs: LOCAL_STORAGE.blobs };
    const { stores, close } = await openStorage(storage, { directory: join(this.#cwd, "data") });
    const deps = { clock: systemClock, ids: randomIds };
    const { key } = await stores.write(async (tx) => {
      const account = await openAccount(tx, deps, {
        name: "default",
        balanceMicroUsd: RICH_MICRO_USD,
        isPlay: false,
      });
      return issueKey(tx, deps, {
        name: "local",
        accountId: account.id,
        group: "default",
        expiresAtMs: null,
      });
    });
    await close();
    const keyFile = join(this.#cwd, "key");
    await writeFile(keyFile, key, { mode: 0o600 });
    allowKeyFile(keyFile);
    this.#shared = { storage, key, keyFile, url: database.url };
    await this.#serve();
  }

  /** Starts a service that stays. It goes on with what is its own, and with nothing else. */
  async #serve(): Promise<void> {
    const before = this.#sentCount;
    const options = {
      config: parseConfig(this.#config, "story"),
      dataDirectory: join(this.#cwd, "data"),
      address: { host: "127.0.0.1", port: 0 },
      workers: true,
      log: createLog({ level: "error", forPeople: false, write: () => {} }),
    };
    this.#service =
      this.#shared === null
        ? await startService(options)
        : await startService({ ...options, storage: this.#shared.storage, role: "all" });
    await this.#idle();
    const sent = this.#sentCount - before;
    expect(this.#isLeft || sent === 0, `a service that starts sent ${sent} requests that nobody named`);
    this.#isLeft = false;
  }

  async #stopServing(): Promise<void> {
    const service = this.#service;
    this.#service = null;
    await service?.close(GRACE_MS);
  }

  /** Resolves once a service that stays has nothing more to do. */
  async #idle(): Promise<void> {
    for (; this.#service !== null && !this.#isOver; await sleep(20)) {
      const { data } = await this.#api("GET", `${routes.batches}?limit=100`);
      const batches = data as { status: string; waiting?: { code: string } | null }[];
      const isAtWork = ({ status, waiting = null }: (typeof batches)[number]) =>
        !isTerminal(status) && waiting?.code !== "STOPPED";
      if (!batches.some(isAtWork) && this.#service.queue().running === 0) return;
    }
  }

  /** Asks the service that stays about each batch of a run that is known and has not ended. */
  async #ask(run: string, pathOf: (id: string) => string): Promise<Result> {
    for (const id of await this.#batchesOf(run)) {
      if (id === null) continue;
      const { status } = await this.#api("GET", routes.batch(id));
      if (!isTerminal(String(status))) await this.#api("POST", pathOf(id));
    }
    return { code: null, stderr: "", json: {} };
  }

  /** The ids of the batches of a run, null for those that are not known; none without a directory. */
  async #batchesOf(run: string): Promise<(string | null)[]> {
    const text = await readFile(join(this.#cwd, run, "imgbatch.json"), "utf8").catch(() => '{"batches":[]}');
    return (JSON.parse(text).batches as { id: string | null }[]).map(({ id }) => id);
  }

  async #api(method: string, path: string): Promise<Record<string, unknown>> {
    const { url = "", credentials } = this.#service ?? {};
    const headers = { authorization: `Bearer ${this.#shared?.key ?? credentials?.api_key}` };
    const answer = await fetch(`${url}${path}`, { method, headers });
    const text = await answer.text();
    if (method !== "GET") this.#log.push(`> ${method} ${path}: ${answer.status}`);
    expect(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  /** In micro-dollars. */
  async #priceOf(command: readonly string[]): Promise<number> {
    const { json, code } = await this.#free([...command, "--dry-run"]);
    expect(typeof json.estimated_cost === "number", `the dry run says no price (exit ${code})`);
    return numberToMicros(json.estimated_cost as number);
  }

  /** A command that sends nothing. */
  async #free(command: readonly string[]): Promise<Result> {
    const before = this.#sentCount;
    const result = await this.#command(command);
    const sent = this.#sentCount - before;
    expect(sent === 0, `${command.join(" ")} sent ${sent} requests`);
    return result;
  }

  /** A command that may pay as much as its dry run says, and not more. */
  async #pay(run: string, command: readonly string[], stop?: { after: number }): Promise<Result> {
    const price = await this.#priceOf(command.filter((word) => !["--timeout", TIMEOUT].includes(word)));
    const isKill = stop !== undefined && this.#options.kills && this.#random.chance(0.6);
    const wasPartial =
      this.#unfinished.has(run) && (this.#edited.has(run) || (await this.#batchesOf(run)).includes(null));
    const count = this.#upstream.arrivals.length;
    const { spent, result } = await this.#within(run, price, () =>
      isKill
        ? this.#killed([...command, ...ENOUGH], stop.after)
        : this.#command([...command, ...ENOUGH], stop),
    );
    this.#submitted.add(run);
    if (result.code !== 8 && result.code !== 6) this.#edited.delete(run);
    const arrivals = this.#upstream.arrivals.slice(count);
    const isWell = result.code === 0 && arrivals.every(({ fate }) => ["ok", "slow"].includes(fate));
    // What an update replaces may have been made by then, and so may a batch whose answer was lost: the dry run says the most.
    if (!wasPartial && isWell && this.#jobs === null)
      expect(
        spent === price,
        `${command.join(" ")}: all well, its dry run said ${price}, and ${spent} were billed`,
      );
    const isEnded = typeof result.json.actual_cost === "number";
    if (isEnded) this.#unfinished.delete(run);
    else if (result.code !== 8 && result.code !== 6) this.#unfinished.add(run);
    return result;
  }

  /** Does what may cost as much as this, in micro-dollars, and waits until a service that stays has done its part. */
  async #within(
    run: string,
    price: number,
    act: () => Promise<Result>,
  ): Promise<{ spent: number; result: Result }> {
    const before = this.#mostBilled;
    const result = await act();
    await this.#idle();
    const spent = this.#mostBilled - before;
    if (this.#unknownRule === "stop")
      expect(
        spent <= price,
        `${this.#log.findLast((line) => line.startsWith("-"))}: ${run} may cost ${price}, and ${spent} were billed`,
      );
    return { spent, result };
  }

  async #command(args: readonly string[], stop?: { after: number }): Promise<Result> {
    const signals = new EventEmitter();
    const hold = stop && this.#upstream.holdAfter(stop.after);
    const interrupt = () => void signals.emit("SIGINT", "SIGINT");
    const isServiceStopped =
      stop !== undefined && this.#service !== null && this.#shared === null && this.#random.chance(0.5);
    const moment = stop !== undefined && this.#jobs !== null ? sleep(100 * stop.after) : null;
    void moment?.then(interrupt);
    let stopping: Promise<void> | undefined;
    void hold?.reached.then(() => {
      interrupt();
      if (isServiceStopped) {
        stopping = this.#stopServing();
        this.#isLeft = true;
      }
      setTimeout(hold.release, 20);
    });
    const began = Date.now();
    expect(!this.#isOver, "it is over");
    this.#stops.add(interrupt);
    const { code, stdout, stderr } = await runInProcess([...args, "--json", ...this.#where(args)], {
      cwd: this.#cwd,
      signals,
    });
    this.#stops.delete(interrupt);
    hold?.release();
    await stopping;
    this.#note(
      args,
      `${stop === undefined ? "" : `stopped after ${stop.after}, `}${Date.now() - began} ms`,
      code,
      stderr,
    );
    expect(code !== 1, `${args.join(" ")}: an internal error: ${stdout}`);
    return { code, stderr, json: JSON.parse(stdout) };
  }

  async #killed(args: readonly string[], after: number): Promise<Result> {
    const hold = this.#upstream.holdAfter(after);
    const running = startNode([BIN, ...args, "--json", ...this.#where(args)], {
      cwd: this.#cwd,
      env: cleanEnvironment(),
    });
    const kill = () => void running.child.kill("SIGKILL");
    this.#stops.add(kill);
    const moment = this.#jobs === null ? [] : [sleep(500 + 100 * after)];
    await Promise.race([hold.reached, running.exited, ...moment]);
    this.#stops.delete(kill);
    kill();
    const { code, stderr, signal } = await running.exited;
    hold.release();
    if (signal !== null) await this.#afterKill();
    this.#note(args, `killed after ${after}`, code, stderr);
    return { code, stderr, json: {} };
  }

  /** Resolves once the upstream has read what had left the process that was killed. */
  async #afterKill(): Promise<void> {
    this.#kills++;
    for (let count = -1; count !== this.#sentCount; await sleep(SETTLING_MS)) count = this.#sentCount;
  }

  #note(args: readonly string[], how: string, code: number | null, stderr: string): void {
    const { arrivals } = this.#upstream;
    const since = arrivals.slice(this.#told).map(({ prompt, fate }) => `${prompt} ${fate}`);
    this.#told = arrivals.length;
    this.#log.push(
      `$ imgbatch ${args.join(" ")} (${how}): exit ${code}; ${this.#billed} billed [${since.join(", ")}]`,
      ...stderr
        .trim()
        .split("\n")
        .slice(-3)
        .map((line) => `    ${line.slice(0, 200)}`),
    );
  }

  #where([command = ""]: readonly string[]): string[] {
    const here = ["--config", "imgbatch.config.json", "--data", join(this.#cwd, "data")];
    if (this.#shared === null) return here;
    if (["admin", "budget"].includes(command)) return [...here, "--database", this.#shared.url];
    return ["--base-url", this.#service?.url ?? "", "--api-key-file", this.#shared.keyFile];
  }

  /** The requests for images, and the jobs. */
  get #sentCount(): number {
    return this.#upstream.arrivals.length + (this.#jobs?.count ?? 0);
  }

  get #billed(): number {
    return this.#upstream.billedMicroUsd + (this.#jobs?.billedMicroUsd ?? 0);
  }

  /** What is billed, if the jobs that go on make all of their images. */
  get #mostBilled(): number {
    return this.#upstream.billedMicroUsd + (this.#jobs?.mostMicroUsd ?? 0);
  }

  /** Ends every run by its own command, and compares all that is said of the money. */
  async #settle(): Promise<void> {
    for (const name of this.#files.keys()) await this.#settleFile(name);
    const { summaries: generated, marked: inDoubt } = this.#realtime;
    let summaries = generated;
    const results: ResultLine[] = [];
    const removed: string[] = [];
    for (const run of this.#lines.keys()) {
      const { json, code } = await this.#pay(run, this.#submit(run));
      expect(typeof json.actual_cost === "number", `the last summary of ${run} says no cost (exit ${code})`);
      summaries += numberToMicros(json.actual_cost as number);
      const lines = await this.#resultsOf(run);
      results.push(...lines);
      const lacking = lines.find(({ cost, files }) => cost !== undefined && files.length === 0);
      expect(lacking === undefined, `${run}: ${lacking?.custom_id} is paid, and has no file`);
      removed.push(...(await versionsOf(join(this.#cwd, run))));
    }
    const { json: listed } = await this.#free(["list", "--all"]);
    const items: RunItem[] = [];
    for (const { id } of listed.batches as { id: string }[])
      items.push(...((await this.#free(["items", id, "--all"])).json.items as RunItem[]));
    const isShown = new Set(results.map((line) => `${line.batch_id} ${line.custom_id}`));
    const aside = items.filter(
      (item) => item.cost !== null && !isShown.has(`${item.batch_id} ${item.custom_id}`),
    );
    expect(
      aside.length === removed.length,
      `${aside.length} replaced images were paid, ${removed.length} are in versions/`,
    );
    const marked = inDoubt + sumOf(items, ({ may_be_billed: usd = 0 }) => usd);
    const { json: ledger } = await this.#free(["admin", "ledger"]);
    const captures = sumOf(
      (ledger.entries as { kind: string; amount: number }[]).filter(({ kind }) => kind === "capture"),
      ({ amount }) => amount,
    );
    const { json: used } = await this.#free(["admin", "usage"]);
    const usage = used.usage as { billed: number; requests: number }[];
    const accounts = {
      bill: this.#billed,
      doubtful: this.#upstream.doubtfulMicroUsd,
      marked,
      captures,
      usage: sumOf(usage, ({ billed }) => billed),
      summaries,
      results: generated + sumOf(results, ({ cost = 0 }) => cost) + sumOf(aside, ({ cost }) => cost ?? 0),
      items: generated + sumOf(items, ({ cost }) => cost ?? 0),
      shown: sumOf(results, ({ may_be_billed: usd = 0 }) => usd),
      requests: usage.reduce((sum, { requests }) => sum + requests, 0),
    };
    this.#log.push(JSON.stringify({ ...accounts, arrivals: this.#upstream.arrivals.length }));
    const { bill, doubtful } = accounts;
    expect(accounts.usage === captures, "admin usage and the ledger differ");
    expect(accounts.items === captures, "the items and the ledger differ");
    expect(summaries === captures, "the summaries and the ledger differ");
    expect(accounts.results === captures, "the results, with what was removed, and the ledger differ");
    const excess = captures + marked - bill - doubtful;
    expect(excess >= 0, `${-excess} are billed, and neither charged nor marked`);
    // What was about to be sent when the process was killed is marked, too: nobody can know that it never left.
    const unknowable = this.#kills * (this.#jobs === null ? AT_ONCE : MOST_IMAGES) * DEAREST;
    expect(excess <= unknowable, `${excess} are marked, and cannot be billed`);
    const { requests } = accounts;
    const count = this.#upstream.arrivals.length;
    expect(
      this.#jobs !== null || (requests >= count && requests <= count + this.#kills * AT_ONCE),
      "admin usage counts other requests",
    );
  }

  /** Makes the rest of a file, and adds its images to those that were made in real time. */
  async #settleFile(name: string): Promise<void> {
    const { code } = await this.#command(this.#fileCommand(name));
    await this.#idle();
    const price = PRICES[REALTIME]?.low ?? 0;
    const lines = await this.#resultsOf(name);
    const count = this.#files.get(name);
    expect(
      lines.length === count,
      `${lines.length} of the ${count} images of ${name} have results (exit ${code})`,
    );
    for (const { status, notes = [] } of lines) {
      const isTwice = notes.some((note) => note.startsWith(MAY_BE_PAID_TWICE));
      const isLost = isTwice || notes.some((note) => note.startsWith(MAY_BE_BILLED));
      if (status === "success") this.#realtime.summaries += price;
      if (isLost) this.#realtime.marked += isTwice && status !== "success" ? 2 * price : price;
    }
  }

  /** The results of a run, whose files must be there. */
  async #resultsOf(run: string): Promise<ResultLine[]> {
    const text = await readFile(join(this.#cwd, run, "results.jsonl"), "utf8");
    const lines = text.split("\n").filter((line) => line !== "");
    const results = lines.map((line) => JSON.parse(line) as ResultLine);
    for (const { path } of results.flatMap(({ files }) => files)) await stat(join(this.#cwd, run, path));
    return results;
  }
}

function sumOf<T>(list: readonly T[], usdOf: (entry: T) => number): number {
  return list.reduce((sum, entry) => sum + numberToMicros(usdOf(entry)), 0);
}

function expect(isTrue: boolean, message: string): void {
  if (!isTrue) throw new Error(message);
}

/** The results of the earlier pictures of a run, one a line. */
async function versionsOf(run: string): Promise<string[]> {
  const text = await readFile(join(run, "versions", "results.jsonl"), "utf8").catch(() => "");
  return text.split("\n").filter((line) => line !== "");
}
