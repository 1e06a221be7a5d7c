import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { openAdmin } from "../../build/service/admin.js";
import { Client } from "./client.mjs";
import { drain } from "./drain.mjs";
import { LeftBehind } from "./left-behind.mjs";
import { expect, Memory } from "./memory.mjs";
import { seeded } from "./random.mjs";
import { fixedStory, randomStory } from "./stories.mjs";
import { hasStrace, KILL_CALLS, startVictim } from "./victims.mjs";

const BIN = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));
/** A kill that has not come by then does not come. */
const RANDOM_LIFE_MS = 700;
/** The poorest account can be at its end, so that creates are refused for money too. */
const ACCOUNTS = { rich: 900_000_000, poor: 2_000_000 };

/** One data directory: services that are killed on it, and at the end one that finishes everything. */
export class Tale {
  /** How many services were killed, by the way of it. */
  kills = {};
  #boot = 0;

  /** The value of `--only` that tells the same again. */
  get again() {
    const { number, kind, isReal, plan } = this;
    return { number, kind, isReal, plan: plan.slice(0, this.#boot) };
  }

  constructor({ number, kind, plan, count, isReal = false, directory, seed }) {
    Object.assign(this, { number, kind, isReal, seed });
    const random = seeded(seed, number, "kills");
    this.plan = plan ?? Array.from({ length: count }, () => chooseKill(random, isReal));
    this.memory = new Memory();
    this.data = join(directory, "data");
    this.generations = join(directory, "generations.log");
    this.left = new LeftBehind({
      data: this.data,
      generations: this.generations,
      scratch: join(directory, "copy"),
    });
  }

  async tell() {
    await mkdir(this.data, { recursive: true });
    const keys = this.kind === "fixed" ? null : await prepare(this.data);
    for (const kill of this.plan) await this.#live(kill, keys);
    await this.#finish(keys);
  }

  /** One service, from its start to its death. */
  async #live(kill, keys) {
    const boot = ++this.#boot;
    const { data, generations, isReal, memory } = this;
    const random = seeded(this.seed, this.number, boot);
    const victim = await startVictim({ data, generations, boot, kill, isReal });
    // A kill at a step that is not reached does not happen.
    const life = setTimeout(
      () => victim.end(),
      this.kind === "fixed" ? 8000 : RANDOM_LIFE_MS + (isReal ? 3000 : 0),
    );
    const url = await victim.ready;
    if (url !== null) {
      const client = new Client(url, memory);
      const prefix = `s${this.number}b${boot}`;
      if (keys) await randomStory(client, { keys, random, prefix });
      else {
        const own = await readKey(data);
        if (await fixedStory(client, { keys: [own], prefix })) victim.end("SIGTERM");
      }
    }
    const { signal, code, stderr } = await victim.exited;
    clearTimeout(life);
    const isKilled = signal === "SIGKILL" || code === 137;
    expect(isKilled || code === 0, `the service ended with ${code ?? signal}: ${stderr}`);
    if (isKilled) this.#count(kill);
    await this.left.check(memory, boot);
  }

  #count(kill) {
    const way = kill.call ? "at a system call" : kill.step ? "at a durable step" : "at a random moment";
    const how = `${this.isReal ? "serve" : "quick"}, ${way}`;
    this.kills[how] = (this.kills[how] ?? 0) + 1;
  }

  /** The last service is left alone, stopped in order, and leaves everything as it should be. */
  async #finish() {
    const boot = ++this.#boot;
    const { data, generations, isReal, memory } = this;
    const last = await startVictim({ data, generations, boot, kill: null, isReal });
    const url = await last.ready;
    if (url === null) expect(false, `the service does not start: ${(await last.exited).stderr}`);
    try {
      await drain(new Client(url, memory));
      last.end("SIGTERM");
      const { code, signal, stderr } = await last.exited;
      expect(code === 0, `SIGTERM: the service ended with ${code ?? signal}: ${stderr}`);
    } finally {
      last.end();
      await last.exited;
    }
    await this.left.check(memory, boot);
    await this.left.checkEmptied();
    if (this.kind === "random") await adminCheck(data);
  }
}

function chooseKill(random, isReal) {
  const way = random.next();
  if (way < 0.15 && !isReal) return { step: random.whole(1, 60), after: random.chance(0.5) };
  if (way < 0.3 && hasStrace) {
    const { thread, call } = random.pick(KILL_CALLS);
    return { thread, call, when: random.whole(1, call === "pwrite64" ? 150 : 12) };
  }
  return { afterMs: Math.round(isReal ? random.spread(100, 2500) : random.spread(5, 500)) };
}

/** Accounts and keys, before the first start. */
async function prepare(directory) {
  const admin = await openAdmin({ directory, mayCreate: true });
  const keys = [];
  for (const [accountName, balanceMicroUsd] of Object.entries(ACCOUNTS)) {
    await admin.createAccount({ name: accountName, balanceMicroUsd });
    for (const name of ["one", "two"]) {
      const facts = { name, accountName, group: "default", expiresAtMs: null, isPlayMoney: true };
      keys.push((await admin.createKey(facts)).key);
    }
  }
  admin.close();
  return keys;
}

export async function readKey(data) {
  return JSON.parse(await readFile(join(data, "credentials.json"), "utf8")).api_key;
}

async function adminCheck(data) {
  const check = spawn(process.execPath, [BIN, "admin", "check", "--data", data, "--json"]);
  const [stdout, stderr] = await Promise.all([text(check.stdout), text(check.stderr), once(check, "close")]);
  expect(check.exitCode === 0 && JSON.parse(stdout).ok, `admin check: ${check.exitCode} ${stdout} ${stderr}`);
}
