import { setTimeout as sleep } from "node:timers/promises";
import { Client, type ClientAnswer, Gone, sha256 } from "../../soak/client.mjs";
import { drain } from "../../soak/drain.mjs";
import { expect, Memory } from "../../soak/memory.mjs";
import type { Random } from "../../soak/random.mjs";
import { CLUSTER_MODEL, type Cluster } from "./cluster.ts";

/** A process that stands still answers nobody. */
const TIMEOUT_MS = 8000;
const PAUSE_MS = 40;
/** No misfortune keeps a customer from an answer for longer. */
const PATIENCE_MS = 60_000;

/** A client of all APIs of a cluster, in turns, that repeats each request until it is answered. */
export class ClusterClient extends Client {
  /** Ends the stories. */
  isOver = false;
  /** The number of requests without an answer, or with one that says "later", by reason. */
  readonly repeats: Record<string, number> = {};
  /** The hash of each image that a request with an idempotency key got, by prompt. */
  readonly keyed = new Map<string, string>();
  /** The prompts of which two requests were killed: the service sends no third one under the same key. */
  readonly givenUp = new Set<string>();
  readonly #tried = new Set<string>();
  readonly #cluster: Cluster;

  constructor(cluster: Cluster) {
    super("", new Memory());
    this.#cluster = cluster;
  }

  /** Nothing that happens to a database, a bucket or another process is an internal error. */
  override mayAnswer(status: number): boolean {
    return status !== 500;
  }

  override async ask(key: string, path: string, init: RequestInit = {}): Promise<ClientAnswer> {
    for (const deadline = Date.now() + PATIENCE_MS; ; ) {
      if (this.isOver) throw new Gone("the story is over");
      const reason = await this.#try(key, path, init);
      if (typeof reason !== "string") return reason;
      this.repeats[reason] = (this.repeats[reason] ?? 0) + 1;
      expect(Date.now() < deadline, `${path} had no answer for ${PATIENCE_MS} ms: ${reason}`);
      await sleep(PAUSE_MS);
    }
  }

  /** The answer, or why there is none yet. */
  async #try(key: string, path: string, init: RequestInit): Promise<ClientAnswer | string> {
    this.url = this.#cluster.nextUrl();
    try {
      const answer = await super.ask(key, path, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) });
      const isLater = answer.status > 500 || answer.status === 429;
      return isLater ? `${answer.status} ${answer.code}` : answer;
    } catch (error) {
      if (error instanceof Gone) return "no answer";
      throw error;
    }
  }

  /** Asks for one image in real time, under a key. If the key was used before, the image must be the same. */
  async askKeyed(prompt: string): Promise<void> {
    this.#tried.add(prompt);
    const body = JSON.stringify({
      contents: [{ role: "user", parts: [{ text: prompt }] }],
      generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
    });
    const headers = { "content-type": "application/json", "idempotency-key": `key of ${prompt}` };
    const path = `/v1beta/models/${CLUSTER_MODEL}:generateContent`;
    const answer = await this.ask(this.#cluster.key, path, { method: "POST", headers, body });
    if (answer.status === 409 && answer.what.includes("stopped during two requests")) {
      expect(!this.keyed.has(prompt), `${prompt}: was answered, and is given up`);
      this.givenUp.add(prompt);
      return;
    }
    expect(answer.status === 200 && !this.givenUp.has(prompt), answer.what);
    const hash = sha256(answer.bytes);
    const before = this.keyed.get(prompt) ?? hash;
    expect(before === hash, `${prompt}: a repeat has another answer`);
    this.keyed.set(prompt, hash);
  }

  /** Sends everything once more, waits until everything has ended, and checks every batch and image. */
  async drain(): Promise<void> {
    this.isOver = false;
    for (const prompt of this.#tried) await this.askKeyed(prompt);
    await drain(this);
  }
}

/** A customer that asks in real time until the story is over, now and then twice, with a pause after each time. */
export async function keyedStory(
  client: ClusterClient,
  { random, prefix, pauseMs }: { random: Random; prefix: string; pauseMs: number },
): Promise<void> {
  try {
    for (let number = 1; ; number++) {
      const prompt = `${prefix} keyed ${number}`;
      await Promise.all(Array.from({ length: random.whole(1, 2) }, () => client.askKeyed(prompt)));
      await sleep(random.whole(20, 300) + pauseMs);
    }
  } catch (error) {
    if (!(error instanceof Gone)) throw error;
  }
}
