import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { BIN } from "../processes.ts";
import { watchText } from "../secrets.ts";

export type Role = "api" | "worker";

export interface MemberOptions {
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
const RESTART_MS = 500;
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
      await sleep(RESTART_MS);
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
