import { EventEmitter, once } from "node:events";
import { rm } from "node:fs/promises";
import { crc32 } from "node:zlib";
import { LOCAL_STORAGE } from "../../src/config/storage-places.ts";
import type { ImageMimeType } from "../../src/contract/image-formats.ts";
import { DEFAULT_LIMITS, FIXED_LIMITS } from "../../src/contract/limits.ts";
import { issueKey, openAccount, topUp } from "../../src/domain/accounts.ts";
import type { CheckedRequest } from "../../src/domain/batches/checked-request.ts";
import { createBatch } from "../../src/domain/batches/create-batch.ts";
import { deleteOutputs, deleteRecord, purgeOutputs } from "../../src/domain/batches/delete.ts";
import { groupFinishes } from "../../src/domain/batches/finish-item.ts";
import { Feed, type ServiceEvent } from "../../src/domain/feed.ts";
import { Uploads } from "../../src/domain/files/uploads.ts";
import { ProviderHealth } from "../../src/domain/health/provider-health.ts";
import { type ModelEntry, Offers } from "../../src/domain/models.ts";
import type { BlobStore } from "../../src/domain/ports/blob-store.ts";
import {
  DEFAULT_OPTIONS,
  type ImageProvider,
  type JobItem,
  ProviderError,
  type UpstreamJob,
} from "../../src/domain/ports/image-provider.ts";
import type { Repositories, Stores } from "../../src/domain/ports/stores.ts";
import type { ApiKeyRecord } from "../../src/domain/records.ts";
import { sweep } from "../../src/domain/retention.ts";
import type { Clock } from "../../src/kernel/clock.ts";
import { type Ids, sha256Hex } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { type OpenStorage, openStorage } from "../../src/service/storage/open-storage.ts";
import type { WorkerDeps } from "../../src/workers/deps.ts";
import { GoingOn } from "../../src/workers/going-on.ts";
import { Alone, Cluster, HEARTBEAT_MS, type Presence, TERM_MS } from "../../src/workers/presence.ts";
import { Scheduler } from "../../src/workers/scheduler.ts";
import { seededRandom } from "../soak/random.ts";
import { groupEntry, modelEntry } from "./entries.ts";
import { FakeUpstream } from "./fake-provider.ts";
import { SeededTurns } from "./seeded-turns.ts";

const IMAGE = Buffer.from("an image");
/** Every model is made by one provider: images one by one, or whole batches. */
export const MODELS = ["one-by-one", "as-a-job"] as const;
export type SimulatedModel = (typeof MODELS)[number];

/** The key of a stored image without the number of the image in its item. */
export const itemOf = (blobKey: string) => blobKey.replace(/-\d+$/, "");

interface SimulatedJob {
  jobId: string;
  items: readonly JobItem[];
  state: "running" | "succeeded" | "failed" | "cancelled";
}

/** A process of the simulation. One that was killed is replaced by another. */
export interface SimulatedProcess {
  deps: WorkerDeps;
  scheduler: Scheduler;
  presence: Presence;
  isStopped: boolean;
  isBeating: boolean;
}

/**
 * The scheduler, the domain and the SQLite stores as they are, in a simulation in which every read, write, file, sleep and answer of a
 * provider waits for a turn that a seed gives it. Files are in memory; they and the upstream outlive a crash. Several
 * processes share one database; they beat when they are told to.
 */
