import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, vi } from "vitest";
import { wrongClock } from "../fake-clock.ts";
import { SUITE_ROOT } from "../global-setup.ts";
import { watchDirectory } from "../secrets.ts";
import { Chain, type ChainBatch, type ChainItem, isMarked, model } from "./chain.ts";
import type { FakeUpstream, RequestKind } from "./fake-upstream.ts";
import { showsPrompt } from "./images.ts";
import type { Job, JobBook } from "./job-book.ts";
import { BATCH_MODEL, startNativeBatch } from "./native-batch.ts";
import { startOpenaiBatch } from "./openai-batch.ts";

const MOVER = pathToFileURL(join(import.meta.dirname, "moved-clock.mjs")).href;

/** The upstreams that take batch jobs, with the configuration of each. */
const UPSTREAMS = {
  "native-batch": {
    start: startNativeBatch,
    provider: { keyHeader: "x-goog-api-key", apiKeyEnv: "NATIVE_API_KEY" },
    ...{ model: BATCH_MODEL, path: "" },
  },
  "openai-batch": {
    start: startOpenaiBatch,
    provider: { apiKeyEnv: "OPENAI_API_KEY" },
    ...{ model: "gpt-image-2", path: "/v1" },
  },
};

export type JobUpstreamType = keyof typeof UPSTREAMS;
export const JOB_UPSTREAMS: JobUpstreamType[] = ["native-batch", "openai-batch"];
export const MINUTE_MS = 60_000;
export const FOREVER = Number.POSITIVE_INFINITY;
/** Large enough for an answer that breaks off in its middle. */
const HANDY = { width: 256, height: 256 };
/** The price of an image in a batch, in USD: half of the price in real time. */
const PRICE = 0.05;
/** A busy machine runs dozens of batches with one service. */
const PATIENCE_MS = 200_000;
export const PATIENCE = { timeout: PATIENCE_MS, interval: 10 };

export interface JobFake extends FakeUpstream {
  book: JobBook;
  settings: { hasRanges: boolean; echoesKey: boolean };
  addForeign(label: string, prompts: readonly string[]): Job;
}

/** A batch with an upstream of its own. */
export interface JobCase {
  name: string;
  type: JobUpstreamType;
  /** More of the provider's configuration. */
  config?: object;
  /** Tells the upstream how to behave from the start. */
  arrange?: ((fake: JobFake) => void) | undefined;
  /** Default: two. */
  prompts?: readonly string[];
}

class JobStory {
  readonly fake: JobFake;
  readonly prompts: readonly string[];
  id = "";

  constructor(fake: JobFake, prompts: readonly string[]) {
    this.fake = fake;
    this.prompts = prompts;
  }

  /** The requests of a kind that came. */
  asked(kind: RequestKind) {
    return this.fake.requests.filter((request) => request.kind === kind);
  }

  /** Resolves once a request of a kind has come, body and all. */
  async came(kind: RequestKind): Promise<void> {
    const isRead = ({ method, bytes }: { method: string; bytes: Buffer }) =>
      method !== "POST" || bytes.length > 0;
    await vi.waitUntil(() => this.asked(kind).some(isRead), PATIENCE);
  }
}

/** The clock of the test's own process, and the file that tells those of others. */
type WorldClock = ReturnType<typeof wrongClock> & { file: string };

/** One service with many upstreams that take batch jobs. All see the same clock, which the test moves. */
export class JobWorld {
  readonly chain: Chain;
  readonly #clock: WorldClock;
  readonly #stories = new Map<string, JobStory>();

  private constructor(chain: Chain, clock: WorldClock) {
    this.chain = chain;
    this.#clock = clock;
  }

