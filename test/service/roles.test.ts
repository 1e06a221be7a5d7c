import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import type { Role } from "../../src/config/roles.ts";
import type { StoragePlaces } from "../../src/config/storage-places.ts";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { isTerminal } from "../../src/contract/statuses.ts";
import type { ServiceEvent } from "../../src/domain/feed.ts";
import { openAdmin } from "../../src/service/admin.ts";
import { FakeProvider, made, madeAfter, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { batchOf, fileOf, GENERATIONS, jsonl, line } from "../support/openai-batches.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";
import { fakeBucket } from "../support/s3/buckets.ts";
import { watchSecret } from "../support/secrets.ts";
import { items, MODEL, startServiceOn } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { KEY_HEADER, send } from "../support/uploads.ts";

/** A database and a bucket, and processes that share them; all are stopped after the test. */
async function shared({
  config = {},
  usesNotices = true,
  provider = new FakeProvider({ concurrency: 4 }),
}: {
  config?: object;
  usesNotices?: boolean;
  provider?: FakeProvider;
} = {}) {
  const url = await newDatabase();
  const { fake, settings } = await fakeBucket();
  const { scratchDirectory: _, ...bucket } = settings;
  const storage = {
    database: { kind: "postgres", url, name: "postgres://test" },
    blobs: { kind: "s3", ...bucket, name: "s3://test" },
  } as StoragePlaces;
  const admin = await openAdmin({ directory: await tempDir(), storage });
  onTestFinished(() => admin.close());
  const key = await admin.createKey({
    name: "k",
    accountName: "default",
    group: "default",
    expiresAtMs: null,
    isPlayMoney: true,
  });
  const secret = key?.key ?? "";
  watchSecret(secret);
  const start = async (role: Role) => {
    const options = { config: parseConfig(config, "test"), role, usesNotices, providers: [provider] };
    const service = await startServiceOn(storage, options);
    const ask = (path: string, init: RequestInit = {}, credential = secret) =>
      fetch(service.url + path, {
        ...init,
        headers: {
          "content-type": "application/json",
          ...(path.includes("/v1beta/")
            ? { [KEY_HEADER]: credential }
            : { authorization: `Bearer ${credential}` }),
          ...init.headers,
        },
      });
    const json = async (path: string, init?: RequestInit) => (await ask(path, init)).json();
    const post = (path: string, body: unknown, headers = {}) =>
      ask(path, { method: "POST", body: JSON.stringify(body), headers });
    return { ...service, ask, json, post };
  };
  return { admin, provider, start, secret, fake };
}

type Process = Awaited<ReturnType<Awaited<ReturnType<typeof shared>>["start"]>>;

const TICK_MS = 50;
const BATCHES = "/v1/images/batches";

async function submit(api: Process, count: number): Promise<string> {
  const answer = await api.post(BATCHES, { model: MODEL, task_name: "t", items: items(count) });
  const { id } = (await answer.json()) as BatchObject;
  return id;
}

/** Resolves once a process can work; an API, when it has heard of a worker. */
async function ready(process: Process): Promise<void> {
  const status = async () => (await process.ask("/readyz?for=work")).status;
  await expect.poll(status, { interval: 100 }).toBe(200);
}

async function ended(api: Process, id: string): Promise<BatchObject> {
  let batch: BatchObject;
  do {
    await sleep(100);
    batch = await api.json(`${BATCHES}/${id}`);
  } while (!isTerminal(batch.status));
  return batch;
}

/** The milliseconds since now, less those in which this process, and the services in it, stood still. */
function stopwatch(): () => number {
  let ms = 0;
  const timer = setInterval(() => {
    ms += TICK_MS;
  }, TICK_MS);
  onTestFinished(() => clearInterval(timer));
  return () => ms;
}

const image = { contents: [{ role: "user", parts: [{ text: "a fox" }] }] };
const wanted = { ...image, generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} } };
const GENERATE = `/v1beta/models/${MODEL}:generateContent`;

