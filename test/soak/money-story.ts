import { EventEmitter } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { numberToMicros } from "../../src/kernel/money.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { type Fate, PaidUpstream, PRICES } from "./paid-upstream.ts";
import { type Random, seeded } from "./random.ts";

const AT_ONCE = 3;
/** Far more than a story can cost. */
const ENOUGH = ["--max-cost", "1000"];
const TIMEOUT = "0.3s";
/** In micro-dollars. */
const DEAREST = Math.max(...Object.values(PRICES).flatMap((prices) => Object.values(prices)));
/** Longer than any answer takes. */
const PATIENCE_S = 20;

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
}

/**
 * A person's story with one or two runs at a paid upstream that fails, refuses and loses answers, and with commands that are
 * stopped, killed, given up and repeated. While it goes on, no command may cost more than its dry run said; where it ends, the
 * upstream's bill, `admin usage`, the ledger, the summaries and the results must agree to the micro-dollar.
 */
export class MoneyStory {
  readonly #random: Random;
  readonly #cwd: string;
  readonly #options: MoneyStoryOptions;
  readonly #lines = new Map<string, Line[]>();
  readonly #submitted = new Set<string>();
  readonly #edited = new Set<string>();
  /** Runs that a command left unfinished: the dry run does not count yet what their batches still cost. */
  readonly #unfinished = new Set<string>();
  readonly #log: string[] = [];
  readonly #unknownRule: "stop" | "once";
  #upstream = new PaidUpstream();
  #prompts = 0;
  #generated = 0;
  #kills = 0;
  readonly #realtime = { summaries: 0, marked: 0 };

  constructor(directory: string, options: MoneyStoryOptions) {
    this.#cwd = directory;
    this.#options = options;
    this.#random = seeded(options.seed, options.number, "money");
    this.#unknownRule = this.#random.chance(0.75) ? "stop" : "once";
  }

  /** Throws when two of the accounts differ, with the number of the story and all that happened in it. */
  async run(): Promise<void> {
    this.#upstream = await PaidUpstream.start();
    try {
      await this.#prepare();
      const deeds = this.#random.whole(2, 5);
      for (let i = 0; i < deeds; i++) await this.#deed(this.#random.pick([...this.#lines.keys()]));
      await this.#settle();
    } catch (error) {
      const { seed, number } = this.#options;
      const told = `story ${number} of seed ${seed}: ${(error as Error).message}\n${this.#log.join("\n")}`;
      throw new Error(told, { cause: error });
    } finally {
      await this.#upstream.close();
    }
  }