  /** `isProcess`: the service is a process of its own, which `restart` kills. Without, it is stopped. */
  static async start(cases: readonly JobCase[], { isProcess = false } = {}): Promise<JobWorld> {
    const directory = await mkdtemp(join(process.env[SUITE_ROOT] ?? tmpdir(), "imgbatch-clock-"));
    const clock = Object.assign(wrongClock(0), { file: join(directory, "clock") });
    await writeFile(clock.file, "0");
    const providers: object[] = [];
    const stories = new Map<string, JobStory>();
    for (const [at, { name, type, config, arrange, prompts }] of cases.entries()) {
      const { start, provider, model: theirs, path } = UPSTREAMS[type];
      const fake: JobFake = await start({ now: () => clock.nowMs(), size: HANDY });
      arrange?.(fake);
      const usual = Array.from({ length: 2 }, (_, nth) => `${name}, picture ${nth + 1}`);
      stories.set(`${type} ${name}`, new JobStory(fake, prompts ?? usual));
      const where = { baseUrl: `${fake.url}${path}`, models: { [`m${at}`]: theirs } };
      providers.push({ name: `p${at}`, type, pollSeconds: 0.2, ...where, ...provider, ...config });
    }
    const models = cases.map((_, at) => model(`m${at}`));
    const env = { NODE_OPTIONS: `--import ${MOVER}`, MOVED_CLOCK: clock.file };
    const config = { models, providers };
    const chain = await (isProcess ? Chain.start(config, env) : Chain.startHere(config, {}, clock));
    const world = new JobWorld(chain, clock);
    for (const [name, story] of stories) world.#stories.set(name, story);
    for (const [at, story] of [...stories.values()].entries())
      story.id = (await world.chain.submit(`m${at}`, story.prompts)).id;
    return world;
  }

  story(type: JobUpstreamType, name: string): JobStory {
    const story = this.#stories.get(`${type} ${name}`);
    if (!story) throw new Error(`no case ${type} ${name}`);
    return story;
  }

  all(): JobStory[] {
    return [...this.#stories.values()];
  }

  /** Ends the service and starts it again, `laterMs` later by its clock and those of the upstreams. */
  async restart(laterMs = 0): Promise<void> {
    await this.chain.end("SIGKILL");
    this.#clock.byMs += laterMs;
    await writeFile(this.#clock.file, String(this.#clock.byMs));
    await this.chain.serve();
  }

  /** Resolves with the batch of a story once it has ended. */
  ended({ id }: JobStory): Promise<ChainBatch> {
    return this.chain.until(id, undefined, PATIENCE_MS);
  }

  /**
   * Compares the bill of the upstream with the ended batch. No prompt was bought twice without a mark, the caller has
   * and pays each image that the upstream still offers, no job runs on, no input of a job lies there, and foreign jobs
   * were left alone. Returns the items.
   */
  async checkBill(story: JobStory): Promise<ChainItem[]> {
    const { fake, prompts, id } = story;
    const { book } = fake;
    const items = await this.chain.items(id);
    for (const [at, prompt] of prompts.entries()) {
      const payments = book.payments().filter((payment) => payment.prompt === prompt);
      const item = items[at];
      const what = JSON.stringify({ prompt, item, payments });
      if (!item) throw new Error(what);
      expect(payments.length, what).toBeLessThanOrEqual(isMarked(item) ? 2 : 1);
      if (payments.some(({ canBeFetched }) => canBeFetched)) expect(item.status, what).toBe("success");
      if (item.status !== "success") continue;
      expect(payments.length, what).toBeGreaterThan(0);
      expect(await showsPrompt(await this.chain.image(id, item.custom_id), prompt), what).toBe(true);
    }
    const made = items.filter(({ status }) => status === "success").length;
    const batch = await this.chain.batch(id);
    expect([batch.success_count, batch.fail_count]).toEqual([made, prompts.length - made]);
    expect(batch.actual_cost).toBeCloseTo(made * PRICE, 6);
    await expect.poll(() => book.running().map(({ name }) => name), PATIENCE).toEqual([]);
    // The input of a job that was created again is kept: the lost one may need it.
    const wasAgain = items.some(isMarked);
    const inputs = () => book.own().filter(({ file }) => !wasAgain && file && book.file(file));
    await expect.poll(() => inputs().map(({ name }) => name), PATIENCE).toEqual([]);
    for (const job of book.jobs)
      if (job.isForeign) expect([job.cancelledAt, job.isDeleted]).toEqual([null, false]);
    return items;
  }

  /** Asks the service whether its own books agree. */
  async checkBooks(): Promise<void> {
    const check = await this.chain.run(["admin", "check"]);
    expect(check.code, check.stdout + check.stderr).toBe(0);
  }

  async close(): Promise<void> {
    await this.chain.close();
    for (const { fake } of this.all()) await fake.close();
    await watchDirectory(dirname(this.#clock.file));
    await rm(dirname(this.#clock.file), { recursive: true, force: true });
  }
}
