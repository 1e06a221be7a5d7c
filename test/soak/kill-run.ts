import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { openAdmin } from "../../src/service/admin.ts";
import { checkOf } from "../support/used-directory.ts";
import { Customer, expect } from "./customer.ts";
import { hasStrace, type Kill, type KillCall, startKilledService } from "./killed-service.ts";
import { LeftBehind } from "./left-behind.ts";
import { type Random, seeded } from "./random.ts";
import { fixedStory, randomStory } from "./stories.ts";

/** A kill that has not come by then does not come. */
const LIFE_MS = { fixed: 8000, random: 700, real: 3700 };
/** The poorest account can be at its end, so that creates are refused for money too. */
const ACCOUNTS = { rich: 900_000_000, poor: 2_000_000 };
const KILLS_A_RUN = 12;
/** Durable steps of the fixed story, counted generously: a kill behind the last one does not happen. */
const STEPS = 55;
const CALLS: readonly KillCall[] = [
  { thread: "main", call: "fsync" },
  { thread: "main", call: "pwrite64" },
  { thread: "main", call: "unlink" },
  { thread: "main", call: "ftruncate" },
  { thread: "files", call: "fsync" },
  { thread: "files", call: "rename" },
  { thread: "files", call: "mkdir" },
  { thread: "files", call: "unlink" },
  { thread: "files", call: "rmdir" },
];

type Kind = keyof typeof LIFE_MS;

/**
 * One data directory with services that are killed on it while customers work, and at the end one that finishes everything. The
 * fixed story is told with one kill at a chosen point; random ones, of a quick or the real service, have many.
 */
export class KillRun {
  /** How many services were killed, by the way of it. */
  readonly kills: Record<string, number> = {};
  readonly #kind: Kind;
  readonly #seed: number;
  readonly #number: number;
  readonly #customer = new Customer();
  readonly #data: string;
  readonly #generations: string;
  readonly #left: LeftBehind;
  #boot = 0;

  /** The number of the run decides, with the seed, all that happens in it. */
  constructor(directory: string, seed: number, number: number) {
    this.#kind = number % 3 !== 1 ? "fixed" : number % 15 === 4 ? "real" : "random";
    this.#seed = seed;
    this.#number = number;
    this.#data = join(directory, "data");
    this.#generations = join(directory, "generations.log");
    const [data, generations] = [this.#data, this.#generations];
    this.#left = new LeftBehind({ data, generations, scratch: join(directory, "copy") });
  }

  /** At most `count` kills. Throws when a promise was not kept. */
  async run(count: number): Promise<void> {
    await mkdir(this.#data, { recursive: true });
    const keys = this.#kind === "fixed" ? [] : await this.#prepare();
    const random = seeded(this.#seed, this.#number, "kills");
    const kills = Math.min(count, this.#kind === "fixed" ? 1 : KILLS_A_RUN);
    for (let i = 0; i < kills; i++) await this.#live(chooseKill(random, this.#kind), keys);
    await this.#finish();
  }

  #start(kill: Kill | null) {
    const service = { data: this.#data, generations: this.#generations, isReal: this.#kind === "real" };
    return startKilledService({ ...service, boot: ++this.#boot, kill });
  }

  /** One service, from its start to its death. */
  async #live(kill: Kill, keys: readonly string[]): Promise<void> {
    const service = await this.#start(kill);
    const random = seeded(this.#seed, this.#number, this.#boot);
    // A kill at a step that is not reached does not happen.
    const life = setTimeout(() => service.end(), LIFE_MS[this.#kind]);
    const url = await service.ready;
    if (url !== null) {
      this.#customer.url = url;
      const prefix = `s${this.#number}b${this.#boot}`;
      if (keys.length > 0) await randomStory(this.#customer, { keys, random, prefix });
      else if (await fixedStory(this.#customer, await this.#ownKey(), prefix)) service.end("SIGTERM");
    }
    const { signal, code, stderr } = await service.exited;
    clearTimeout(life);
    const isKilled = signal === "SIGKILL" || code === 137;
    expect(isKilled || code === 0, `the service ended with ${code ?? signal}: ${stderr}`);
    const way =
      "call" in kill ? "at a system call" : "step" in kill ? "at a durable step" : "at a random moment";
    if (isKilled) this.kills[way] = (this.kills[way] ?? 0) + 1;
    await this.#left.check(this.#customer, this.#boot);
  }

  /** The last service is left alone, stopped in order, and leaves everything as it should be. */
  async #finish(): Promise<void> {
    const last = await this.#start(null);
    try {
      const url = await last.ready;
      if (url === null) throw new Error(`the service does not start: ${(await last.exited).stderr}`);
      this.#customer.url = url;
      await this.#customer.drain();
      last.end("SIGTERM");
      const { code, signal, stderr } = await last.exited;
      expect(code === 0, `SIGTERM: the service ended with ${code ?? signal}: ${stderr}`);
    } finally {
      last.end();
      await last.exited;
    }
    await this.#left.check(this.#customer, this.#boot);
    await this.#left.checkEmptied();
    const { problems } = await checkOf(this.#data);
    expect(problems.length === 0, `admin check: ${JSON.stringify(problems)}`);
  }

  /** Accounts and keys, before the first start. */
  async #prepare(): Promise<string[]> {
    const admin = await openAdmin({ directory: this.#data, mayCreate: true });
    const keys: string[] = [];
    for (const [accountName, balanceMicroUsd] of Object.entries(ACCOUNTS)) {
      await admin.createAccount({ name: accountName, balanceMicroUsd });
      for (const name of ["one", "two"]) {
        const facts = { name, accountName, group: "default", expiresAtMs: null, isPlayMoney: true };
        keys.push((await admin.createKey(facts))?.key ?? "");
      }
    }
    await admin.close();
    return keys;
  }

  async #ownKey(): Promise<string> {
    return JSON.parse(await readFile(join(this.#data, "credentials.json"), "utf8")).api_key;
  }
}

function chooseKill(random: Random, kind: Kind): Kill {
  const way = random.next();
  const isChosen = kind === "fixed" || way < 0.3;
  if (isChosen && kind !== "real" && (!hasStrace || random.chance(0.5)))
    return { step: random.whole(1, STEPS), after: random.chance(0.5) };
  if (isChosen && hasStrace) {
    const { thread, call } = random.pick(CALLS);
    return { thread, call, when: random.whole(1, call === "pwrite64" ? 150 : 12) };
  }
  return { afterMs: Math.round(kind === "real" ? random.spread(100, 2500) : random.spread(5, 500)) };
}