  async #prepare(): Promise<void> {
    await mkdir(this.#cwd, { recursive: true });
    const inUsd = (micros: number) => ({ "1K": micros / 1e6 });
    const models = Object.entries(PRICES).map(([id, { low = 0, high = 0 }]) => ({
      ...{ id, sizes: ["1K"], prices: inUsd(low), qualities: ["low", "high"], defaultQuality: "low" },
      qualityPrices: { low: inUsd(low), high: inUsd(high) },
    }));
    const provider = {
      ...{ name: "shop", type: "openai", baseUrl: this.#upstream.url, concurrency: AT_ONCE },
      ...{ models: Object.keys(PRICES), timeoutSeconds: PATIENCE_S },
    };
    const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
    const limits = { unknownOutcome: this.#unknownRule };
    await writeFile(
      join(this.#cwd, "imgbatch.config.json"),
      JSON.stringify({ models, groups, limits, providers: [provider] }),
    );
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
      ...{ custom_id: id, prompt },
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
        const isRefused = code === 8 || (code === 4 && isThere && !this.#unfinished.has(run));
        expect(isRefused, `above --max-cost the exit code is ${code}`);
        return;
      }
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

  /** In micro-dollars. */
  async #priceOf(command: readonly string[]): Promise<number> {
    const { json, code } = await this.#free([...command, "--dry-run"]);
    expect(typeof json.estimated_cost === "number", `the dry run says no price (exit ${code})`);
    return numberToMicros(json.estimated_cost as number);
  }

  /** A command that sends nothing. */
  async #free(command: readonly string[]): Promise<Result> {
    const before = this.#upstream.arrivals.length;
    const result = await this.#command(command);
    const sent = this.#upstream.arrivals.length - before;
    expect(sent === 0, `${command.join(" ")} sent ${sent} requests`);
    return result;
  }

  /** A command that may pay as much as its dry run says, and not more. */
  async #pay(run: string, command: readonly string[], stop?: { after: number }): Promise<Result> {
    const price = await this.#priceOf(command.filter((word) => !["--timeout", TIMEOUT].includes(word)));
    const [count, billed] = [this.#upstream.arrivals.length, this.#upstream.billedMicroUsd];
    const isKill = stop !== undefined && this.#options.kills && this.#random.chance(0.6);
    const result = isKill
      ? await this.#killed([...command, ...ENOUGH], stop.after)
      : await this.#command([...command, ...ENOUGH], stop);
    this.#submitted.add(run);
    if (result.code !== 8 && result.code !== 6) this.#edited.delete(run);
    const spent = this.#upstream.billedMicroUsd - billed;
    const arrivals = this.#upstream.arrivals.slice(count);
    const isPriced = !this.#unfinished.has(run);
    if (isPriced && this.#unknownRule === "stop")
      expect(spent <= price, `${command.join(" ")}: its dry run said ${price}, and ${spent} were billed`);
    const isWell = result.code === 0 && arrivals.every(({ fate }) => ["ok", "slow"].includes(fate));
    if (isPriced && isWell)
      expect(
        spent === price,
        `${command.join(" ")}: all well, its dry run said ${price}, and ${spent} were billed`,
      );
    const isEnded = typeof result.json.actual_cost === "number";
    if (isEnded) this.#unfinished.delete(run);
    else if (result.code !== 8 && result.code !== 6) this.#unfinished.add(run);
    return result;
  }

  async #command(args: readonly string[], stop?: { after: number }): Promise<Result> {
    const signals = new EventEmitter();
    const hold = stop && this.#upstream.holdAfter(stop.after);
    void hold?.reached.then(() => {
      signals.emit("SIGINT", "SIGINT");
      setTimeout(hold.release, 20);
    });
    const began = Date.now();
    const { code, stdout, stderr } = await runInProcess([...args, "--json", ...this.#where()], {
      cwd: this.#cwd,
      signals,
    });
    hold?.release();
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
    const running = startNode([BIN, ...args, "--json", ...this.#where()], {
      cwd: this.#cwd,
      env: cleanEnvironment(),
    });
    await Promise.race([hold.reached, running.exited]);
    running.child.kill("SIGKILL");
    const { code, stderr, signal } = await running.exited;
    hold.release();
    if (signal !== null) this.#kills++;
    this.#note(args, `killed after ${after}`, code, stderr);
    return { code, stderr, json: {} };
  }

  #note(args: readonly string[], how: string, code: number | null, stderr: string): void {
    const { arrivals, billedMicroUsd } = this.#upstream;
    this.#log.push(
      `$ imgbatch ${args.join(" ")} (${how}): exit ${code}; ${arrivals.length} requests, ${billedMicroUsd} billed`,
      ...stderr
        .trim()
        .split("\n")
        .slice(-3)
        .map((line) => `    ${line.slice(0, 200)}`),
    );
  }

  #where(): string[] {
    return ["--config", "imgbatch.config.json", "--data", join(this.#cwd, "data")];
  }

  /** Ends every run by its own command, and compares all that is said of the money. */
  async #settle(): Promise<void> {
    const { summaries: generated, marked: inDoubt } = this.#realtime;
    let summaries = generated;
    const results: ResultLine[] = [];
    const removed: string[] = [];
    for (const run of this.#lines.keys()) {
      const { json, code } = await this.#pay(run, this.#submit(run));
      expect(typeof json.actual_cost === "number", `the last summary of ${run} says no cost (exit ${code})`);
      summaries += numberToMicros(json.actual_cost as number);
      results.push(...(await this.#resultsOf(run)));
      removed.push(...(await readdir(join(this.#cwd, run, "removed")).catch(() => [])));
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
      `${aside.length} replaced images were paid, ${removed.length} are in removed/`,
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
      ...{ bill: this.#upstream.billedMicroUsd, doubtful: this.#upstream.doubtfulMicroUsd, marked, captures },
      ...{ usage: sumOf(usage, ({ billed }) => billed), summaries },
      results: generated + sumOf(results, ({ cost = 0 }) => cost) + sumOf(aside, ({ cost }) => cost ?? 0),
      items: generated + sumOf(items, ({ cost }) => cost ?? 0),
      shown: sumOf(results, ({ may_be_billed: usd = 0 }) => usd),
      ...{ requests: usage.reduce((sum, { requests }) => sum + requests, 0) },
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
    const unknowable = this.#kills * AT_ONCE * DEAREST;
    expect(excess <= unknowable, `${excess} are marked, and cannot be billed`);
    const { requests } = accounts;
    const count = this.#upstream.arrivals.length;
    expect(
      requests >= count && requests <= count + this.#kills * AT_ONCE,
      "admin usage counts other requests",
    );
  }

  /** What the images that lie in the directory cost, in micro-dollars. */
  async #resultsOf(run: string): Promise<ResultLine[]> {
    const text = await readFile(join(this.#cwd, run, "results.jsonl"), "utf8");
    const lines = text.split("\n").filter((line) => line !== "");
    return lines.map((line) => JSON.parse(line) as ResultLine);
  }
}

function sumOf<T>(list: readonly T[], usdOf: (entry: T) => number): number {
  return list.reduce((sum, entry) => sum + numberToMicros(usdOf(entry)), 0);
}

function expect(isTrue: boolean, message: string): void {
  if (!isTrue) throw new Error(message);
}