export class Simulation {
  turns: SeededTurns;
  readonly files = new Map<string, Buffer>();
  readonly jobs = new Map<string, SimulatedJob>();
  readonly inputs = new Map<string, readonly JobItem[]>();
  readonly events: ServiceEvent[] = [];
  /** Whether no request for an image gets an answer, until `answer` is called. */
  isHanging = false;
  readonly #answers = new EventEmitter().setMaxListeners(0);
  /** How many requests for an image were sent, by its prompt. */
  readonly sent = new Map<string, number>();
  /** Errors of beats and looks. */
  readonly failures: unknown[] = [];
  /** Share of the files that the disk stores with other bytes, and the keys of their items (`itemOf`). */
  damagedShare = 0;
  readonly damaged = new Set<string>();
  /** The price of a model now, in US dollars. */
  priceUsd = 0.01;
  key!: ApiKeyRecord;
  stores!: Stores;
  /** One, by default. */
  readonly processes: SimulatedProcess[] = [];
  #data!: OpenStorage;
  readonly #directory: string;
  readonly #random: () => number;
  #nowMs = Date.UTC(2030, 0, 1);
  #ids = 0;

  readonly #count: number;

  private constructor(directory: string, seed: number, count: number) {
    this.#directory = directory;
    this.#count = count;
    this.#random = seededRandom(seed + 1);
    this.turns = new SeededTurns(seed);
  }

  /** A simulation with one account and one key, whose workers run: those of one process, by default. */
  static async begin(
    directory: string,
    seed: number,
    balanceMicroUsd: number,
    count = 1,
  ): Promise<Simulation> {
    const simulation = new Simulation(directory, seed, count);
    await simulation.#open();
    const { clock, ids } = (simulation.processes[0] as SimulatedProcess).deps;
    const deps = { clock, ids };
    simulation.key = await simulation.stores.write(async (tx) => {
      const { id: accountId } = await openAccount(tx, deps, { name: "a", balanceMicroUsd });
      return issueKey(tx, deps, { name: "k", accountId, group: "g", expiresAtMs: null });
    });
    await simulation.#start();
    return simulation;
  }

