import { expect, it, onTestFinished } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { isTerminal } from "../../src/contract/statuses.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { openAdmin } from "../../src/service/admin.ts";
import { FakeJobProvider } from "../support/fake-job-provider.ts";
import { FakeUpstream } from "../support/fake-provider.ts";
import { startPgProxy } from "../support/pg-proxy.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";
import { watchSecret } from "../support/secrets.ts";
import { items, MODEL, startServiceOn } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const BATCHES = 4;
const ITEMS = 5;
const CUTS = 40;
/** Pauses after trouble are a tenth as long. */
const clock = {
  ...systemClock,
  sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 10, signal),
};

const isCommit = (sql: string) => sql === "COMMIT";
const every = (count: number, first: number) => {
  let commits = first;
  return (sql: string) => isCommit(sql) && ++commits % count === 0;
};

const PROVIDERS = [
  ["one by one", () => new FakeUpstream("procedural", { concurrency: 4 })],
  ["as jobs", () => new FakeJobProvider({ images: 2, concurrency: 3, isPaid: true })],
] as const;

it.skipIf(!hasPostgres).each(process.env.IMGBATCH_SOAK ? PROVIDERS : PROVIDERS.slice(1))(
  "[PG-9] while every second commit gets no answer, each image of a paid upstream that makes them %s is asked for and paid once",
  { timeout: 120_000 },
  async (_, makeProvider) => {
    const direct = await newDatabase();
    const url = new URL(direct);
    const proxy = await startPgProxy({ port: Number(url.port) });
    onTestFinished(() => proxy.close());
    url.port = String(proxy.port);
    const placeOf = (url: string) => ({
      database: { kind: "postgres" as const, url, name: "postgres://test" },
      blobs: { kind: "files" as const },
    });
    const directory = await tempDir();
    const admin = await openAdmin({ directory, storage: placeOf(direct) });
    onTestFinished(() => admin.close());
    const made = await admin.createKey({
      ...{ name: "k", accountName: "default", group: "default", expiresAtMs: null, isPlayMoney: false },
    });
    const key = made?.key ?? "";
    watchSecret(key);
    await admin.topUp("default", 100_000_000);
    const provider = makeProvider();
    const options = { dataDirectory: directory, providers: [provider], clock };
    const service = await startServiceOn(placeOf(url.href), options);
    const ask = async (path: string, init: RequestInit = {}) => {
      const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", ...init.headers };
      const answer = await fetch(`${service.url}/v1/images/batches${path}`, { ...init, headers });
      return answer.ok ? ((await answer.json()) as BatchObject) : null;
    };
    proxy.cut("answer", { times: CUTS / 2, when: every(4, 0) });
    proxy.cut("before", { times: CUTS / 2, when: every(4, 2) });
    const body = JSON.stringify({ model: MODEL, task_name: "t", items: items(ITEMS) });
    const submit = async (name: string) => {
      for (;;) {
        const headers = { "idempotency-key": name };
        const batch = await ask("", { method: "POST", body, headers });
        if (batch !== null) return batch.id;
      }
    };
    const ids = await Promise.all(Array.from({ length: BATCHES }, (_, i) => submit(`b${i}`)));
    expect(new Set(ids).size).toBe(BATCHES);
    for (const id of ids) {
      const now = async () => (await ask(`/${id}`)) ?? { status: "running" as const };
      const hasEnded = async () => isTerminal((await now()).status);
      await expect.poll(hasEnded, { timeout: 90_000, interval: 100 }).toBe(true);
      expect(await now()).toMatchObject({ status: "completed", success_count: ITEMS });
    }
    expect(proxy.cuts).toBeGreaterThan(CUTS / 2);
    expect((await admin.check()).problems).toEqual([]);
    const sent =
      provider instanceof FakeJobProvider
        ? [...provider.jobs.values()].reduce((sum, job) => sum + job.items.length, 0)
        : provider.requests.length;
    expect(sent).toBe(BATCHES * ITEMS);
  },
);