describe.skipIf(!hasPostgres)("processes that share a database and a bucket", () => {
  it("a worker has a live view of its own, of the batches of all keys, and takes no other requests", async () => {
    const { start } = await shared();
    const [worker, api] = [await start("worker"), await start("api")];
    await ready(api);
    const id = await submit(api, 2);
    await ended(api, id);
    const { baseUrl, apiKey } = await worker.openLiveView();
    const headers = { authorization: `Bearer ${apiKey}` };
    const { data } = await (await fetch(baseUrl + BATCHES, { headers })).json();
    expect(data).toMatchObject([{ id, status: "completed", success_count: 2 }]);
    const deleted = await fetch(`${baseUrl}${BATCHES}/${id}/outputs`, { method: "DELETE", headers });
    expect(deleted.status).toBe(200);
    expect(await api.json(`${BATCHES}/${id}`)).toMatchObject({ status: "output_deleted" });
    expect((await worker.ask(BATCHES)).status).toBe(404);
  });

  it.each([true, false])(
    "[ROLE-1] one takes a batch, another makes its images, and a third serves them (notices: %s)",
    async (usesNotices) => {
      const { admin, start, fake } = await shared({ usesNotices });
      const [one, two] = [await start("api"), await start("api")];
      // A database that is slow for a moment is told, too.
      const problems = ["the workers are not running"];
      await expect.poll(() => one.json("/readyz?for=work")).toEqual({ status: "not_ready", problems });
      // A balancer takes nobody's downloads away.
      await expect.poll(() => one.json("/readyz")).toEqual({ status: "ready", problems: [] });
      expect((await one.ask(BATCHES)).status).toBe(200);
      expect((await one.post(BATCHES, { model: MODEL, items: items(1) })).status).toBe(502);
      const worker = await start("worker");
      // An API that has not heard of it yet looks for it before it refuses a batch.
      expect((await two.post(BATCHES, { model: MODEL, items: items(1) })).status).toBe(200);
      await ready(one);
      await ready(worker);
      expect((await worker.ask("/metrics")).status).toBe(200);
      expect((await worker.ask(BATCHES)).status).toBe(404);
      expect([one.credentials, one.credentialsFile, worker.credentials]).toEqual([null, null, null]);

      await ready(two);
      const told: ServiceEvent[] = [];
      one.feed.subscribe((event) => told.push(event));
      const id = await submit(two, 3);
      expect(await ended(one, id)).toMatchObject({ status: "completed", success_count: 3 });
      await expect
        .poll(() =>
          told.flatMap((event) => (event.type === "elsewhere" && event.batchId === id ? [event] : [])),
        )
        .not.toEqual([]);
      for (const api of [one, two]) {
        const zip = await api.ask(`${BATCHES}/${id}/download`);
        expect([zip.status, (await zip.arrayBuffer()).byteLength > 300]).toEqual([200, true]);
      }
      expect([...fake.objects.keys()].filter((key) => key.includes(`/outputs/${id}/`))).toHaveLength(3);
      expect((await admin.check()).problems).toEqual([]);
    },
  );

  it("[ROLE-2] a batch that is taken while no workers run says so, is counted, and is made once one starts", async () => {
    const { start } = await shared({ config: { features: { acceptWithoutWorkers: true } } });
    const api = await start("api");
    await ready(api);
    const id = await submit(api, 2);
    const waiting = { code: "NO_WORKERS", message: "The workers are not running.", until: null };
    expect(await api.json(`${BATCHES}/${id}`)).toMatchObject({ status: "queued", waiting });
    const counts = async () => {
      const lines = (await (await api.ask("/metrics")).text()).split("\n");
      return lines.filter((line) => /^imgbatch_(batches\{status="queued"|workers_running)/.test(line));
    };
    expect((await counts()).sort()).toEqual([
      'imgbatch_batches{status="queued"} 1',
      "imgbatch_workers_running 0",
    ]);
    await start("worker");
    expect(await ended(api, id)).toMatchObject({ status: "completed", success_count: 2, waiting: null });
    await expect.poll(counts).toContain("imgbatch_workers_running 1");
    expect(await counts()).toContain('imgbatch_batches{status="queued"} 0');
  });

  it("a batch that one cancels stops in the other", async () => {
    const { provider, start, admin } = await shared();
    const [_worker, api] = [await start("worker"), await start("api")];
    let aborted = 0;
    provider.answer = (_request, signal) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => {
          aborted++;
          reject(signal.reason);
        }),
      );
    await ready(api);
    const id = await submit(api, 2);
    await expect.poll(() => provider.running).toBe(2);
    const passedMs = stopwatch();
    expect(await (await api.post(`${BATCHES}/${id}/cancel`, {})).json()).toMatchObject({
      status: "cancelled",
    });
    await expect.poll(() => aborted).toBe(2);
    // Two seconds, and what a busy machine adds.
    expect(passedMs()).toBeLessThan(8000);
    expect((await admin.check()).problems).toEqual([]);
  });

  it("a request with an idempotency key is made once, whichever of them gets it", async () => {
    const { provider, start, admin } = await shared();
    const [one, two] = [await start("api"), await start("api")];
    const may = gate();
    provider.answer = madeAfter(may);
    const key = { "idempotency-key": "twice-sent" };
    const answers = [one, two].map((api) => api.post(GENERATE, wanted, key));
    await expect.poll(() => provider.running).toBe(1);
    await sleep(400);
    may.open();
    const [first, second] = await Promise.all(answers);
    const bodies = [await first?.text(), await second?.text()];
    expect([first?.status, second?.status, bodies[0] === bodies[1], provider.requests.length]).toEqual([
      200,
      200,
      true,
      1,
    ]);
    const charged = (await admin.ledger({})).filter(({ kind }) => kind === "capture");
    expect(charged).toHaveLength(1);
  });

  it("the limits of a key count over all of them", async () => {
    const config = { limits: { concurrentRequests: 1, requestsPerMinute: 3 } };
    const { provider, start } = await shared({ config });
    const [one, two] = [await start("api"), await start("api")];
    const may = gate();
    provider.answer = madeAfter(may);
    const running = one.post(GENERATE, wanted);
    await expect.poll(() => provider.running).toBe(1);
    const busy = await two.post(GENERATE, wanted);
    expect([busy.status, await busy.text()]).toEqual([429, expect.stringContaining("1 are allowed at once")]);
    may.open();
    expect((await running).status).toBe(200);
    expect((await two.post(GENERATE, wanted)).status).toBe(200);
    expect((await one.post(GENERATE, wanted)).status).toBe(200);
    const late = await two.post(GENERATE, wanted);
    expect([late.status, await late.text()]).toEqual([429, expect.stringContaining("3 requests a minute")]);
  });

  it("a person who signs in with one is known to the others until the sign-out", async () => {
    const { start } = await shared();
    const [one, two] = [await start("api"), await start("api")];
    const { code } = await one.json("/v1/console/codes", { method: "POST" });
    const signIn = (api: Process) => api.ask("/v1/console/sessions", { method: "POST" }, code);
    const signed = await signIn(two);
    expect(signed.status).toBe(200);
    const { token } = (await signed.json()) as { token: string };
    watchSecret(token);
    const again = await signIn(one);
    expect([again.status, await again.text()]).toEqual([401, expect.stringContaining("A code works once")]);
    expect((await one.ask("/v1/account", {}, token)).status).toBe(200);
    expect((await one.ask("/v1/console/session", { method: "DELETE" }, token)).status).toBe(204);
    expect((await two.ask("/v1/account", {}, token)).status).toBe(401);
  });

  it("the chunks of an upload may come to any of them", async () => {
    const { start, fake } = await shared();
    const [one, two] = [await start("api"), await start("api")];
    const begun = await one.ask("/upload/v1beta/files", {
      method: "POST",
      headers: {
        "x-goog-upload-protocol": "resumable",
        "x-goog-upload-command": "start",
        "x-goog-upload-header-content-length": "9",
        "x-goog-upload-header-content-type": "text/plain",
      },
      body: JSON.stringify({ file: { displayName: "d" } }),
    });
    await begun.arrayBuffer();
    const atOne = begun.headers.get("x-goog-upload-url") ?? "";
    const atTwo = atOne.replace(one.url, two.url);
    await send(atOne, "upload", 0, "abc");
    await send(atTwo, "upload", 3, "def");
    const asked = await send(atOne, "query");
    expect(asked.headers.get("x-goog-upload-size-received")).toBe("6");
    const lost = await Promise.all([send(atOne, "upload", 6, "ghi"), send(atTwo, "upload", 6, "ghi")]);
    expect(lost.map(({ status }) => status).sort()[0]).toBe(200);
    const last = await send(atTwo, "finalize", null);
    const { file } = (await last.json()) as { file: { sizeBytes: string; sha256Hash: string; name: string } };
    expect(file.sizeBytes).toBe("9");
    const again = await send(atOne, "finalize", null);
    expect(((await again.json()) as { file: object }).file).toMatchObject({ name: file.name });
    const body = await one.ask(`/v1beta/${file.name}:download?alt=media`);
    expect(await body.text()).toBe("abcdefghi");
    expect([...fake.objects.keys()].filter((each) => each.includes("/uploads/"))).toEqual([]);
  });

  it.each([
    ["the first request", 0, 1],
    ["the repeat", 1, 0],
  ])("%s for a batch is overtaken at another one", async (_, slow, quick) => {
    const { start, fake, secret } = await shared();
    const [_worker, one, two] = [await start("worker"), await start("api"), await start("api")];
    await ready(one);
    await ready(two);
    const form = new FormData();
    form.append("purpose", "batch");
    form.append("file", new Blob([jsonl([line("a", "a fox")])]), "lines.jsonl");
    const sent = await fetch(`${one.url}/v1/files`, {
      method: "POST",
      body: form,
      headers: { authorization: `Bearer ${secret}` },
    });
    const body = { input_file_id: (await fileOf(sent)).id, endpoint: GENERATIONS, completion_window: "24h" };
    const create = async (api: Process, count: number) =>
      (await batchOf(await api.post("/v1/batches", body, { "x-stainless-retry-count": `${count}` }))).id;
    const isCopy = ({ method, key }: { method: string; key: string }) =>
      method === "PUT" && key.includes("inputs/");
    fake.fail({ slowMs: 1500 }, { when: isCopy });
    const late = create(one, slow);
    await expect.poll(() => fake.requests.filter(isCopy).length).toBe(1);
    const id = await create(two, quick);
    expect(await late).toBe(id);
    const list = (await one.json("/v1/batches")) as { data: { id: string }[] };
    expect(list.data.map((each) => each.id)).toEqual([id]);
    const copies = new Set([...fake.objects.keys()].filter((key) => key.endsWith("/lines")));
    expect(copies.size).toBeLessThanOrEqual(1);
    const [again, third] = [await create(one, 0), await create(two, 0)];
    expect(new Set([id, again, third]).size).toBe(3);
  });

  it("one that stops says for half of its grace that it is not ready, and answers, before it closes its port", async () => {
    const { start } = await shared();
    const api = await start("api");
    const startMs = performance.now();
    const closed = api.close(9600);
    const [ready, answer] = await Promise.all([api.ask("/readyz"), api.ask("/v1/account")]);
    expect([ready.status, answer.status, answer.headers.get("connection")]).toEqual([503, 200, "close"]);
    await expect.poll(() => api.ask("/readyz").catch(() => null)).toBeNull();
    expect(performance.now() - startMs).toBeGreaterThan(4790);
    await closed;
    const watched = await start("api");
    const passedMs = stopwatch();
    const atOnce = watched.close(100_000, false);
    await expect.poll(() => watched.ask("/readyz").catch(() => null)).toBeNull();
    // It would answer for five seconds.
    expect(passedMs()).toBeLessThan(4000);
    await atOnce;
  });

  it("a process that stops gives back its work, and another goes on with it at once", async () => {
    const { provider, start, admin } = await shared();
    const [first, api] = [await start("worker"), await start("api")];
    await ready(api);
    provider.answer = (_request, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const id = await submit(api, 2);
    await expect.poll(() => provider.running).toBe(2);
    await start("worker");
    provider.answer = async () => made(await tinyPng());
    const passedMs = stopwatch();
    await first.close(0);
    expect(await ended(api, id)).toMatchObject({ status: "completed", success_count: 2 });
    // A process that has died is noticed after seven seconds.
    expect(passedMs()).toBeLessThan(6500);
    expect((await admin.check()).problems).toEqual([]);
  });
});