  get #deps(): WorkerDeps {
    return this.#process(0).deps;
  }

  #process(at: number): SimulatedProcess {
    return this.processes[at % this.processes.length] as SimulatedProcess;
  }

  /** One process is killed, and another one starts in its place. */
  async crashOne(at: number): Promise<void> {
    const killed = this.#process(at);
    this.turns.endOf(killed);
    const next = await this.#newProcess();
    this.processes[this.processes.indexOf(killed)] = next;
    await this.turns.until(next.presence.join().then(() => next.scheduler.start()));
  }

  /** One process is stopped by a signal, or goes on. */
  setStopped(at: number, isStopped: boolean): void {
    const process = this.#process(at);
    process.isStopped = isStopped;
    this.turns.setStopped(process, isStopped);
  }

  /** The upstream answers the requests that hang, and all that come. */
  answer(): void {
    this.isHanging = false;
    this.#answers.emit("answer");
  }

  /** All processes beat, and look at the work of others. Nobody waits for it. */
  beat(): void {
    this.#nowMs += HEARTBEAT_MS;
    for (const process of this.processes) {
      if (process.isStopped || process.isBeating) continue;
      const { presence, scheduler } = process;
      process.isBeating = true;
      const beat =
        presence instanceof Cluster ? presence.heartbeat().then(() => presence.poll()) : scheduler.poll();
      beat
        .catch((error) => this.failures.push(error))
        .finally(() => {
          process.isBeating = false;
        });
    }
  }

  /** Lets all go on until everything is done that can be. */
  async settle(): Promise<void> {
    for (const at of this.processes.keys()) this.setStopped(at, false);
    await this.turns.run();
    if (this.processes.length === 1) return;
    for (let beats = 0; beats < 2 * (TERM_MS / HEARTBEAT_MS) + 4; beats++) {
      this.beat();
      await this.turns.run();
    }
  }

  /** All processes are killed: whatever waits never goes on. The next ones start on the same data. */
  async crash(): Promise<void> {
    this.turns.end();
    await this.#data.close();
    this.turns = new SeededTurns(Math.floor(this.#random() * 2 ** 32));
    await this.#open();
    await this.#start();
  }

  async end(): Promise<void> {
    this.turns.end();
    await this.#data.close();
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** With a consent, what `as-a-job` makes is granted: it costs real money. */
  create(
    model: SimulatedModel,
    prompts: readonly string[],
    idempotencyKey: string | null,
    consentMicroUsd: number | null = null,
    by = 0,
  ) {
    const entry: ModelEntry = { ...modelEntry, id: model, prices: { "1K": this.priceUsd } };
    const request: CheckedRequest = {
      model: entry,
      taskName: null,
      parentBatchId: null,
      mimeType: "image/png",
      metadata: null,
      items: prompts.map((prompt, i) => {
        return {
          customId: `i${i}`,
          prompt,
          earlier: "",
          outputCount: 1,
          images: [],
          options: DEFAULT_OPTIONS,
        };
      }),
      hash: sha256Hex(JSON.stringify([model, prompts])),
    };
    const { scheduler, deps: own } = this.#process(by);
    const deps = {
      ...own,
      offers: new Offers(own.providers, [], new Map(), undefined, false),
      takesBatches: async () => true,
      goesOn: "always" as const,
    };
    return createBatch(
      deps,
      { key: this.key, group: groupEntry, consentMicroUsd },
      request,
      idempotencyKey,
    ).then((created) => {
      if (!created.replayed) scheduler.wake(created.batch.id);
      return created;
    });
  }

  cancel(batchId: string, by = 0): Promise<void> {
    return this.#process(by).scheduler.cancel(batchId);
  }

  async deleteOutputs(batchId: string): Promise<void> {
    if (await deleteOutputs(this.#deps.stores, batchId, this.#nowMs)) {
      await purgeOutputs(this.#deps, batchId, this.#nowMs);
    }
  }

  /** The sweeps of the service: they delete the files that are said to be gone. */
  async sweep(): Promise<void> {
    await sweep(this.#deps, { nowMs: this.#nowMs, dueMs: this.#nowMs, inputRetentionMs: 0 });
  }

  deleteRecord(batchId: string): Promise<void> {
    return deleteRecord(this.#deps, batchId, this.#nowMs);
  }

  topUp(amountMicroUsd: number): Promise<void> {
    return this.#deps.stores.write((tx) => topUp(tx, this.#deps, this.key.accountId, amountMicroUsd));
  }

  get blobs(): BlobStore {
    return this.#filesOf(async () => {});
  }

  async #open(): Promise<void> {
    const clock = this.#clock(async () => {});
    this.#data = await openStorage(LOCAL_STORAGE, { directory: this.#directory, clock });
    this.stores = this.#data.stores;
    this.processes.length = 0;
    for (let i = 0; i < this.#count; i++) this.processes.push(await this.#newProcess());
  }

  async #newProcess(): Promise<SimulatedProcess> {
    const { turns } = this;
    const process = { isStopped: false, isBeating: false } as SimulatedProcess;
    const turn = () => turns.turn(process);
    const { read, snapshot, write } = this.#data.stores;
    const stores: Stores = {
      read: eachAfter(turn, read),
      snapshot: (work) => turn().then(() => snapshot(work)),
      write: (work) => turn().then(() => write(work)),
    };
    const feed = new Feed();
    const providers = this.#providers(turn);
    const clock = this.#clock(turn);
    feed.subscribe((event) => this.events.push(event));
    const ids = this.#countingIds();
    const names = providers.map(({ name }) => name);
    const facts = { role: "all", version: "1", providers: names } as const;
    const presence = new (this.#count === 1 ? Alone : Cluster)({ stores, clock, ids, log: silentLog }, facts);
    const deps: WorkerDeps = {
      stores,
      presence,
      goingOn: new GoingOn({ stores, clock, log: silentLog }, "always"),
      ending: new AbortController().signal,
      blobs: this.#filesOf(turn),
      finishes: groupFinishes(stores),
      inspector: {
        inspect: async () => {
          await turn();
          return { mimeType: "image/png" as ImageMimeType, widthPx: 8, heightPx: 8, decodedPixels: 64 };
        },
      },
      providers,
      clock,
      ids,
      random: this.#random,
      feed,
      log: silentLog,
      models: [],
      offers: new Offers(providers, []),
      health: new ProviderHealth({ clock, log: silentLog }, providers),
      outageMs: 86_400_000,
      unknownOutcome: "once",
      limits: DEFAULT_LIMITS,
      lineReaders: {},
      outputRetentionMs: 0,
      uploads: new Uploads(
        {
          stores,
          blobs: this.#filesOf(turn),
          clock,
        },
        { ...FIXED_LIMITS, ...DEFAULT_LIMITS },
      ),
    };
    return Object.assign(process, { deps, presence, scheduler: new Scheduler(deps) });
  }

  async #start(): Promise<void> {
    const starting = this.processes.map(({ presence, scheduler }) =>
      presence.join().then(() => scheduler.start()),
    );
    await this.turns.until(Promise.all(starting));
  }

  #filesOf(turn: () => Promise<void>): BlobStore {
    const { files } = this;
    const below = (prefix: string) => [...files.keys()].filter((key) => key.startsWith(prefix));
    return {
      put: async (key, bytes) => {
        await turn();
        const isDamaged = this.damagedShare > 0 && this.#random() < this.damagedShare;
        if (isDamaged) this.damaged.add(itemOf(key));
        files.set(key, isDamaged ? bytes.subarray(1) : bytes);
        return { sizeBytes: bytes.length, sha256: sha256Hex(bytes), crc32: crc32(bytes) };
      },
      putNew: async (key, bytes) => {
        await turn();
        if (!files.has(key)) files.set(key, bytes);
      },
      read: async (key, sizeBytes) => {
        await turn();
        const bytes = files.get(key) ?? null;
        return sizeBytes === undefined || bytes?.length === sizeBytes ? bytes : null;
      },
      lend: async (key, work) => {
        await turn();
        const bytes = files.get(key);
        return bytes ? work(bytes) : null;
      },
      draft: () => {
        throw new Error("no large body is sent here");
      },
      borrow: async () => {
        throw new Error("no file is uploaded here");
      },
      removeDrafts: async () => {},
      open: async () => {
        throw new Error("nothing is streamed here");
      },
      reader: async () => {
        throw new Error("nothing is downloaded here");
      },
      sizeOf: async (key) => files.get(key)?.length ?? null,
      list: async (prefix) => {
        await turn();
        return below(prefix).map((key) => ({ key, sizeBytes: files.get(key)?.length ?? 0, ageMs: 0 }));
      },
      delete: async (key) => {
        await turn();
        files.delete(key);
      },
      deleteAll: async (prefix) => {
        await turn();
        for (const key of below(prefix)) files.delete(key);
      },
    };
  }

  /** Any sleep can be over at any turn: timers are as late as they like. */
  #clock(turn: () => Promise<void>): Clock {
    return {
      nowMs: () => this.#nowMs,
      monotonicMs: () => this.#nowMs,
      sleep: (ms, signal) =>
        new Promise((resolve, reject) => {
          const onAbort = () => reject(signal?.reason);
          const wokeUp = () => {
            if (signal?.aborted) return;
            signal?.removeEventListener("abort", onAbort);
            this.#nowMs += ms;
            resolve();
          };
          signal?.addEventListener("abort", onAbort, { once: true });
          if (signal?.aborted) reject(signal.reason);
          else turn().then(wokeUp, reject);
        }),
    };
  }

  /** Ids that are the same again for the same seed. */
  #countingIds(): Ids {
    const next = () => String(++this.#ids).padStart(20, "0");
    return {
      batchId: () => `imgbatch_${next()}`,
      apiKey: () => `imgb_${next()}`,
      requestId: () => `req_${next()}`,
      recordId: (prefix) => `${prefix}_${next()}`,
      leaseToken: () => sha256Hex(next()),
    };
  }

  #providers(turn: () => Promise<void>): ImageProvider[] {
    const chance = (share: number) => this.#random() < share;
    const outcome = () => {
      if (chance(0.1)) throw new ProviderError("PROVIDER_TIMEOUT", "late");
      if (chance(0.1)) throw new ProviderError("SAFETY_BLOCKED", "no");
      return { images: chance(0.1) ? [] : chance(0.1) ? [IMAGE, IMAGE] : [IMAGE], modelVersion: null };
    };
    const trouble = () => {
      if (chance(0.1)) throw new ProviderError("PROVIDER_TIMEOUT", "the answer was lost");
    };
    const { jobs } = this;
    const shown = (name: string): UpstreamJob => {
      const job = jobs.get(name);
      const state = job?.state ?? "failed";
      return {
        name,
        jobId: job?.jobId ?? null,
        input: null,
        createdAtMs: null,
        state,
        said: `it is ${state}`,
      };
    };
    const base = { concurrency: 2, close: async () => {} };
    return [
      {
        ...base,
        kind: "item",
        name: "items",
        ...(this.#count > 1 ? { upstream: new FakeUpstream("items").upstream } : {}),
        serves: (model) => model === "one-by-one",
        generate: async ({ prompt }, signal, onSent) => {
          await turn();
          onSent?.();
          this.sent.set(prompt, (this.sent.get(prompt) ?? 0) + 1);
          await turn();
          if (this.isHanging) await once(this.#answers, "answer", { signal });
          if (chance(0.5)) signal.throwIfAborted();
          return outcome();
        },
      },
      {
        ...base,
        kind: "job",
        name: "jobs",
        upstream: new FakeUpstream("jobs").upstream,
        limits: { images: 2, bytes: 1e9 },
        times: { pollMs: 1000, jobMs: 3_600_000, lostMs: 60_000 },
        splitsReferences: false,
        serves: (model) => model === "as-a-job",
        lineBytes: async () => 1,
        upload: async (jobId, items) => {
          await turn();
          trouble();
          this.inputs.set(jobId, items);
          return jobId;
        },
        waitForRate: async () => turn(),
        create: async ({ jobId, input }, signal) => {
          await turn();
          if (chance(0.5)) signal.throwIfAborted();
          trouble();
          const name = `upstream/${jobs.size + 1}`;
          jobs.set(name, { jobId, items: this.inputs.get(input) ?? [], state: "running" });
          await turn();
          if (chance(0.5)) signal.throwIfAborted();
          trouble();
          return name;
        },
        list: async function* () {
          await turn();
          trouble();
          for (const name of [...jobs.keys()].reverse()) yield shown(name);
        },
        poll: async (name) => {
          await turn();
          trouble();
          const job = jobs.get(name);
          if (!job) throw new ProviderError("INVALID_ARGUMENT", "no such job");
          if (job.state === "running" && chance(0.5)) job.state = chance(0.4) ? "succeeded" : "failed";
          return shown(name);
        },
        results: async function* (name) {
          const job = jobs.get(name);
          for (const { key } of job?.items ?? []) {
            await turn();
            if (chance(job?.state === "succeeded" ? 0.1 : 0.9)) continue;
            yield { key, output: { images: [IMAGE], modelVersion: null } };
          }
        },
        cancel: async (name) => {
          await turn();
          trouble();
          const job = jobs.get(name);
          if (job?.state !== "running") throw new Error("the job has ended");
          job.state = "cancelled";
        },
        discard: async (input) => {
          await turn();
          trouble();
          this.inputs.delete(input);
        },
      },
    ];
  }
}

/** The same repositories; each of their answers waits for a turn first. */
function eachAfter(turn: () => Promise<void>, repositories: Repositories): Repositories {
  const slow = Object.entries(repositories).map(([name, repository]) => [
    name,
    Object.fromEntries(
      Object.entries(repository as Record<string, (...given: unknown[]) => Promise<unknown>>).map(
        ([method, ask]) => [method, (...given: unknown[]) => turn().then(() => ask(...given))],
      ),
    ),
  ]);
  return Object.fromEntries(slow);
}
